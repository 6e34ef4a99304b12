import type { Delivery, WaitedChild } from '../../core/delivery.ts';
import { riskOf, settleDelivery } from '../../policy/steer.ts';
import type { EndRunParams, OpenRunParams, RecoverParams, RunKey } from '../deliveries.ts';
import { change, one, type Work } from '../sql-work.ts';
import { acceptRow, headOf, insertAttempt, reject } from './delivery-attempts.ts';
import { close, closeWaited, moveDeliveries } from './delivery-queue.ts';
import {
  assertEpoch,
  byEntry,
  columnOf,
  type DeliveryRow,
  deliveryOf,
  openDeliveries,
  type RunRow,
  recordDecision,
  reserve,
  toManual,
  unresolvedAttempt,
} from './delivery-rows.ts';

/**
 * Opens a thread's run. A delivery that was moved here with an entry that this conversation carries keeps it; an entry
 * that stayed on another branch is for a person to judge.
 */
export function* openRun(params: OpenRunParams): Work<readonly Delivery[]> {
  const { threadId, epoch, runId, now, carried, from } = params;
  yield* assertEpoch(threadId, epoch);
  for (const old of from) yield* moveDeliveries({ from: old, to: threadId, now });
  yield* insertRun({ ...params, kind: 'regular' });
  const kept: Delivery[] = [];
  for (const row of yield* openDeliveries(threadId)) {
    if (row.state !== 'queued' || row.entry_id === null) continue;
    if (carried.has(row.entry_id)) {
      yield* setRun(row, runId);
      kept.push(deliveryOf(row));
    } else {
      yield* toManual({ row, reason: 'its branch was left', now, epoch });
    }
  }
  return kept;
}

function* insertRun(
  run: Omit<OpenRunParams, 'carried' | 'from'> & { readonly kind: RunRow['kind'] },
): Work<void> {
  const { requires_approval, requires_network, requires_write_access } = run.traits;
  yield* change(
    `INSERT INTO runs (run_id, thread_id, epoch, kind, status, requires_approval, requires_network,
       requires_write_access, risk_class, started_at, point)
     VALUES (?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?)`,
    run.runId,
    run.threadId,
    run.epoch,
    run.kind,
    columnOf(requires_approval),
    columnOf(requires_network),
    columnOf(requires_write_access),
    riskOf(run.traits),
    run.now,
    run.point === undefined ? null : JSON.stringify(run.point),
  );
}

/** Updates the run's traits, which invalidates earlier steer proofs. */
export function* updateRun({
  key,
  traits,
  kind,
}: {
  key: RunKey;
  traits: OpenRunParams['traits'];
  kind: RunRow['kind'];
}): Work<void> {
  yield* assertEpoch(key.threadId, key.epoch);
  const { requires_approval, requires_network, requires_write_access } = traits;
  yield* change(
    `UPDATE runs SET kind = ?, requires_approval = ?, requires_network = ?, requires_write_access = ?, risk_class = ?,
       revision = revision + 1 WHERE run_id = ? AND status = 'running'`,
    kind,
    columnOf(requires_approval),
    columnOf(requires_network),
    columnOf(requires_write_access),
    riskOf(traits),
    key.runId,
  );
}

/** Consumes deliveries: a committed answer covered their entries. */
export function* consume(params: {
  key: RunKey;
  entryIds: readonly string[];
  answerId: string;
  now: string;
}): Work<void> {
  const { key, entryIds, answerId, now } = params;
  yield* assertEpoch(key.threadId, key.epoch);
  for (const entryId of entryIds) {
    const row = yield* byEntry(entryId);
    if (row?.answer_id === null) yield* cover({ row, answerId, key, now });
  }
}

function* cover(params: {
  row: DeliveryRow;
  answerId: string;
  key: RunKey;
  now: string;
}): Work<void> {
  const { row, answerId, key, now } = params;
  yield* change(
    'UPDATE deliveries SET answer_id = ? WHERE delivery_id = ?',
    answerId,
    row.delivery_id,
  );
  yield* recordDecision({
    at: now,
    threadId: row.thread_id,
    deliveryId: row.delivery_id,
    runId: key.runId,
    epoch: key.epoch,
    decision: 'consume',
    reason: 'a committed answer covers its entry',
    details: { answer_id: answerId },
  });
}

/** The thread has these children's results already, by waiting for them. */
export function* consumeWaited({
  key,
  children,
  now,
}: {
  key: RunKey;
  children: readonly WaitedChild[];
  now: string;
}): Work<void> {
  yield* assertEpoch(key.threadId, key.epoch);
  yield* closeWaited({ threadId: key.threadId, children, now });
}

/**
 * Ends the run, settles its deliveries and, with `next`, admits the head of the queue into another run, all in
 * one transaction, so that no other run can be open in between.
 */
export function* endRun(params: EndRunParams): Work<Delivery | undefined> {
  const { key, end, requested, now, next } = params;
  yield* assertEpoch(key.threadId, key.epoch);
  // a run that continues is ended only if another one takes its place
  if (next?.onlyIfWaiting === true && !(yield* admissible({ key, now }))) return undefined;
  yield* settleRun({ key, end, requested, now });
  if (!next) return undefined;
  const head = yield* admissible({ key, now });
  if (!head) return undefined;
  const run = { ...key, runId: next.runId };
  yield* insertRun({ ...run, traits: next.traits, now, kind: 'delivery' });
  const attemptId = next.attemptId;
  yield* insertAttempt({
    attemptId,
    row: head,
    kind: 'turn_start',
    marker: next.entryId,
    key: run,
    now,
    proof: undefined,
  });
  yield* reserve({ row: head, entryId: next.entryId, runId: next.runId });
  yield* recordDecision({
    at: now,
    threadId: key.threadId,
    deliveryId: head.delivery_id,
    attemptId,
    runId: next.runId,
    epoch: key.epoch,
    decision: 'allow',
    reason: 'the thread is idle: no other run is open',
  });
  return { ...deliveryOf(head), entry_id: next.entryId };
}

/** The head, if it may begin a run now. One whose attempts are used up goes to a person, the next is looked at. */
function* admissible({ key, now }: { key: RunKey; now: string }): Work<DeliveryRow | undefined> {
  for (;;) {
    const head = yield* headOf(key.threadId);
    if (!head || head.attempts < head.max_attempts) return head;
    const reason = `all ${head.max_attempts} attempts are used`;
    yield* toManual({ row: head, reason, now, epoch: key.epoch });
  }
}

type Ended = Pick<EndRunParams, 'key' | 'end' | 'requested' | 'now'>;

function* settleRun(ended: Ended): Work<void> {
  const { key, end, now } = ended;
  const changed = yield* change(
    `UPDATE runs SET status = ?, ended_at = ?, revision = revision + 1 WHERE run_id = ? AND status = 'running'`,
    end,
    now,
    key.runId,
  );
  if (changed === 0) return;
  yield* rejectPending({ threadId: key.threadId, now, key, reason: 'the run has ended' });
  for (const row of yield* openDeliveries(key.threadId)) {
    if (row.run_id === key.runId) yield* settleRow(row, ended);
  }
}

function* rejectPending(params: {
  threadId: string;
  now: string;
  key: Pick<RunKey, 'epoch'>;
  reason: string;
}): Work<void> {
  const attempt = yield* unresolvedAttempt(params.threadId);
  if (attempt?.state !== 'accept_pending') return;
  yield* reject({ attempt, reason: params.reason, now: params.now, key: params.key });
  // reserved, but never in the log
  yield* change(
    `UPDATE deliveries SET entry_id = NULL, run_id = NULL WHERE entry_id = ? AND accepted = 0`,
    attempt.marker,
  );
}

function* settleRow(row: DeliveryRow, { key, end, requested, now }: Ended): Work<void> {
  if (row.accepted === 0) {
    yield* change(
      'UPDATE deliveries SET entry_id = NULL, run_id = NULL WHERE delivery_id = ?',
      row.delivery_id,
    );
    return;
  }
  const settled = settleDelivery(end, {
    isCovered: row.answer_id !== null,
    isRequested: row.entry_id === null || requested.has(row.entry_id),
  });
  const attempt = yield* unresolvedAttempt(row.thread_id);
  const isTried = attempt?.delivery_id === row.delivery_id && attempt.state === 'tracking';
  if (isTried) {
    yield* change(
      'UPDATE delivery_attempts SET state = ?, reason = ? WHERE attempt_id = ?',
      settled.attempt,
      settled.reason,
      attempt.attempt_id,
    );
  }
  if (settled.delivery === 'manual') {
    yield* toManual({ row, reason: settled.reason, now, epoch: key.epoch });
  } else if (settled.delivery === 'delivered') {
    const isOrphan = row.class === 'background' && !isTried;
    const reason = isOrphan ? 'delivered_absorbed' : 'delivered';
    yield* close({ row, reason, text: settled.reason, now });
  } else {
    // the model has not seen it, so it costs no attempt
    if (isTried) {
      const sql = 'UPDATE deliveries SET attempts = attempts - 1 WHERE delivery_id = ?';
      yield* change(sql, row.delivery_id);
    }
    yield* recordDecision({
      at: now,
      threadId: row.thread_id,
      deliveryId: row.delivery_id,
      runId: key.runId,
      epoch: key.epoch,
      decision: 'requeue',
      reason: settled.reason,
    });
  }
}

/**
 * Recovers the deliveries of a crashed owner by what its signed log proves. An entry that is in neither the log nor the tables as
 * accepted was never sent. For one that is, the log tells whether an answer covered it and whether a request carried it.
 */
export function* recover(params: RecoverParams): Work<void> {
  const { threadId, epoch, facts, now } = params;
  yield* assertEpoch(threadId, epoch);
  yield* closeWaited({ threadId, children: facts.waitedFor, now });
  const run = (yield* one(
    `SELECT * FROM runs WHERE thread_id = ? AND status = 'running'`,
    threadId,
  )) as RunRow | undefined;
  const key: RunKey = { threadId, epoch, runId: run?.run_id ?? '' };
  for (const row of yield* openDeliveries(threadId)) {
    if (row.entry_id === null || !facts.entries.has(row.entry_id)) continue;
    if (row.accepted === 0) yield* acceptRow({ row, key, now });
    const answerId = facts.answers.get(row.entry_id);
    if (answerId !== undefined && row.answer_id === null) yield* cover({ row, answerId, key, now });
  }
  if (run) {
    yield* settleRun({
      key,
      end: facts.finished === 'completed' ? 'completed' : 'interrupted',
      requested: yield* requestedOf(threadId, facts),
      now,
    });
  }
  yield* rejectPending({ threadId, now, key, reason: 'its owner was lost before it was sent' });
}

/** An entry that was accepted and that the signed log lacks may have been sent: the log was cut or damaged after it. */
function* requestedOf(
  threadId: string,
  { entries, requested }: RecoverParams['facts'],
): Work<ReadonlySet<string>> {
  const lost = (yield* openDeliveries(threadId)).flatMap(({ accepted, entry_id: id }) =>
    accepted === 1 && id !== null && !entries.has(id) ? [id] : [],
  );
  return new Set([...requested, ...lost]);
}

function* setRun(row: DeliveryRow, runId: string): Work<void> {
  yield* change('UPDATE deliveries SET run_id = ? WHERE delivery_id = ?', runId, row.delivery_id);
}
