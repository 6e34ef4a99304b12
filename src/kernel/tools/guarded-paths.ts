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
 * Names that make a program obey what a project holds when a person enters the folder, opens it in an editor or calls a
 * version control system, by who obeys them. They are guarded in every folder; a trailing slash marks a folder. The one
 * table for file tools, worktrees and the sandbox, which leaves none of them new in a project's root.
 */
const TRAPS: Readonly<Record<string, string>> = {
  git: '.git/ git~1/ .gitattributes .gitmodules .gitconfig',
  'a repository inside of git': 'commondir',
  'git hooks': '.husky/ .githooks/ .lefthook/ lefthook.yml .lefthook.yml .pre-commit-config.yaml',
  Mercurial: '.hg/ .hgrc',
  Jujutsu: '.jj/',
  Sapling: '.sl/',
  Subversion: '.svn/',
  Bazaar: '.bzr/',
  Darcs: '_darcs/',
  Pijul: '.pijul/',
  'an editor':
    '.vscode/ .vs/ .idea/ .run/ .zed/ .fleet/ .vim/ .nvim/ .helix/ .kakoune/ .nova/ .exrc .vimrc _vimrc _exrc .nvimrc .lvimrc _lvimrc .nvim.lua .vimspector.json .local.vimrc .dir-locals.el .dir-locals-2.el .ycm_extra_conf.py .projections.json .kakrc',
  'development containers': '.devcontainer/ .devcontainer.json',
  'an agent':
    '.claude/ .claude.json .cursor/ .codex/ .gemini/ .opencode/ opencode.json opencode.jsonc .windsurf/ .kiro/ .pi/ .omp/ .roo/ .roomodes .cline/ .clinerules/ .continue/ .amp/ .amazonq/ .augment/ .qwen/ .trae/ .junie/ .crush/ .crush.json crush.json .goose/ .factory/ .aider.conf.yml .copilot/ .agent/ .agents/ .mcp.json',
  'a shell environment':
    '.direnv/ .mise/ .mise.toml mise.toml .mise.local.toml mise.local.toml .envrc .autoenv .autoenv.zsh .in .out .devenv/ .flox/ .devbox/',
  'a shell':
    '.profile .login .logout .kshrc .cshrc .tcshrc .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile .zlogin .zlogout .inputrc',
  'a package manager':
    '.cargo/ .npmrc .yarnrc .yarnrc.yml .yarn/ .pnpmfile.cjs .pnpmfile.js .pnpmfile.mjs .bunfig.toml .bundle/ .mvn/',
  'a terminal multiplexer': '.tmux.conf .tmuxinator/ .tmuxinator.yml .screenrc',
  'a debugger': '.gdbinit .lldbinit .pdbrc',
  SSH: '.ssh/',
};

/** Names that a fixed word cannot tell. */
const TRAP_PATTERNS: readonly (readonly [pattern: RegExp, owner: string])[] = [
  [/^\.(?:envrc|autoenv)\..+$/, 'a shell environment'],
  [/^\.?mise\..+\.toml$/, 'a shell environment'],
  [/^.+\.(?:code-workspace|sublime-project|sublime-workspace)$/, 'an editor'],
];

/** The owner by name: `name` for what is obeyed as a file or a folder, `name/` for folders alone. */
const OWNERS: ReadonlyMap<string, string> = new Map(
  Object.entries(TRAPS).flatMap(([owner, names]) =>
    names.split(' ').map((name) => [name.replace(/\/$/, ''), owner] as const),
  ),
);

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

/**
 * Names with a leading dot that may be new in a project's root: files that only name files to ignore or how text
 * looks, settings that cannot name a program, output of builds, and what a forge runs on its own machines. Everything else there
 * is some program's configuration, and vendors invent new ones every month.
 */
const PLAIN_NAMES = new RegExp(
  `^\\.(?:${[
    'ai|config|github|gitlab|gitlab-ci\\.yml|circleci|travis\\.yml',
    '[a-z]+ignore|gitkeep|keep|nojekyll|mailmap|editorconfig|env\\.(?:example|sample|template|dist)',
    'markdownlint\\.(?:jsonc?|ya?ml)|markdownlintrc|yamllint(?:\\.ya?ml)?|clang-format|rustfmt\\.toml|nvmrc|node-version',
    'cache|parcel-cache|turbo|next|nuxt|output|svelte-kit|astro|vite|vitepress|docusaurus|angular|expo|gradle',
    'venv|tox|nox|pytest_cache|mypy_cache|ruff_cache|hypothesis|ipynb_checkpoints|coverage(?:\\..+)?|nyc_output',
    'eslintcache|stylelintcache|tsbuildinfo|sass-cache|jekyll-cache|build|dist|tmp|temp|ds_store',
  ].join('|')})$`,
);

/** Names in `.github` and `.gitlab` that their forge alone reads; beside them are folders of agents, such as `hooks`. */
const FORGE_PLAIN =
  /^(?:workflows|actions|issue_template|pull_request_template|discussion_template|linters|scripts|codeowners|dependabot\.ya?ml|release\.ya?ml|labeler\.ya?ml|funding\.yml|stale\.yml|merge_request_templates|issue_templates|.+\.md)$/;

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
    const owner = OWNERS.get(segment) ?? TRAP_PATTERNS.find(([one]) => one.test(segment))?.[1];
    if (owner !== undefined) return trap(owner);
    if (segment === '.config' && CONFIG_FOLDERS.has(segments[index + 1] ?? ''))
      return trap('a session');
    if (segment === '.cache' && segments[index + 1] === 'rye') return trap('rye');
  }
  return undefined;
}

/**
 * The guard over a path whose first name would be new in the root of a project and could be a trap that the table does not
 * know yet; undefined for an ordinary name. `isThere` tells whether an entry of the root exists.
 */
export function newNameGuard(
  real: string,
  root: string,
  isThere: (name: string) => boolean,
): Guard | undefined {
  const [first = '', second = ''] = relative(root, real).split(sep);
  const [name = '', below = ''] = foldedSegments(real, root);
  const isOfForge = name === '.github' || name === '.gitlab';
  const isPlain = isOfForge ? below === '' || FORGE_PLAIN.test(below) : isPlainName(name);
  if (isPlain || isThere(isOfForge ? join(first, second) : first)) return undefined;
  return trap('a program');
}

/** True for a name in a project's root that sets no trap with any content. */
function isPlainName(name: string): boolean {
  return !name.startsWith('.') || PLAIN_NAMES.test(name.toLowerCase());
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
