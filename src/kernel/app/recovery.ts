import { type ErrorInfo, RyeError, toRyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import { isActive, type ThreadResult } from '../core/thread.ts';
import { extractThread } from '../threads/copied-thread.ts';
import { startQueued } from '../threads/family/spawn.ts';
import { wakeUnwoken } from '../threads/family/take-up.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { collectThreads } from '../threads/recovery/gc.ts';
import { removeWorktrees } from '../threads/recovery/gc-worktrees.ts';
import {
  findDead,
  type RecoveredThread,
  type RecoverySweep,
  recoverEach,
  recoverThread,
} from '../threads/recovery/recover.ts';
import { assertIdle, rebuildThread, restoreThreads } from '../threads/recovery/repair.ts';
import { checkedGrant } from '../threads/recovery/resume.ts';
import { refreshRows } from '../threads/recovery/stale-row.ts';
import { runResumed } from '../threads/run/lifecycle.ts';
import { isWaiting } from '../threads/run/waiting.ts';
import { assertOutsideThreads } from './ancestry.ts';
import type {
  RecoveryReport,
  RecoveryService,
  RepairReport,
  ResumeThreadRequest,
  RetentionReport,
} from './api/threads.ts';
import { attentionOf } from './attendant.ts';
import { threadParts } from './feature.ts';
import { readThreadConfig } from './settings.ts';
import { threadEnv, threadPorts } from './thread-env.ts';
import { observer, runnerOptions } from './thread-runs.ts';
import type { Workspace } from './workspace.ts';

/** Resumes threads, finalizes crashed ones, repairs the project's databases and archives old logs. */
export class Recovery implements RecoveryService {
  readonly #workspace: Workspace;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
  }

  async resume(request: ResumeThreadRequest): Promise<ThreadResult> {
    const { allowUnsigned = false, replayFrom, secrets = {}, fork = false, ...others } = request;
    const { attendant, ...rest } = others;
    if (rest.refresh === true) {
      const { store, options } = this.#workspace;
      await assertOutsideThreads(store, options.env, 'refresh a plan');
    }
    const env = await threadEnv(this.#workspace, { allowUnsigned, replayFrom });
    if (replayFrom !== undefined) await assertReplays(env, request.threadId);
    const onEvent = observer(env, request.onEvent);
    const attention = await attentionOf(this.#workspace, attendant);
    const options = { ...rest, ...attention, secrets, onEvent, runner: runnerOptions(request) };
    if (!fork) return await runResumed(env, options);
    const { from: _from, ...whole } = options;
    return await runResumed(env, { ...whole, threadId: await forkThread(env, request) });
  }

  /** Finalizes crashed threads, and resumes them if `recovery.mode` is `resume`. */
  async recover({
    threadId,
    rebuild = false,
    signal,
  }: Parameters<RecoveryService['recover']>[0] = {}): Promise<RecoveryReport> {
    const env = await this.#env();
    if (rebuild && threadId !== undefined) {
      const rebuilt = await rebuildOne(env, threadId);
      return { recovered: [rebuilt], failures: [], resumed: [] };
    }
    const { recovered, failures } = await sweep(env, threadId);
    await removeWorktrees(env);
    await startQueued(env);
    const { recovery } = env.config;
    const resumed: ThreadResult[] = [];
    const refused: { thread_id: string; error: ErrorInfo }[] = [];
    for (const one of recovery.mode === 'resume' ? recovered : []) {
      if (signal?.aborted || !(await shouldResume(env, one))) continue;
      try {
        resumed.push(await this.resume(compact({ threadId: one.thread_id, signal })));
      } catch (error) {
        refused.push({ thread_id: one.thread_id, error: toRyeError(error).toJSON() });
      }
    }
    await wakeUnwoken(env, { ended: recovered.map(({ thread_id: id }) => id) });
    return { recovered, failures: [...failures, ...refused], resumed };
  }

  async repair(): Promise<RepairReport> {
    return await repairState(this.#workspace);
  }

  async collect({
    olderThanMs,
    dryRun = false,
  }: Parameters<RecoveryService['collect']>[0]): Promise<RetentionReport> {
    if (!Number.isFinite(olderThanMs) || olderThanMs < 0) {
      throw new RyeError('invalid_input', `${olderThanMs} ms is not a valid age`, {
        hint: 'Use a number and a unit, such as --older-than 30d.',
      });
    }
    return await collectThreads(await this.#env(), { olderThanMs, dryRun });
  }

  async #env(): Promise<ThreadEnv> {
    return await threadEnv(this.#workspace, { allowUnsigned: false });
  }
}

/** Refuses a recording for a thread of a model: its answers are that model's. */
async function assertReplays({ store }: ThreadEnv, threadId: string): Promise<void> {
  const last = (await store.registry.chain(threadId)).at(-1);
  if (!last || last.model === 'replay') return;
  throw new RyeError('usage', `${last.thread_id} runs on ${last.model}, not on a recording`, {
    hint: 'Resume it without --replay, or start a thread with: rye run <directive> --replay FILE',
  });
}

/** Copies the path to an entry, or to the head of the last thread of the chain, into a new thread and returns its id. */
async function forkThread(
  env: ThreadEnv,
  { threadId, from, limits = {}, raiseLimits }: ResumeThreadRequest,
): Promise<string> {
  const last = (await env.store.registry.chain(threadId)).at(-1)?.thread_id;
  const source = from === undefined ? (last ?? threadId) : threadId;
  // before the copy is made: a refusal leaves no thread
  const planned = await env.files.readPlan(await env.files.readDocument(source));
  checkedGrant(env, { planned, parent: undefined }, limits, raiseLimits);
  const { thread_id: id } = await extractThread(env, source, { at: from });
  env.onNotice(`thread ${id} is a fork of ${source}`);
  return id;
}

/** Replaces a thread.json that recovery refuses; a thread whose process died is ended as well. */
async function rebuildOne(env: ThreadEnv, threadId: string): Promise<RecoveredThread> {
  const { document, kept } = await rebuildThread(env, threadId);
  const reason = kept === undefined ? 'thread.json was missing' : `the old thread.json is ${kept}`;
  const record = await env.store.registry.get(threadId);
  if (!record || !isActive(record.status)) {
    return { thread_id: threadId, status: document.status, action: 'rebuilt', reason };
  }
  return { ...(await recoverThread(env, threadId)), action: 'rebuilt', reason };
}

async function sweep(env: ThreadEnv, threadId: string | undefined): Promise<RecoverySweep> {
  if (threadId === undefined) {
    await refreshRows(env);
    return await recoverEach(env, await findDead(env, { onlyGone: false }));
  }
  return { recovered: [await recoverThread(env, threadId)], failures: [] };
}

/** A child resumes only while its parent runs or waits for it; otherwise the parent decides when it resumes. */
async function shouldResume(
  env: ThreadEnv,
  { thread_id: id, action }: RecoveredThread,
): Promise<boolean> {
  if (action !== 'failed') return false;
  const record = await env.store.registry.get(id);
  if (record?.error?.code !== 'thread_crashed') return false;
  if (record.parent_id === null) return true;
  const parent = await env.store.registry.get(record.parent_id);
  return parent !== undefined && (isActive(parent.status) || isWaiting(parent));
}

/**
 * Rebuilds what a project keeps in databases from the signed files of its threads. Damaged databases are moved aside,
 * nothing is deleted, and what is sound stays as it is. Refused while a thread runs or another repair is under way.
 */
async function repairState(workspace: Workspace): Promise<RepairReport> {
  const env = await threadPorts(workspace, { allowUnsigned: false });
  const { maintenance } = env.store;
  if (!maintenance) return NOTHING;
  const isEmpty = maintenance.inspect().every(({ state }) => state === 'missing');
  if (isEmpty && env.files.list().length === 0) return NOTHING;
  const lock = maintenance.holdRepair();
  try {
    await assertIdle(env);
    const found = maintenance.inspect();
    const unusable = found.find(({ state }) => state === 'unreadable');
    if (unusable) {
      throw new RyeError('storage_failed', `${unusable.path}: ${unusable.detail}`, {
        hint: 'Nothing was changed. Move the file away, then run `rye doctor --repair` again.',
        details: { path: unusable.path },
      });
    }
    const damaged = found.filter(({ state }) => state === 'damaged');
    const suffix = `damaged-${workspace.clock.now()}`;
    const moved = damaged.map(({ name, path }) => ({
      database: name,
      from: path,
      to: maintenance.setAside(name, suffix),
    }));
    const { threads, budgets, failures } = await restoreThreads(env);
    await refreshRows(env);
    await (await threadParts(workspace)).search?.(workspace).refresh();
    const configured = { ...env, config: await readThreadConfig(await workspace.config()) };
    const swept = await recoverEach(configured, await findDead(configured, { onlyGone: true }));
    const lostRegistry = threads.length > 0;
    return {
      moved,
      threads,
      budgets,
      recovered: swept.recovered,
      failures: [...failures, ...swept.failures],
      notes: lostRegistry ? [LOST] : [],
    };
  } finally {
    lock.release();
  }
}

const NOTHING: RepairReport = {
  moved: [],
  threads: [],
  budgets: [],
  recovered: [],
  failures: [],
  notes: [],
};

const LOST =
  'Only the registry had queued messages, requests to cancel and which threads ran in the background: they are not restored.';
