import { messageOf, RyeError } from '../../core/errors.ts';
import {
  isActive,
  isFinal,
  type ThreadRecord,
  type ThreadResult,
  type ThreadStatus,
} from '../../core/thread.ts';
import type { Owner } from '../../storage/store.ts';
import type { Launching, Recovering, Stored, Supervising } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { chainEnd, openDescendants } from './children.ts';
import { wakeFinished } from './deliver.ts';
import { eachOne } from './each-one.ts';
import { cancelOne, endChildren } from './end-children.ts';
import { endProcess, wasLaunched } from './process-fs.ts';
import { resumeInBackground, resumeWaitingAncestors } from './resume-process.ts';
import { startQueued } from './spawn.ts';

/**
 * Handles a thread's end: its children continue or are cancelled according to `child_policy`, and its slot goes to the
 * next queued thread. Best effort: any later command makes up for it.
 */
export async function afterEnd(env: Supervising, result: ThreadResult): Promise<void> {
  const { thread_id, status, parent_thread_id: parent } = result;
  const isLast = status !== 'continued';
  const steps: readonly (() => Promise<unknown>)[] = [
    () => endChildren(env, thread_id, status),
    () => startQueued(env, isLast ? thread_id : undefined),
    // its own queue, and its end in the queue of the thread that started it
    ...(isLast ? [() => wakeFinished(env, thread_id)] : []),
    ...(parent === undefined
      ? []
      : [() => wakeFinished(env, parent), () => resumeWaitingAncestors(env, thread_id)]),
    () => goOnIfDecided(env, result),
  ];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      env.onNotice(`thread ${thread_id}: its family could not be handled: ${messageOf(error)}`);
    }
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

export interface CancelRequest {
  readonly threadId: string;
  readonly reason: string;
  /** Cancels the whole tree below it too, regardless of `child_policy`. */
  readonly tree: boolean;
}

/**
 * Asks the last thread of a chain to stop, and its descendants with `tree` or if `child_policy.on_parent_cancel` is
 * `cancel`. Its owner, in any process, notices within a moment; a thread without a process is ended here. Resolves to
 * the ids of the threads that were still open. One that can't be ended keeps none of the others; it throws afterwards.
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
  const cancel = async ({ thread_id: id }: ThreadRecord): Promise<void> => {
    // the end of one that waited for people may have ended those that it waited for
    const now = await registry.get(id);
    if (now && !isFinal(now.status)) await cancelOne(env, now, reason);
  };
  await eachOne<() => Promise<unknown>>(
    [
      async () => await eachOne(open, cancel),
      async () => target && (await resumeWaitingAncestors(env, target.thread_id)),
      async () => await startQueued(env),
    ],
    async (step) => await step(),
  );
  return open.map(({ thread_id }) => thread_id);
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
  const kill = async (victim: ThreadRecord): Promise<void> => {
    const { owners } = env.store;
    const owner = activeOwner(env, (await registry.get(victim.thread_id)) ?? victim);
    const pid = owner && owners.pidOf(owner);
    if (!owner || pid === undefined) return;
    const group = wasLaunched(env.files.folder(victim.thread_id));
    const isRunning = async (): Promise<boolean> => {
      const now = await registry.get(victim.thread_id);
      return now !== undefined && activeOwner(env, now)?.id === owner.id;
    };
    if (await endProcess({ owner, pid, group, owners, clock: env.clock, isRunning }))
      pids.set(victim.thread_id, pid);
    await eachOne(await leftBy(env, owner), async (left) => await recoverLeft(env, left));
  };
  await eachOne<() => Promise<unknown>>(
    [
      // first, so that a process that ends cleanly records the reason and nothing new starts below
      async () => await cancelThread(env, { threadId, reason, tree }),
      async () => await eachOne(victims, kill),
      async () => await resumeWaitingAncestors(env, target.thread_id),
      async () => await startQueued(env),
    ],
    async (step) => await step(),
  );
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

async function recoverLeft(env: Recovering, { thread_id: id }: ThreadRecord): Promise<void> {
  try {
    await recoverThread(env, id);
  } catch (error) {
    // another process, such as one that waits for it, was faster
    const isDone = error instanceof RyeError && DONE.has(error.code);
    if (!isDone) throw error;
  }
}

const DONE: ReadonlySet<string> = new Set(['thread_locked', 'illegal_transition']);

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
    throw new RyeError(
      'thread_locked',
      `thread ${threadId} runs in ${owners.describe(owner)}, not here`,
      {
        hint: `Cancel it: rye threads cancel ${threadId}`,
      },
    );
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
