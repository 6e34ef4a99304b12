import { createHash } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import { makeFolders, writeWhole } from '../../disk/whole-file.ts';

/**
 * Keeps a text that is too long for a line of the log at `path`, durably and by its hash, so that the same text is kept once.
 * Returns where it is, from the project's root.
 */
export function saveArtifact(path: string, threadId: string, text: string): string {
  const folder = join(dirname(path), 'artifacts');
  makeFolders(folder, 0o700);
  if (lstatSync(folder).isSymbolicLink()) {
    throw new RyeError('path_denied', `nothing is written to ${folder}: it is a symbolic link`, {
      hint: 'Remove the link; rye makes its own files and folders.',
      location: { path: folder },
    });
  }
  const name = `text-${createHash('sha256').update(text).digest('hex').slice(0, 32)}.txt`;
  writeWhole(join(folder, name), text, { mode: 0o600, follow: false });
  return `.ai/state/threads/${threadId}/artifacts/${name}`;
}
