import { lstat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';

/**
 * The kinds of guarded paths. A directive lifts the guard of one kind with the grant
 * `rye/file-system/guarded/<kind>`; rye's own state and keys have no kind, because nothing lifts their guard.
 */
export const GUARDED_KINDS = [
  'directives',
  'tools',
  'knowledge',
  'rules',
  'skills',
  'config',
  'traps',
] as const;
export type GuardedKind = (typeof GUARDED_KINDS)[number];

/** Why file tools do not write a path, as a clause about it. */
export interface Guard {
  readonly kind: GuardedKind;
  readonly reason: string;
}

const ITEM_FOLDERS: readonly GuardedKind[] = [
  'directives',
  'tools',
  'knowledge',
  'rules',
  'skills',
];

/**
 * Folders whose files run programs, or change which programs run, when a person enters the folder, opens it in an editor
 * or calls a version control system in it.
 */
const TRAP_FOLDERS: Readonly<Record<string, string>> = {
  '.git': 'git',
  'git~1': 'git',
  '.hg': 'Mercurial',
  '.jj': 'Jujutsu',
  '.sl': 'Sapling',
  '.svn': 'Subversion',
  '.bzr': 'Bazaar',
  _darcs: 'Darcs',
  '.pijul': 'Pijul',
  '.husky': 'git hooks',
  '.githooks': 'git hooks',
  '.vscode': 'an editor',
  '.idea': 'an editor',
  '.run': 'an editor',
  '.zed': 'an editor',
  '.fleet': 'an editor',
  '.vim': 'an editor',
  '.devcontainer': 'development containers',
  '.claude': 'an agent',
  '.cursor': 'an agent',
  '.codex': 'an agent',
  '.gemini': 'an agent',
  '.opencode': 'an agent',
  '.windsurf': 'an agent',
  '.kiro': 'an agent',
  '.direnv': 'a shell environment',
  '.mise': 'a shell environment',
  '.cargo': 'a package manager',
  '.ssh': 'SSH',
};

/** Folders below `.config` that are read when a session, a shell or git starts. */
const CONFIG_FOLDERS = new Set([
  'git',
  'fish',
  'mise',
  'direnv',
  'autostart',
  'systemd',
  'environment.d',
]);

/** Files that do the same, by their names. */
const TRAP_FILES: readonly (readonly [pattern: RegExp, owner: string])[] = [
  [/^\.git(?:attributes|modules|config)$/, 'git'],
  [/^commondir$/, 'git'],
  [/^\.hgrc$/, 'Mercurial'],
  [/^\.(?:envrc(?:\..*)?|autoenv(?:\..*)?)$/, 'a shell environment'],
  [/^\.?mise(?:\..*)?\.toml$/, 'a shell environment'],
  [
    /^\.(?:profile|login|logout|(?:k|c|tc)shrc|bash(?:rc|_profile|_login|_logout|_aliases))$/,
    'a shell',
  ],
  [/^\.(?:zshrc|zshenv|zprofile|zlogin|zlogout)$/, 'a shell'],
  [/^\.(?:npmrc|yarnrc(?:\.yml)?|pnpmfile\.c?js)$/, 'a package manager'],
  [/^\.mcp\.json$/, 'an agent'],
  [/^\.devcontainer\.json$/, 'development containers'],
  [/^.+\.code-workspace$/, 'an editor'],
  [/^\.(?:exrc|vimrc|nvimrc|lvimrc|nvim\.lua|dir-locals(?:-2)?\.el)$/, 'an editor'],
  [/^\.(?:gdbinit|lldbinit)$/, 'a debugger'],
];

/** The traps that a sandboxed command cannot make in the root of its project; each costs it a mount. */
export const ROOT_TRAPS: readonly string[] = [
  '.hg',
  '.jj',
  '.sl',
  '.husky',
  '.githooks',
  '.vscode',
  '.idea',
  '.devcontainer',
  '.claude',
  '.cursor',
  '.codex',
  '.cargo',
  '.envrc',
  '.mise.toml',
  'mise.toml',
  '.mcp.json',
  '.npmrc',
  '.gitattributes',
  '.gitmodules',
  '.exrc',
  '.nvim.lua',
  '.dir-locals.el',
];

/**
 * Segments of a path below `root` as a careless file system reads them: without letter case, compatibility forms,
 * invisible characters, alternate streams, and dots or spaces at the end.
 */
export function foldedSegments(real: string, root: string): readonly string[] {
  return relative(root, real).split(sep).map(folded);
}

function folded(segment: string): string {
  return segment
    .normalize('NFKC')
    .toLowerCase()
    .replaceAll(/[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u206a-\u206f\ufeff]/g, '')
    .replace(/:.*$/, '')
    .replace(/[. ]+$/, '');
}

/**
 * The guard over a path, decided by its name alone; undefined for ordinary files. `root` is the project, or the folder
 * that configuration opened; of a path outside the project `.ai` and `.git` count above `root` too.
 */
export function guardOf(real: string, root: string, isInProject: boolean): Guard | undefined {
  const segments = foldedSegments(real, root);
  const whole = isInProject ? segments : foldedSegments(real, sep);
  const own = whole.lastIndexOf('.ai');
  const item = own === -1 ? undefined : itemGuard(whole.slice(own + 1));
  if (item !== undefined) return item;
  if (whole.includes('.git')) return trap('git');
  for (const [index, segment] of segments.entries()) {
    const owner = Object.hasOwn(TRAP_FOLDERS, segment) ? TRAP_FOLDERS[segment] : undefined;
    if (owner !== undefined) return trap(owner);
    if (segment === '.config' && CONFIG_FOLDERS.has(segments[index + 1] ?? ''))
      return trap('a session');
  }
  const name = segments.at(-1) ?? '';
  const owner = TRAP_FILES.find(([pattern]) => pattern.test(name))?.[1];
  return owner === undefined ? undefined : trap(owner);
}

function trap(owner: string): Guard {
  return {
    kind: 'traps',
    reason: `${owner} reads it and can run programs that it names`,
  };
}

/**
 * The guard over a file below `.ai`: items, and what is configuration. Other folders there hold what directives made, such
 * as reports, and rye obeys nothing in them.
 */
function itemGuard([folder = '', ...rest]: readonly string[]): Guard | undefined {
  const kind = ITEM_FOLDERS.find((one) => one === folder);
  if (kind !== undefined) return { kind, reason: `it belongs to the ${kind} that rye obeys` };
  if (folder === 'signatures') return { kind: 'config', reason: 'it holds signatures of items' };
  return folder === 'config' || rest.length === 0
    ? { kind: 'config', reason: "it belongs to rye's configuration" }
    : undefined;
}

/** The three entries that make a folder a repository for git, in any order. */
const REPOSITORY = ['head', 'objects', 'refs'] as const;
/** Names that git obeys in such a folder. */
const OBEYED = new Set(['config', 'config.worktree', 'hooks', 'info']);

/**
 * The guard over a path that would complete a bare repository, or that lies in one: git takes any folder with `HEAD`,
 * `objects` and `refs` for a repository and runs programs that its `config` and `hooks` name. Two of the three are
 * enough to guard the names that git obeys.
 */
export async function repositoryGuard(real: string, root: string): Promise<Guard | undefined> {
  for (let below = real; below !== root && below !== dirname(below); below = dirname(below)) {
    const folder = dirname(below);
    const [name = ''] = foldedSegments(below, folder);
    const present = await repositoryParts(folder);
    const others = present.filter((part) => part !== name).length;
    const isPart = (REPOSITORY as readonly string[]).includes(name);
    if (present.length === REPOSITORY.length || (others >= 2 && (isPart || OBEYED.has(name)))) {
      return {
        kind: 'traps',
        reason: 'it would be part of a bare repository, and git runs programs that one names',
      };
    }
  }
  return undefined;
}

async function repositoryParts(folder: string): Promise<readonly string[]> {
  const there = await Promise.all(
    [...REPOSITORY, 'HEAD'].map(async (name) =>
      lstat(join(folder, name)).then(
        () => name.toLowerCase(),
        () => undefined,
      ),
    ),
  );
  return [...new Set(there.filter((name) => name !== undefined))];
}

/** True for a path with a name that could complete a repository: such writes run one by one. */
export function touchesRepository(real: string, root: string): boolean {
  return foldedSegments(real, root).some((segment) =>
    (REPOSITORY as readonly string[]).includes(segment),
  );
}
