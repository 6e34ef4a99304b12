import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import {
  applyRow,
  type BudgetRow,
  planHandOver,
  planHold,
  planRaise,
  planRegister,
  planRelease,
  planReopen,
  planReport,
  planReserve,
  remaining,
  subtreeSpend,
} from '../../src/kernel/policy/budget.ts';

const row = (
  thread_id: string,
  parent_id: string | null,
  rest: Partial<BudgetRow> = {},
): BudgetRow => ({
  thread_id,
  parent_id,
  max: 100,
  reserved: parent_id === null ? 0 : 100,
  actual: 0,
  status: 'active',
  ...rest,
});

const refusing = (code: string) => expect.objectContaining({ code });

describe('remaining and subtreeSpend', () => {
  it.each<[string, readonly BudgetRow[], number, number]>([
    ['a new root', [row('r', null)], 100, 0],
    ['own spend', [row('r', null, { actual: 30 })], 70, 30],
    [
      'an active child claims its reservation',
      [row('r', null), row('c', 'r', { reserved: 40, max: 40, actual: 10 })],
      60,
      10,
    ],
    [
      'a finished child claims what it used',
      [row('r', null), row('c', 'r', { reserved: 40, max: 40, actual: 10, status: 'released' })],
      90,
      10,
    ],
    [
      'an overspent child claims what it used',
      [row('r', null), row('c', 'r', { reserved: 40, max: 40, actual: 55 })],
      45,
      55,
    ],
    [
      'spend of grandchildren counts once',
      [
        row('r', null, { actual: 1 }),
        row('c', 'r', { reserved: 40, max: 40, actual: 2 }),
        row('g', 'c', { reserved: 20, max: 20, actual: 4 }),
      ],
      59,
      7,
    ],
    [
      'finished subtrees count once',
      [
        row('r', null),
        row('c', 'r', { actual: 2, status: 'released' }),
        row('g', 'c', { actual: 4, status: 'released' }),
      ],
      94,
      6,
    ],
    [
      'a running grandchild of a finished child keeps its claim',
      [
        row('r', null),
        row('c', 'r', { max: 60, reserved: 60, status: 'released' }),
        row('g', 'c', { max: 50, reserved: 50, actual: 5 }),
      ],
      50,
      5,
    ],
    ['never negative', [row('r', null, { actual: 500 })], 0, 500],
  ])('%s', (_case, rows, left, spent) => {
    expect(remaining(rows, 'r')).toBe(left);
    expect(subtreeSpend(rows, 'r')).toBe(spent);
  });

  it('returns nothing for unregistered threads', () => {
    expect(() => remaining([], 'x')).toThrow(refusing('budget_unregistered'));
    expect(subtreeSpend([], 'x')).toBe(0);
  });

  it('ends on a corrupt ledger whose parents form a cycle', () => {
    const rows = [
      row('a', 'b', { actual: 1 }),
      row('b', 'a', { actual: 2 }),
      row('s', 's', { actual: 4 }),
    ];
    expect(subtreeSpend(rows, 'a')).toBe(3);
    expect(subtreeSpend(rows, 's')).toBe(4);
  });

  it('sums a chain of 20,000 threads without recursion', () => {
    const rows = Array.from({ length: 20_000 }, (_, index) =>
      row(`t${index}`, index === 0 ? null : `t${index - 1}`, { actual: 1, reserved: 0 }),
    );
    expect(subtreeSpend(rows, 't0')).toBe(20_000);
  });
});

describe('planning', () => {
  // Requirement: new-root-deletes-others
  it('registers a root, and again without effect on what it spent', () => {
    const rows = [planRegister([], 'r', 100)];
    expect(rows).toEqual([row('r', null)]);
    const reported = applyRow(rows, planReport(rows, 'r', 30));
    expect(planRegister(reported, 'r', 100)).toEqual(row('r', null, { actual: 30 }));
  });

  it('reopens a finished root with another maximum', () => {
    const rows = [row('r', null, { actual: 30, status: 'released' })];
    expect(planRegister(rows, 'r', 200)).toEqual(row('r', null, { actual: 30, max: 200 }));
  });

  it('reserves what fits, and refuses one micro-dollar more', () => {
    const rows = [row('r', null, { actual: 30 })];
    expect(planReserve(rows, { childId: 'c', parentId: 'r', amount: 70 })).toEqual(
      row('c', 'r', { max: 70, reserved: 70 }),
    );
    expect(() => planReserve(rows, { childId: 'c', parentId: 'r', amount: 71 })).toThrow(
      expect.objectContaining({
        code: 'budget_insufficient',
        message: 'thread r can spare $0.000070, too little for the $0.000071 of c',
      }),
    );
  });

  it('replaces the reservation of a child that asks again', () => {
    const rows = [row('r', null), row('c', 'r', { max: 60, reserved: 60, actual: 20 })];
    const again = (amount: number) => planReserve(rows, { childId: 'c', parentId: 'r', amount });
    expect(again(60)).toEqual(rows[1]);
    expect(again(100).reserved).toBe(100);
    expect(() => again(101)).toThrow(refusing('budget_insufficient'));
    expect(() => again(19)).toThrow(refusing('budget_insufficient'));
  });

  it.each<[string, string]>([
    ['ended', 'illegal_transition'],
    ['missing', 'budget_unregistered'],
    ['other', 'thread_id_taken'],
    ['c', 'thread_id_taken'],
  ])('refuses to reserve from the parent %s', (parentId, code) => {
    const rows = [
      row('ended', null, { status: 'released' }),
      row('other', null),
      row('r', null),
      row('c', 'r', { reserved: 1, max: 1 }),
    ];
    const childId = parentId === 'ended' ? 'new' : 'c';
    expect(() => planReserve(rows, { childId, parentId, amount: 1 })).toThrow(refusing(code));
  });

  it.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])('refuses the amount %s', (amount) => {
    const rows = [row('r', null)];
    expect(() => planRegister([], 'r', amount)).toThrow(refusing('invalid_limit'));
    expect(() => planReserve(rows, { childId: 'c', parentId: 'r', amount })).toThrow(
      refusing('invalid_limit'),
    );
    expect(() => planReport(rows, 'r', amount)).toThrow(refusing('invalid_limit'));
  });

  it('never lowers a report', () => {
    expect(planReport([row('r', null, { actual: 30 })], 'r', 20).actual).toBe(30);
  });

  it.each<[string, readonly BudgetRow[], number, number]>([
    ['what a root did not spend', [row('a', null, { actual: 30 })], 100, 70],
    ['no more than the successor wants', [row('a', null, { actual: 30 })], 50, 50],
    [
      'nothing that children still claim',
      [row('a', null), row('c', 'a', { reserved: 60, max: 60 })],
      100,
      40,
    ],
    ['nothing when more was spent than reserved', [row('a', null, { actual: 130 })], 100, 0],
  ])('hands over %s', (_, rows, amount, given) => {
    const plan = planHandOver(rows, { threadId: 'a', successorId: 'b', amount });
    expect(plan.released.status).toBe('released');
    expect(plan.successor).toMatchObject({ thread_id: 'b', parent_id: null, max: given });
  });

  it("does not change the parent's remaining by handing over", () => {
    const rows = [
      row('r', null),
      row('a', 'r', { reserved: 60, max: 60, actual: 20 }),
      row('c', 'a', { reserved: 10, max: 10 }),
    ];
    const plan = planHandOver(rows, { threadId: 'a', successorId: 'b', amount: 1000 });
    expect(plan.successor).toMatchObject({ parent_id: 'r', reserved: 30, max: 30 });
    const after = applyRow(applyRow(rows, plan.released), plan.successor);
    expect(remaining(after, 'r')).toBe(remaining(rows, 'r'));
  });

  it('hands over once, and never to a thread that has a budget', () => {
    const request = { threadId: 'a', successorId: 'b', amount: 1 };
    expect(() => planHandOver([row('a', null, { status: 'released' })], request)).toThrow(
      refusing('budget_insufficient'),
    );
    expect(() => planHandOver([row('a', null), row('b', null)], request)).toThrow(
      refusing('thread_id_taken'),
    );
    expect(() => planHandOver([], request)).toThrow(refusing('budget_unregistered'));
  });

  it.each<[string, readonly BudgetRow[], Partial<BudgetRow>]>([
    [
      'a root: what it spent stays',
      [row('a', null, { actual: 30, status: 'released' })],
      { max: 50, reserved: 0, actual: 30 },
    ],
    [
      'a root whose child still runs: the child keeps what it holds',
      [
        row('a', null, { actual: 30, status: 'released' }),
        row('c', 'a', { max: 40, reserved: 40, actual: 10 }),
      ],
      { max: 90, reserved: 0, actual: 30 },
    ],
    [
      'a child whose ancestors have all ended',
      [
        row('r', null, { max: 1, status: 'released' }),
        row('a', 'r', { actual: 5, status: 'released' }),
      ],
      { max: 25, reserved: 25, actual: 5 },
    ],
    [
      'a child of a parent that has the room',
      [row('r', null, { actual: 60 }), row('a', 'r', { actual: 20, status: 'released' })],
      { max: 40, reserved: 40, actual: 20 },
    ],
    [
      'a row that was never released, as if it had been',
      [row('r', null, { actual: 60 }), row('a', 'r', { max: 35, reserved: 35, actual: 20 })],
      { max: 40, reserved: 40, actual: 20 },
    ],
  ])('reopens %s', (_, rows, expected) => {
    const reopened = planReopen(rows, { threadId: 'a', grant: 20 });
    expect(reopened).toMatchObject({ ...expected, status: 'active' });
    expect(remaining(applyRow(rows, reopened), 'a')).toBe(20);
  });

  it('makes the nearest active ancestor pay, and fails if it lacks the room', () => {
    const rows = [
      row('r', null, { actual: 30 }),
      row('a', 'r', { actual: 20, status: 'released' }),
      row('b', 'a', { actual: 5, status: 'released' }),
    ];
    const after = applyRow(rows, planReopen(rows, { threadId: 'b', grant: 45 }));
    expect(remaining(after, 'r')).toBe(0);
    expect(() => planReopen(rows, { threadId: 'b', grant: 46 })).toThrow(
      expect.objectContaining({
        code: 'budget_insufficient',
        message: 'thread r can spare $0.000045, too little for the $0.000046 of b',
      }),
    );
    expect(() => planReopen(rows, { threadId: 'b', grant: 45, keep: 1 })).toThrow(
      refusing('budget_insufficient'),
    );
    expect(() => planReopen(rows, { threadId: 'x', grant: 1 })).toThrow(
      refusing('budget_unregistered'),
    );
    expect(() => planReopen(rows, { threadId: 'b', grant: -1 })).toThrow(refusing('invalid_limit'));
  });

  it('never registers less than what is spent and held', () => {
    const rows = [row('r', null, { actual: 30 }), row('c', 'r', { max: 40, reserved: 40 })];
    expect(planRegister(rows, 'r', 10).max).toBe(70);
  });

  it('gives the money of a call under way to no other thread', () => {
    const root = row('r', null);
    const child = row('c', 'r', { max: 40, reserved: 40, status: 'released' });
    const rows = [planHold([root, child], 'r', 70) ?? root, child];
    expect(remaining(rows, 'r')).toBe(100);
    const reserve = { childId: 'd', parentId: 'r', amount: 31 };
    expect(() => planReserve(rows, reserve)).toThrow(refusing('budget_insufficient'));
    expect(() => planReopen(rows, { threadId: 'c', grant: 31 })).toThrow(
      refusing('budget_insufficient'),
    );
    // a summary of a thread that has ended is paid by the running thread
    expect(planHold(rows, 'c', 31)).toBeUndefined();
    expect(planHold(rows, 'c', 30)).toMatchObject({ in_flight: 30 });
    expect(planHold(rows, 'r', 101)).toBeUndefined();
    const answered = [planReport(rows, 'r', 20), child];
    expect(planReserve(answered, { ...reserve, amount: 80 }).max).toBe(80);
    expect(planHold(rows, 'r', 0)).not.toHaveProperty('in_flight');
  });

  it('pays the call of an active thread from what it was given, however much its ancestors spent', () => {
    const rows = [row('r', null, { actual: 150 }), row('c', 'r', { max: 40, reserved: 40 })];
    expect(planHold(rows, 'c', 40)).toMatchObject({ in_flight: 40 });
    expect(planHold(rows, 'c', 41)).toBeUndefined();
  });

  it('registers no child as a root', () => {
    const rows = [row('r', null), row('c', 'r')];
    expect(() => planRegister(rows, 'c', 10)).toThrow(refusing('thread_id_taken'));
  });

  it('raises a maximum, which the thread above pays', () => {
    const root = row('r', null, { actual: 30 });
    const child = row('c', 'r', { max: 40, reserved: 40 });
    expect(planRaise([root, child], 'r', 90)).toEqual(root);
    expect(planRaise([root, child], 'r', 150)).toEqual({ ...root, max: 150 });
    expect(planRaise([root, child], 'c', 70)).toEqual({ ...child, max: 70, reserved: 70 });
    expect(() => planRaise([root, child], 'c', 71)).toThrow(refusing('budget_insufficient'));
    const over = { ...root, status: 'released' } as const;
    expect(planRaise([over, child], 'c', 71).max).toBe(71);
  });

  it('releases once', () => {
    expect(planRelease([row('r', null)], 'r')?.status).toBe('released');
    expect(planRelease([row('r', null, { status: 'released' })], 'r')).toBeUndefined();
    expect(planRelease([], 'r')).toBeUndefined();
  });
});

const index = fc.nat({ max: 5 });
const money = fc.nat({ max: 60 });
const step = <const N extends string>(op: N, weight: number) => ({
  weight,
  arbitrary: fc.record({ op: fc.constant(op), thread: index, other: index, amount: money }),
});
const operation = fc.oneof(
  step('register', 1),
  step('reserve', 4),
  step('report', 4),
  step('call', 4),
  step('answer', 4),
  step('release', 2),
  step('reopen', 2),
  step('hand over', 1),
);
type Operation = typeof operation extends fc.Arbitrary<infer O> ? O : never;
const operations = fc.array(operation, { maxLength: 40 });

/** The same sums by plain recursion, straight from the definition. */
function naive(rows: readonly BudgetRow[], id: string): { spend: number; committed: number } {
  const { actual: own = 0, in_flight: call = 0 } =
    rows.find(({ thread_id }) => thread_id === id) ?? {};
  const sums = { spend: own, committed: own + call };
  for (const child of rows.filter(({ parent_id }) => parent_id === id)) {
    const below = naive(rows, child.thread_id);
    sums.spend += below.spend;
    sums.committed +=
      child.status === 'active' ? Math.max(child.reserved, below.committed) : below.committed;
  }
  return sums;
}

/** The rows that an operation changes; `spendable` limits reports to what the thread may spend. */
function changes(
  rows: readonly BudgetRow[],
  { op, thread, other, amount }: Operation,
  spendable: boolean,
): readonly (BudgetRow | undefined)[] {
  const threadId = `t${thread}`;
  const otherId = `t${other}`;
  switch (op) {
    case 'register':
      return [planRegister(rows, threadId, amount)];
    case 'reserve':
      return [planReserve(rows, { childId: threadId, parentId: otherId, amount })];
    case 'release': {
      const released = planRelease(rows, threadId);
      if (released) expect(planRelease(applyRow(rows, released), threadId)).toBeUndefined();
      return [released];
    }
    case 'reopen':
      return [planReopen(rows, { threadId, grant: amount })];
    case 'hand over': {
      const { released, successor } = planHandOver(rows, {
        threadId,
        successorId: otherId,
        amount,
      });
      return [released, successor];
    }
    case 'call':
      return [planHold(rows, threadId, amount)];
    case 'answer': {
      const { actual = 0, in_flight: most = 0 } =
        rows.find(({ thread_id }) => thread_id === threadId) ?? {};
      return [planReport(rows, threadId, actual + Math.min(amount, most))];
    }
    case 'report': {
      const current = rows.find(({ thread_id }) => thread_id === threadId);
      if (current?.status !== 'active') return [];
      // what was not set aside may be gone when it is reported
      if (spendable && current.in_flight !== undefined) return [];
      const more = spendable ? Math.min(amount, remaining(rows, threadId)) : amount;
      return [planReport(rows, threadId, current.actual + more)];
    }
  }
}

function apply(
  rows: readonly BudgetRow[],
  chosen: Operation,
  spendable: boolean,
): readonly BudgetRow[] {
  try {
    return changes(rows, chosen, spendable).reduce(
      (after, changed) => (changed ? applyRow(after, changed) : after),
      rows,
    );
  } catch (error) {
    if (error instanceof RyeError) return rows;
    throw error;
  }
}

describe('a ledger under any sequence of operations', () => {
  it('agrees with the naive model and is never negative', () => {
    fc.assert(
      fc.property(operations, fc.boolean(), (steps, spendable) => {
        let rows: readonly BudgetRow[] = [planRegister([], 't0', 100)];
        for (const one of steps) {
          rows = apply(rows, one, spendable);
          for (const { thread_id, max, reserved, actual, in_flight: call = 0 } of rows) {
            const model = naive(rows, thread_id);
            expect(subtreeSpend(rows, thread_id)).toBe(model.spend);
            expect(remaining(rows, thread_id)).toBe(Math.max(0, max - model.committed + call));
            expect(Math.min(max, reserved, actual)).toBeGreaterThanOrEqual(0);
          }
        }
      }),
      { numRuns: 150, seed: 7 },
    );
  });

  // Requirement: budgets-hold-across-runs
  it('never lets an active thread and all below it spend more than its maximum', () => {
    fc.assert(
      fc.property(operations, (steps) => {
        let rows: readonly BudgetRow[] = [planRegister([], 't0', 100)];
        for (const one of steps) {
          const before = new Map(rows.map(({ thread_id, actual }) => [thread_id, actual]));
          rows = apply(rows, one, true);
          for (const { thread_id, max, status, actual } of rows) {
            expect(actual).toBeGreaterThanOrEqual(before.get(thread_id) ?? 0);
            if (status === 'released') continue;
            expect(naive(rows, thread_id).committed).toBeLessThanOrEqual(max);
            expect(naive(rows, thread_id).spend).toBeLessThanOrEqual(max);
          }
        }
      }),
      { numRuns: 1000, seed: 8 },
    );
  });
});
