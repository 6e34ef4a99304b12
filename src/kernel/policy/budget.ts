import { RyeError } from '../core/errors.ts';
import { formatUsd, type MicroUsd, toUsd } from '../core/usage.ts';

/** One row of the budget ledger, money in micro-dollars. */
export interface BudgetRow {
  readonly thread_id: string;
  readonly parent_id: string | null;
  readonly max: MicroUsd;
  /** Money that the parent set aside for it; 0 for a root. */
  readonly reserved: MicroUsd;
  /** Its own spend, descendants not included. */
  readonly actual: MicroUsd;
  readonly status: 'active' | 'released';
  /** The most that its model call under way may cost, from before it is sent until it is reported. Absent: none is under way. */
  readonly in_flight?: MicroUsd;
}

interface Sums {
  /** Own and descendants' spend. */
  readonly spend: MicroUsd;
  /** Own spend, the call under way, and what the children may still use or have used. */
  readonly committed: MicroUsd;
}

const NOTHING: Sums = { spend: 0, committed: 0 };

/**
 * Sums of a thread's subtree, children before parents, without recursion. A corrupt ledger whose parents form a
 * cycle is summed once around.
 */
function subtreeSums(rows: readonly BudgetRow[], rootId: string): Sums {
  const byId = new Map(rows.map((row) => [row.thread_id, row]));
  const children = childrenByParent(rows);
  const order: string[] = [];
  const seen = new Set([rootId]);
  for (let open = [rootId]; open.length > 0; ) {
    const next: string[] = [];
    for (const id of open) {
      order.push(id);
      for (const { thread_id } of children.get(id) ?? []) {
        if (seen.has(thread_id)) continue;
        seen.add(thread_id);
        next.push(thread_id);
      }
    }
    open = next;
  }
  const sums = new Map<string, Sums>();
  for (const id of order.toReversed()) {
    const row = byId.get(id);
    let spend = row?.actual ?? 0;
    let committed = spend + (row?.in_flight ?? 0);
    for (const child of children.get(id) ?? []) {
      const below = sums.get(child.thread_id) ?? NOTHING;
      spend += below.spend;
      committed += claim(child, below.committed);
    }
    sums.set(id, { spend, committed });
  }
  return sums.get(rootId) ?? NOTHING;
}

function childrenByParent(rows: readonly BudgetRow[]): ReadonlyMap<string, readonly BudgetRow[]> {
  const children = new Map<string, BudgetRow[]>();
  for (const row of rows) {
    if (row.parent_id === null) continue;
    const siblings = children.get(row.parent_id);
    if (siblings === undefined) children.set(row.parent_id, [row]);
    else siblings.push(row);
  }
  return children;
}

/**
 * The claim of a child on its parent. A finished child keeps the claims of its descendants that still run, so that
 * their reservations are not given out twice.
 */
function claim(row: BudgetRow, below: MicroUsd): MicroUsd {
  return row.status === 'active' ? Math.max(row.reserved, below) : below;
}

/** Spend of a thread and all its descendants, running or finished. 0 for an unknown thread. */
export function subtreeSpend(rows: readonly BudgetRow[], threadId: string): MicroUsd {
  return subtreeSums(rows, threadId).spend;
}

/** Spend of a thread and all its descendants, and what they may still spend. 0 for an unknown thread. */
export function committedSpend(rows: readonly BudgetRow[], threadId: string): MicroUsd {
  return subtreeSums(rows, threadId).committed;
}

/**
 * Returns the money that a thread may still spend or set aside: max − own spend − Σ claims of its children. An active
 * child claims the larger of its reservation and its subtree's use, a finished one its subtree's use. The thread's own
 * call under way is part of it. Never below 0. Throws `budget_unregistered` for an unknown thread.
 */
export function remaining(rows: readonly BudgetRow[], threadId: string): MicroUsd {
  const row = required(rows, threadId);
  return Math.max(0, row.max - committedSpend(rows, threadId) + (row.in_flight ?? 0));
}

/**
 * The row that registering a root makes; registering it again sets its maximum, at least what is spent and held, and
 * reopens it.
 */
export function planRegister(
  rows: readonly BudgetRow[],
  threadId: string,
  max: MicroUsd,
): BudgetRow {
  assertAmount(max, threadId);
  const existing = find(rows, threadId);
  if (existing !== undefined && existing.parent_id !== null) throw takenBy(existing);
  return {
    thread_id: threadId,
    parent_id: null,
    max: Math.max(max, committedSpend(rows, threadId)),
    reserved: 0,
    actual: existing?.actual ?? 0,
    status: 'active',
  };
}

/** A sum that a child wants to have set aside. */
export interface Reservation {
  readonly childId: string;
  readonly parentId: string;
  readonly amount: MicroUsd;
  /** Money that must stay with the parent for its next model call. Default 0. */
  readonly keep?: MicroUsd;
}

/**
 * The child's row after setting `amount` aside from its parent. Asking again for the same child replaces its
 * reservation: only the difference must fit. `budget_insufficient` when it does not fit or the parent has ended,
 * `budget_unregistered` for an unknown parent, `thread_id_taken` for a child of another thread.
 */
export function planReserve(rows: readonly BudgetRow[], reservation: Reservation): BudgetRow {
  const { childId, parentId, amount, keep = 0 } = reservation;
  assertAmount(amount, childId);
  const parent = required(rows, parentId);
  const existing = find(rows, childId);
  if (childId === parentId || (existing !== undefined && existing.parent_id !== parentId)) {
    throw takenBy(existing ?? parent);
  }
  const used = existing === undefined ? 0 : committedSpend(rows, childId);
  const row: BudgetRow = {
    thread_id: childId,
    parent_id: parentId,
    max: amount,
    reserved: amount,
    actual: existing?.actual ?? 0,
    status: 'active',
  };
  const after = [...rows.filter((other) => other.thread_id !== childId), row];
  if (parent.status !== 'active') throw parentEnded(reservation);
  if (used > amount || committedSpend(after, parentId) > parent.max - keep) {
    const spare = parent.max - committedSpend(rows, parentId) - keep;
    throw insufficient(reservation, spare, reservedBy(rows, parentId));
  }
  return row;
}

/** A grant for another run of a thread that has ended. */
export interface Reopening {
  readonly threadId: string;
  /** Money that the run may spend, with everything that it starts. */
  readonly grant: MicroUsd;
  /** Money that must stay with the ancestor that pays. Default 0. */
  readonly keep?: MicroUsd;
}

/**
 * The row of an ended thread after it was made active again: its maximum is what its subtree spent and still holds, plus
 * the grant. `actual` stays. The nearest active ancestor must have room for the grant: `budget_insufficient`. Without
 * one, no thread pays, and the row is its own cap. A row that is active already is treated as if it had been released.
 */
export function planReopen(rows: readonly BudgetRow[], reopening: Reopening): BudgetRow {
  const { threadId, grant, keep = 0 } = reopening;
  assertAmount(grant, threadId);
  const row = withoutCall(required(rows, threadId));
  const max = committedSpend(applyRow(rows, row), threadId) + grant;
  const reopened: BudgetRow = {
    ...row,
    max,
    reserved: row.parent_id === null ? 0 : max,
    status: 'active',
  };
  const payer = activeAncestor(rows, row);
  if (payer === undefined) return reopened;
  if (committedSpend(applyRow(rows, reopened), payer.thread_id) <= payer.max - keep)
    return reopened;
  const { thread_id: parentId } = payer;
  const without = applyRow(rows, { ...row, status: 'released' });
  const spare = payer.max - committedSpend(without, parentId) - keep;
  const held = reservedBy(without, parentId);
  throw insufficient({ childId: threadId, parentId, amount: grant }, spare, held);
}

/**
 * The row of a thread whose maximum was raised to `to`; unchanged if it has as much. The nearest active ancestor must have
 * room for the difference: `budget_insufficient`.
 */
export function planRaise(rows: readonly BudgetRow[], threadId: string, to: MicroUsd): BudgetRow {
  assertAmount(to, threadId);
  const row = required(rows, threadId);
  if (row.max >= to) return row;
  const raised = { ...row, max: to, reserved: row.parent_id === null ? 0 : to };
  const payer = activeAncestor(rows, row);
  const after = payer && committedSpend(applyRow(rows, raised), payer.thread_id);
  if (payer === undefined || after === undefined || after <= payer.max) return raised;
  const { thread_id: parentId } = payer;
  const spare = payer.max - committedSpend(rows, parentId);
  const held = reservedBy(rows, parentId);
  throw insufficient({ childId: threadId, parentId, amount: to - row.max }, spare, held);
}

/** A thread that passed its budget on, and the last of those that continue it. */
export interface Heir {
  readonly ancestorId: string;
  readonly successorId: string;
}

/**
 * The rows after the branch of a thread was moved from an ancestor that passed its budget on to the successor, which pays
 * from then on. The successor's maximum grows by the claim of the branch, so that its remaining budget stays. Returns no rows if
 * the successor has ended or the thread is not below the ancestor.
 */
export function planInherit(
  rows: readonly BudgetRow[],
  threadId: string,
  { ancestorId, successorId }: Heir,
): readonly BudgetRow[] {
  const successor = find(rows, successorId);
  const path = upwards(rows, required(rows, threadId));
  const branch = path.find(({ parent_id: parentId }) => parentId === ancestorId);
  if (successor?.status !== 'active' || branch === undefined) return [];
  const moved = claim(branch, committedSpend(rows, branch.thread_id));
  const { parent_id: parentId, max, reserved } = successor;
  return [
    { ...branch, parent_id: successorId },
    { ...successor, max: max + moved, reserved: parentId === null ? 0 : reserved + moved },
  ];
}

/** Returns the nearest ancestor that is active; undefined if all have ended. */
function activeAncestor(rows: readonly BudgetRow[], row: BudgetRow): BudgetRow | undefined {
  return upwards(rows, row)
    .slice(1)
    .find(({ status }) => status === 'active');
}

/** Returns a row and its ancestors, the nearest first. */
function upwards(rows: readonly BudgetRow[], from: BudgetRow): readonly BudgetRow[] {
  const path: BudgetRow[] = [];
  let row: BudgetRow | undefined = from;
  while (row !== undefined && !path.includes(row)) {
    path.push(row);
    row = row.parent_id === null ? undefined : find(rows, row.parent_id);
  }
  return path;
}

/**
 * The row after the most that a model call may cost was set aside for it, instead of the amount before; undefined if it
 * does not fit. The call of an active thread is part of its reservation; that of an ended one counts against the nearest
 * active ancestor.
 */
export function planHold(
  rows: readonly BudgetRow[],
  threadId: string,
  amount: MicroUsd,
): BudgetRow | undefined {
  assertAmount(amount, threadId);
  const before = required(rows, threadId);
  if (amount === 0) return withoutCall(before);
  const row: BudgetRow = { ...before, in_flight: amount };
  const after = applyRow(rows, row);
  for (const payer of upwards(after, row)) {
    if (committedSpend(after, payer.thread_id) > payer.max) return undefined;
    if (payer.status === 'active') break;
  }
  return row;
}

/**
 * The row after a thread reported its own spend so far, with which its call is over. The spend is never lowered: reports
 * may arrive out of order.
 */
export function planReport(
  rows: readonly BudgetRow[],
  threadId: string,
  actual: MicroUsd,
): BudgetRow {
  assertAmount(actual, threadId);
  const row = required(rows, threadId);
  return { ...withoutCall(row), actual: Math.max(row.actual, actual) };
}

function withoutCall({ in_flight: _over, ...row }: BudgetRow): BudgetRow {
  return row;
}

/** The row after a thread ended; undefined where nothing changes. */
export function planRelease(rows: readonly BudgetRow[], threadId: string): BudgetRow | undefined {
  const row = find(rows, threadId);
  return row === undefined || row.status === 'released'
    ? undefined
    : { ...withoutCall(row), status: 'released' };
}

/** The transfer of an ended thread's remaining budget to the thread that continues it, which has no money before. */
export interface HandOver {
  readonly threadId: string;
  readonly successorId: string;
  /** The most that the successor may get. */
  readonly amount: MicroUsd;
}

/**
 * Both rows after a thread passed its budget on: released, and the successor with what was left, under the same
 * parent. The parent's remaining does not change. `budget_insufficient` when the thread is released already.
 */
export function planHandOver(
  rows: readonly BudgetRow[],
  { threadId, successorId, amount }: HandOver,
): { readonly released: BudgetRow; readonly successor: BudgetRow } {
  assertAmount(amount, successorId);
  const row = required(rows, threadId);
  const given = Math.min(amount, remaining(rows, threadId));
  const taken = find(rows, successorId);
  if (taken && (taken.max > 0 || taken.parent_id !== row.parent_id)) throw takenBy(taken);
  if (row.status !== 'active') {
    throw insufficient({ childId: successorId, parentId: threadId, amount }, 0, []);
  }
  const { parent_id } = row;
  return {
    released: { ...withoutCall(row), status: 'released' },
    successor: {
      thread_id: successorId,
      parent_id,
      max: given,
      reserved: parent_id === null ? 0 : given,
      actual: taken?.actual ?? 0,
      status: taken?.status ?? 'active',
    },
  };
}

/** Returns the rows with `row` added or replaced. */
export function applyRow(rows: readonly BudgetRow[], row: BudgetRow): BudgetRow[] {
  const index = rows.findIndex((other) => other.thread_id === row.thread_id);
  return index < 0 ? [...rows, row] : rows.with(index, row);
}

function find(rows: readonly BudgetRow[], threadId: string): BudgetRow | undefined {
  return rows.find((row) => row.thread_id === threadId);
}

function required(rows: readonly BudgetRow[], threadId: string): BudgetRow {
  const row = find(rows, threadId);
  if (row !== undefined) return row;
  throw new RyeError('budget_unregistered', `thread ${threadId} has no budget`, {
    hint: 'The ledger may have been removed while the thread ran; run "rye doctor".',
    details: { thread_id: threadId },
  });
}

/** Throws `invalid_limit` for what is not an amount of money: a whole number of micro-dollars from 0 up. */
export function assertAmount(amount: MicroUsd, threadId: string): void {
  if (Number.isSafeInteger(amount) && amount >= 0) return;
  throw new RyeError(
    'invalid_limit',
    `${amount} is not an amount of micro-dollars for thread ${threadId}`,
    { hint: 'Money in the ledger is a whole number from 0 up.' },
  );
}

function takenBy(row: BudgetRow): RyeError {
  return new RyeError(
    'thread_id_taken',
    `thread ${row.thread_id} already has a budget ${row.parent_id === null ? 'as a root' : `under ${row.parent_id}`}`,
  );
}

function parentEnded({ childId, parentId }: Reservation): RyeError {
  return new RyeError(
    'illegal_transition',
    `thread ${parentId} has ended, so ${childId} can't start as its child`,
    {
      hint: 'Start the thread without --parent, or resume the parent and start it there.',
      details: { parent_thread_id: parentId, thread_id: childId },
    },
  );
}

/** A sum that a running child holds. */
export interface Held {
  readonly thread_id: string;
  readonly microUsd: MicroUsd;
}

/** Returns the claims of a thread's running children minus what they spent, the largest first. */
export function reservedBy(rows: readonly BudgetRow[], threadId: string): readonly Held[] {
  return rows
    .filter((row) => row.parent_id === threadId && row.status === 'active')
    .map(({ thread_id, reserved }) => ({
      thread_id,
      microUsd: Math.max(0, reserved - subtreeSums(rows, thread_id).spend),
    }))
    .filter(({ microUsd }) => microUsd > 0)
    .toSorted((left, right) => right.microUsd - left.microUsd);
}

/** `; its running children hold $0.39: kid-1 ($0.39)`, or nothing. */
export function heldText(held: readonly Held[]): string {
  if (held.length === 0) return '';
  const total = held.reduce((sum, { microUsd }) => sum + microUsd, 0);
  const shown = held.slice(0, MAX_NAMED).map(({ thread_id, microUsd }) => {
    return `${thread_id} (${formatUsd(toUsd(microUsd))})`;
  });
  const more = held.length > MAX_NAMED ? ` and ${held.length - MAX_NAMED} more` : '';
  return `; running children hold ${formatUsd(toUsd(total))}: ${shown.join(', ')}${more}`;
}

/** Names of children that a message holds at most. */
const MAX_NAMED = 5;

function insufficient(
  { childId, parentId, amount }: Reservation,
  left: MicroUsd,
  held: readonly Held[],
): RyeError {
  return new RyeError(
    'budget_insufficient',
    `thread ${parentId} can spare ${formatUsd(toUsd(Math.max(0, left)))}, too little for the ${formatUsd(toUsd(amount))} of ${childId}${heldText(held)}`,
    {
      hint: 'Lower the spend limit of the child, raise that of the parent, or wait for its other children.',
      details: {
        parent_thread_id: parentId,
        thread_id: childId,
        remaining_usd: toUsd(Math.max(0, left)),
        requested_usd: toUsd(amount),
        reserved: held.map(({ thread_id, microUsd }) => ({ thread_id, usd: toUsd(microUsd) })),
      },
    },
  );
}
