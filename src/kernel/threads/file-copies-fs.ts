import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { makeFolders } from '../disk/folders.ts';
import { createWhole } from '../disk/whole-file.ts';
import { sha256Hex } from '../trust/keys.ts';

/** Copies of files that a thread's tools changed, by the hash of their content. */
export interface FileCopies {
  /** Stores a copy durably. Resolves to why none is kept; undefined if one is there. */
  keep(threadId: string, bytes: Uint8Array): Promise<string | undefined>;
  /** Reads a copy; undefined if there is none. A copy that does not match its hash is refused with `part_outdated`. */
  read(threadId: string, sha256: string): Uint8Array | undefined;
  /** Hashes and sizes in bytes of a thread's copies. */
  list(threadId: string): readonly FileCopy[];
  remove(threadId: string, sha256: string): Promise<void>;
}

export interface FileCopy {
  readonly sha256: string;
  readonly bytes: number;
}

/** Name of the folder of copies in a thread's folder. */
export const COPIES = 'copies';

/** The copies of one thread take no more than this. */
const MAX_THREAD_BYTES = 1024 * 1024 * 1024;

/** A copy may hold a secret, so that only its owner may read it. */
const PRIVATE = { folder: 0o700, file: 0o600 };

/** Opens the copies in the folders of threads. `own` refuses a path that leads through a symbolic link. */
export function openFileCopies(
  folder: (threadId: string) => string,
  own: (path: string) => Promise<void>,
): FileCopies {
  const sizes = new Map<string, number>();
  const folderOf = (threadId: string): string => join(folder(threadId), COPIES);
  const pathOf = (threadId: string, sha256: string): string => {
    if (!/^[0-9a-f]{64}$/.test(sha256)) {
      throw new RyeError('thread_tampered', `${JSON.stringify(sha256)} is not a hash of a copy`);
    }
    return join(folderOf(threadId), sha256);
  };
  const list = (threadId: string): readonly FileCopy[] => copiesIn(folderOf(threadId));
  return {
    keep: async (threadId, bytes) => {
      const path = pathOf(threadId, sha256Hex(bytes));
      const held = sizes.get(threadId) ?? total(list(threadId));
      sizes.set(threadId, held);
      if (holds(path, bytes.length)) return undefined;
      if (held + bytes.length > MAX_THREAD_BYTES) return 'the copies of the thread take 1 GiB';
      await own(path);
      makeFolders(folderOf(threadId), PRIVATE.folder);
      // a copy that was cut by hand would stay in the way
      rmSync(path, { force: true });
      createWhole(path, bytes, { mode: PRIVATE.file });
      sizes.set(threadId, held + bytes.length);
      return undefined;
    },
    read: (threadId, sha256) => {
      const path = pathOf(threadId, sha256);
      let bytes: Buffer;
      try {
        bytes = readFileSync(path);
      } catch (error) {
        if (systemCodeOf(error) === 'ENOENT') return undefined;
        throw error;
      }
      if (sha256Hex(bytes) === sha256) return bytes;
      throw new RyeError('part_outdated', `${path} does not match its hash: it was changed`, {
        hint: 'Nothing was restored. Use --force to restore the other files.',
        location: { path },
      });
    },
    list,
    remove: async (threadId, sha256) => {
      await rm(pathOf(threadId, sha256), { force: true });
      sizes.delete(threadId);
    },
  };
}

function holds(path: string, size: number): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats?.isFile() === true && stats.size === size;
}

function copiesIn(folder: string): readonly FileCopy[] {
  const names = namesIn(folder);
  return names.flatMap((name) => {
    const stats = statSync(join(folder, name), { throwIfNoEntry: false });
    return stats?.isFile() === true ? [{ sha256: name, bytes: stats.size }] : [];
  });
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).filter((name) => /^[0-9a-f]{64}$/.test(name));
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return [];
    throw error;
  }
}

function total(copies: readonly FileCopy[]): number {
  return copies.reduce((sum, { bytes }) => sum + bytes, 0);
}
