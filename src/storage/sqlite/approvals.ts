import type {
  ApprovalOutcome,
  ApprovalState,
  RequestedApproval,
  SignedDecision,
} from '../../core/approval.ts';
import type { ApprovalFilter, Approvals, StoredApproval } from '../approvals.ts';
import type { LazyDatabase } from './database.ts';

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
export class SqliteApprovals implements Approvals {
  readonly #database: LazyDatabase;

  constructor(database: LazyDatabase) {
    this.#database = database;
  }

  async add(requests: readonly RequestedApproval[]): Promise<void> {
    this.#database.immediate(() => {
      for (const requested of requests) {
        const { id, thread_id, created_at, expires_at } = requested.request;
        this.#database.run(
          `INSERT OR IGNORE INTO approvals (approval_id, thread_id, requested, created_at, expires_at)
           VALUES (?, ?, ?, ?, ?)`,
          id,
          thread_id,
          JSON.stringify(requested),
          created_at,
          expires_at,
        );
      }
    });
  }

  async get(id: string): Promise<StoredApproval | undefined> {
    const row = this.#row(id);
    return row && this.#stored(row);
  }

  async findIds(part: string, limit: number): Promise<readonly string[]> {
    const rows = this.#database.all(
      'SELECT approval_id FROM approvals WHERE substr(approval_id, 1, ?) = ? ORDER BY created_at DESC LIMIT ?',
      part.length,
      part,
      limit,
    ) as readonly Pick<Row, 'approval_id'>[];
    return rows.map(({ approval_id: id }) => id);
  }

  async list({ threadId, state }: ApprovalFilter): Promise<readonly StoredApproval[]> {
    const rows = this.#database.all(
      `SELECT * FROM approvals WHERE (? IS NULL OR thread_id = ?) AND (? IS NULL OR state = ?)
       ORDER BY created_at, rowid`,
      threadId ?? null,
      threadId ?? null,
      state ?? null,
      state ?? null,
    ) as readonly Row[];
    return rows.map((row) => this.#stored(row));
  }

  async pendingIds(threadId: string): Promise<readonly string[]> {
    const rows = this.#database.all(
      `SELECT approval_id FROM approvals WHERE thread_id = ? AND state = 'pending' ORDER BY created_at, rowid`,
      threadId,
    ) as readonly Pick<Row, 'approval_id'>[];
    return rows.map(({ approval_id: id }) => id);
  }

  async decide(
    id: string,
    signed: SignedDecision,
    now: string,
  ): Promise<StoredApproval | undefined> {
    return this.#database.immediate(() => {
      const row = this.#row(id);
      if (!row) return undefined;
      const isLate = row.state !== 'pending' || now >= row.expires_at;
      this.#database.run(
        `INSERT OR IGNORE INTO approval_decisions (approval_id, signature, signed, recorded_at, late)
         VALUES (?, ?, ?, ?, ?)`,
        id,
        signed.signature,
        JSON.stringify(signed),
        now,
        isLate ? 1 : 0,
      );
      return this.#stored(row);
    });
  }

  async close(id: string, outcome: ApprovalOutcome, now: string): Promise<boolean> {
    const changed = this.#database.run(
      `UPDATE approvals SET state = ?, closed_at = ? WHERE approval_id = ? AND state = 'pending'`,
      outcome,
      now,
      id,
    );
    return changed === 1;
  }

  #row(id: string): Row | undefined {
    return this.#database.get('SELECT * FROM approvals WHERE approval_id = ?', id) as
      | Row
      | undefined;
  }

  #stored({ approval_id: id, state, requested, closed_at }: Row): StoredApproval {
    const decisions = this.#database.all(
      'SELECT signed, recorded_at, late FROM approval_decisions WHERE approval_id = ? ORDER BY seq',
      id,
    ) as readonly DecisionRow[];
    return {
      ...(JSON.parse(requested) as RequestedApproval),
      state,
      closed_at,
      decisions: decisions.map(({ signed, recorded_at, late }) => ({
        signed: JSON.parse(signed) as SignedDecision,
        recorded_at,
        late: late === 1,
      })),
    };
  }
}
