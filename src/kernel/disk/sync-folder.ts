import { closeSync, constants, fsyncSync, openSync } from 'node:fs';
import { systemCodeOf } from '../core/errors.ts';
import type { FileSyncer } from './measured-sync.ts';

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
