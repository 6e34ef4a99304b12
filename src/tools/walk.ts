import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isInside, protectedReason } from './paths.ts';

/** Folders that searches skip unless they start inside one. */
export const IGNORED_FOLDERS: ReadonlySet<string> = new Set(['.git', 'node_modules']);

/** Where rye exports threads, below a project: every run adds what earlier searches found. */
export const EXPORTS_FOLDER = '.ai/knowledge/agent/threads';

/** True if a search that starts at `root` skips the exports of threads. Real paths. */
export function skipsExports(root: string, project: string): boolean {
  return !isInside(root, join(project, EXPORTS_FOLDER));
}

export interface WalkOptions {
  /** Real path of the folder to walk. */
  readonly root: string;
  /** Real path of the project, to keep rye's state and keys out. */
  readonly project: string;
  readonly signal: AbortSignal;
}

/**
 * Yields the regular files below a folder, depth first and sorted by name, as real paths and as paths relative to
 * the root. Symbolic links are not followed, unreadable folders are passed over, memory is one folder per level.
 */
export async function* walkFiles(
  options: WalkOptions,
): AsyncGenerator<{ readonly real: string; readonly relative: string }, void> {
  const pending: { real: string; relative: string; file: boolean }[] = [
    { real: options.root, relative: '', file: false },
  ];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (options.signal.aborted) return;
    if (next.file) {
      yield { real: next.real, relative: next.relative };
      continue;
    }
    const entries = await entriesOf(next.real);
    for (const entry of entries.toReversed()) {
      const real = join(next.real, entry.name);
      if (!isSearched(entry, real, options)) continue;
      const relative = next.relative === '' ? entry.name : `${next.relative}/${entry.name}`;
      pending.push({ real, relative, file: entry.isFile() });
    }
  }
}

async function entriesOf(folder: string): Promise<Dirent[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function isSearched(entry: Dirent, real: string, { root, project }: WalkOptions): boolean {
  if (entry.isDirectory()) {
    return (
      !IGNORED_FOLDERS.has(entry.name) &&
      !(real === join(project, EXPORTS_FOLDER) && skipsExports(root, project)) &&
      protectedReason(real, project, undefined) === undefined
    );
  }
  return entry.isFile();
}
