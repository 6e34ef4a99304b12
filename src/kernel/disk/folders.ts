import { mkdirSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ignorePrivate } from './ignore-file.ts';
import type { FileSyncer } from './measured-sync.ts';
import { writeError } from './reasons.ts';
import { syncFolder, syncFolderBy } from './sync-folder.ts';

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

/** Creates a folder and its missing parents, and keeps what is private out of git. Returns the parents of all that were created. */
function parentsOfNew(path: string, mode?: number): readonly string[] {
  const wanted = resolve(path);
  const first = mkdirSync(wanted, { recursive: true, ...(mode === undefined ? {} : { mode }) });
  const parents: string[] = [];
  if (first === undefined) return parents;
  ignorePrivate(wanted, first);
  for (let made = wanted; made.length >= first.length; made = dirname(made)) {
    parents.push(dirname(made));
    if (made === dirname(made)) break;
  }
  return parents;
}
