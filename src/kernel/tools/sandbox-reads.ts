import { type Dirent, existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { basename, delimiter, dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { CREDENTIALS } from './credentials.ts';
import type { DeniesRead } from './deny-read.ts';

/** Files that only root can read; rye may run as root. */
const SYSTEM_SECRETS = [
  '/etc/shadow',
  '/etc/shadow-',
  '/etc/gshadow',
  '/etc/gshadow-',
  '/etc/sudoers',
  '/etc/sudoers.d',
  '/etc/ssl/private',
];

/** Folders of a home that hold more than programs: of these only what is on PATH, and what it needs, may be read. */
const MIXED = new Set(['.local', '.config', '.cache', '.ssh', '.gnupg', '.aws', 'Library']);
const LOCAL_PROGRAMS = ['.local/lib', '.local/share/uv', '.local/share/pipx', '.local/share/mise'];

/** Without the name and address in them, git makes no commit. */
const GIT_SETTINGS = [
  '.gitconfig',
  '.config/git/config',
  '.config/git/ignore',
  '.config/git/attributes',
];

export interface ReadScope {
  readonly projectPath: string;
  readonly userSpacePath: string;
  /** Folders of a home that may be read, relative to it or absolute. */
  readonly allowCaches: readonly string[];
  readonly allowPaths: readonly string[];
  /** True for what no command may read. */
  readonly denies?: DeniesRead | undefined;
  /** The folder that rye is installed in. */
  readonly programPath: string;
  /** `PATH` and `HOME` are read. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The paths that confined commands can't read, and the exceptions. Only those that exist, in any order. */
export interface ReadRules {
  /** Homes: only `allow` is readable in them. */
  readonly hidden: readonly string[];
  readonly allow: readonly string[];
  /** Files and folders that stay unreadable wherever they lie. */
  readonly secret: readonly string[];
}

/**
 * Denies every home: that of the account, of `HOME` and of the user space. In a home the project, the program folders on
 * `PATH`, the items of the user and the named caches stay readable; credentials never do.
 */
export function readRules(scope: ReadScope): ReadRules {
  const { projectPath, userSpacePath, allowCaches, allowPaths, env } = scope;
  const homes = homesOf(scope);
  // a project that is a home, or holds one, can't be read without it: there only the known credentials are denied
  const hidden = homes.filter((home) => !isWithin(home, realPath(projectPath)));
  // what a command can write, such as a link among the project's programs, must not open a folder to the next one
  const written = [projectPath, ...allowPaths];
  const programs = (env['PATH'] ?? '')
    .split(delimiter)
    .filter((path) => isAbsolute(path) && !written.some((folder) => isWithin(path, folder)));
  const allow = hidden.flatMap((home) => [
    ...programs.flatMap((path) => programFolders(home, path)),
    ...[...GIT_SETTINGS, ...allowCaches].map((name) =>
      isAbsolute(name) ? name : join(home, name),
    ),
  ]);
  const own = [
    dirname(process.execPath),
    ...installation(scope.programPath),
    join(userSpacePath, '.ai'),
    ...allowPaths,
    ...repositoryOf(projectPath),
    projectPath,
  ];
  const credentials = homes.flatMap((home) => CREDENTIALS.map((name) => join(home, name)));
  return {
    hidden: existing(hidden),
    secret: existing([...credentials, ...SYSTEM_SECRETS, ...deniedIn(scope)]),
    allow: existing([...allow, ...own]).filter((path) =>
      hidden.some((home) => isWithin(path, home)),
    ),
  };
}

/** Entries of a project that are looked at for each command. */
const MAX_ENTRIES = 5000;
const UNSEARCHED = new Set(['node_modules', '.git', '.ai']);

/** Finds what a project has that no command may read, without the folders of packages, up to a bound. */
function deniedIn({ projectPath, denies }: ReadScope): readonly string[] {
  if (!denies) return [];
  const project = realPath(projectPath);
  const found: string[] = [];
  const folders = [project];
  let looked = 0;
  for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
    for (const entry of entriesOf(folder)) {
      looked += 1;
      if (looked > MAX_ENTRIES) return found;
      const path = join(folder, entry.name);
      if (denies(path, project)) found.push(path);
      else if (entry.isDirectory() && !UNSEARCHED.has(entry.name)) folders.push(path);
    }
  }
  return found;
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return [];
  }
}

/** Returns git's folder of a project that is a worktree of another one, if that one knows it: a project can name any folder. */
function repositoryOf(projectPath: string): readonly string[] {
  const file = join(projectPath, '.git');
  try {
    const own = /^gitdir: (.+)/.exec(readFileSync(file, 'utf8'))?.[1] ?? '';
    const folder = resolve(projectPath, own);
    const back = readFileSync(join(folder, 'gitdir'), 'utf8').trim();
    return realPath(resolve(folder, back)) === realPath(file)
      ? [resolve(folder, readFileSync(join(folder, 'commondir'), 'utf8').trim())]
      : [];
  } catch {
    return []; // no worktree
  }
}

/** A package's dependencies are in it, or beside it in a common `node_modules`. */
function installation(programPath: string): readonly string[] {
  const beside = dirname(programPath);
  return basename(beside) === 'node_modules' ? [programPath, beside] : [programPath];
}

function homesOf({ userSpacePath, env }: ReadScope): readonly string[] {
  const named = [userSpacePath, env['HOME'], homedir(), accountFolder()];
  const homes = named.filter((path): path is string => path !== undefined && isAbsolute(path));
  return [...new Set(homes.map(realPath))].filter((home) => home !== sep);
}

function accountFolder(): string | undefined {
  try {
    return userInfo().homedir;
  } catch {
    return undefined; // an account without an entry
  }
}

/** The folders of a home that programs of one folder of PATH need, such as `~/.pyenv` for `~/.pyenv/shims`. */
function programFolders(home: string, onPath: string): readonly string[] {
  const path = realPath(onPath);
  if (!isWithin(path, home) || path === home) return [];
  const [top = ''] = path.slice(home.length + 1).split(sep);
  if (!MIXED.has(top)) return [join(home, top)];
  return [path, ...(top === '.local' ? LOCAL_PROGRAMS.map((name) => join(home, name)) : [])];
}

function existing(paths: readonly string[]): readonly string[] {
  return [...new Set(paths)].filter((path) => existsSync(path));
}

export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder + sep);
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
