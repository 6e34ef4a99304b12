import { expect, it } from 'vitest';
import { fulfilled, type OpenStore } from './fixtures.ts';

/** Budgets of trees of threads. */
export function ledgerCases(open: OpenStore): void {
  it('takes no report of an owner that was fenced, and the next one of its successor', async () => {
    const { ledger } = await open();
    await ledger.register('root', 1_000_000);
    await ledger.report('root', 100, 1);
    await ledger.fence('root', 2);
    await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
    await ledger.fence('root', 1);
    await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
    expect(await ledger.subtreeSpend('root')).toBe(100);
    await ledger.report('root', 300, 2);
    expect(await ledger.subtreeSpend('root')).toBe(300);
    await ledger.fence('none', 3);
  });

  it('registers, reserves, reports and releases; sums are derived', async () => {
    const { ledger } = await open();
    await ledger.register('root', 1_000_000);
    await ledger.register('root', 1_000_000);
    await ledger.reserve('child', 400_000, 'root');
    await ledger.reserve('grandchild', 300_000, 'child');
    expect(await ledger.remaining('root')).toBe(600_000);
    expect(await ledger.remaining('child')).toBe(100_000);
    await ledger.report('grandchild', 250_000, 1);
    await ledger.report('root', 100_000, 1);
    await ledger.report('root', 50_000, 1);
    expect(await ledger.remaining('root')).toBe(500_000);
    expect(await ledger.subtreeSpend('root')).toBe(350_000);
    await ledger.release('grandchild');
    await ledger.release('grandchild');
    expect(await ledger.remaining('child')).toBe(150_000);
    await ledger.release('child');
    expect(await ledger.remaining('root')).toBe(650_000);
    expect(await ledger.rows()).toEqual([
      {
        thread_id: 'root',
        parent_id: null,
        max: 1_000_000,
        reserved: 0,
        actual: 100_000,
        status: 'active',
      },
      {
        thread_id: 'child',
        parent_id: 'root',
        max: 400_000,
        reserved: 400_000,
        actual: 0,
        status: 'released',
      },
      {
        thread_id: 'grandchild',
        parent_id: 'child',
        max: 300_000,
        reserved: 300_000,
        actual: 250_000,
        status: 'released',
      },
    ]);
  });

  it('hands the remaining budget over to a successor in one transaction', async () => {
    const { ledger } = await open();
    await ledger.register('root', 1000);
    await ledger.reserve('old', 400, 'root');
    await ledger.reserve('grandchild', 100, 'old');
    await ledger.report('old', 150, 1);
    expect(await ledger.handOver('old', 'new', 1000)).toBe(150);
    expect(await ledger.remaining('root')).toBe(600);
    expect(await ledger.remaining('new')).toBe(150);
    await expect(ledger.handOver('old', 'third', 1)).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await ledger.report('root', 250, 1);
    expect(await ledger.handOver('root', 'next', 10)).toBe(10);
    expect(await ledger.rows()).toContainEqual({
      thread_id: 'next',
      parent_id: null,
      max: 10,
      reserved: 0,
      actual: 0,
      status: 'active',
    });
  });

  it('refuses what does not fit or is not there, and changes nothing then', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 60, 'root');
    const before = await ledger.rows();
    await expect(ledger.reserve('b', 41, 'root')).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await expect(ledger.reserve('b', 1, 'none')).rejects.toMatchObject({
      code: 'budget_unregistered',
    });
    await expect(ledger.reserve('b', -1, 'root')).rejects.toMatchObject({
      code: 'invalid_limit',
    });
    await expect(ledger.reserve('b', 0.5, 'root')).rejects.toMatchObject({
      code: 'invalid_limit',
    });
    await expect(ledger.report('none', 1, 1)).rejects.toMatchObject({
      code: 'budget_unregistered',
    });
    await expect(ledger.remaining('none')).rejects.toMatchObject({ code: 'budget_unregistered' });
    await ledger.release('none');
    expect(await ledger.rows()).toEqual(before);
    await ledger.reserve('b', 40, 'root');
  });

  it('does not give out twice what is asked for at once', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 10 }, async (_, index) => await ledger.reserve(`c${index}`, 30, 'root')),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    expect(await ledger.remaining('root')).toBe(10);
  });

  it('keeps what the parent needs, lists what running children hold, and selects rows', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await expect(ledger.reserve('a', 60, 'root', 50)).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await ledger.reserve('a', 30, 'root', 50);
    await ledger.reserve('b', 40, 'root');
    await ledger.reserve('c', 10, 'root');
    await ledger.report('a', 5, 1);
    await ledger.release('c');
    expect(await ledger.held('root')).toEqual([
      { thread_id: 'b', microUsd: 40 },
      { thread_id: 'a', microUsd: 25 },
    ]);
    expect(await ledger.held('none')).toEqual([]);
    const ids = async (filter: Parameters<typeof ledger.rows>[0]): Promise<readonly string[]> =>
      (await ledger.rows(filter)).map(({ thread_id }) => thread_id);
    expect(await ids({})).toEqual(['root', 'a', 'b', 'c']);
    expect(await ids({ status: 'active' })).toEqual(['root', 'a', 'b']);
    expect(await ids({ thread_id: 'c' })).toEqual(['c']);
    expect(await ids({ thread_id: 'c', status: 'active' })).toEqual([]);
    expect(await ids({ thread_id: 'none' })).toEqual([]);
  });

  it('sets aside what a call may cost until it is reported, and keeps what the next one needs', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    expect(await ledger.nextCall('root')).toBe(0);
    expect(await ledger.holdForCall('root', 60, 1)).toBe(true);
    expect(await ledger.remaining('root')).toBe(100);
    expect(await ledger.rows()).toMatchObject([{ thread_id: 'root', actual: 0, in_flight: 60 }]);
    await expect(ledger.reserve('a', 41, 'root')).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await ledger.reserve('a', 40, 'root');
    expect(await ledger.holdForCall('root', 61, 1)).toBe(false);
    await ledger.report('root', 20, 1, 7);
    expect(await ledger.remaining('root')).toBe(40);
    await ledger.report('root', 10, 1);
    expect(await ledger.nextCall('root')).toBe(7);
    // a thread that has ended pays from the budget of its parent
    await ledger.release('a');
    expect(await ledger.holdForCall('a', 81, 1)).toBe(false);
    expect(await ledger.holdForCall('a', 40, 1)).toBe(true);
    await expect(ledger.reserve('b', 41, 'root')).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await ledger.fence('a', 2);
    await expect(ledger.holdForCall('a', 0, 1)).rejects.toMatchObject({ code: 'thread_locked' });
    expect(await ledger.holdForCall('a', 0, 2)).toBe(true);
    await ledger.reserve('b', 80, 'root');
    await expect(ledger.holdForCall('none', 1, 1)).rejects.toMatchObject({
      code: 'budget_unregistered',
    });
  });

  it('raises what a thread may spend, paid by the one above it', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 40, 'root');
    await ledger.raise('a', 90, 1);
    expect(await ledger.remaining('a')).toBe(90);
    expect(await ledger.remaining('root')).toBe(10);
    await expect(ledger.raise('a', 101, 1)).rejects.toMatchObject({ code: 'budget_insufficient' });
    await ledger.raise('root', 200, 1);
    await ledger.raise('root', 150, 1);
    expect(await ledger.remaining('root')).toBe(110);
    await ledger.raise('a', 101, 1);
    await ledger.fence('a', 2);
    await expect(ledger.raise('a', 102, 1)).rejects.toMatchObject({ code: 'thread_locked' });
  });

  it('replaces the reservation of the same child, and gives none under a parent that has ended', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 60, 'root');
    await ledger.reserve('a', 100, 'root');
    expect(await ledger.remaining('root')).toBe(0);
    await ledger.reserve('b', 10, 'a');
    await expect(ledger.reserve('b', 1, 'root')).rejects.toMatchObject({ code: 'thread_id_taken' });
    await ledger.release('a');
    await expect(ledger.reserve('d', 1, 'a')).rejects.toMatchObject({ code: 'illegal_transition' });
    // the claim of a grandchild that still runs stays with the root
    expect(await ledger.remaining('root')).toBe(90);
  });

  it('reopens a thread that has ended, paid by its nearest active ancestor', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 60, 'root');
    await ledger.reserve('b', 30, 'a');
    await ledger.report('a', 20, 1);
    await ledger.report('b', 10, 1);
    await ledger.release('a');
    // a grandchild that still runs keeps its claim
    expect(await ledger.remaining('root')).toBe(50);
    expect(await ledger.committed('a')).toBe(50);
    await ledger.release('b');
    expect(await ledger.committed('a')).toBe(30);
    await ledger.reopen('b', 40);
    expect(await ledger.remaining('b')).toBe(40);
    expect(await ledger.remaining('root')).toBe(30);
    await expect(ledger.reopen('a', 31)).rejects.toMatchObject({ code: 'budget_insufficient' });
    await expect(ledger.reopen('a', 30, { keep: 1 })).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    await ledger.reopen('a', 30);
    expect(await ledger.remaining('root')).toBe(0);
    expect(await ledger.rows({ thread_id: 'a' })).toEqual([
      {
        thread_id: 'a',
        parent_id: 'root',
        max: 100,
        reserved: 100,
        actual: 20,
        status: 'active',
      },
    ]);
    await ledger.report('a', 15, 1);
    expect(await ledger.subtreeSpend('root')).toBe(30);
    await expect(ledger.reopen('none', 1)).rejects.toMatchObject({ code: 'budget_unregistered' });
  });

  it('moves the branch of a thread to the heir of its ancestor, which pays', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 40, 'root');
    await ledger.reserve('b', 10, 'a');
    for (const [id, spent] of [
      ['b', 5],
      ['a', 15],
    ] as const) {
      await ledger.report(id, spent, 1);
      await ledger.release(id);
    }
    await ledger.report('root', 10, 1);
    expect(await ledger.handOver('root', 'next', 1000)).toBe(70);
    await ledger.release('root');
    const heir = { ancestorId: 'root', successorId: 'next' };
    const before = await ledger.rows();
    await expect(ledger.reopen('b', 71, { heir })).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    expect(await ledger.rows()).toEqual(before);
    await ledger.reopen('b', 30, { heir });
    expect(await ledger.remaining('next')).toBe(40);
    expect(await ledger.remaining('b')).toBe(30);
    // the thread stays below its own parent, which moved with it
    expect(await ledger.rows({ thread_id: 'a' })).toMatchObject([{ parent_id: 'next' }]);
    expect(await ledger.rows({ thread_id: 'b' })).toMatchObject([
      { parent_id: 'a', actual: 5, status: 'active' },
    ]);
    await ledger.release('b');
    // a branch that has moved does not move again
    await ledger.reopen('a', 70, { heir });
    expect(await ledger.remaining('next')).toBe(0);
    expect(await ledger.subtreeSpend('next')).toBe(20);
  });

  it('makes a thread whose ancestors have ended its own cap, and keeps it when they resume', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.reserve('a', 60, 'root');
    for (const id of ['a', 'root']) await ledger.release(id);
    await ledger.reopen('a', 500);
    expect(await ledger.remaining('a')).toBe(500);
    await ledger.reopen('root', 10);
    expect(await ledger.remaining('root')).toBe(10);
    expect(await ledger.remaining('a')).toBe(500);
    await expect(ledger.reopen('a', 511)).rejects.toMatchObject({ code: 'budget_insufficient' });
    await ledger.reopen('a', 510);
    expect(await ledger.remaining('root')).toBe(0);
  });

  it('leaves the budget of a run to its owner, not to the one of the run before', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    await ledger.report('root', 10, 1);
    await ledger.release('root', 1);
    await ledger.reopen('root', 50, { epoch: 2 });
    await ledger.release('root', 1);
    await expect(ledger.report('root', 20, 1)).rejects.toMatchObject({ code: 'thread_locked' });
    await expect(ledger.reopen('root', 90, { epoch: 1 })).rejects.toMatchObject({
      code: 'thread_locked',
    });
    expect(await ledger.rows({ status: 'active' })).toMatchObject([{ max: 60, actual: 10 }]);
    await ledger.report('root', 20, 2);
    await ledger.release('root', 2);
    expect(await ledger.rows({ status: 'active' })).toEqual([]);
  });

  it('gives a grant once, also when two ask at the same time', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    for (const id of ['a', 'b']) {
      await ledger.reserve(id, 50, 'root');
      await ledger.release(id);
    }
    const asked = await Promise.allSettled(
      ['a', 'b'].map(async (id) => await ledger.reopen(id, 60)),
    );
    expect(fulfilled(asked, 'budget_insufficient')).toBe(1);
    expect(await ledger.remaining('root')).toBe(40);
  });

  it('restores rows that are missing, parents first', async () => {
    const { ledger } = await open();
    const row = { max: 50, reserved: 50, actual: 7, status: 'active' } as const;
    const root = { ...row, thread_id: 'root', parent_id: null, max: 100, reserved: 0 };
    const child = { ...row, thread_id: 'child', parent_id: 'root' };
    const orphan = { ...row, thread_id: 'orphan', parent_id: 'gone' };
    expect(await ledger.restore([root, child, orphan])).toEqual(['root', 'child', 'orphan']);
    expect(await ledger.restore([{ ...root, max: 1 }])).toEqual([]);
    expect(await ledger.rows()).toEqual([root, child, { ...orphan, parent_id: null, reserved: 0 }]);
    expect(await ledger.remaining('root')).toBe(43);
  });

  it('hands a budget over once, also when two ask at the same time', async () => {
    const { ledger } = await open();
    await ledger.register('root', 100);
    const asked = await Promise.allSettled(
      ['x', 'y'].map(async (id) => await ledger.handOver('root', id, 100)),
    );
    expect(fulfilled(asked, 'budget_insufficient')).toBe(1);
    await expect(ledger.handOver('none', 'z', 1)).rejects.toMatchObject({
      code: 'budget_unregistered',
    });
  });
}
