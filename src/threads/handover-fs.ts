import { closeSync, constants, openSync } from 'node:fs';
import { mkdir, open, readFile, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';

const FILE = 'handover.json';

/**
 * Leaves a text for the process that will run the thread, readable by its owner alone: it may hold secrets. The file
 * appears whole.
 */
export async function leaveHandover(folder: string, text: string): Promise<void> {
  const path = join(folder, FILE);
  const partial = `${path}.partial`;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const file = await open(partial, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(partial, path);
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
