import { RyeError } from '../../core/errors.ts';
import { assertTransition, type ThreadRecord } from '../../core/thread.ts';
import { change, type Work } from '../sql-work.ts';
import { moveDeliveries } from './delivery-queue.ts';
import { assertEpoch, findRecord, requireRecord } from './registry-rows.ts';

/** Links a thread with its continuation, in the caller's transaction. */
export function* linkContinuation(
  threadId: string,
  successorId: string,
  now: string,
  epoch: number | undefined,
): Work<void> {
  const record = yield* requireRecord(threadId);
  if (epoch !== undefined) assertEpoch(record, epoch);
  const successor = yield* requireRecord(successorId);
  assertTransition(threadId, record.status, 'continued');
  yield* assertNoLoop(threadId, successor);
  const root = record.chain_root_id ?? threadId;
  yield* change(
    `UPDATE threads SET status = 'continued', continuation_thread_id = ?, chain_root_id = ?, updated_at = ?,
           completed_at = coalesce(completed_at, ?) WHERE thread_id = ?`,
    successorId,
    root,
    now,
    now,
    threadId,
  );
  yield* change(
    'UPDATE threads SET continuation_of = ?, chain_root_id = ?, updated_at = ? WHERE thread_id = ?',
    threadId,
    root,
    now,
    successorId,
  );
  // a canceled thread stays canceled in its continuation, which may have been canceled itself; a resumed one was stopped before
  if (record.status === 'running') {
    yield* change(
      `UPDATE threads
         SET cancel_requested = coalesce(cancel_requested, (SELECT cancel_requested FROM threads WHERE thread_id = ?))
         WHERE thread_id = ?`,
      threadId,
      successorId,
    );
  }
  yield* moveDeliveries({ from: threadId, to: successorId, now });
}

/** Returns the chain that a thread is in, from its root to its end. */
export function* chainOf(threadId: string): Work<readonly ThreadRecord[]> {
  const seen = new Map<string, ThreadRecord>();
  let first = yield* requireRecord(threadId);
  seen.set(threadId, first);
  for (let at: string | null = first.continuation_of; at !== null && !seen.has(at); ) {
    first = yield* requireRecord(at);
    seen.set(at, first);
    at = first.continuation_of;
  }
  const chain: ThreadRecord[] = [];
  const listed = new Set<string>();
  let next: ThreadRecord | undefined = first;
  while (next && !listed.has(next.thread_id)) {
    chain.push(next);
    listed.add(next.thread_id);
    const id: string | null = next.continuation_thread_id;
    next = id === null ? undefined : yield* findRecord(id);
  }
  return chain;
}

function* assertNoLoop(threadId: string, successor: ThreadRecord): Work<void> {
  let at: string | null = successor.thread_id;
  while (at !== null && at !== threadId)
    at = (yield* findRecord(at))?.continuation_thread_id ?? null;
  if (at === null) return;
  throw new RyeError(
    'illegal_transition',
    `thread ${successor.thread_id} cannot continue ${threadId}: that comes after it in the chain`,
  );
}
