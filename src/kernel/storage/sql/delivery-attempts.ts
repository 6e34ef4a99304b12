import type { ActiveTurn, Delivery, RunProof } from '../../core/delivery.ts';
import { RyeError } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import {
  decideSteer,
  type SteerDecision,
  type SteerRules,
  TEXT_NEEDS,
} from '../../policy/steer.ts';
import type { AdmitParams, RunKey, SteerParams } from '../deliveries.ts';
import { change, one, type Work } from '../sql-work.ts';
import {
  activeTurnOf,
  assertEpoch,
  byEntry,
  type DeliveryRow,
  deliveryOf,
  openDeliveries,
  type RunRow,
  recordDecision,
  reserve,
  toManual,
  traitsOf,
  unresolvedAttempt,
} from './delivery-rows.ts';

/** Reserves all pending deliveries from people, in order. They are in the run once the log has them. */
export function* admitPeople({
  key,
  modes,
  atMost,
  newEntryId,
  now,
}: AdmitParams): Work<readonly Delivery[]> {
  yield* assertEpoch(key.threadId, key.epoch);
  yield* requireRun(key);
  const waiting = (yield* openDeliveries(key.threadId)).filter(
    (row) =>
      row.class === 'person' &&
      row.state === 'queued' &&
      row.entry_id === null &&
      modes.includes(row.mode),
  );
  const admitted: Delivery[] = [];
  for (const row of waiting.slice(0, atMost)) {
    const entryId = newEntryId();
    yield* reserve({ row, entryId, runId: key.runId });
    yield* recordDecision({
      at: now,
      threadId: key.threadId,
      deliveryId: row.delivery_id,
      runId: key.runId,
      epoch: key.epoch,
      decision: 'allow',
      reason: 'people are heard at the next safe point',
    });
    admitted.push({ ...deliveryOf(row), entry_id: entryId });
  }
  return admitted;
}

/** The oldest background delivery that is not in the log: the only one that may be tried. */
export function* headOf(threadId: string): Work<DeliveryRow | undefined> {
  return (yield* openDeliveries(threadId)).find(
    (row) => row.class === 'background' && row.state === 'queued' && row.entry_id === null,
  );
}

/** Requests that the head of the queue enters the open run; inserts the attempt if the proof allows it. */
export function* requestSteer({
  key,
  point,
  rules,
  now,
  nowMs,
  ids,
}: SteerParams): Work<SteerDecision | undefined> {
  yield* assertEpoch(key.threadId, key.epoch);
  const head = yield* headOf(key.threadId);
  if (!head) return undefined;
  const decision = yield* decide({ head, key, point, rules, nowMs });
  const at = { at: now, threadId: key.threadId, deliveryId: head.delivery_id };
  const facts = { runId: key.runId, epoch: key.epoch, details: { row: decision.row, ...point } };
  if (decision.outcome === 'manual') {
    yield* toManual({ row: head, reason: decision.reason, now, epoch: key.epoch });
  } else if (decision.outcome === 'steer') {
    const attemptId = ids.attempt();
    yield* insertAttempt({
      attemptId,
      row: head,
      kind: 'turn_steer',
      marker: ids.entry(),
      key,
      now,
      proof: yield* proofOf(key, point),
    });
    yield* recordDecision({
      ...at,
      ...facts,
      attemptId,
      decision: 'allow',
      reason: decision.reason,
    });
  } else {
    yield* recordDecision({
      ...at,
      ...facts,
      decision: decision.outcome,
      reason: decision.reason,
    });
  }
  return decision;
}

interface Judged {
  readonly head: DeliveryRow;
  readonly key: RunKey;
  readonly point: SteerParams['point'];
  readonly rules: SteerRules;
  readonly nowMs: number;
}

function* decide(
  { head, key, point, rules, nowMs }: Judged,
  pending?: string,
): Work<SteerDecision> {
  const unresolved = yield* unresolvedAttempt(key.threadId);
  const proof = yield* proofOf(key, point);
  return decideSteer({
    rules,
    delivery: deliveryOf(head),
    isHead: (yield* headOf(key.threadId))?.delivery_id === head.delivery_id,
    hasUnresolvedAttempt: unresolved !== undefined && unresolved.attempt_id !== pending,
    lastSentAt: yield* lastSteer(key.threadId),
    needs: TEXT_NEEDS,
    threadId: key.threadId,
    epoch: key.epoch,
    proofs: proof ? [proof] : [],
    now: nowMs,
  });
}

function* lastSteer(threadId: string): Work<number | undefined> {
  const row = (yield* one(
    `SELECT max(created_at) AS at FROM delivery_attempts
      WHERE thread_id = ? AND kind = 'turn_steer' AND run_id IS NOT NULL`,
    threadId,
  )) as { readonly at: string | null } | undefined;
  return row?.at === null || row === undefined ? undefined : Date.parse(row.at);
}

function* proofOf(
  { threadId }: Pick<RunKey, 'threadId'>,
  point: SteerParams['point'],
): Work<RunProof | undefined> {
  const run = yield* openRunOf(threadId);
  return run && proofAt(run, point);
}

function* openRunOf(threadId: string): Work<RunRow | undefined> {
  return (yield* one(`SELECT * FROM runs WHERE thread_id = ? AND status = 'running'`, threadId)) as
    | RunRow
    | undefined;
}

/** Keeps the state of the run as its owner has just observed it, for everybody else to read. */
export function* publishPoint({
  key,
  point,
}: {
  readonly key: RunKey;
  readonly point: SteerParams['point'];
}): Work<void> {
  yield* assertEpoch(key.threadId, key.epoch);
  const text = JSON.stringify(point);
  yield* change(
    `UPDATE runs SET point = ? WHERE run_id = ? AND status = 'running'`,
    text,
    key.runId,
  );
}

/** The open run of a thread as its owner last published it. */
export function* activeTurn(threadId: string): Work<ActiveTurn | undefined> {
  const run = yield* openRunOf(threadId);
  if (!run || run.point === null) return undefined;
  const point = parseJson(run.point) as unknown as SteerParams['point'];
  return activeTurnOf(proofAt(run, point));
}

function proofAt(run: RunRow, point: SteerParams['point']): RunProof {
  return {
    thread_id: run.thread_id,
    epoch: run.epoch,
    active_run_id: run.run_id,
    active_run_kind: run.kind,
    ...traitsOf(run),
    risk_class: run.risk_class,
    steerable: run.kind === 'regular',
    revision: run.revision,
    ...point,
  };
}

/**
 * Admits a requested steer, by the owner at the safe point: checks the conditions of the request again, and reserves the
 * entry. A difference rejects the attempt, which costs nothing.
 */
export function* admitSteer({
  key,
  point,
  rules,
  now,
  nowMs,
}: SteerParams): Work<Delivery | undefined> {
  yield* assertEpoch(key.threadId, key.epoch);
  const attempt = yield* unresolvedAttempt(key.threadId);
  if (attempt?.kind !== 'turn_steer' || attempt.state !== 'accept_pending') return undefined;
  const row = (yield* openDeliveries(key.threadId)).find(
    ({ delivery_id }) => delivery_id === attempt.delivery_id,
  );
  const run = yield* proofOf(key, point);
  const decision =
    row && (yield* decide({ head: row, key, point, rules, nowMs }, attempt.attempt_id));
  const isSame =
    run?.active_run_id === attempt.expected_run_id &&
    run.revision === attempt.expected_revision &&
    attempt.epoch === key.epoch;
  if (row && isSame && decision?.outcome === 'steer') {
    yield* reserve({ row, entryId: attempt.marker, runId: key.runId });
    return { ...deliveryOf(row), entry_id: attempt.marker };
  }
  const reason = isSame ? (decision?.reason ?? 'the delivery is gone') : 'the run has changed';
  yield* reject({ attempt, reason, now, key });
  return undefined;
}

export function* reject(end: {
  readonly attempt: { attempt_id: string; delivery_id: string; thread_id: string };
  readonly reason: string;
  readonly now: string;
  readonly key: Pick<RunKey, 'epoch'>;
}): Work<void> {
  const { attempt, reason, now, key } = end;
  yield* change(
    `UPDATE delivery_attempts SET state = 'rejected', reason = ? WHERE attempt_id = ?`,
    reason,
    attempt.attempt_id,
  );
  yield* recordDecision({
    at: now,
    threadId: attempt.thread_id,
    deliveryId: attempt.delivery_id,
    attemptId: attempt.attempt_id,
    epoch: key.epoch,
    decision: 'refuse',
    reason,
  });
}

export function* insertAttempt(params: {
  readonly attemptId: string;
  readonly row: DeliveryRow;
  readonly kind: 'turn_start' | 'turn_steer';
  readonly marker: string;
  readonly key: RunKey;
  readonly now: string;
  readonly proof: RunProof | undefined;
}): Work<void> {
  const { attemptId, row, kind, marker, key, now, proof } = params;
  const { count } = (yield* one(
    'SELECT count(*) AS count FROM delivery_attempts WHERE delivery_id = ?',
    row.delivery_id,
  )) as { readonly count: number };
  yield* change(
    `INSERT INTO delivery_attempts (attempt_id, delivery_id, thread_id, generation, kind, marker, state, epoch,
       expected_run_id, expected_revision, proof, created_at) VALUES (?, ?, ?, ?, ?, ?, 'accept_pending', ?, ?, ?, ?, ?)`,
    attemptId,
    row.delivery_id,
    key.threadId,
    count + 1,
    kind,
    marker,
    key.epoch,
    key.runId,
    proof?.revision ?? 1,
    proof ? JSON.stringify(proof) : null,
    now,
  );
}

/** Accepts a delivery: its entry is in the log, so the run has it. Counts as an attempt. */
export function* accept({
  key,
  entryIds,
  now,
}: {
  key: RunKey;
  entryIds: readonly string[];
  now: string;
}): Work<void> {
  yield* assertEpoch(key.threadId, key.epoch);
  for (const entryId of entryIds) {
    const row = yield* byEntry(entryId);
    if (row && row.accepted === 0) yield* acceptRow({ row, key, now });
  }
}

export function* acceptRow({
  row,
  key,
  now,
}: {
  row: DeliveryRow;
  key: RunKey;
  now: string;
}): Work<void> {
  const attempt = yield* unresolvedAttempt(row.thread_id);
  const isTried = attempt?.delivery_id === row.delivery_id;
  yield* change(
    'UPDATE deliveries SET accepted = 1, attempts = attempts + ? WHERE delivery_id = ?',
    Number(isTried),
    row.delivery_id,
  );
  if (isTried) {
    yield* change(
      `UPDATE delivery_attempts SET state = 'tracking', run_id = expected_run_id WHERE attempt_id = ?`,
      attempt.attempt_id,
    );
  }
  yield* recordDecision({
    at: now,
    threadId: row.thread_id,
    deliveryId: row.delivery_id,
    attemptId: isTried ? attempt.attempt_id : undefined,
    runId: key.runId,
    epoch: key.epoch,
    decision: 'accept',
    reason: 'its entry is in the log',
    details: { entry_id: row.entry_id },
  });
}

function* requireRun({ threadId, runId }: RunKey): Work<void> {
  const run = yield* one(
    `SELECT run_id FROM runs WHERE run_id = ? AND thread_id = ? AND status = 'running'`,
    runId,
    threadId,
  );
  if (run) return;
  throw new RyeError('illegal_transition', `run ${runId} of ${threadId} is over`);
}
