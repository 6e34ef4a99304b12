import {
  type CloseReason,
  type Delivery,
  type DeliveryReport,
  INLINE_BYTES,
  type WaitedChild,
} from '../../core/delivery.ts';
import { RyeError } from '../../core/errors.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { threadNotFound } from '../../core/thread-errors.ts';
import type { EnqueueParams, ResolveParams } from '../deliveries.ts';
import { all, change, one, type Work } from '../sql-work.ts';
import {
  attemptsOf,
  type DeliveryRow,
  decisionsOf,
  deliveryOf,
  findDelivery,
  MAX_ATTEMPTS,
  openDeliveries,
  recordDecision,
} from './delivery-rows.ts';
import { ACTIVE_STATUSES } from './registry-rows.ts';

/** Enqueues a delivery for the end of the addressee's chain. A known source key is a no-op. */
export function* enqueue(params: EnqueueParams): Work<Delivery> {
  const { threadId, sourceKey, deliveryId, now } = params;
  const known =
    sourceKey === undefined
      ? undefined
      : ((yield* one('SELECT * FROM deliveries WHERE source_key = ?', sourceKey)) as
          | DeliveryRow
          | undefined);
  if (known) return deliveryOf(known);
  const target = yield* endOfChain(threadId);
  yield* change(
    `INSERT INTO deliveries (delivery_id, thread_id, sent_to, class, kind, mode, source, source_key, text,
       requires_artifact, max_attempts, created_at, child_run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    deliveryId,
    target,
    threadId,
    params.class,
    params.kind,
    params.mode,
    params.source,
    sourceKey ?? null,
    params.text,
    Number(params.requiresArtifact),
    MAX_ATTEMPTS,
    now,
    params.childRun ?? null,
  );
  yield* recordDecision({
    at: now,
    threadId: target,
    deliveryId,
    decision: 'enqueue',
    reason: `${params.kind} from ${params.source}`,
    details: { mode: params.mode },
  });
  return deliveryOf(yield* required(deliveryId));
}

function* endOfChain(threadId: string): Work<string> {
  const seen = new Set<string>();
  let at = threadId;
  for (;;) {
    const row = (yield* one(
      'SELECT continuation_thread_id AS next FROM threads WHERE thread_id = ?',
      at,
    )) as { readonly next: string | null } | undefined;
    if (!row) {
      throw threadNotFound(at);
    }
    seen.add(at);
    if (row.next === null || seen.has(row.next)) return at;
    at = row.next;
  }
}

/**
 * Enqueues the end of a background child's run in the transaction that ends it, so that no end lacks a delivery, and
 * none has two.
 * `continued` is no end: what continues it will deliver.
 */
export function* enqueueChildEnd(child: ThreadRecord, run: number, now: string): Work<void> {
  const { thread_id: id, parent_id: parentId, status, result, outputs } = child;
  if (parentId === null || (status !== 'completed' && status !== 'error' && status !== 'cancelled'))
    return;
  const row = (yield* one('SELECT background FROM threads WHERE thread_id = ?', id)) as {
    readonly background: number;
  };
  if (row.background === 0) return;
  const size = Buffer.byteLength(result ?? '') + (outputs ? JSON.stringify(outputs).length : 0);
  const name = run === 1 ? id : `${id}#${run}`;
  yield* enqueue({
    deliveryId: `child/${name}`,
    threadId: parentId,
    class: 'background',
    kind: 'child_result',
    mode: 'auto',
    source: id,
    sourceKey: `child:${name}`,
    childRun: run,
    text: '',
    requiresArtifact: size > INLINE_BYTES,
    now,
  });
}

/** Moves what waits for a thread to its continuation, in the transaction that links them. */
export function* moveDeliveries({
  from,
  to,
  now,
}: {
  readonly from: string;
  readonly to: string;
  readonly now: string;
}): Work<void> {
  for (const row of yield* openDeliveries(from)) {
    if (row.state !== 'queued' || (yield* isInFlight(row))) continue;
    yield* change('UPDATE deliveries SET thread_id = ? WHERE delivery_id = ?', to, row.delivery_id);
    yield* recordDecision({
      at: now,
      threadId: to,
      deliveryId: row.delivery_id,
      decision: 'move',
      reason: `${from} is continued by ${to}`,
    });
  }
}

/** True for a delivery in a run that is not over: the end of that run decides first. A thread that has ended has none. */
function* isInFlight({ run_id }: DeliveryRow): Work<boolean> {
  if (run_id === null) return false;
  const run = yield* one(
    `SELECT 1 FROM runs JOIN threads USING (thread_id) WHERE runs.run_id = ? AND runs.status = 'running'
       AND threads.status IN (${ACTIVE_STATUSES})`,
    run_id,
  );
  return run !== undefined;
}

/** The waiting thread has the results of these children already: they are not delivered as well. */
export function* closeWaited({
  threadId,
  children,
  now,
}: {
  threadId: string;
  children: readonly WaitedChild[];
  now: string;
}): Work<void> {
  for (const { threadId: child, run = null } of children) {
    // one that is in the log, or being put there, counts as delivered or not by its own run
    const row = (yield* one(
      `SELECT * FROM deliveries WHERE thread_id = ? AND kind = 'child_result' AND source = ?
         AND state <> 'closed' AND entry_id IS NULL AND coalesce(child_run, 1) = coalesce(?, child_run, 1)
         ORDER BY seq`,
      threadId,
      child,
      run,
    )) as DeliveryRow | undefined;
    const text = 'its parent waited for it';
    if (row) yield* close({ row, reason: 'consumed_by_wait', text, now });
  }
}

/**
 * Resolves a delivery by hand, in every state but two: a closed one is settled already, and one in the log of an open
 * run is settled by the end of that run. A retry is a new delivery with a new marker.
 */
export function* resolve(params: ResolveParams): Work<Delivery> {
  const { threadId, seq, as, now, newId } = params;
  const row = (yield* one('SELECT * FROM deliveries WHERE seq = ?', seq)) as
    | DeliveryRow
    | undefined;
  if (!row || (row.thread_id !== threadId && row.sent_to !== threadId)) {
    throw new RyeError('entry_not_found', `thread ${threadId} has no delivery ${seq}`, {
      hint: `List its deliveries with: rye threads deliveries ${threadId}`,
    });
  }
  yield* assertResolvable(row);
  yield* change(
    `UPDATE delivery_attempts SET reason = 'a person settled its delivery',
       state = CASE state WHEN 'tracking' THEN 'abandoned' ELSE 'rejected' END
     WHERE delivery_id = ? AND state IN ('accept_pending', 'tracking')`,
    row.delivery_id,
  );
  const [reason, text] = ANSWERS[as];
  yield* close({ row, reason, text, now });
  if (as !== 'retry') return deliveryOf(yield* required(row.delivery_id));
  return yield* enqueue({
    deliveryId: newId,
    threadId: row.thread_id,
    class: row.class,
    kind: row.kind,
    mode: row.mode,
    source: row.source,
    text: row.text,
    requiresArtifact: row.requires_artifact === 1,
    ...(row.child_run === null ? {} : { childRun: row.child_run }),
    now,
  });
}

const ANSWERS: Readonly<Record<ResolveParams['as'], readonly [reason: CloseReason, text: string]>> =
  {
    delivered: ['operator_confirmed', 'a person confirmed it'],
    dropped: ['operator_dropped', 'a person dropped it'],
    retry: ['requeued', 'a person asked for another try'],
  };

function* assertResolvable(row: DeliveryRow): Work<void> {
  const { seq, state, close_reason: reason, thread_id: id } = row;
  const details = { seq, state };
  if (state === 'closed') {
    throw new RyeError('illegal_transition', `delivery ${seq} is already settled: ${reason}`, {
      hint: `Send it again with: rye threads steer ${id} 'MESSAGE'`,
      details,
    });
  }
  if (state !== 'queued' || row.entry_id === null || !(yield* isInFlight(row))) return;
  throw new RyeError('illegal_transition', `delivery ${seq} is in a run that is not over`, {
    hint: `Wait for the run with \`rye threads wait ${id}\`, or end it with \`rye threads cancel ${id}\`.`,
    details,
  });
}

export function* close(end: {
  readonly row: DeliveryRow;
  readonly reason: CloseReason;
  readonly text: string;
  readonly now: string;
}): Work<void> {
  const { row, reason, text, now } = end;
  yield* change(
    `UPDATE deliveries SET state = 'closed', close_reason = ?, manual_reason = NULL, closed_at = ? WHERE delivery_id = ?`,
    reason,
    now,
    row.delivery_id,
  );
  const isDelivered = reason === 'delivered' || reason === 'delivered_absorbed';
  yield* recordDecision({
    at: now,
    threadId: row.thread_id,
    deliveryId: row.delivery_id,
    runId: row.run_id ?? undefined,
    decision: isDelivered ? 'deliver' : reason === 'consumed_by_wait' ? 'consume' : 'close',
    reason: text,
  });
}

/** Everything about the deliveries that a thread has or was sent, in order of arrival. */
export function* reports(threadId: string): Work<readonly DeliveryReport[]> {
  const rows = (yield* all(
    'SELECT * FROM deliveries WHERE thread_id = ? OR sent_to = ? ORDER BY seq',
    threadId,
    threadId,
  )) as readonly DeliveryRow[];
  const found: DeliveryReport[] = [];
  for (const row of rows) {
    found.push({
      ...deliveryOf(row),
      tries: yield* attemptsOf(row.delivery_id),
      decisions: yield* decisionsOf(row.delivery_id),
    });
  }
  return found;
}

function* required(deliveryId: string): Work<DeliveryRow> {
  const row = yield* findDelivery(deliveryId);
  if (!row) throw new RyeError('internal', `delivery ${deliveryId} is gone`);
  return row;
}
