import { type Dirent, lstatSync, realpathSync, type Stats } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import {
  foldedSegments,
  type Guard,
  type GuardedKind,
  guardOf,
  repositoryGuard,
} from './guarded-paths.ts';

/** The paths that file tools may use. All roots are absolute. */
export interface PathRules {
  readonly projectPath: string;
  /** Further folders, or files, that configuration opens. */
  readonly allow: readonly string[];
  /** The thread that asks: it may read its own artifacts. */
  readonly threadId: string;
  /** The folder of those artifacts if they are not in `projectPath`. */
  readonly artifacts?: string | undefined;
  /** Returns true if the thread holds the grant that lifts the guard of a kind; absent: it holds none. */
  readonly lifts?: ((kind: GuardedKind) => boolean) | undefined;
}

export type Access = 'read' | 'write';

/** A path whose links are resolved and which lies inside an allowed root. */
export interface ConfinedPath {
  /** Absolute, without symbolic links. */
  readonly real: string;
  /** The project's folder, absolute and without symbolic links. */
  readonly project: string;
  /** For people and models: relative to the project with forward slashes, absolute outside of it. */
  readonly shown: string;
  /** undefined: nothing is there yet. */
  readonly stats: Stats | undefined;
}

/**
 * Resolves a path as a model wrote it. Symbolic links of the deepest existing part are followed and the result
 * must lie in an allowed root; rye's state, its keys and everything that is neither a file nor a folder are
 * refused with `path_denied`. Asks the file system at once: a call takes microseconds, and its way to another thread
 * and back costs ten times as much.
 */
export async function confine(
  path: string,
  access: Access,
  rules: PathRules,
): Promise<ConfinedPath> {
  if (path === '') throw denied(path, 'it is empty');
  if (path.includes('\0')) throw denied(path, 'it contains a NUL character');
  const project = realpathSync.native(rules.projectPath);
  const real = realPathOf(path, resolve(project, path));
  if (access === 'read' && isArtifact(real, rules.artifacts)) {
    return { real, project, shown: shownPath(real, project), stats: statsOf(real) };
  }
  const root = rootOf(real, project, rules.allow);
  if (root === undefined) {
    throw denied(
      path,
      'it leads outside the project',
      'Use a path inside the project; other folders have to be allowed in the configuration.',
    );
  }
  const reason = protectedReason(real, project, access === 'read' ? rules.threadId : undefined);
  if (reason !== undefined) throw denied(path, reason);
  if (access === 'write') await assertUnguarded(path, real, root, project, rules.lifts);
  const stats = statsOf(real);
  const kind = stats === undefined ? undefined : specialKind(stats);
  if (kind !== undefined) throw denied(path, `it is ${kind}, not a file`);
  return { real, project, shown: shownPath(real, project), stats };
}

/**
 * Returns why this path is always refused, or undefined. `real` and `project` are real paths. Compared without letter case,
 * because some file systems do.
 */
export function protectedReason(
  real: string,
  project: string,
  readingThread: string | undefined,
): string | undefined {
  const inProject = isInside(real, project);
  const parts = foldedSegments(real, inProject ? project : sep);
  for (let index = 0; index < parts.length; index += 1) {
    if (parts[index] !== '.ai') continue;
    if (parts[index + 1] === 'config' && parts[index + 2] === 'keys') {
      return "it belongs to rye's keys";
    }
    if (parts[index + 1] === '.env') return "it belongs to rye's keys";
    if (parts[index + 1] === 'state' && !isOwnArtifact(real, project, readingThread)) {
      return "it belongs to rye's state";
    }
  }
  return undefined;
}

/** Refuses a write to what rye obeys, and to what runs programs when a person works in the folder. */
async function assertUnguarded(
  path: string,
  real: string,
  root: string,
  project: string,
  lifts: PathRules['lifts'],
): Promise<void> {
  const guard: Guard | undefined =
    guardOf(real, root, isInside(real, project)) ?? (await repositoryGuard(real, root));
  if (guard === undefined || lifts?.(guard.kind) === true) return;
  throw denied(
    path,
    guard.reason,
    `File tools do not write it. A person can, or can grant <execute><tool>rye/file-system/guarded/${guard.kind}</tool></execute> to the directive; no * includes that grant.`,
  );
}

function isArtifact(real: string, folder: string | undefined): boolean {
  if (folder === undefined) return false;
  const root = realPathIfThere(folder);
  return root !== undefined && isInside(real, root);
}

function isOwnArtifact(real: string, project: string, threadId: string | undefined): boolean {
  if (threadId === undefined) return false;
  return isInside(real, join(project, '.ai', 'state', 'threads', threadId, 'artifacts'));
}

/** True when `path` is `root` or below it; both absolute and normalized. */
export function isInside(path: string, root: string): boolean {
  const rest = relative(root, path);
  return rest === '' || (rest !== '..' && !rest.startsWith(`..${sep}`) && !isAbsolute(rest));
}

/** A real path as tools print it. */
export function shownPath(real: string, project: string): string {
  if (!isInside(real, project)) return real;
  return relative(project, real).split(sep).join('/') || '.';
}

/** Refuses when a folder on the way was exchanged for a link since `real` was resolved. */
export async function assertStillReal(real: string, shown: string): Promise<void> {
  if (realPathIfThere(real) !== real) throw exchanged(shown);
}

/** Makes the error for a path that changed after it was resolved. */
export function exchanged(shown: string): RyeError {
  return denied(shown, 'it changed while it was being opened');
}

export function denied(path: string, reason: string, hint?: string): RyeError {
  return new RyeError('path_denied', `${JSON.stringify(path)} is refused: ${reason}`, { hint });
}

function rootOf(real: string, project: string, allow: readonly string[]): string | undefined {
  if (isInside(real, project)) return project;
  for (const folder of allow) {
    const root = realPathIfThere(folder);
    if (root !== undefined && isInside(real, root)) return root;
  }
  return undefined;
}

function realPathIfThere(path: string): string | undefined {
  try {
    return realpathSync.native(path);
  } catch {
    return undefined;
  }
}

/** Real path of the deepest existing ancestor, with the parts that do not exist yet appended. */
function realPathOf(path: string, absolute: string): string {
  const missing: string[] = [];
  for (let current = absolute; ; current = dirname(current)) {
    try {
      return join(realpathSync.native(current), ...missing);
    } catch (error) {
      const code = systemCodeOf(error);
      if (code === 'ENOTDIR') throw notFound(path, 'a part of it is a file, not a folder');
      if (code !== 'ENOENT') throw denied(path, unresolvable(code));
      if (isLink(current)) throw denied(path, 'it is a symbolic link to nothing');
      missing.unshift(basename(current));
    }
  }
}

function unresolvable(code: string | undefined): string {
  if (code === 'ELOOP') return 'its symbolic links form a loop';
  if (code === 'ENAMETOOLONG') return 'it is too long';
  if (code === 'EACCES') return 'the operating system does not permit it';
  return `it cannot be resolved (${code ?? 'unknown error'})`;
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink();
  } catch {
    return false;
  }
}

function statsOf(real: string): Stats | undefined {
  return lstatSync(real, { throwIfNoEntry: false });
}

/** Names the kind of a special file; undefined for a file or folder. */
export function specialKind(stats: Stats): string | undefined {
  if (stats.isFile() || stats.isDirectory()) return undefined;
  if (stats.isFIFO()) return 'a named pipe';
  if (stats.isSocket()) return 'a socket';
  if (stats.isSymbolicLink()) return 'a symbolic link';
  return 'a device';
}

export function notFound(path: string, reason: string, hint?: string): RyeError {
  return new RyeError('file_not_found', `${JSON.stringify(path)}: ${reason}`, { hint });
}

/** Folders that searches skip unless they start inside one. */
export const IGNORED_FOLDERS: ReadonlySet<string> = new Set(['.git', 'node_modules']);

/** The folder of thread exports, below a project: exports repeat the results of earlier searches. */
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
 * the root. Symbolic links are not followed, unreadable folders are skipped, memory is one folder per level.
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
      const path = next.relative === '' ? entry.name : `${next.relative}/${entry.name}`;
      pending.push({ real, relative: path, file: entry.isFile() });
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
