import { lstatSync, realpathSync, type Stats } from 'node:fs';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { DeniesRead } from './deny-read.ts';
import {
  foldedSegments,
  type Guard,
  type GuardedKind,
  guardOf,
  newNameGuard,
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
  /** True for what tools must not read, see `tools.deny_read`; absent: everything may be read. */
  readonly denies?: DeniesRead | undefined;
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
  const stats = statsOf(real);
  // a tool that changes a file tells what is in it
  if ((access === 'read' || stats) && rules.denies?.(real, project)) throw unreadable(path);
  if (access === 'write') await assertUnguarded(path, real, root, project, rules.lifts);
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
    guardOf(real, root, isInside(real, project)) ??
    newNameGuard(real, root, (name) => statsOf(join(root, name)) !== undefined) ??
    (await repositoryGuard(real, root));
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

/** Makes the refusal of a path that `tools.deny_read` covers. */
function unreadable(path: string): RyeError {
  const hint =
    'It may hold secrets. A person can open it with a pattern such as "!NAME" under tools.deny_read of .ai/config/agent/resilience.yaml, and sign that.';
  return denied(path, 'tools.deny_read covers it', hint);
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
export function realPathOf(path: string, absolute: string): string {
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
