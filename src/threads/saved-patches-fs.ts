import { readFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { makeFolders } from '../disk/folders.ts';
import { writeWhole } from '../disk/whole-file.ts';
import { sha256Hex } from '../trust/keys.ts';
import type { ThreadFiles } from './ports.ts';

export interface SavedPatchesOptions {
  readonly projectPath: string;
  readonly folder: (threadId: string) => string;
  readonly assertPlace: (path: string) => void;
  readonly send: (threadId: string, name: string, bytes: Uint8Array) => Promise<void>;
}

/**
 * The patches of worktrees whose threads move between machines. The log names the newer one of two, so that a crash between
 * both writes loses none.
 */
export function savedPatches({
  projectPath,
  folder,
  assertPlace,
  send,
}: SavedPatchesOptions): Pick<ThreadFiles, 'writeSaved' | 'savedPatch'> {
  return {
    writeSaved: async (threadId, slot, bytes) => {
      const name = `artifacts/worktree-${slot}.patch`;
      await send(threadId, name, bytes);
      const path = join(folder(threadId), name);
      assertPlace(path);
      makeFolders(dirname(path));
      writeWhole(path, bytes, { follow: false });
      return relative(projectPath, path);
    },
    savedPatch: async (threadId, { patch, sha256 }) => {
      const path = join(folder(threadId), 'artifacts', basename(patch));
      const bytes = await readFile(path).catch(() => undefined);
      if (bytes && sha256Hex(bytes) === sha256) return relative(projectPath, path);
      const what = `${patch} of ${threadId} is not the one that its log names`;
      throw new RyeError('thread_tampered', what, {
        hint: 'It was changed or removed. Without it the thread cannot continue: start it again.',
        location: { path },
      });
    },
  };
}
