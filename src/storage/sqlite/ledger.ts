import { RyeError } from '../../core/errors.ts';
import type { MicroUsd } from '../../core/usage.ts';
import {
  committedSpend,
  type Heir,
  type Held,
  planHandOver,
  planInherit,
  planRegister,
  planRelease,
  planReopen,
  planReport,
  planReserve,
  remaining,
  reservedBy,
  subtreeSpend,
} from '../../policy/budget.ts';
import type { Ledger } from '../ledger.ts';
import type { BudgetRow, CloseOptions } from '../store.ts';
import { LazyDatabase, type Migrations } from './database.ts';

export const LEDGER_MIGRATIONS: Migrations = [
  // the constraints repeat what the arithmetic guarantees: amounts are whole and never negative
  `CREATE TABLE budget_ledger (
     thread_id TEXT PRIMARY KEY,
     parent_id TEXT REFERENCES budget_ledger (thread_id) ON DELETE RESTRICT,
     max INTEGER NOT NULL CHECK (typeof(max) = 'integer' AND max >= 0),
     reserved INTEGER NOT NULL CHECK (typeof(reserved) = 'integer' AND reserved >= 0),
     actual INTEGER NOT NULL CHECK (typeof(actual) = 'integer' AND actual >= 0),
     status TEXT NOT NULL CHECK (status IN ('active', 'released'))
   );
   CREATE INDEX budget_by_parent ON budget_ledger (parent_id);`,
  `CREATE INDEX budget_active ON budget_ledger (thread_id) WHERE status = 'active';`,
  // the lowest epoch of an owner that may still report
  `ALTER TABLE budget_ledger ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;`,
];

const COLUMNS = 'thread_id, parent_id, max, reserved, actual, status';

// UNION, not UNION ALL: a damaged ledger whose parents form a loop still ends
const SUBTREE = `
  WITH RECURSIVE subtree (id) AS (
    SELECT ?
    UNION
    SELECT child.thread_id FROM budget_ledger AS child JOIN subtree ON child.parent_id = subtree.id
  )
  SELECT ${COLUMNS} FROM budget_ledger WHERE thread_id IN (SELECT id FROM subtree)`;

// from a thread up to the nearest active ancestor, or to its root; the rows below that one are all that a grant needs
const PAYER = `
  WITH RECURSIVE above (id, parent, status, depth) AS (
    SELECT thread_id, parent_id, 'released', 0 FROM budget_ledger WHERE thread_id = ?
    UNION
    SELECT up.thread_id, up.parent_id, up.status, depth + 1 FROM budget_ledger AS up
      JOIN above ON up.thread_id = above.parent
      WHERE above.status = 'released' AND depth < 1000
  )
  SELECT id FROM above ORDER BY depth DESC LIMIT 1`;

/**
 * The budget ledger in one SQLite file. Each decision is made by `policy/budget` over the subtree's rows, read and
 * changed under one write lock; nothing but a thread's own numbers is stored, all sums are derived.
 */
export class SqliteLedger implements Ledger {
  readonly #database: LazyDatabase;

  constructor({ path }: { readonly path: string }) {
    this.#database = new LazyDatabase({ path, migrations: LEDGER_MIGRATIONS, synchronous: 'full' });
  }

  async register(threadId: string, max: MicroUsd): Promise<void> {
    // no other thread's money: what a power failure takes, recovery restores with the row of the registry
    this.#database.immediateUnsynced(() => {
      const row = planRegister(this.#subtree(threadId), threadId, max);
      if (row) this.#store(row);
    });
  }

  async reserve(childId: string, amount: MicroUsd, parentId: string, keep = 0): Promise<void> {
    this.#change(() => {
      const rows = new Map<string, BudgetRow>();
      for (const row of [...this.#subtree(parentId), ...this.#subtree(childId)]) {
        rows.set(row.thread_id, row);
      }
      return planReserve([...rows.values()], { childId, parentId, amount, keep });
    });
  }

  async reopen(
    threadId: string,
    grant: MicroUsd,
    { epoch = 0, keep = 0, heir }: Parameters<Ledger['reopen']>[2] = {},
  ): Promise<void> {
    this.#change(() => {
      if (epoch > 0) this.#assertEpoch(threadId, epoch);
      if (heir) this.#inherit(threadId, heir);
      const top = this.#database.get(PAYER, threadId) as { readonly id: string } | undefined;
      const row = planReopen(this.#subtree(top?.id ?? threadId), { threadId, grant, keep });
      this.#fence(threadId, epoch);
      return row;
    });
  }

  #inherit(threadId: string, heir: Heir): void {
    const rows = [...this.#subtree(heir.ancestorId), ...this.#subtree(heir.successorId)];
    for (const row of planInherit(rows, threadId, heir)) this.#store(row);
  }

  async report(threadId: string, actual: MicroUsd, epoch: number): Promise<void> {
    // the log has each turn's cost, durably: recovery settles the ledger from it
    this.#database.immediateUnsynced(() => {
      this.#assertEpoch(threadId, epoch);
      const row = planReport(this.#row(threadId), threadId, actual);
      if (row) this.#store(row);
    });
  }

  async fence(threadId: string, epoch: number): Promise<void> {
    this.#fence(threadId, epoch);
  }

  #fence(threadId: string, epoch: number): void {
    this.#database.run(
      'UPDATE budget_ledger SET epoch = max(epoch, ?) WHERE thread_id = ?',
      epoch,
      threadId,
    );
  }

  async release(threadId: string, epoch = Number.POSITIVE_INFINITY): Promise<void> {
    // a release that is lost leaves the money reserved, never free: recovery releases what has ended
    this.#database.immediateUnsynced(() => {
      if (this.#epochOf(threadId) > epoch) return;
      const row = planRelease(this.#row(threadId), threadId);
      if (row) this.#store(row);
    });
  }

  async handOver(threadId: string, successorId: string, amount: MicroUsd): Promise<MicroUsd> {
    return this.#database.immediate(() => {
      const plan = planHandOver(this.#subtree(threadId), { threadId, successorId, amount });
      this.#store(plan.released);
      this.#store(plan.successor);
      return plan.successor.max;
    });
  }

  async remaining(threadId: string): Promise<MicroUsd> {
    return remaining(this.#subtree(threadId), threadId);
  }

  async held(threadId: string): Promise<readonly Held[]> {
    return reservedBy(this.#subtree(threadId), threadId);
  }

  async committed(threadId: string): Promise<MicroUsd> {
    return committedSpend(this.#subtree(threadId), threadId);
  }

  async subtreeSpend(threadId: string): Promise<MicroUsd> {
    return subtreeSpend(this.#subtree(threadId), threadId);
  }

  async restore(rows: readonly BudgetRow[]): Promise<readonly string[]> {
    return this.#database.immediate(() => {
      const restored: string[] = [];
      for (const row of rows) {
        if (this.#row(row.thread_id).length > 0) continue;
        const { parent_id: parent } = row;
        const hasParent = parent !== null && this.#row(parent).length > 0;
        this.#store(hasParent ? row : { ...row, parent_id: null, reserved: 0 });
        restored.push(row.thread_id);
      }
      return restored;
    });
  }

  async rows({
    thread_id: threadId,
    status,
  }: Parameters<Ledger['rows']>[0] = {}): Promise<readonly BudgetRow[]> {
    if (threadId !== undefined)
      return this.#row(threadId).filter((row) => row.status === (status ?? row.status));
    const where = status === undefined ? '' : `WHERE status = '${status}'`;
    return this.#database.all(
      `SELECT ${COLUMNS} FROM budget_ledger ${where} ORDER BY rowid`,
    ) as readonly BudgetRow[];
  }

  close(options?: CloseOptions): void {
    this.#database.close(options);
  }

  /** Decides and stores under the write lock, so that no two decisions see the same money. */
  #change(plan: () => BudgetRow | undefined): void {
    this.#database.immediate(() => {
      const row = plan();
      if (row) this.#store(row);
    });
  }

  #store(row: BudgetRow): void {
    this.#database.run(
      `INSERT INTO budget_ledger (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (thread_id) DO UPDATE SET parent_id = excluded.parent_id, max = excluded.max, reserved = excluded.reserved,
         actual = excluded.actual, status = excluded.status`,
      row.thread_id,
      row.parent_id,
      row.max,
      row.reserved,
      row.actual,
      row.status,
    );
  }

  #assertEpoch(threadId: string, epoch: number): void {
    const current = this.#epochOf(threadId);
    if (current <= epoch) return;
    throw new RyeError(
      'thread_locked',
      `thread ${threadId} was taken over: its budget is at epoch ${current}, this process has ${epoch}`,
      {
        hint: 'Another process runs this thread now; this one must stop.',
        details: { thread_id: threadId, epoch: current },
      },
    );
  }

  #epochOf(threadId: string): number {
    const row = this.#database.get(
      'SELECT epoch FROM budget_ledger WHERE thread_id = ?',
      threadId,
    ) as { readonly epoch: number } | undefined;
    return row?.epoch ?? 0;
  }

  #row(threadId: string): readonly BudgetRow[] {
    return this.#database.all(
      `SELECT ${COLUMNS} FROM budget_ledger WHERE thread_id = ?`,
      threadId,
    ) as readonly BudgetRow[];
  }

  #subtree(threadId: string): readonly BudgetRow[] {
    return this.#database.all(SUBTREE, threadId) as readonly BudgetRow[];
  }
}
