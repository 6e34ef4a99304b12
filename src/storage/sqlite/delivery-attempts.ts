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
import type { LazyDatabase } from './database.ts';
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
export function admitPeople(
  database: LazyDatabase,
  { key, modes, atMost, newEntryId, now }: AdmitParams,
): readonly Delivery[] {
  assertEpoch(database, key.threadId, key.epoch);
  requireRun(database, key);
  const waiting = openDeliveries(database, key.threadId).filter(
    (row) =>
      row.class === 'person' &&
      row.state === 'queued' &&
      row.entry_id === null &&
      modes.includes(row.mode),
  );
  return waiting.slice(0, atMost).map((row) => {
    const entryId = newEntryId();
    reserve(database, { row, entryId, runId: key.runId });
    recordDecision(database, {
      at: now,
      threadId: key.threadId,
      deliveryId: row.delivery_id,
      runId: key.runId,
      epoch: key.epoch,
      decision: 'allow',
      reason: 'people are heard at the next safe point',
    });
    return { ...deliveryOf(row), entry_id: entryId };
  });
}

/** The oldest background delivery that is not in the log: the only one that may be tried. */
export function headOf(database: LazyDatabase, threadId: string): DeliveryRow | undefined {
  return openDeliveries(database, threadId).find(
    (row) => row.class === 'background' && row.state === 'queued' && row.entry_id === null,
  );
}

/** Requests that the head of the queue enters the open run; inserts the attempt if the proof allows it. */
export function requestSteer(
  database: LazyDatabase,
  { key, point, rules, now, nowMs, ids }: SteerParams,
): SteerDecision | undefined {
  assertEpoch(database, key.threadId, key.epoch);
  const head = headOf(database, key.threadId);
  if (!head) return undefined;
  const decision = decide(database, { head, key, point, rules, nowMs });
  const at = { at: now, threadId: key.threadId, deliveryId: head.delivery_id };
  const facts = { runId: key.runId, epoch: key.epoch, details: { row: decision.row, ...point } };
  if (decision.outcome === 'manual') {
    toManual(database, { row: head, reason: decision.reason, now, epoch: key.epoch });
  } else if (decision.outcome === 'steer') {
    const attemptId = ids.attempt();
    insertAttempt(database, {
      attemptId,
      row: head,
      kind: 'turn_steer',
      marker: ids.entry(),
      key,
      now,
      proof: proofOf(database, key, point),
    });
    recordDecision(database, {
      ...at,
      ...facts,
      attemptId,
      decision: 'allow',
      reason: decision.reason,
    });
  } else {
    recordDecision(database, {
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

function decide(
  database: LazyDatabase,
  { head, key, point, rules, nowMs }: Judged,
  pending?: string,
): SteerDecision {
  const unresolved = unresolvedAttempt(database, key.threadId);
  const proof = proofOf(database, key, point);
  return decideSteer({
    rules,
    delivery: deliveryOf(head),
    isHead: headOf(database, key.threadId)?.delivery_id === head.delivery_id,
    hasUnresolvedAttempt: unresolved !== undefined && unresolved.attempt_id !== pending,
    lastSentAt: lastSteer(database, key.threadId),
    needs: TEXT_NEEDS,
    threadId: key.threadId,
    epoch: key.epoch,
    proofs: proof ? [proof] : [],
    now: nowMs,
  });
}

function lastSteer(database: LazyDatabase, threadId: string): number | undefined {
  const row = database.get(
    `SELECT max(created_at) AS at FROM delivery_attempts
      WHERE thread_id = ? AND kind = 'turn_steer' AND run_id IS NOT NULL`,
    threadId,
  ) as { readonly at: string | null } | undefined;
  return row?.at === null || row === undefined ? undefined : Date.parse(row.at);
}

function proofOf(
  database: LazyDatabase,
  { threadId }: Pick<RunKey, 'threadId'>,
  point: SteerParams['point'],
): RunProof | undefined {
  const run = openRunOf(database, threadId);
  return run && proofAt(run, point);
}

function openRunOf(database: LazyDatabase, threadId: string): RunRow | undefined {
  return database.get(`SELECT * FROM runs WHERE thread_id = ? AND status = 'running'`, threadId) as
    | RunRow
    | undefined;
}

/** Keeps the state of the run as its owner has just observed it, for everybody else to read. */
export function publishPoint(
  database: LazyDatabase,
  { key, point }: { readonly key: RunKey; readonly point: SteerParams['point'] },
): void {
  assertEpoch(database, key.threadId, key.epoch);
  const text = JSON.stringify(point);
  database.run(
    `UPDATE runs SET point = ? WHERE run_id = ? AND status = 'running'`,
    text,
    key.runId,
  );
}

/** The open run of a thread as its owner last published it. */
export function activeTurn(database: LazyDatabase, threadId: string): ActiveTurn | undefined {
  const run = openRunOf(database, threadId);
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
export function admitSteer(
  database: LazyDatabase,
  { key, point, rules, now, nowMs }: SteerParams,
): Delivery | undefined {
  assertEpoch(database, key.threadId, key.epoch);
  const attempt = unresolvedAttempt(database, key.threadId);
  if (attempt?.kind !== 'turn_steer' || attempt.state !== 'accept_pending') return undefined;
  const row = openDeliveries(database, key.threadId).find(
    ({ delivery_id }) => delivery_id === attempt.delivery_id,
  );
  const run = proofOf(database, key, point);
  const decision =
    row && decide(database, { head: row, key, point, rules, nowMs }, attempt.attempt_id);
  const isSame =
    run?.active_run_id === attempt.expected_run_id &&
    run.revision === attempt.expected_revision &&
    attempt.epoch === key.epoch;
  if (row && isSame && decision?.outcome === 'steer') {
    reserve(database, { row, entryId: attempt.marker, runId: key.runId });
    return { ...deliveryOf(row), entry_id: attempt.marker };
  }
  const reason = isSame ? (decision?.reason ?? 'the delivery is gone') : 'the run has changed';
  reject(database, { attempt, reason, now, key });
  return undefined;
}

export function reject(
  database: LazyDatabase,
  end: {
    readonly attempt: { attempt_id: string; delivery_id: string; thread_id: string };
    readonly reason: string;
    readonly now: string;
    readonly key: Pick<RunKey, 'epoch'>;
  },
): void {
  const { attempt, reason, now, key } = end;
  database.run(
    `UPDATE delivery_attempts SET state = 'rejected', reason = ? WHERE attempt_id = ?`,
    reason,
    attempt.attempt_id,
  );
  recordDecision(database, {
    at: now,
    threadId: attempt.thread_id,
    deliveryId: attempt.delivery_id,
    attemptId: attempt.attempt_id,
    epoch: key.epoch,
    decision: 'refuse',
    reason,
  });
}

export function insertAttempt(
  database: LazyDatabase,
  params: {
    readonly attemptId: string;
    readonly row: DeliveryRow;
    readonly kind: 'turn_start' | 'turn_steer';
    readonly marker: string;
    readonly key: RunKey;
    readonly now: string;
    readonly proof: RunProof | undefined;
  },
): void {
  const { attemptId, row, kind, marker, key, now, proof } = params;
  const { count } = database.get(
    'SELECT count(*) AS count FROM delivery_attempts WHERE delivery_id = ?',
    row.delivery_id,
  ) as { readonly count: number };
  database.run(
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
export function accept(
  database: LazyDatabase,
  { key, entryIds, now }: { key: RunKey; entryIds: readonly string[]; now: string },
): void {
  assertEpoch(database, key.threadId, key.epoch);
  for (const entryId of entryIds) {
    const row = byEntry(database, entryId);
    if (row && row.accepted === 0) acceptRow(database, { row, key, now });
  }
}

export function acceptRow(
  database: LazyDatabase,
  { row, key, now }: { row: DeliveryRow; key: RunKey; now: string },
): void {
  const attempt = unresolvedAttempt(database, row.thread_id);
  const isTried = attempt?.delivery_id === row.delivery_id;
  database.run(
    'UPDATE deliveries SET accepted = 1, attempts = attempts + ? WHERE delivery_id = ?',
    Number(isTried),
    row.delivery_id,
  );
  if (isTried) {
    database.run(
      `UPDATE delivery_attempts SET state = 'tracking', run_id = expected_run_id WHERE attempt_id = ?`,
      attempt.attempt_id,
    );
  }
  recordDecision(database, {
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

function requireRun(database: LazyDatabase, { threadId, runId }: RunKey): void {
  const run = database.get(
    `SELECT run_id FROM runs WHERE run_id = ? AND thread_id = ? AND status = 'running'`,
    runId,
    threadId,
  );
  if (run) return;
  throw new RyeError('illegal_transition', `run ${runId} of ${threadId} is over`);
}
