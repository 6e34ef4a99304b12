import { existsSync, lstatSync } from 'node:fs';
import { lstat, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { join, relative, resolve, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../../kernel/core/errors.ts';
import type { ChangedFile, IsolationResult, PlannedWorktree } from '../../kernel/core/isolation.ts';
import { makeFolders } from '../../kernel/disk/folders.ts';
import { writeWhole } from '../../kernel/disk/whole-file.ts';
import { exclusively } from '../../kernel/tools/files.ts';
import {
  foreignRepository,
  type GitOptions,
  git,
  isOfOtherUser,
  tryGit,
  withoutFilters,
} from '../../kernel/tools/git.ts';

/** The changes of a worktree against its base. */
export interface CollectedChanges {
  /** Applies in the project's folder with `git apply`. */
  readonly patch: Buffer;
  readonly files: readonly CollectedFile[];
}

/** All changes of a worktree, and the paths that they omit. */
interface CollectedWorktree extends CollectedChanges {
  /** Relative to the project; a folder ends with a slash. */
  readonly leftOut: readonly string[];
}

/** One changed file; a mode is the one of git, `000000` for no file. */
export interface CollectedFile extends ChangedFile {
  readonly before: { readonly mode: string; readonly blob: string };
  readonly after: { readonly mode: string; readonly blob: string };
}

/** Files of one command, which takes a limited number of words. */
const HASHED_AT_ONCE = 200;

/** Folder of worktrees, relative to the project. */
const FOLDER = '.ai/state/worktrees';

export interface WorktreesOptions {
  readonly projectPath: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The git worktrees of a project's isolated threads. No program that the repository names is run. */
export class GitWorktrees {
  readonly #options: WorktreesOptions;

  constructor(options: WorktreesOptions) {
    this.#options = options;
  }

  /** Plans a worktree at the last commit. Throws `isolation_unavailable` if there is none. */
  async plan(id: string, result: IsolationResult): Promise<PlannedWorktree> {
    const { projectPath: cwd, env } = this.#options;
    const found = await tryGit(['rev-parse', '--show-prefix', '--show-toplevel'], { cwd, env });
    if (found.code !== 0) {
      if (isOfOtherUser(found.stderr))
        throw foreignRepository('isolation_unavailable', cwd, found.stderr);
      throw new RyeError('isolation_unavailable', `${cwd} is in no git repository`, {
        hint: 'Make one and commit: git init && git add -A && git commit. Or run without isolation.',
      });
    }
    const head = await tryGit(['rev-parse', '--verify', '--quiet', 'HEAD^{commit}'], { cwd, env });
    if (head.code !== 0) {
      throw new RyeError('isolation_unavailable', `the repository of ${cwd} has no commit yet`, {
        hint: 'A worktree begins at the last commit: commit first. Or run without isolation.',
      });
    }
    const [prefix = ''] = found.stdout.toString('utf8').split('\n');
    return { path: `${FOLDER}/${id}`, prefix, base: head.stdout.toString('utf8').trim(), result };
  }

  /**
   * Makes the worktree, or finds it again unless `isFresh` asks for a new one; `patch` is what was changed in it before, if it
   * was removed since.
   */
  async open(
    worktree: PlannedWorktree,
    patch?: string,
    { isFresh = false }: { readonly isFresh?: boolean } = {},
  ): Promise<void> {
    const root = this.#root(worktree);
    await this.#makeFolder();
    if (!isFresh && (await this.isMade(worktree))) return;
    await exclusively(FOLDER, async () => {
      const git0 = await this.#repository();
      await this.#discard(root, git0);
      const add = ['worktree', 'add', '--quiet', '--force', '--no-checkout', '--detach'];
      await git([...add, root, worktree.base], git0);
      await this.#checkOut(root, worktree.base);
      const work = join(root, worktree.prefix);
      makeFolders(work);
      if (patch !== undefined) {
        const file = resolve(this.#options.projectPath, patch);
        await git(['apply', '--whitespace=nowarn', file], this.#inside(git0, worktree));
      }
      writeWhole(readyFile(root), '');
    });
  }

  /** Writes the files with the settings that git reads in the worktree itself: `includeIf` can add filters to it alone. */
  async #checkOut(root: string, base: string): Promise<void> {
    // git has accepted the repository; the worktree in it is rye's own
    const settings = [['safe.directory', root]] as const;
    const inside = await withoutFilters({ cwd: root, env: this.#options.env, settings });
    await git(['read-tree', '--reset', '-u', base], inside);
  }

  /** True if the worktree is there as a whole: its making was not cut off. */
  async isMade(worktree: PlannedWorktree): Promise<boolean> {
    const root = this.#root(worktree);
    return existsSync(readyFile(root)) && (await isFolder(root));
  }

  /**
   * Compares the worktree with its base. Omits what git can't keep in a commit, such as files that it ignores, in a submodule
   * or in another repository, and names it.
   */
  async collect(worktree: PlannedWorktree): Promise<CollectedWorktree> {
    const options = await this.#indexed(worktree);
    const index = `${this.#root(worktree)}.index`;
    try {
      await rm(index, { force: true });
      await git(['read-tree', worktree.base], options);
      await addAll(options);
      const changes = await changesIn(options, worktree.base);
      return { ...changes, leftOut: await this.#leftOut(options, worktree, changes.files) };
    } finally {
      await rm(index, { force: true });
      await rm(`${index}.lock`, { force: true });
    }
  }

  /** Returns what is in the worktree and not in its index, or not byte for byte. */
  async #leftOut(
    options: GitOptions,
    worktree: PlannedWorktree,
    files: readonly CollectedFile[],
  ): Promise<readonly string[]> {
    const root = this.#root(worktree);
    const whole = { ...options, cwd: root };
    const others = ['ls-files', '-z', '--others', '--directory', '--no-empty-directory'];
    const outside = worktree.prefix === '' ? [] : ['.', `:(exclude,literal)${worktree.prefix}`];
    const listed = [
      ...pathsOf(await git(others, whole)),
      ...(outside.length === 0
        ? []
        : pathsOf(await git(['ls-files', '-z', '--modified', '--', ...outside], whole))),
      ...(await filledSubmodules(root, whole)),
    ];
    const state = `${worktree.prefix}.ai/state/`;
    const found: string[] = [];
    for (const path of new Set(listed)) {
      if (path.startsWith(state) || (await holdsOnly(join(root, path), join(root, state))))
        continue;
      found.push(relative(worktree.prefix, path) + (path.endsWith('/') ? '/' : ''));
    }
    return [...found, ...(await this.#converted(options, worktree, files))].toSorted();
  }

  /** Returns the files whose bytes git changes, by an attribute such as `text`, and would not write again. */
  async #converted(
    options: GitOptions,
    worktree: PlannedWorktree,
    files: readonly CollectedFile[],
  ): Promise<readonly string[]> {
    const found: string[] = [];
    const regular = files.filter(({ after }) => after.mode.startsWith('100'));
    for (let at = 0; at < regular.length; at += HASHED_AT_ONCE) {
      const some = regular.slice(at, at + HASHED_AT_ONCE);
      const paths = some.map(({ path }) => path);
      const args = ['hash-object', '--no-filters', '--', ...paths];
      const hashes = (await git(args, options)).toString('utf8').split('\n');
      for (const [index, { path, after }] of some.entries()) {
        if (hashes[index] === after.blob) continue;
        const own = await readFile(join(this.#root(worktree), worktree.prefix, path));
        const written = await this.content(worktree, path, after.blob);
        if (!own.equals(written)) found.push(path);
      }
    }
    return found;
  }

  /**
   * Compares the worktree with its base like {@link collect}. Without `changes`, its content is still the tree `before` or, without
   * one, that of its base. The index is kept, so that files that did not change are not read again.
   */
  async save(
    worktree: PlannedWorktree,
    before?: string,
  ): Promise<{
    readonly tree: string;
    readonly leftOut: readonly string[];
    readonly changes?: CollectedChanges;
  }> {
    const options = await this.#staged(worktree);
    const tree = lineOf(await git(['write-tree'], options));
    const known = before ?? lineOf(await git(['rev-parse', `${worktree.base}^{tree}`], options));
    const changes = await changesIn(options, worktree.base);
    const leftOut = await this.#leftOut(options, worktree, changes.files);
    return tree === known ? { tree, leftOut } : { tree, leftOut, changes };
  }

  /** Makes a commit of the worktree's content on top of its base, and returns its ID. */
  async commit(worktree: PlannedWorktree, message: string): Promise<string> {
    const options = await this.#staged(worktree);
    const tree = lineOf(await git(['write-tree'], options));
    const variables = { ...options.variables, ...AUTHOR };
    const words = ['commit-tree', tree, '-p', worktree.base, '-m', message];
    return lineOf(await git(words, { ...options, variables }));
  }

  /** Updates the index that is kept. */
  async #staged(worktree: PlannedWorktree): Promise<GitOptions> {
    const options = await this.#indexed(worktree);
    const index = `${this.#root(worktree)}.index`;
    await rm(`${index}.lock`, { force: true });
    if (!existsSync(index)) await git(['read-tree', worktree.base], options);
    await addAll(options);
    return options;
  }

  /** Options with a separate index: the thread may have changed that of the worktree. */
  async #indexed(worktree: PlannedWorktree): Promise<GitOptions> {
    const inside = this.#inside(await this.#repository(), worktree);
    const variables = { ...inside.variables, GIT_INDEX_FILE: `${this.#root(worktree)}.index` };
    return { ...inside, variables };
  }

  /** Returns the content of a file in the form in which git writes it into the worktree. */
  async content(worktree: PlannedWorktree, path: string, blob: string): Promise<Buffer> {
    const options = this.#inside(await this.#repository(), worktree);
    const args = ['cat-file', '--filters', `--path=${worktree.prefix}${path}`, blob];
    return await git(args, { ...options, cwd: this.#root(worktree) });
  }

  /** Removes a worktree. Does nothing if there is none. */
  async remove(worktree: Pick<PlannedWorktree, 'path'>): Promise<void> {
    const root = this.#root(worktree);
    await exclusively(FOLDER, async () => {
      const repository = await this.#repository().catch(() => undefined);
      await this.#discard(root, repository);
    });
  }

  /** Paths of the worktrees that are there, relative to the project. */
  async list(): Promise<readonly string[]> {
    try {
      const names = await readdir(join(this.#options.projectPath, FOLDER));
      const ids = names.flatMap(
        (name) => /^([0-9a-f-]{36})(?:\.ready|\.index)?$/.exec(name)?.[1] ?? [],
      );
      return [...new Set(ids)].map((id) => `${FOLDER}/${id}`);
    } catch (error) {
      if (systemCodeOf(error) === 'ENOENT') return [];
      throw error;
    }
  }

  async #discard(root: string, repository: GitOptions | undefined): Promise<void> {
    await rm(readyFile(root), { force: true });
    await rm(`${root}.index`, { force: true });
    await rm(root, { recursive: true, force: true, maxRetries: 3 });
    if (repository) await tryGit(['worktree', 'prune'], repository);
  }

  #root({ path }: Pick<PlannedWorktree, 'path'>): string {
    const { projectPath } = this.#options;
    const root = join(projectPath, path);
    if (/^[0-9a-f-]{36}$/.test(relative(join(projectPath, FOLDER), root))) return root;
    throw new RyeError('path_denied', `${path} is not the folder of a worktree`);
  }

  /** Makes the folder of worktrees, which no git of a person is to list. */
  async #makeFolder(): Promise<void> {
    const { projectPath } = this.#options;
    const folder = join(projectPath, FOLDER);
    makeFolders(folder);
    const expected = join(await realpath(projectPath), ...FOLDER.split('/'));
    if ((await realpath(folder)) !== expected) {
      throw new RyeError('path_denied', `${folder} is refused: a part of it is a symbolic link`, {
        hint: 'Remove the link; rye makes the folder.',
      });
    }
    const ignore = join(folder, '.gitignore');
    if (!existsSync(ignore)) writeWhole(ignore, '*\n');
  }

  /** Options for commands on the repository itself; the worktree, which the thread can change, is not asked. */
  async #repository(): Promise<GitOptions> {
    const { projectPath: cwd, env } = this.#options;
    const found = await git(['rev-parse', '--git-common-dir'], { cwd, env });
    const common = resolve(cwd, found.toString('utf8').replace(/\n$/, ''));
    return await withoutFilters({ cwd, env, variables: { GIT_DIR: common } });
  }

  #inside(repository: GitOptions, worktree: PlannedWorktree): GitOptions {
    const root = this.#root(worktree);
    return {
      ...repository,
      settings: [...(repository.settings ?? []), ...modesOf(root)],
      cwd: join(root, worktree.prefix),
      variables: { ...repository.variables, GIT_WORK_TREE: root },
    };
  }
}

/** The author of commits, whose real one is in the log of the thread. */
const AUTHOR = {
  GIT_AUTHOR_NAME: 'rye',
  GIT_AUTHOR_EMAIL: 'rye@localhost',
  GIT_COMMITTER_NAME: 'rye',
  GIT_COMMITTER_EMAIL: 'rye@localhost',
} as const;

const STATE = '.ai/state';

async function addAll(options: GitOptions): Promise<void> {
  // git would refuse another repository without commits, and keep only the commit of one with some
  const others = pathsOf(await git(['ls-files', '-z', '--others', '--exclude-standard'], options));
  const repositories = others.filter((path) => path.endsWith('/'));
  const excluded = repositories.map((path) => `:(exclude,literal)${path.slice(0, -1)}`);
  // git refuses to be told of a folder that is ignored anyway
  const state = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', STATE];
  if (existsSync(join(options.cwd, STATE)) && (await git(state, options)).length > 0) {
    excluded.push(`:(exclude)${STATE}`);
  }
  await git(['add', '--all', '--', '.', ...excluded], options);
}

function pathsOf(listed: Buffer): readonly string[] {
  return listed
    .toString('utf8')
    .split('\0')
    .filter((path) => path !== '');
}

/** Folders of submodules that are not empty: git does not look into them. */
async function filledSubmodules(root: string, options: GitOptions): Promise<readonly string[]> {
  const staged = pathsOf(await git(['ls-files', '-z', '--stage'], options));
  const paths = staged
    .filter((line) => line.startsWith('160000 '))
    .map((line) => line.slice(line.indexOf('\t') + 1));
  const filled: string[] = [];
  for (const path of paths) {
    const names = await readdir(join(root, path)).catch(() => []);
    if (names.length > 0) filled.push(`${path}/`);
  }
  return filled;
}

/** True for a folder that holds another one and nothing else. */
async function holdsOnly(folder: string, inner: string): Promise<boolean> {
  const name = relative(folder, inner);
  if (name === '') return true;
  if (name.startsWith('..') || !(await isFolder(folder))) return false;
  const [first = ''] = name.split(sep);
  const names = await readdir(folder);
  return names.every((one) => one === first) && (await holdsOnly(join(folder, first), inner));
}

/** Compares the index with a commit. */
async function changesIn(options: GitOptions, base: string): Promise<CollectedChanges> {
  const compare = ['diff-index', '--cached', '--no-renames', '--relative', '--full-index'];
  const plain = ['--no-ext-diff', '--no-textconv', '--no-color'];
  const patch = await git([...compare, ...plain, '--binary', '-p', base], options);
  const raw = await git([...compare, '--raw', '-z', base], options);
  return { patch, files: parseRaw(raw.toString('utf8')) };
}

function lineOf(bytes: Buffer): string {
  return bytes.toString('utf8').trim();
}

/** Has git see which files are programs, although a repository may turn that off, if the file system tells. */
function modesOf(root: string): NonNullable<GitOptions['settings']> {
  const mark = lstatSync(readyFile(root), { throwIfNoEntry: false });
  return mark && (mark.mode & 0o111) === 0 ? [['core.fileMode', 'true']] : [];
}

/** Marks a worktree as complete: git may have been killed while it made one. */
function readyFile(root: string): string {
  return `${root}.ready`;
}

async function isFolder(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined))?.isDirectory() === true;
}

const CHANGES: Readonly<Record<string, ChangedFile['change']>> = { A: 'added', D: 'deleted' };

/** Parses `diff-index --raw -z`: `:mode mode blob blob status`, then the path. */
function parseRaw(raw: string): readonly CollectedFile[] {
  const fields = raw.split('\0').filter((field) => field !== '');
  const files: CollectedFile[] = [];
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const [before = '', after = '', from = '', to = '', status = ''] = (fields[at] ?? '')
      .slice(1)
      .split(' ');
    files.push({
      path: (fields[at + 1] ?? '').split(sep).join('/'),
      change: CHANGES[status.slice(0, 1)] ?? 'modified',
      before: { mode: before, blob: from },
      after: { mode: after, blob: to },
    });
  }
  return files;
}
