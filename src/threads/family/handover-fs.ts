import { closeSync, constants, openSync } from 'node:fs';
import { readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import { makeFolders, writeWhole } from '../../disk/whole-file.ts';

const FILE = 'handover.json';

/**
 * Leaves a text for the process that will run the thread, readable by its owner alone. The file appears whole.
 */
export function leaveHandover(folder: string, text: string): void {
  makeFolders(folder, 0o700);
  writeWhole(join(folder, FILE), text, { mode: 0o600, follow: false });
}

/** Reads what was left; `spawn_failed` when there is nothing to read. */
export async function readHandover(folder: string): Promise<string> {
  try {
    return await readFile(join(folder, FILE), 'utf8');
  } catch (error) {
    throw new RyeError(
      'spawn_failed',
      `what the thread was to run cannot be read: ${messageOf(error)}`,
      { hint: 'Its starter may have died before it was written: start the directive again.' },
    );
  }
}

/** Removes what was left, read or not. */
export async function removeHandover(folder: string): Promise<void> {
  try {
    await unlink(join(folder, FILE));
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') throw error;
  }
}

/** An open `spawn.log` that takes what a detached process prints; never through a link. */
export function openSpawnLog(folder: string): { readonly fd: number; close(): void } {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  const fd = openSync(join(folder, 'spawn.log'), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  return { fd, close: () => closeSync(fd) };
}
