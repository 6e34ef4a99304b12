import { RyeError } from '../../core/errors.ts';
import { isActive, isFinal, type ThreadRecord, type ThreadStatus } from '../../core/thread.ts';
import type { Owner } from '../../storage/store.ts';
import type { ThreadEnv } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { chainEnd, openDescendants } from './descendants.ts';
import { endProcess, wasLaunched } from './end-process-fs.ts';
import { startQueued } from './spawn.ts';
import { cancelThread } from './supervise.ts';

export interface KillRequest {
  readonly threadId: string;
  readonly reason: string;
  /** The processes of the whole tree below it too; without it those are cancelled as `child_policy` says. */
  readonly tree: boolean;
}

export interface KilledThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  /** The process that was ended; null when there was none. */
  readonly pid: number | null;
}

/**
 * Ends the process of the end of a thread's chain and then that itself: nothing stays `running`, reserved or waited for. A process
 * that ends in order on SIGTERM finalizes its thread itself. Resolves to the threads that were open before.
 */
export async function killThread(
  env: ThreadEnv,
  { threadId, reason, tree }: KillRequest,
): Promise<readonly KilledThread[]> {
  const { registry } = env.store;
  const target = await chainEnd(registry, threadId);
  if (!target || isFinal(target.status)) return [];
  const below = tree ? await openDescendants(registry, target.thread_id) : [];
  const victims = [target, ...below];
  for (const victim of victims) await assertKillable(env, victim, victims);
  const pids = new Map<string, number>();
  // first of all, so that a process that ends in order says why, and that nothing new starts below
  await cancelThread(env, { threadId, reason, tree });
  for (const victim of victims) {
    const owner = ownerOf((await registry.get(victim.thread_id)) ?? victim);
    if (!owner) continue;
    const { processes } = env.store;
    const group = wasLaunched(env.files.folder(victim.thread_id));
    if (await endProcess({ owner, group, processes, clock: env.clock }))
      pids.set(victim.thread_id, owner.pid);
    for (const left of await leftBy(env, owner)) await recoverThread(env, left.thread_id);
  }
  await startQueued(env);
  return await Promise.all(
    victims.map(async ({ thread_id }) => ({
      thread_id,
      status: (await registry.get(thread_id))?.status ?? 'cancelled',
      pid: pids.get(thread_id) ?? null,
    })),
  );
}

function ownerOf({ status, pid, process_start, host }: ThreadRecord): Owner | undefined {
  if (!isActive(status) || pid === null || host === null) return undefined;
  return { pid, processStart: process_start ?? '', host };
}

/** Threads that a dead process has left open, the nested ones first. */
async function leftBy(env: ThreadEnv, owner: Owner): Promise<readonly ThreadRecord[]> {
  const active = await env.store.registry.list({ active: true });
  return active.filter(({ pid, process_start, host }) => {
    const isSame = pid === owner.pid && process_start === owner.processStart && host === owner.host;
    return isSame && !env.store.processes.isAlive(owner);
  });
}

async function assertKillable(
  env: ThreadEnv,
  victim: ThreadRecord,
  victims: readonly ThreadRecord[],
): Promise<void> {
  const owner = ownerOf(victim);
  if (!owner) return;
  const self = env.store.processes.self();
  const { thread_id: threadId, parent_id: parentId } = victim;
  if (owner.host !== self.host) {
    throw new RyeError('thread_locked', `thread ${threadId} runs on ${owner.host}, not here`, {
      hint: `Cancel it: rye threads cancel ${threadId}`,
    });
  }
  const parent = parentId === null ? undefined : await env.store.registry.get(parentId);
  const host = parent && ownerOf(parent);
  const isNested = host?.pid === owner.pid && host.processStart === owner.processStart;
  const goesToo = victims.some(({ thread_id }) => thread_id === parentId);
  if (owner.pid !== self.pid && (!isNested || goesToo)) return;
  throw new RyeError('usage', `thread ${threadId} has no process of its own`, {
    hint: `It runs inside its parent's process: cancel it with \`rye threads cancel ${threadId}\`, or kill ${parentId ?? 'that'}.`,
    details: { thread_id: threadId, parent_id: parentId },
  });
}
