import { isoTime } from '../../core/clock.ts';
import type {
  ActiveTurn,
  CloseReason,
  Delivery,
  DeliveryAttempt,
  DeliveryClass,
  DeliveryDecision,
  DeliveryKind,
  DeliveryMode,
  DeliveryState,
  RunKind,
  RunProof,
  RunTraits,
} from '../../core/delivery.ts';
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import { takenOver } from '../../core/thread-errors.ts';
import { all, change, one, type Work } from '../sql-work.ts';

/**
 * The tables of deliveries. Constraints hold the invariants: one open run and one
 * unresolved attempt per thread, one entry per delivery, no steer without a low-risk proof, no end as delivered without
 * an answer that covered the entry.
 */
export const DELIVERIES_MIGRATION = `
  ALTER TABLE threads ADD COLUMN background INTEGER NOT NULL DEFAULT 0;
  CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL,
    sent_to TEXT NOT NULL,
    class TEXT NOT NULL CHECK (class IN ('person', 'background')),
    kind TEXT NOT NULL CHECK (kind IN ('steer', 'message', 'child_result')),
    mode TEXT NOT NULL CHECK (mode IN ('auto', 'idle', 'active', 'follow-up')),
    source TEXT NOT NULL,
    source_key TEXT UNIQUE,
    text TEXT NOT NULL,
    requires_artifact INTEGER NOT NULL DEFAULT 0 CHECK (requires_artifact IN (0, 1)),
    state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'manual', 'closed')),
    close_reason TEXT CHECK (close_reason IN ('delivered', 'delivered_absorbed', 'consumed_by_wait',
      'operator_confirmed', 'operator_dropped', 'requeued')),
    manual_reason TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    closed_at TEXT,
    entry_id TEXT UNIQUE,
    run_id TEXT,
    accepted INTEGER NOT NULL DEFAULT 0 CHECK (accepted IN (0, 1)),
    answer_id TEXT,
    CHECK ((state = 'closed') = (close_reason IS NOT NULL)),
    CHECK ((state = 'manual') = (manual_reason IS NOT NULL)),
    CHECK (attempts BETWEEN 0 AND max_attempts),
    CHECK (accepted = 0 OR entry_id IS NOT NULL),
    CHECK (close_reason IS NULL OR close_reason NOT IN ('delivered', 'delivered_absorbed')
      OR (accepted = 1 AND answer_id IS NOT NULL))
  );
  CREATE INDEX deliveries_waiting ON deliveries (thread_id, seq) WHERE state <> 'closed';
  CREATE INDEX deliveries_by_address ON deliveries (sent_to);
  CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    kind TEXT NOT NULL CHECK (kind IN ('regular', 'delivery', 'compact', 'unknown')),
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'interrupted', 'replaced')),
    requires_approval INTEGER,
    requires_network INTEGER,
    requires_write_access INTEGER,
    risk_class TEXT NOT NULL CHECK (risk_class IN ('read_only_low_risk', 'elevated', 'unknown')),
    revision INTEGER NOT NULL DEFAULT 1,
    started_at TEXT NOT NULL,
    ended_at TEXT
  );
  CREATE UNIQUE INDEX one_open_run ON runs (thread_id) WHERE status = 'running';
  CREATE TABLE delivery_attempts (
    attempt_id TEXT PRIMARY KEY,
    delivery_id TEXT NOT NULL REFERENCES deliveries (delivery_id),
    thread_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('turn_start', 'turn_steer')),
    marker TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('accept_pending', 'tracking', 'delivered', 'rejected', 'abandoned')),
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    expected_run_id TEXT NOT NULL,
    expected_revision INTEGER NOT NULL,
    run_id TEXT,
    reason TEXT,
    proof TEXT,
    created_at TEXT NOT NULL,
    UNIQUE (delivery_id, generation),
    CHECK (state NOT IN ('tracking', 'delivered') OR run_id IS expected_run_id),
    CHECK (kind = 'turn_start'
      OR coalesce(json_extract(proof, '$.risk_class'), '') = 'read_only_low_risk')
  );
  CREATE UNIQUE INDEX one_unresolved_attempt ON delivery_attempts (thread_id)
    WHERE state IN ('accept_pending', 'tracking');
  CREATE TABLE delivery_decisions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    attempt_id TEXT,
    run_id TEXT,
    epoch INTEGER,
    decision TEXT NOT NULL,
    reason TEXT NOT NULL,
    details TEXT NOT NULL
  );
  CREATE INDEX decisions_by_delivery ON delivery_decisions (delivery_id);`;

/** Maximum attempts of a background delivery. */
export const MAX_ATTEMPTS = 3;

export interface DeliveryRow {
  readonly seq: number;
  readonly delivery_id: string;
  readonly thread_id: string;
  readonly sent_to: string;
  readonly class: DeliveryClass;
  readonly kind: DeliveryKind;
  readonly mode: DeliveryMode;
  readonly source: string;
  readonly text: string;
  readonly requires_artifact: number;
  readonly state: DeliveryState;
  readonly close_reason: CloseReason | null;
  readonly manual_reason: string | null;
  readonly attempts: number;
  readonly max_attempts: number;
  readonly created_at: string;
  readonly closed_at: string | null;
  readonly entry_id: string | null;
  readonly run_id: string | null;
  readonly accepted: number;
  readonly answer_id: string | null;
  readonly child_run: number | null;
}

export interface RunRow {
  readonly run_id: string;
  readonly thread_id: string;
  readonly epoch: number;
  readonly kind: RunKind;
  readonly status: string;
  readonly requires_approval: number | null;
  readonly requires_network: number | null;
  readonly requires_write_access: number | null;
  readonly risk_class: 'read_only_low_risk' | 'elevated' | 'unknown';
  readonly revision: number;
  /** A {@link SteerPoint} as JSON; null until the owner published one. */
  readonly point: string | null;
}

type DecisionRow = Omit<DeliveryDecision, 'details'> & { readonly details: string };

export function deliveryOf(row: DeliveryRow): Delivery {
  const { run_id: _run, accepted, entry_id, requires_artifact, child_run: run, ...rest } = row;
  return {
    ...rest,
    requires_artifact: requires_artifact === 1,
    entry_id: accepted === 1 ? entry_id : null,
    ...(run === null || run === 1 ? {} : { child_run: run }),
  };
}

export function traitsOf(row: RunRow): RunTraits {
  return {
    requires_approval: flagOf(row.requires_approval),
    requires_network: flagOf(row.requires_network),
    requires_write_access: flagOf(row.requires_write_access),
  };
}

function flagOf(value: number | null): boolean | null {
  return value === null ? null : value === 1;
}

export function columnOf(value: boolean | null): number | null {
  return value === null ? null : Number(value);
}

export function* findDelivery(deliveryId: string): Work<DeliveryRow | undefined> {
  return (yield* one('SELECT * FROM deliveries WHERE delivery_id = ?', deliveryId)) as
    | DeliveryRow
    | undefined;
}

/** Deliveries of a thread that are not closed, in order of arrival. */
export function* openDeliveries(threadId: string): Work<readonly DeliveryRow[]> {
  return (yield* all(
    `SELECT * FROM deliveries WHERE thread_id = ? AND state <> 'closed' ORDER BY seq`,
    threadId,
  )) as readonly DeliveryRow[];
}

export function* attemptsOf(deliveryId: string): Work<readonly DeliveryAttempt[]> {
  const rows = (yield* all(
    `SELECT attempt_id, delivery_id, thread_id, generation, kind, marker, state, epoch, expected_run_id,
       expected_revision, run_id, reason, proof, created_at
     FROM delivery_attempts WHERE delivery_id = ? ORDER BY generation`,
    deliveryId,
  )) as readonly AttemptRow[];
  return rows.map((row) => ({ ...row, proof: row.proof === null ? null : activeTurn(row.proof) }));
}

type AttemptRow = Omit<DeliveryAttempt, 'proof'> & { readonly proof: string | null };

function activeTurn(text: string): ActiveTurn {
  // only this program writes the column, and its constraint checks the risk
  return activeTurnOf(parseJson(text) as unknown as RunProof);
}

export function activeTurnOf(proof: RunProof): ActiveTurn {
  const { observed_at, valid_until } = proof;
  return { ...proof, observed_at: isoTime(observed_at), valid_until: isoTime(valid_until) };
}

/** The thread's attempt that is neither accepted nor over, or accepted and not over. */
export function* unresolvedAttempt(threadId: string): Work<AttemptRow | undefined> {
  return (yield* one(
    `SELECT * FROM delivery_attempts WHERE thread_id = ? AND state IN ('accept_pending', 'tracking')`,
    threadId,
  )) as AttemptRow | undefined;
}

export function* decisionsOf(deliveryId: string): Work<readonly DeliveryDecision[]> {
  const rows = (yield* all(
    'SELECT * FROM delivery_decisions WHERE delivery_id = ? ORDER BY seq',
    deliveryId,
  )) as readonly DecisionRow[];
  return rows.map((row) => ({ ...row, details: objectIn(row.details) }));
}

function objectIn(text: string): JsonObject {
  const value = parseJson(text);
  return isJsonObject(value) ? value : {};
}

export interface DecisionParams {
  readonly at: string;
  readonly threadId: string;
  readonly deliveryId: string;
  readonly attemptId?: string | undefined;
  readonly runId?: string | undefined;
  readonly epoch?: number | undefined;
  readonly decision: DeliveryDecision['decision'];
  readonly reason: string;
  readonly details?: object;
}

/** Adds to the record of decisions. A delivery's reason to wait is written once, not at each safe point. */
export function* recordDecision(params: DecisionParams): Work<void> {
  const { at, threadId, deliveryId, decision, reason, details = {} } = params;
  const last = (yield* one(
    'SELECT decision, reason FROM delivery_decisions WHERE delivery_id = ? ORDER BY seq DESC LIMIT 1',
    deliveryId,
  )) as { readonly decision: string; readonly reason: string } | undefined;
  if (last?.decision === decision && last.reason === reason) return;
  yield* change(
    `INSERT INTO delivery_decisions (at, thread_id, delivery_id, attempt_id, run_id, epoch, decision, reason, details)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    at,
    threadId,
    deliveryId,
    params.attemptId ?? null,
    params.runId ?? null,
    params.epoch ?? null,
    decision,
    reason,
    JSON.stringify(details),
  );
}

export function* byEntry(entryId: string): Work<DeliveryRow | undefined> {
  return (yield* one(
    `SELECT * FROM deliveries WHERE entry_id = ? AND state = 'queued'`,
    entryId,
  )) as DeliveryRow | undefined;
}

export function* reserve({
  row,
  entryId,
  runId,
}: {
  row: DeliveryRow;
  entryId: string;
  runId: string;
}): Work<void> {
  yield* change(
    'UPDATE deliveries SET entry_id = ?, run_id = ? WHERE delivery_id = ? AND entry_id IS NULL',
    entryId,
    runId,
    row.delivery_id,
  );
}

export function* toManual(params: {
  row: DeliveryRow;
  reason: string;
  now: string;
  epoch: number;
}): Work<void> {
  const { row, reason, now, epoch } = params;
  yield* change(
    `UPDATE deliveries SET state = 'manual', manual_reason = ? WHERE delivery_id = ?`,
    reason,
    row.delivery_id,
  );
  yield* recordDecision({
    at: now,
    threadId: row.thread_id,
    deliveryId: row.delivery_id,
    runId: row.run_id ?? undefined,
    epoch,
    decision: 'manual',
    reason,
  });
}

/** Fencing: only the owner of the newest epoch may move a run. */
export function* assertEpoch(threadId: string, epoch: number): Work<void> {
  const row = (yield* one('SELECT epoch FROM threads WHERE thread_id = ?', threadId)) as
    | { readonly epoch: number }
    | undefined;
  if (row?.epoch === epoch) return;
  throw takenOver(threadId, { epoch: row?.epoch ?? null });
}
