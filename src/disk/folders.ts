import { closeSync, constants, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { systemCodeOf } from '../core/errors.ts';
import type { FileSyncer } from './measured-sync.ts';
import { writeError } from './reasons.ts';

/** Creates a folder and its missing parents durably. */
export function makeFolders(path: string, mode?: number): void {
  try {
    for (const parent of parentsOfNew(path, mode)) syncFolder(parent);
  } catch (error) {
    throw writeError(path, error);
  }
}

/** Like {@link makeFolders}, with syncs that may leave the main thread to others. */
export async function makeFoldersBy(syncer: FileSyncer, path: string): Promise<void> {
  try {
    for (const parent of parentsOfNew(path)) await syncFolderBy(parent, syncer);
  } catch (error) {
    throw writeError(path, error);
  }
}

/** Creates a folder and its missing parents. Returns the parents of all that were created. */
function parentsOfNew(path: string, mode?: number): readonly string[] {
  const wanted = resolve(path);
  const first = mkdirSync(wanted, { recursive: true, ...(mode === undefined ? {} : { mode }) });
  const parents: string[] = [];
  if (first === undefined) return parents;
  for (let made = wanted; made.length >= first.length; made = dirname(made)) {
    parents.push(dirname(made));
    if (made === dirname(made)) break;
  }
  return parents;
}

/** Syncs a folder: a new file name survives a power failure only after this. */
export function syncFolder(folder: string): void {
  // Windows cannot open folders
  if (process.platform === 'win32') return;
  try {
    withOpen(folder, constants.O_RDONLY, fsyncSync);
  } catch (error) {
    assertUnsyncable(error);
  }
}

/** Like {@link syncFolder}, with a sync that may leave the main thread to others. */
export async function syncFolderBy(folder: string, syncer: FileSyncer): Promise<void> {
  if (process.platform === 'win32') return;
  try {
    const fd = openSync(folder, constants.O_RDONLY);
    try {
      await syncer(fd);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    assertUnsyncable(error);
  }
}

/** A folder without read permission cannot be opened, and some file systems cannot sync folders. */
function assertUnsyncable(error: unknown): void {
  if (!['EACCES', 'EPERM', 'EINVAL', 'ENOTSUP'].includes(systemCodeOf(error) ?? '')) throw error;
}

/** Opens a file for `use`, and closes it. */
export function withOpen(path: string, flags: number, use: (fd: number) => void): void {
  const fd = openSync(path, flags);
  try {
    use(fd);
  } finally {
    closeSync(fd);
  }
}
