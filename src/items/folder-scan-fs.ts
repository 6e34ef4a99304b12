import { type Dirent, lstatSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What differs between a tree of folders and what an index remembers of it. */
export interface FolderScan {
  /** Files that stand directly in new and changed folders. */
  readonly files: readonly string[];
  /** New and changed folders with the modification time to remember. */
  readonly changed: ReadonlyMap<string, number>;
  /** Folders that are remembered and no longer there. */
  readonly gone: readonly string[];
}

/** A folder changed this short a time ago may change again within the same tick of its clock. */
const SETTLED_MS = 2000;
/** Remembered for such a folder: no folder has it, so that the next scan looks again. */
const UNSETTLED = -1;

/**
 * Finds the folders below `root` that gained, lost or replaced a file since they were remembered; costs one `lstat`
 * for each folder, none for the files. For trees whose files are only ever replaced as a whole, such as thread
 * exports: a file that is edited in place changes no folder.
 */
export function scanFolders(
  root: string,
  known: ReadonlyMap<string, number>,
  nowMs: number,
): FolderScan {
  const children = new Map<string, string[]>();
  for (const path of known.keys()) {
    const parent = dirname(path);
    children.set(parent, [...(children.get(parent) ?? []), path]);
  }
  const files: string[] = [];
  const changed = new Map<string, number>();
  const present = new Set<string>();
  const waiting = [root];
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    const stats = lstatSync(folder, { throwIfNoEntry: false });
    if (stats === undefined || !stats.isDirectory()) continue;
    present.add(folder);
    if (known.get(folder) === stats.mtimeMs) {
      waiting.push(...(children.get(folder) ?? []));
      continue;
    }
    changed.set(folder, nowMs - stats.mtimeMs < SETTLED_MS ? UNSETTLED : stats.mtimeMs);
    for (const entry of entriesOf(folder)) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) waiting.push(path);
      else if (entry.isFile()) files.push(path);
    }
  }
  return { files, changed, gone: [...known.keys()].filter((path) => !present.has(path)) };
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return []; // gone or unreadable since: the next scan sees it
  }
}
