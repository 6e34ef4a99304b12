import { takenOver } from '../../core/thread-errors.ts';
import type { MicroUsd } from '../../core/usage.ts';
import {
  assertAmount,
  committedSpend,
  type Heir,
  planHandOver,
  planHold,
  planInherit,
  planRaise,
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
import {
  all,
  bind,
  change,
  one,
  reading,
  type SqlDatabase,
  type Work,
  writing,
  writingLosably,
} from '../sql-work.ts';
import type { BudgetRow } from '../store.ts';

export const LEDGER_MIGRATIONS: readonly string[] = [
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
  `ALTER TABLE budget_ledger ADD COLUMN in_flight INTEGER NOT NULL DEFAULT 0;
   ALTER TABLE budget_ledger ADD COLUMN next_call INTEGER NOT NULL DEFAULT 0;`,
];

const COLUMNS = 'thread_id, parent_id, max, reserved, actual, status, in_flight';

// UNION, not UNION ALL: a damaged ledger whose parents form a loop still ends
const SUBTREE = `
  WITH RECURSIVE subtree (id) AS (
    SELECT CAST(? AS TEXT)
    UNION
    SELECT child.thread_id FROM budget_ledger AS child JOIN subtree ON child.parent_id = subtree.id
  )
  SELECT ${COLUMNS} FROM budget_ledger WHERE thread_id IN (SELECT id FROM subtree)`;

// without a recursion, which costs four times as much; a damaged row may be its own parent
const NEAR = `SELECT ${COLUMNS} FROM budget_ledger WHERE thread_id = ? OR parent_id = ?`;

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
 * The budget ledger in a database. Each decision is made by `policy/budget` over the subtree's rows, read and changed in
 * one transaction; nothing but a thread's own numbers is stored, all sums are derived.
 */
export function sqlLedger(database: SqlDatabase): Ledger {
  return bind<Ledger>(database, {
    // no other thread's money: what a power failure takes, recovery restores with the row of the registry
    register: writingLosably(register),
    reserve: writing((childId, amount, parentId, keep = 0) =>
      reserve({ childId, parentId, amount, keep }),
    ),
    reopen: writing(reopen),
    raise: writing(raise),
    // the log announces the call, durably: recovery books what a power failure takes from here
    holdForCall: writingLosably(holdForCall),
    // the log has each turn's cost, durably: recovery settles the ledger from it
    report: writingLosably(report),
    nextCall: reading(nextCallOf),
    fence: writing(fence),
    // a release that is lost leaves the money reserved, never free: recovery releases what has ended
    release: writingLosably(release),
    handOver: writing(handOver),
    remaining: reading(ofFamily(remaining)),
    held: reading(ofFamily(reservedBy)),
    committed: reading(ofFamily(committedSpend)),
    subtreeSpend: reading(ofFamily(subtreeSpend)),
    restore: writing(restore),
    rows: reading(matching),
  });
}

/** Decides by the rows of a thread and all below it. */
function ofFamily<T>(
  decide: (rows: readonly BudgetRow[], threadId: string) => T,
): (threadId: string) => Work<T> {
  return function* decided(threadId) {
    return decide(yield* subtree(threadId), threadId);
  };
}

function* register(threadId: string, max: MicroUsd): Work<void> {
  const row = planRegister(yield* subtree(threadId), threadId, max);
  if (row) yield* store(row);
}

function* reserve(grant: Parameters<typeof planReserve>[1]): Work<void> {
  const rows = new Map<string, BudgetRow>();
  for (const id of [grant.parentId, grant.childId]) {
    for (const row of yield* subtree(id)) rows.set(row.thread_id, row);
  }
  const row = planReserve([...rows.values()], grant);
  if (row) yield* store(row);
}

function* reopen(
  threadId: string,
  grant: MicroUsd,
  { epoch = 0, keep = 0, heir }: NonNullable<Parameters<Ledger['reopen']>[2]> = {},
): Work<void> {
  if (epoch > 0) yield* assertEpoch(threadId, epoch);
  if (heir) yield* inherit(threadId, heir);
  const row = planReopen(yield* subtree(yield* payerOf(threadId)), { threadId, grant, keep });
  yield* fence(threadId, epoch);
  if (row) yield* store(row);
}

function* inherit(threadId: string, heir: Heir): Work<void> {
  const rows = [...(yield* subtree(heir.ancestorId)), ...(yield* subtree(heir.successorId))];
  for (const row of planInherit(rows, threadId, heir)) yield* store(row);
}

function* raise(threadId: string, to: MicroUsd, epoch: number): Work<void> {
  yield* assertEpoch(threadId, epoch);
  yield* store(planRaise(yield* subtree(yield* payerOf(threadId)), threadId, to));
}

function* holdForCall(threadId: string, amount: MicroUsd, epoch: number): Work<boolean> {
  yield* assertEpoch(threadId, epoch);
  const [own] = yield* rowsOf(threadId);
  const row = planHold(yield* payingRows(own), threadId, amount);
  if (row) yield* store(row);
  return row !== undefined;
}

/** Returns the rows that decide if a thread can pay: its own subtree, or that of the ancestor that pays for it. */
function* payingRows(row: BudgetRow | undefined): Work<readonly BudgetRow[]> {
  if (!row) return [];
  const { thread_id: threadId } = row;
  return yield* subtree(row.status === 'active' ? threadId : yield* payerOf(threadId));
}

function* payerOf(threadId: string): Work<string> {
  const top = (yield* one(PAYER, threadId)) as { readonly id: string } | undefined;
  return top?.id ?? threadId;
}

/** Each turn of a thread does this: one statement, which decides as `planReport`. */
function* report(
  threadId: string,
  actual: MicroUsd,
  epoch: number,
  nextCall?: MicroUsd,
): Work<void> {
  assertAmount(actual, threadId);
  const changed = yield* change(
    `UPDATE budget_ledger SET actual = CASE WHEN actual < ? THEN ? ELSE actual END, in_flight = 0,
       next_call = coalesce(?, next_call) WHERE thread_id = ? AND epoch <= ?`,
    actual,
    actual,
    nextCall ?? null,
    threadId,
    epoch,
  );
  if (changed > 0) return;
  yield* assertEpoch(threadId, epoch);
  // refuses a thread that has no budget
  planReport(yield* rowsOf(threadId), threadId, actual);
}

function* nextCallOf(threadId: string): Work<MicroUsd> {
  const row = (yield* one('SELECT next_call FROM budget_ledger WHERE thread_id = ?', threadId)) as
    | { readonly next_call: MicroUsd }
    | undefined;
  return row?.next_call ?? 0;
}

function* fence(threadId: string, epoch: number): Work<void> {
  yield* change(
    'UPDATE budget_ledger SET epoch = ? WHERE thread_id = ? AND epoch < ?',
    epoch,
    threadId,
    epoch,
  );
}

function* release(threadId: string, epoch = Number.POSITIVE_INFINITY): Work<void> {
  if ((yield* epochOf(threadId)) > epoch) return;
  const row = planRelease(yield* rowsOf(threadId), threadId);
  if (row) yield* store(row);
}

function* handOver(threadId: string, successorId: string, amount: MicroUsd): Work<MicroUsd> {
  const plan = planHandOver(yield* subtree(threadId), { threadId, successorId, amount });
  yield* store(plan.released);
  yield* store(plan.successor);
  return plan.successor.max;
}

function* restore(rows: readonly BudgetRow[]): Work<readonly string[]> {
  const restored: string[] = [];
  for (const row of rows) {
    if ((yield* rowsOf(row.thread_id)).length > 0) continue;
    const { parent_id: parent } = row;
    const hasParent = parent !== null && (yield* rowsOf(parent)).length > 0;
    yield* store(hasParent ? row : { ...row, parent_id: null, reserved: 0 });
    restored.push(row.thread_id);
  }
  return restored;
}

function* matching({
  thread_id: threadId,
  status,
}: NonNullable<Parameters<Ledger['rows']>[0]> = {}): Work<readonly BudgetRow[]> {
  if (threadId !== undefined)
    return (yield* rowsOf(threadId)).filter((row) => row.status === (status ?? row.status));
  const where = status === undefined ? '' : `WHERE status = '${status}'`;
  return yield* select(`SELECT ${COLUMNS} FROM budget_ledger ${where} ORDER BY rowid`);
}

function* select(sql: string, ...parameters: readonly unknown[]): Work<readonly BudgetRow[]> {
  const rows = (yield* all(sql, ...parameters)) as readonly Required<BudgetRow>[];
  return rows.map(({ in_flight, ...row }) => (in_flight > 0 ? { ...row, in_flight } : row));
}

function* store(row: BudgetRow): Work<void> {
  yield* change(
    `INSERT INTO budget_ledger (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (thread_id) DO UPDATE SET parent_id = excluded.parent_id, max = excluded.max, reserved = excluded.reserved,
       actual = excluded.actual, status = excluded.status, in_flight = excluded.in_flight`,
    row.thread_id,
    row.parent_id,
    row.max,
    row.reserved,
    row.actual,
    row.status,
    row.in_flight ?? 0,
  );
}

function* assertEpoch(threadId: string, epoch: number): Work<void> {
  const current = yield* epochOf(threadId);
  if (current <= epoch) return;
  throw takenOver(threadId, {
    how: `its budget is at epoch ${current}, this process has ${epoch}`,
    epoch: current,
  });
}

function* epochOf(threadId: string): Work<number> {
  const row = (yield* one('SELECT epoch FROM budget_ledger WHERE thread_id = ?', threadId)) as
    | { readonly epoch: number }
    | undefined;
  return row?.epoch ?? 0;
}

function* rowsOf(threadId: string): Work<readonly BudgetRow[]> {
  return yield* select(`SELECT ${COLUMNS} FROM budget_ledger WHERE thread_id = ?`, threadId);
}

/** Returns the rows of a thread and all below it. Most threads have no children, which is cheap to find out. */
function* subtree(threadId: string): Work<readonly BudgetRow[]> {
  const near = yield* select(NEAR, threadId, threadId);
  if (near.every((row) => row.thread_id === threadId)) return near;
  return yield* select(SUBTREE, threadId);
}
