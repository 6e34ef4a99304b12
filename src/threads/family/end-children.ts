import { isoTime } from '../../core/clock.ts';
import { messageOf } from '../../core/errors.ts';
import { isFinal, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import type { Configured, Exporting, Process, Stored } from '../ports.ts';
import { deathOf } from '../run/liveness.ts';
import { endUnstarted } from '../run/start.ts';
import type { ChildPolicy, Coordination } from '../thread-config.ts';
import { chainEnd, openDescendants } from './children.ts';
import { eachOne } from './each-one.ts';
import { endWaiting } from './end-waiting.ts';
import { removeHandover } from './process-fs.ts';

/**
 * Cancels all descendants of a thread if `child_policy` asks for that at its end. Every path that ends a thread calls this,
 * a crash included, and recovery calls it before the end is on record: a second crash repeats it. A descendant that
 * crashed too is left to its own recovery; one that can't be cancelled keeps neither its siblings nor the end.
 */
export async function endChildren(
  env: Stored & Process & Exporting & Configured,
  threadId: string,
  status: ThreadResult['status'],
): Promise<void> {
  const { coordination, recovery } = env.config;
  if (policyAt(status, coordination) !== 'cancel') return;
  for (const child of await openDescendants(env.store.registry, threadId)) {
    if (deathOf(env, child, recovery.staleSeconds) === 'gone') continue;
    try {
      await cancelOne(env, child, `its parent ${threadId} ended as ${status}`);
    } catch (error) {
      env.onNotice(`thread ${child.thread_id} could not be cancelled: ${messageOf(error)}`);
    }
  }
}

function policyAt(status: ThreadResult['status'], policies: Coordination): ChildPolicy {
  if (status === 'cancelled') return policies.onParentCancel;
  if (status === 'error') return policies.onParentError;
  return status === 'completed' ? policies.onParentComplete : 'keep';
}

/** Asks a thread to stop; ends it here if it waits or has not started. */
export async function cancelOne(
  env: Stored & Process & Exporting,
  record: ThreadRecord,
  reason: string,
): Promise<void> {
  const { thread_id: threadId, status } = record;
  const needed = await endWaiting(env, record, reason);
  if (needed) {
    // a call of the thread waited for these: nothing needs them any more
    await eachOne(needed, async (id) => {
      const below = await chainEnd(env.store.registry, id);
      if (below && !isFinal(below.status)) await cancelOne(env, below, reason);
    });
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
