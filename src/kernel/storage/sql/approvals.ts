import type {
  ApprovalOutcome,
  ApprovalState,
  RequestedApproval,
  SignedDecision,
} from '../../core/approval.ts';
import { OBJECT, objectOf, TEXT } from '../../core/shape.ts';
import type { ApprovalFilter, Approvals, StoredApproval } from '../approvals.ts';
import {
  all,
  bind,
  change,
  one,
  reading,
  type SqlDatabase,
  type Work,
  writing,
} from '../sql-work.ts';
import { storedJson } from '../stored-json.ts';

export const APPROVALS_MIGRATION = `
  CREATE TABLE approvals (
    approval_id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'denied', 'answered', 'expired',
      'withdrawn', 'voided')),
    requested TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    closed_at TEXT,
    CHECK ((state = 'pending') = (closed_at IS NULL))
  );
  CREATE INDEX approvals_by_thread ON approvals (thread_id, state);
  CREATE INDEX approvals_by_state ON approvals (state, created_at);
  CREATE TABLE approval_decisions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    approval_id TEXT NOT NULL REFERENCES approvals (approval_id),
    signature TEXT NOT NULL,
    signed TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    late INTEGER NOT NULL CHECK (late IN (0, 1)),
    UNIQUE (approval_id, signature)
  );`;

/** Members without which nothing can be checked. */
const REQUESTED = objectOf<RequestedApproval>({
  request: OBJECT,
  request_sha256: TEXT,
  input: OBJECT,
  preview: OBJECT,
});
const SIGNED = objectOf<SignedDecision>({ decision: OBJECT, public_key: TEXT, signature: TEXT });

interface Row {
  readonly approval_id: string;
  readonly state: ApprovalState;
  readonly requested: string;
  readonly expires_at: string;
  readonly closed_at: string | null;
}

interface DecisionRow {
  readonly signed: string;
  readonly recorded_at: string;
  readonly late: number;
}

/** The requests of a project, in the database of the registry. */
export function sqlApprovals(database: SqlDatabase): Approvals {
  return bind<Approvals>(database, {
    add: writing(add),
    get: reading(get),
    findIds: reading(findIds),
    list: reading(list),
    pendingIds: reading(pendingIds),
    decide: writing(decide),
    close: writing(close),
    reopen: writing(reopen),
  });
}

function* add(requests: readonly RequestedApproval[]): Work<void> {
  for (const requested of requests) {
    const { id, thread_id, created_at, expires_at } = requested.request;
    yield* change(
      `INSERT INTO approvals (approval_id, thread_id, requested, created_at, expires_at)
       VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
      id,
      thread_id,
      JSON.stringify(requested),
      created_at,
      expires_at,
    );
  }
}

function* get(id: string): Work<StoredApproval | undefined> {
  const row = yield* find(id);
  return row && (yield* stored(row));
}

function* findIds(part: string, limit: number): Work<readonly string[]> {
  const rows = (yield* all(
    'SELECT approval_id FROM approvals WHERE substr(approval_id, 1, ?) = ? ORDER BY created_at DESC LIMIT ?',
    part.length,
    part,
    limit,
  )) as readonly Pick<Row, 'approval_id'>[];
  return rows.map(({ approval_id: id }) => id);
}

function* list({ threadId, state }: ApprovalFilter): Work<readonly StoredApproval[]> {
  const rows = (yield* all(
    `SELECT * FROM approvals WHERE thread_id = coalesce(?, thread_id) AND state = coalesce(?, state)
     ORDER BY created_at, rowid`,
    threadId ?? null,
    state ?? null,
  )) as readonly Row[];
  const found: StoredApproval[] = [];
  for (const row of rows) found.push(yield* stored(row));
  return found;
}

function* pendingIds(threadId: string): Work<readonly string[]> {
  const rows = (yield* all(
    `SELECT approval_id FROM approvals WHERE thread_id = ? AND state = 'pending' ORDER BY created_at, rowid`,
    threadId,
  )) as readonly Pick<Row, 'approval_id'>[];
  return rows.map(({ approval_id: id }) => id);
}

function* decide(
  id: string,
  signed: SignedDecision,
  now: string,
): Work<StoredApproval | undefined> {
  const row = yield* find(id);
  if (!row) return undefined;
  const isLate = row.state !== 'pending' || now >= row.expires_at;
  yield* change(
    `INSERT INTO approval_decisions (approval_id, signature, signed, recorded_at, late)
     VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    id,
    signed.signature,
    JSON.stringify(signed),
    now,
    isLate ? 1 : 0,
  );
  return yield* stored(row);
}

function* close(id: string, outcome: ApprovalOutcome, now: string): Work<boolean> {
  const changed = yield* change(
    `UPDATE approvals SET state = ?, closed_at = ? WHERE approval_id = ? AND state = 'pending'`,
    outcome,
    now,
    id,
  );
  return changed === 1;
}

function* reopen(id: string, decisions: number): Work<boolean> {
  const changed = yield* change(
    `UPDATE approvals SET state = 'pending', closed_at = NULL WHERE approval_id = ? AND state <> 'pending'
     AND (SELECT count(*) FROM approval_decisions AS made WHERE made.approval_id = approvals.approval_id) = ?`,
    id,
    decisions,
  );
  return changed === 1;
}

function* find(id: string): Work<Row | undefined> {
  return (yield* one('SELECT * FROM approvals WHERE approval_id = ?', id)) as Row | undefined;
}

function* stored({ approval_id: id, state, requested, closed_at }: Row): Work<StoredApproval> {
  const decisions = (yield* all(
    'SELECT signed, recorded_at, late FROM approval_decisions WHERE approval_id = ? ORDER BY seq',
    id,
  )) as readonly DecisionRow[];
  return {
    ...storedJson(requested, REQUESTED, `the request ${id}`),
    state,
    closed_at,
    decisions: decisions.map(({ signed, recorded_at, late }) => ({
      signed: storedJson(signed, SIGNED, `a decision about ${id}`),
      recorded_at,
      late: late === 1,
    })),
  };
}
