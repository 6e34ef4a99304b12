import type { Dirent } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { DeniesRead } from './deny-read.ts';
import { GitIgnore } from './git-ignore.ts';
import { isInside, protectedReason } from './paths.ts';

/** Folders that searches skip unless they start inside one. */
export const IGNORED_FOLDERS: ReadonlySet<string> = new Set(['.git', 'node_modules']);

/** The folder of thread exports, below a project: exports repeat the results of earlier searches. */
const EXPORTS_FOLDER = '.ai/knowledge/agent/threads';

/** True if a search that starts at `root` skips the exports of threads. Real paths. */
function skipsExports(root: string, project: string): boolean {
  return !isInside(root, join(project, EXPORTS_FOLDER));
}

export interface WalkOptions {
  /** Real path of the folder to walk. */
  readonly root: string;
  /** Real path of the project, to keep rye's state and keys out. */
  readonly project: string;
  readonly signal: AbortSignal;
  /** True for what must not be read; such files and folders are skipped. */
  readonly denies?: DeniesRead | undefined;
  /** Skips what git ignores, and calls this for each file and folder that is skipped so. Absent: nothing is skipped so. */
  readonly onIgnored?: (() => void) | undefined;
}

interface Pending {
  readonly real: string;
  readonly relative: string;
  readonly isFile: boolean;
  /** The rules of git for the folder that holds it. */
  readonly rules: GitIgnore | undefined;
}

/**
 * Yields the regular files below a folder, depth first and sorted by name, as real paths and as paths relative to
 * the root. Symbolic links are not followed, unreadable folders are skipped, memory is one folder per level.
 */
export async function* walkFiles(
  options: WalkOptions,
): AsyncGenerator<{ readonly real: string; readonly relative: string }, void> {
  const { root, project, signal, onIgnored } = options;
  const outer = onIgnored && GitIgnore.of(root, project);
  const pending: Pending[] = [{ real: root, relative: '', isFile: false, rules: outer }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (signal.aborted) return;
    if (next.isFile) {
      yield { real: next.real, relative: next.relative };
      continue;
    }
    const { real: folder, relative: way } = next;
    const entries = await entriesOf(folder);
    const rules = next.rules?.inside(folder, new Set(entries.map(({ name }) => name)));
    for (const entry of entries.toReversed()) {
      const real = join(folder, entry.name);
      if (!isSearched(entry, real, options)) continue;
      if (rules?.ignores(real, entry.isDirectory())) {
        onIgnored?.();
        continue;
      }
      const path = way === '' ? entry.name : `${way}/${entry.name}`;
      pending.push({ real, relative: path, isFile: entry.isFile(), rules });
    }
  }
}

async function entriesOf(folder: string): Promise<Dirent[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

function isSearched(entry: Dirent, real: string, { root, project, denies }: WalkOptions): boolean {
  if (denies?.(real, project)) return false;
  if (entry.isDirectory()) {
    return (
      !IGNORED_FOLDERS.has(entry.name) &&
      !(real === join(project, EXPORTS_FOLDER) && skipsExports(root, project)) &&
      protectedReason(real, project, undefined) === undefined
    );
  }
  return entry.isFile();
}
