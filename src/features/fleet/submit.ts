import { resolve } from 'node:path';
import type { FleetRunOptions, SourceChoice } from '../../kernel/app/api/fleet.ts';
import { worktreesOf } from '../../kernel/app/feature.ts';
import { type ExecuteDirectiveRequest, foldPresets } from '../../kernel/app/presets.ts';
import { readSettings } from '../../kernel/app/settings.ts';
import { threadEnv } from '../../kernel/app/thread-env.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { compact } from '../../kernel/core/json.ts';
import type { PlannedSource } from '../../kernel/core/plan.ts';
import { launchThread } from '../../kernel/threads/family/spawn.ts';
import type { LaunchedThread } from '../../kernel/threads/ports.ts';
import { prepareThread } from '../../kernel/threads/prepare/prepare.ts';
import { placeInSource } from '../../kernel/threads/worktrees.ts';
import { type GitOptions, git, tryGit, withoutFilters } from '../../kernel/tools/git.ts';
import { sha256Hex } from '../../kernel/trust/keys.ts';
import { connectFleet } from './connection.ts';
import { packSource } from './git-source.ts';
import { storeOf } from './init.ts';
import { bundlesOf, packItems } from './items.ts';
import { checkQueueName } from './leg-row.ts';
import { parseSourceUrl, type SourceUrl } from './source-url.ts';

const MAX_SHOWN = 3;

interface SourceWish {
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
async function planSource(
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
      const worktrees = await worktreesOf(workspace, projectPath);
      const { base, prefix } = await worktrees.plan('', 'patch');
      const options = await withoutFilters({ cwd: projectPath, env, isUsers: true });
      return new Repository(workspace, options, base, prefix);
    } catch (error) {
      if (isNeeded) throw error;
      return undefined;
    }
  }

  /** Compares the files with the commit, except files in `.ai`, which travel in the bundle of items. */
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

/** Paths name a repository on this machine. */
function absolute(url: string, folder: string): string {
  return /^\.{1,2}(?:\/|$)/.test(url) ? resolve(folder, url) : url;
}

const DEFAULT_QUEUE = 'default';
const DEFAULT_PRIORITY = 5;
const LAST_PRIORITY = 9;

/** Prepares a thread here, signs it and queues it for a worker of the fleet. */
export async function submitThread(
  workspace: Workspace,
  given: ExecuteDirectiveRequest,
  options: FleetRunOptions,
): Promise<LaunchedThread> {
  const place = placeOf(options);
  const notBefore = options.at === undefined ? undefined : timeOf(options.at);
  const request = foldPresets(workspace.preset, given);
  assertTravels(request);
  const url = await storeOf(workspace);
  const env = await threadEnv(workspace, compact({ allowUnsigned: false, preset: request.preset }));
  const prepared = await prepareThread(env, request);
  const { clock, ids } = workspace;
  const connection = connectFleet({ url, clock, ids });
  try {
    const { worktree } = prepared.plan;
    if (worktree?.result === 'merge') throw noMerge();
    const source = await planSource(workspace, { ...options, isIsolated: worktree !== undefined });
    const placed = {
      ...prepared.plan,
      ...(source ? placeInSource(prepared.plan, source, ids) : {}),
    };
    const bundle = await packItems(workspace, placed);
    const submitter = workspace.keyring.signer().keyId;
    const roots = trustedRoots(workspace);
    const plan = {
      ...placed,
      fleet: { ...place, ...bundle, submitter, roots, ...(source ? { source } : {}) },
    };
    const start = async (threadId: string): Promise<void> =>
      await connection.start(threadId, plan.fleet, notBefore);
    return await launchThread(
      {
        ...env,
        fleet: { ...connection.fleet, start, seal: connection.sealing(workspace.keyring) },
      },
      {
        prepared: { ...prepared, plan },
        threadId: request.threadId,
        options: { allow_unsigned: false },
      },
    );
  } finally {
    await connection.close();
  }
}

/** The workers of other roots could sign nothing that counts here. */
function trustedRoots({ keyring }: Workspace): readonly string[] {
  return keyring
    .list()
    .filter(({ trusted, purposes }) => trusted && purposes.includes('certify'))
    .map(({ key_id: keyId }) => keyId);
}

function placeOf({
  queue = DEFAULT_QUEUE,
  priority = DEFAULT_PRIORITY,
  partition = null,
}: {
  readonly queue?: string;
  readonly priority?: number;
  readonly partition?: string | null;
}) {
  checkQueueName(queue);
  if (!Number.isInteger(priority) || priority < 0 || priority > LAST_PRIORITY) {
    throw new RyeError(
      'invalid_input',
      `the priority ${priority} is not from 0 to ${LAST_PRIORITY}`,
      {
        hint: '0 starts first, 9 last.',
      },
    );
  }
  return { queue, priority, partition };
}

function noMerge(): RyeError {
  return new RyeError('usage', 'a worker cannot merge changes into the files of this machine', {
    hint: 'Remove --isolation-result merge. The changes come back as a ref or a patch.',
  });
}

function timeOf(text: string): string {
  const ms = Date.parse(text);
  if (!Number.isNaN(ms)) return isoTime(ms);
  throw new RyeError('invalid_input', `invalid time ${JSON.stringify(text)}`, {
    hint: 'Write it with its zone, such as 2026-12-01T03:00Z.',
  });
}

/** A worker has neither unsigned files nor recordings of this machine. */
function assertTravels({ allowUnsigned, replayFrom, recordTo }: ExecuteDirectiveRequest): void {
  const option = allowUnsigned
    ? '--allow-unsigned'
    : replayFrom === undefined
      ? recordTo === undefined
        ? undefined
        : '--record'
      : '--replay';
  if (option === undefined) return;
  throw new RyeError('usage', `${option} cannot be used with a fleet`, {
    hint: 'Run the directive on this machine: remove --fleet.',
  });
}
