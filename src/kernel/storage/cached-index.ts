import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  realpathSync,
  type Stats,
  utimesSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../core/clock.ts';
import { discardDatabase } from './sqlite/database.ts';
import { INDEX_MIGRATIONS, SqliteSearchIndex } from './sqlite/search-index.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const OTHERS_WRITE = 0o022;
const OTHERS = 0o077;
const OLD_MS = 30 * 86_400_000;
const { O_CREAT, O_NOFOLLOW, O_RDWR } = constants;

interface ProjectIndexOptions {
  readonly projectPath: string;
  readonly env?: Environment | undefined;
  readonly clock: Clock;
}

/**
 * The index of a project, in its `.ai/state`. A project without that folder has it in the user's cache; one without knowledge
 * has too little to keep, and so has it in memory.
 */
export function projectIndex({
  projectPath,
  env = {},
  clock,
}: ProjectIndexOptions): SqliteSearchIndex {
  return new SqliteSearchIndex({
    path: indexPath(projectPath),
    elsewhere: () =>
      existsSync(join(projectPath, '.ai', 'knowledge'))
        ? cachedIndex(projectPath, env, clock.now())
        : undefined,
  });
}

export function indexPath(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'index.db');
}

/**
 * Makes the file for the index of a project that keeps no state, below `$XDG_CACHE_HOME/rye` or `~/.cache/rye`, and removes
 * files that no search has used for 30 days. Returns undefined unless this user alone can read and write the file.
 */
function cachedIndex(projectPath: string, env: Environment, now: number): string | undefined {
  const { XDG_CACHE_HOME: caches, HOME: home } = env;
  const folder = caches?.startsWith('/')
    ? join(caches, 'rye', 'search')
    : join(home ?? '', '.cache', 'rye', 'search');
  if (!folder.startsWith('/') || process.getuid === undefined) return undefined;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const stats = lstatSync(folder);
    if (!stats.isDirectory() || !isOwn(stats, OTHERS_WRITE)) return undefined;
    const project = createHash('sha256').update(realpathSync(projectPath)).digest('hex');
    const file = join(folder, `${project.slice(0, 32)}-${INDEX_MIGRATIONS.length}.db`);
    if (!isPrivate(file)) return undefined;
    const time = new Date(now);
    utimesSync(file, time, time);
    removeOld(folder, now);
    return file;
  } catch {
    return undefined;
  }
}

function isOwn({ uid, mode }: Stats, others: number): boolean {
  return uid === process.getuid?.() && (mode & others) === 0;
}

/** True if a file, made if it is missing, is of this user alone. */
function isPrivate(file: string): boolean {
  const descriptor = openSync(file, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  try {
    const stats = fstatSync(descriptor);
    return stats.isFile() && isOwn(stats, OTHERS);
  } finally {
    closeSync(descriptor);
  }
}

function removeOld(folder: string, now: number): void {
  for (const name of readdirSync(folder)) {
    if (!name.endsWith('.db')) continue;
    const file = join(folder, name);
    const used = lstatSync(file, { throwIfNoEntry: false })?.mtimeMs ?? now;
    if (used < now - OLD_MS) discardDatabase(file);
  }
}
