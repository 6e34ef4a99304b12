import { isoTime } from '../../core/clock.ts';
import { messageOf, RyeError } from '../../core/errors.ts';
import {
  isActive,
  isFinal,
  type ThreadRecord,
  type ThreadResult,
  type ThreadStatus,
} from '../../core/thread.ts';
import type { Owner } from '../../storage/store.ts';
import type { Exporting, Launching, Process, Recovering, Stored, Supervising } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { endUnstarted } from '../run/start.ts';
import type { ChildPolicy, Coordination } from '../thread-config.ts';
import { chainEnd, openDescendants } from './children.ts';
import { wakeFinished } from './deliver.ts';
import { endWaiting } from './end-waiting.ts';
import { endProcess, removeHandover, wasLaunched } from './process-fs.ts';
import { resumeInBackground, resumeWaitingAncestors } from './resume-process.ts';
import { startQueued } from './spawn.ts';

/**
 * Handles a thread's end: its children continue or are cancelled according to `child_policy`, and its slot goes to the
 * next queued thread. Best effort: any later command makes up for it.
 */
export async function afterEnd(env: Supervising, result: ThreadResult): Promise<void> {
  const { thread_id, status, parent_thread_id: parent } = result;
  try {
    const { coordination } = env.config;
    if (policyAt(status, coordination) === 'cancel') {
      for (const child of await openDescendants(env.store.registry, thread_id)) {
        await cancelOne(env, child, `its parent ${thread_id} ended as ${status}`);
      }
    }
    await startQueued(env, status === 'continued' ? undefined : thread_id);
    // its own queue, and its end in the queue of the thread that started it
    if (status !== 'continued') await wakeFinished(env, thread_id);
    if (parent !== undefined) {
      await wakeFinished(env, parent);
      await resumeWaitingAncestors(env, thread_id);
    }
    await goOnIfDecided(env, result);
  } catch (error) {
    env.onNotice(`thread ${thread_id}: its children could not be handled: ${messageOf(error)}`);
  }
}

/** Resumes a thread about which people decided in the moment in which it was suspended. */
async function goOnIfDecided(
  env: Supervising,
  { thread_id: threadId, approvals = [] }: ThreadResult,
): Promise<void> {
  for (const id of approvals) {
    const stored = await env.store.approvals.get(id);
    if (!stored || stored.state === 'pending') continue;
    await resumeInBackground(env, threadId);
    return;
  }
}

function policyAt(status: ThreadResult['status'], policies: Coordination): ChildPolicy {
  if (status === 'cancelled') return policies.onParentCancel;
  if (status === 'error') return policies.onParentError;
  return status === 'completed' ? policies.onParentComplete : 'keep';
}

export interface CancelRequest {
  readonly threadId: string;
  readonly reason: string;
  /** Cancels the whole tree below it too, regardless of `child_policy`. */
  readonly tree: boolean;
}

/**
 * Asks the last thread of a chain to stop, and its descendants with `tree` or if `child_policy.on_parent_cancel` is
 * `cancel`. Its owner, in any process, notices within a moment; a thread without a process is ended here. Resolves to
 * the ids of the threads that were still open.
 */
export async function cancelThread(
  env: Supervising,
  { threadId, reason, tree }: CancelRequest,
): Promise<readonly string[]> {
  const { registry } = env.store;
  const target = await chainEnd(registry, threadId);
  const { coordination } = env.config;
  const below =
    target && (tree || coordination.onParentCancel === 'cancel')
      ? await openDescendants(registry, target.thread_id)
      : [];
  const open = [...(target ? [target] : []), ...below].filter(({ status }) => !isFinal(status));
  for (const record of open) {
    // the end of one that waited for people may have ended those that it waited for
    const now = await registry.get(record.thread_id);
    if (now && !isFinal(now.status)) await cancelOne(env, now, reason);
  }
  if (target) await resumeWaitingAncestors(env, target.thread_id);
  await startQueued(env);
  return open.map(({ thread_id }) => thread_id);
}

async function cancelOne(
  env: Stored & Process & Exporting,
  record: ThreadRecord,
  reason: string,
): Promise<void> {
  const { thread_id: threadId, status } = record;
  const needed = await endWaiting(env, record, reason);
  if (needed) {
    // a call of the thread waited for these: nothing needs them any more
    for (const id of needed) {
      const below = await chainEnd(env.store.registry, id);
      if (below && !isFinal(below.status)) await cancelOne(env, below, reason);
    }
    return;
  }
  await env.store.registry.requestCancel(threadId, reason, isoTime(env.clock.now()));
  if (status !== 'created') return;
  const error = { code: 'cancelled', message: `the thread was cancelled: ${reason}` } as const;
  // if it was claimed meanwhile, its owner sees the request
  if (await endUnstarted(env, threadId, { status: 'cancelled', error })) {
    await removeHandover(env.files.folder(threadId));
  }
}

export interface KillRequest {
  readonly threadId: string;
  readonly reason: string;
  /** Kills the processes of the whole tree below it too; otherwise those are cancelled according to `child_policy`. */
  readonly tree: boolean;
}

export interface KilledThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  /** The process that was ended; null when there was none. */
  readonly pid: number | null;
}

/**
 * Kills the process of the last thread of a chain, then finalizes that thread: nothing stays `running` or reserved. A
 * process that handles SIGTERM finalizes its thread itself. Resolves to the threads that were open before.
 */
export async function killThread(
  env: Recovering & Launching,
  { threadId, reason, tree }: KillRequest,
): Promise<readonly KilledThread[]> {
  const { registry } = env.store;
  const target = await chainEnd(registry, threadId);
  if (!target || isFinal(target.status)) return [];
  const below = tree ? await openDescendants(registry, target.thread_id) : [];
  const victims = [target, ...below];
  for (const victim of victims) await assertKillable(env, victim, victims);
  const pids = new Map<string, number>();
  // first, so that a process that ends cleanly records the reason and nothing new starts below
  await cancelThread(env, { threadId, reason, tree });
  for (const victim of victims) {
    const { owners } = env.store;
    const owner = activeOwner(env, (await registry.get(victim.thread_id)) ?? victim);
    const pid = owner && owners.pidOf(owner);
    if (!owner || pid === undefined) continue;
    const group = wasLaunched(env.files.folder(victim.thread_id));
    const isRunning = async (): Promise<boolean> => {
      const now = await registry.get(victim.thread_id);
      return now !== undefined && activeOwner(env, now)?.id === owner.id;
    };
    if (await endProcess({ owner, pid, group, owners, clock: env.clock, isRunning }))
      pids.set(victim.thread_id, pid);
    for (const left of await leftBy(env, owner)) await recoverThread(env, left.thread_id);
  }
  await resumeWaitingAncestors(env, target.thread_id);
  await startQueued(env);
  return await Promise.all(
    victims.map(async ({ thread_id }) => ({
      thread_id,
      status: (await registry.get(thread_id))?.status ?? 'cancelled',
      pid: pids.get(thread_id) ?? null,
    })),
  );
}

function activeOwner({ store }: Pick<Stored, 'store'>, record: ThreadRecord): Owner | undefined {
  return isActive(record.status) ? store.owners.ofRecord(record) : undefined;
}

/** Threads that a dead process has left open, the nested ones first. */
async function leftBy(env: Pick<Stored, 'store'>, owner: Owner): Promise<readonly ThreadRecord[]> {
  const { registry, owners } = env.store;
  const active = await registry.list({ active: true });
  if (owners.state(owner) !== 'gone') return [];
  return active.filter((record) => owners.ofRecord(record)?.id === owner.id);
}

async function assertKillable(
  env: Pick<Stored, 'store'>,
  victim: ThreadRecord,
  victims: readonly ThreadRecord[],
): Promise<void> {
  const owner = activeOwner(env, victim);
  if (!owner) return;
  const { owners } = env.store;
  const { thread_id: threadId, parent_id: parentId } = victim;
  if (owners.pidOf(owner) === undefined) {
    throw new RyeError('thread_locked', `thread ${threadId} runs on ${victim.host}, not here`, {
      hint: `Cancel it: rye threads cancel ${threadId}`,
    });
  }
  const parent = parentId === null ? undefined : await env.store.registry.get(parentId);
  const isNested = parent !== undefined && activeOwner(env, parent)?.id === owner.id;
  const goesToo = victims.some(({ thread_id }) => thread_id === parentId);
  if (owner.id !== owners.self().id && (!isNested || goesToo)) return;
  throw new RyeError('usage', `thread ${threadId} shares the process of its parent`, {
    hint: `Cancel it with \`rye threads cancel ${threadId}\`, or kill ${parentId ?? 'that'}.`,
    details: { thread_id: threadId, parent_id: parentId },
  });
}
