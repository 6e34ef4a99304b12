import { RyeError } from '../../core/errors.ts';
import { assertTransition, type ThreadRecord } from '../../core/thread.ts';
import type { LazyDatabase } from './database.ts';
import { moveDeliveries } from './delivery-queue.ts';
import { assertEpoch, findRecord, requireRecord } from './registry-rows.ts';

/** Links a thread with the one that continues it, in the caller's transaction. */
export function linkContinuation(
  database: LazyDatabase,
  threadId: string,
  successorId: string,
  now: string,
  epoch: number | undefined,
): void {
  const record = requireRecord(database, threadId);
  if (epoch !== undefined) assertEpoch(record, epoch);
  const successor = requireRecord(database, successorId);
  assertTransition(threadId, record.status, 'continued');
  assertNoLoop(database, threadId, successor);
  const root = record.chain_root_id ?? threadId;
  database.run(
    `UPDATE threads SET status = 'continued', continuation_thread_id = ?, chain_root_id = ?, updated_at = ?,
           completed_at = coalesce(completed_at, ?) WHERE thread_id = ?`,
    successorId,
    root,
    now,
    now,
    threadId,
  );
  database.run(
    'UPDATE threads SET continuation_of = ?, chain_root_id = ?, updated_at = ? WHERE thread_id = ?',
    threadId,
    root,
    now,
    successorId,
  );
  // a canceled thread stays canceled in its continuation; a resumed thread was stopped before
  if (record.status === 'running') {
    database.run(
      `UPDATE threads SET cancel_requested = (SELECT cancel_requested FROM threads WHERE thread_id = ?)
             WHERE thread_id = ?`,
      threadId,
      successorId,
    );
  }
  moveDeliveries(database, { from: threadId, to: successorId, now });
}

/** Returns the chain that a thread is in, from its root to its end. */
export function chainOf(database: LazyDatabase, threadId: string): readonly ThreadRecord[] {
  const seen = new Map<string, ThreadRecord>();
  let first = requireRecord(database, threadId);
  seen.set(threadId, first);
  for (let at: string | null = first.continuation_of; at !== null && !seen.has(at); ) {
    first = requireRecord(database, at);
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
    next = id === null ? undefined : findRecord(database, id);
  }
  return chain;
}

function assertNoLoop(database: LazyDatabase, threadId: string, successor: ThreadRecord): void {
  let at: string | null = successor.thread_id;
  while (at !== null && at !== threadId)
    at = findRecord(database, at)?.continuation_thread_id ?? null;
  if (at === null) return;
  throw new RyeError(
    'illegal_transition',
    `thread ${successor.thread_id} cannot continue ${threadId}: that comes after it in the chain`,
  );
}
