import { isoTime } from '../../core/clock.ts';
import { messageOf } from '../../core/errors.ts';
import { isFinal, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import type { ChildPolicy, Coordination, ThreadEnv } from '../ports.ts';
import { endUnstarted } from '../run/start.ts';
import { wakeFinished } from './deliver.ts';
import { chainEnd, openDescendants } from './descendants.ts';
import { removeHandover } from './handover-fs.ts';
import { startQueued } from './spawn.ts';

/**
 * What a thread's end means for others: its children go on or are cancelled as `child_policy` says, and the slot that
 * it held goes to the next in the queue. Best effort: any later command makes up for it.
 */
export async function afterEnd(
  env: ThreadEnv,
  { thread_id, status, parent_thread_id: parent }: ThreadResult,
): Promise<void> {
  try {
    const { coordination } = await env.config();
    if (policyAt(status, coordination) === 'cancel') {
      for (const child of await openDescendants(env.store.registry, thread_id)) {
        await cancelOne(env, child, `its parent ${thread_id} ended as ${status}`);
      }
    }
    await startQueued(env);
    // its own queue, and its end in the queue of the thread that started it
    if (status !== 'continued') await wakeFinished(env, thread_id);
    if (parent !== undefined) await wakeFinished(env, parent);
  } catch (error) {
    env.onNotice(`thread ${thread_id}: its children were not looked after: ${messageOf(error)}`);
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
  /** The whole tree below it too, whatever `child_policy` says. */
  readonly tree: boolean;
}

/**
 * Asks the end of a thread's chain to stop, and those below it with `tree` or where `child_policy.on_parent_cancel` says so. Its owner, in
 * whatever process, sees that within a moment; a thread that has no process yet is ended here. Resolves to the ids of
 * the threads that were still open.
 */
export async function cancelThread(
  env: ThreadEnv,
  { threadId, reason, tree }: CancelRequest,
): Promise<readonly string[]> {
  const { registry } = env.store;
  const target = await chainEnd(registry, threadId);
  const { coordination } = await env.config();
  const below =
    target && (tree || coordination.onParentCancel === 'cancel')
      ? await openDescendants(registry, target.thread_id)
      : [];
  const open = [...(target ? [target] : []), ...below].filter(({ status }) => !isFinal(status));
  for (const record of open) await cancelOne(env, record, reason);
  await startQueued(env);
  return open.map(({ thread_id }) => thread_id);
}

async function cancelOne(
  env: ThreadEnv,
  { thread_id: threadId, status }: ThreadRecord,
  reason: string,
): Promise<void> {
  await env.store.registry.requestCancel(threadId, reason, isoTime(env.clock.now()));
  if (status !== 'created') return;
  const error = { code: 'cancelled', message: `the thread was cancelled: ${reason}` } as const;
  // one that was claimed meanwhile has an owner who sees the request
  if (await endUnstarted(env, threadId, { status: 'cancelled', error })) {
    await removeHandover(env.files.folder(threadId));
  }
}
