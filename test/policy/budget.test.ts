import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/core/errors.ts';
import {
  applyRow,
  type BudgetRow,
  planHandOver,
  planRegister,
  planRelease,
  planReport,
  planReserve,
  remaining,
  subtreeSpend,
} from '../../src/policy/budget.ts';

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

  it('releases once', () => {
    expect(planRelease([row('r', null)], 'r')?.status).toBe('released');
    expect(planRelease([row('r', null, { status: 'released' })], 'r')).toBeUndefined();
    expect(planRelease([], 'r')).toBeUndefined();
  });
});

type Operation =
  | {
      readonly op: 'reserve';
      readonly child: number;
      readonly parent: number;
      readonly amount: number;
    }
  | { readonly op: 'report'; readonly thread: number; readonly more: number }
  | { readonly op: 'release'; readonly thread: number };

const index = fc.nat({ max: 5 });
const money = fc.nat({ max: 60 });
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant('reserve' as const),
      child: index,
      parent: index,
      amount: money,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ op: fc.constant('report' as const), thread: index, more: money }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('release' as const), thread: index }) },
);
const operations = fc.array(operation, { maxLength: 30 });

/** The same sums by plain recursion, straight from the definition. */
function naive(rows: readonly BudgetRow[], id: string): { spend: number; committed: number } {
  const own = rows.find(({ thread_id }) => thread_id === id)?.actual ?? 0;
  const sums = { spend: own, committed: own };
  for (const child of rows.filter(({ parent_id }) => parent_id === id)) {
    const below = naive(rows, child.thread_id);
    sums.spend += below.spend;
    sums.committed +=
      child.status === 'active' ? Math.max(child.reserved, below.committed) : below.committed;
  }
  return sums;
}

/** Applies an operation the way a store does; `spendable` limits reports to what the thread may spend. */
function apply(
  rows: readonly BudgetRow[],
  step: Operation,
  spendable: boolean,
): readonly BudgetRow[] {
  try {
    if (step.op === 'reserve') {
      return applyRow(
        rows,
        planReserve(rows, {
          childId: `t${step.child}`,
          parentId: `t${step.parent}`,
          amount: step.amount,
        }),
      );
    }
    const id = `t${step.thread}`;
    if (step.op === 'release') {
      const released = planRelease(rows, id);
      return released === undefined || id === 't0' ? rows : applyRow(rows, released);
    }
    const current = rows.find(({ thread_id }) => thread_id === id);
    if (current === undefined || current.status === 'released') return rows;
    const more = spendable ? Math.min(step.more, remaining(rows, id)) : step.more;
    return applyRow(rows, planReport(rows, id, current.actual + more));
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
        for (const step of steps) {
          rows = apply(rows, step, spendable);
          for (const { thread_id, max } of rows) {
            const model = naive(rows, thread_id);
            expect(subtreeSpend(rows, thread_id)).toBe(model.spend);
            expect(remaining(rows, thread_id)).toBe(Math.max(0, max - model.committed));
          }
        }
      }),
      { numRuns: 150, seed: 7 },
    );
  });

  it('is never over-committed while threads spend only what is theirs', () => {
    fc.assert(
      fc.property(operations, (steps) => {
        let rows: readonly BudgetRow[] = [planRegister([], 't0', 100)];
        for (const step of steps) {
          rows = apply(rows, step, true);
          for (const { thread_id, max } of rows) {
            expect(naive(rows, thread_id).committed).toBeLessThanOrEqual(max);
          }
          expect(subtreeSpend(rows, 't0')).toBeLessThanOrEqual(100);
        }
      }),
      { numRuns: 300, seed: 8 },
    );
  });
});
