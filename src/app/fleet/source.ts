import { resolve } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { PlannedSource } from '../../core/plan.ts';
import { parseSourceUrl, type SourceUrl } from '../../fleet/source-url.ts';
import { type GitOptions, git, tryGit, withoutFilters } from '../../tools/git/git.ts';
import { packSource } from '../../tools/git/source.ts';
import { GitWorktrees } from '../../tools/git/worktrees.ts';
import { sha256Hex } from '../../trust/keys.ts';
import type { SourceChoice } from '../api/fleet.ts';
import { readSettings } from '../settings.ts';
import type { Workspace } from '../workspace.ts';
import { bundlesOf } from './items.ts';

const MAX_SHOWN = 3;

export interface SourceWish {
  /** Absent: what the configuration names. */
  readonly source?: SourceChoice | undefined;
  readonly sourceUrl?: string | undefined;
  readonly allowDirty?: boolean | undefined;
  /** True if the thread was asked to be isolated: without a source it cannot be. */
  readonly isIsolated: boolean;
}

/**
 * Chooses the source tree that a thread of the fleet works on: the last commit of the project's repository. A source that a
 * person asked for is refused if it is not what their files have; a default one tells what is missing.
 */
export async function planSource(
  workspace: Workspace,
  wish: SourceWish,
): Promise<PlannedSource | undefined> {
  const { fleet } = await readSettings(await workspace.config(), 'agent/coordination');
  const { wanted, isNeeded } = wantedBy(wish, fleet?.source ?? 'auto');
  if (wanted === 'none') return undefined;
  const repository = await Repository.find(workspace, { isNeeded });
  if (!repository) return undefined;
  const isStrict = isNeeded && wish.allowDirty !== true;
  if (wanted === 'bundle') return await bundled(workspace, repository, isStrict);
  const found = await addressOf(workspace, repository, wish.sourceUrl);
  if (!found || !(isNeeded || ANYWHERE.has(found.protocol)))
    return withoutAddress(workspace, repository, isNeeded);
  await repository.compare({ isRefused: isStrict });
  if (found.isStripped)
    workspace.notice(
      'the credentials in the URL of the repository are not sent: workers use their own',
    );
  const { commit, prefix } = repository;
  return { kind: 'git', commit, prefix, url: found.text, results: fleet?.results ?? 'push' };
}

function wantedBy(
  { source, sourceUrl, isIsolated }: SourceWish,
  configured: SourceChoice,
): { readonly wanted: SourceChoice; readonly isNeeded: boolean } {
  const wanted = source ?? (sourceUrl === undefined ? configured : 'git');
  const isAsked = source !== undefined || sourceUrl !== undefined || isIsolated;
  return { wanted, isNeeded: wanted !== 'auto' || isAsked };
}

/** Puts the packed commit into the store. */
async function bundled(
  workspace: Workspace,
  repository: Repository,
  isStrict: boolean,
): Promise<PlannedSource> {
  const { commit, prefix } = repository;
  const { projectPath, env } = workspace.options;
  await repository.compare({ isRefused: isStrict });
  const pack = await packSource(projectPath, { commit, env });
  const digest = sha256Hex(pack);
  await bundlesOf(workspace).put({ digest, planSha256: commit, tar: pack, envelope: '' });
  return { kind: 'bundle', commit, prefix, pack: digest, results: 'patch' };
}

async function addressOf(
  { options }: Workspace,
  repository: Repository,
  url: string | undefined,
): Promise<SourceUrl | undefined> {
  if (url === undefined) return await repository.remote();
  return parseSourceUrl(absolute(url, options.projectPath));
}

function withoutAddress(
  workspace: Workspace,
  { commit }: Repository,
  isNeeded: boolean,
): undefined {
  const what = `no remote of the repository is known to have the commit ${commit.slice(0, 12)}`;
  const hint =
    'Push it, name a repository that has it with --source-url, or send it: --source bundle';
  if (isNeeded) throw new RyeError('source_unavailable', what, { hint: `${hint}.` });
  workspace.notice(`${what}, so the thread works in an empty folder. ${hint}`);
  return undefined;
}

/** Protocols that every worker accepts by default. */
const ANYWHERE: ReadonlySet<string> = new Set(['https', 'ssh']);

/** The repository of a project, as its user has it. */
class Repository {
  readonly #git: GitOptions;
  readonly #workspace: Workspace;
  readonly commit: string;
  readonly prefix: string;

  private constructor(workspace: Workspace, options: GitOptions, commit: string, prefix: string) {
    this.#workspace = workspace;
    this.#git = options;
    this.commit = commit;
    this.prefix = prefix;
  }

  static async find(
    workspace: Workspace,
    { isNeeded }: { readonly isNeeded: boolean },
  ): Promise<Repository | undefined> {
    const { projectPath, env } = workspace.options;
    try {
      const { base, prefix } = await new GitWorktrees({ projectPath, env }).plan('', 'patch');
      const options = await withoutFilters({ cwd: projectPath, env, isUsers: true });
      return new Repository(workspace, options, base, prefix);
    } catch (error) {
      if (isNeeded) throw error;
      return undefined;
    }
  }

  /** Compares the files with the commit, but for those of `.ai`, which travel in the bundle of items. */
  async compare({ isRefused }: { readonly isRefused: boolean }): Promise<void> {
    const items = `:(exclude,top)${this.prefix}.ai`;
    const words = ['status', '--porcelain=v1', '-z', '--no-renames', '--ignore-submodules=dirty'];
    const listed = await git([...words, '--', ':(top)', items], this.#git);
    const paths = listed
      .toString('utf8')
      .split('\0')
      .filter(Boolean)
      .map((line) => line.slice(3));
    if (paths.length === 0) return;
    const shown = paths.slice(0, MAX_SHOWN).join(', ') + (paths.length > MAX_SHOWN ? ', …' : '');
    const files = paths.length === 1 ? '1 changed file is' : `${paths.length} changed files are`;
    const what = `${files} not in the commit ${this.commit.slice(0, 12)} that workers get: ${shown}`;
    if (!isRefused) {
      this.#workspace.notice(what);
      return;
    }
    throw new RyeError('file_changed', what, {
      hint: 'Commit or stash them, or run the commit as it is: --allow-dirty.',
      details: { commit: this.commit, files: paths.slice(0, 100) },
    });
  }

  /** Returns the address of a remote that is known to have the commit: that of the branch first, then `origin`. */
  async remote(): Promise<SourceUrl | undefined> {
    const names = (await this.#lines('remote')).toSorted();
    const [branch = ''] = await this.#lines('symbolic-ref', '--quiet', '--short', 'HEAD');
    const [upstream] = await this.#lines('config', '--get', `branch.${branch}.remote`);
    const order = [upstream, 'origin', ...names].filter(
      (name): name is string => name !== undefined && names.includes(name),
    );
    for (const name of new Set(order)) {
      const has = [
        'for-each-ref',
        '--count=1',
        `--contains=${this.commit}`,
        '--',
        `refs/remotes/${name}/`,
      ];
      if ((await this.#lines(...has)).length === 0) continue;
      const [url] = await this.#lines('remote', 'get-url', '--', name);
      if (url !== undefined) return parseSourceUrl(await this.#absolute(url));
    }
    return undefined;
  }

  async #absolute(url: string): Promise<string> {
    const [top = ''] = await this.#lines('rev-parse', '--show-toplevel');
    return absolute(url, top);
  }

  async #lines(...words: readonly string[]): Promise<readonly string[]> {
    const { code, stdout } = await tryGit(words, this.#git);
    return code === 0 ? stdout.toString('utf8').split('\n').filter(Boolean) : [];
  }
}

/** Paths are those of a repository on this machine. */
function absolute(url: string, folder: string): string {
  return /^\.{1,2}(?:\/|$)/.test(url) ? resolve(folder, url) : url;
}
