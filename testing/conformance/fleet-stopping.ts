import { expect, it } from 'vitest';
import type { QueueNotice } from '../../src/kernel/storage/fleet-queue.ts';
import { aborted, eventually, type House, noting } from './fleet-fixtures.ts';

/** Cases in which a leg ends other than by its run: cancelled, drained, failed, dead, hostile; and what is forgotten. */
export function stoppingCases(open: () => Promise<House>): void {
  it('removes a cancelled leg that is queued', async () => {
    const house = await open();
    await house.enqueue('a#1');
    await house.queue.cancelLeg(house.name('a#1'));
    await house.queue.cancelLeg(house.name('unknown#1'));
    expect(await house.state()).toMatchObject({ queued: 0 });
    expect(await house.enqueue('a#1')).toBe(false);
    // the thread has no queued leg any more
    expect(await house.enqueue('a#2')).toBe(true);
    const { started, run } = noting();
    await house.work(run);
    await house.becomes({ queued: 0, running: 0 });
    await eventually(() => expect(started).toEqual([house.name('a#2')]));
  });

  it('aborts the signal of a cancelled leg that runs', async () => {
    const house = await open();
    const reasons: unknown[] = [];
    const { started, run } = noting(async (_leg, signal) => {
      reasons.push(await aborted(signal));
      throw new Error('stopped');
    });
    await house.enqueue('a#1');
    const worker = await house.work(run);
    await eventually(() => expect(worker.running()).toEqual([house.name('a#1')]));
    await house.queue.cancelLeg(house.name('a#1'));
    await eventually(() => expect(reasons).toEqual(['cancel']));
    await eventually(() => expect(worker.running()).toEqual([]));
    expect(await house.queue.redispatch(worker.workerId)).toBe(0);
    expect(await house.state()).toMatchObject({ queued: 0, running: 0, failed: 0 });
    expect(started).toHaveLength(1);
  });

  it('drains a worker: legs stop at a safe point, and none starts', async () => {
    const house = await open();
    const reasons: unknown[] = [];
    const { started, run } = noting(async (_leg, signal) => {
      reasons.push(await aborted(signal));
      // it parks, and queues its next leg
      await house.enqueue('a#2');
    });
    await house.enqueue('a#1');
    const worker = await house.work(run);
    await eventually(() => expect(started).toHaveLength(1));
    await Promise.all([worker.drain(60_000), worker.drain(60_000)]);
    expect(reasons).toEqual(['drain']);
    expect(worker.running()).toEqual([]);
    expect(started).toHaveLength(1);
    expect(await house.state()).toMatchObject({ queued: 1, running: 0 });
    const next = noting();
    await house.work(next.run);
    await eventually(() => expect(next.started).toEqual([house.name('a#2')]));
  });

  it('returns a leg to its queue that a drain interrupted or could not stop', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, run } = noting(async (leg, signal) => {
      await aborted(signal);
      if (leg.legId === house.name('throws#1')) throw new Error('interrupted');
      await gate.passed;
    });
    await house.enqueue('throws#1');
    await house.enqueue('stays#1');
    const worker = await house.work(run);
    await eventually(() => expect(started).toHaveLength(2));
    await worker.drain(300);
    expect(await house.state()).toMatchObject({ queued: 2, running: 0 });
    gate.open();
    const next = noting();
    await house.work(next.run);
    await eventually(() => expect(next.started).toHaveLength(2));
    await house.becomes({ queued: 0, running: 0, failed: 0 });
  });

  it('tries a leg again whose run throws, and then lets it fail', async () => {
    const house = await open();
    const notices: QueueNotice[] = [];
    const { started, run } = noting(async (leg) => {
      const isFirst = started.filter((id) => id === leg.legId).length === 1;
      if (leg.legId === house.name('bad#1') || isFirst) throw new Error(`no luck`);
    });
    await house.enqueue('bad#1');
    await house.enqueue('good#1');
    await house.work(run, { tries: 3, report: (notice) => notices.push(notice) });
    await house.becomes({ queued: 0, running: 0, failed: 1 });
    const countOf = (id: string): number =>
      started.filter((legId) => legId === house.name(id)).length;
    expect(countOf('bad#1')).toBe(3);
    expect(countOf('good#1')).toBe(2);
    expect(notices.filter(({ code }) => code !== 'engine')).toEqual([
      { code: 'leg_failed', legId: house.name('bad#1'), message: 'no luck' },
    ]);
    expect(await house.enqueue('bad#2')).toBe(true);
  });

  it('refuses rows that are no legs of this version, and runs the others', async () => {
    const house = await open();
    const notices: QueueNotice[] = [];
    const leg = house.leg('x#1');
    const stored = { version: 1, leg_id: leg.legId, thread_id: leg.threadId, queue: leg.queue };
    const hostile: unknown[] = [
      null,
      'text',
      [],
      {},
      { ...stored, version: 2, priority: 5, payload: {} },
      { ...stored, priority: 'high', payload: {} },
      { ...stored, priority: 5, payload: { text: 'x'.repeat(100_000) } },
      { ...stored, priority: 5, payload: {}, partition: { toString: 'x' } },
      // the row of another leg
      { ...stored, priority: 5, payload: {} },
    ];
    for (const [index, row] of hostile.entries()) {
      await house.enqueue(`h${index}#1`);
      await house.opened.corrupt(house.name(`h${index}#1`), row);
    }
    await house.enqueue('good#1');
    const { started, run } = noting();
    await house.work(run, { report: (notice) => notices.push(notice) });
    await house.becomes({ queued: 0, running: 0, failed: hostile.length });
    expect(started).toEqual([house.name('good#1')]);
    const refused = notices.flatMap(({ code, legId }) => (code === 'leg_refused' ? [legId] : []));
    expect(refused).toHaveLength(hostile.length);
    expect(new Set(refused)).toEqual(new Set(hostile.map((_, at) => house.name(`h${at}#1`))));
  });

  it('returns the legs of a dead worker to their queue, and runs them again', async () => {
    const house = await open();
    const gate = house.gate();
    const dead = noting(async () => await gate.passed);
    await house.enqueue('a#1', { priority: 2 });
    await house.enqueue('b#1');
    const { kill } = await house.elsewhere(dead.run, {
      workerId: house.name('dead'),
      slots: 2,
    });
    await eventually(() => expect(dead.started).toHaveLength(2));
    // the leg of b had queued its next leg when its worker died
    expect(await house.enqueue('b#2')).toBe(true);
    await kill();
    expect(await house.state()).toMatchObject({ running: 2, queued: 1 });
    expect(await house.queue.redispatch(house.name('unknown'))).toBe(0);
    expect(await house.queue.redispatch(house.name('dead'))).toBe(1);
    expect(await house.queue.redispatch(house.name('dead'))).toBe(0);
    expect(await house.state()).toMatchObject({ running: 0, queued: 2 });
    expect(await house.enqueue('a#2')).toBe(false);
    const { started, legs, run } = noting();
    await house.work(run, { slots: 1 });
    await eventually(() => expect(started).toEqual([house.name('a#1'), house.name('b#2')]));
    expect(legs[0]).toEqual(house.leg('a#1', { priority: 2 }));
    await house.becomes({ queued: 0, running: 0, failed: 0 });
  });

  it('may run a leg twice at once, and records its end once', async () => {
    const house = await open();
    const gate = house.gate();
    const first = noting(async () => await gate.passed);
    await house.enqueue('a#1');
    await house.elsewhere(first.run, { workerId: house.name('slow'), slots: 1 });
    await eventually(() => expect(first.started).toHaveLength(1));
    // a worker that only seemed dead
    expect(await house.queue.redispatch(house.name('slow'))).toBe(1);
    const second = noting();
    await house.work(second.run);
    await eventually(() => expect(second.started.length + first.started.length).toBe(2));
    gate.open();
    await house.becomes({ queued: 0, running: 0, failed: 0 });
  });

  it('tells the threads that have no leg: none that is queued, and none that a given worker runs', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, run } = noting(async () => await gate.passed);
    await house.enqueue('a#1');
    await house.work(run, { workerId: house.name('busy'), slots: 1 });
    await eventually(() => expect(started).toHaveLength(1));
    await house.enqueue('b#1');
    await house.enqueue('c#1', { notBefore: '2999-01-01T00:00:00.000Z' });
    const threads = ['a', 'b', 'c', 'd'].map((name) => house.leg(`${name}#1`));
    const without = async (...workers: readonly string[]): Promise<readonly string[]> =>
      await house.queue.withoutLeg(
        threads,
        workers.map((name) => house.name(name)),
      );
    const [a, , , d] = threads.map(({ threadId }) => threadId);
    expect(await without('busy')).toEqual([d]);
    expect(await without('another')).toEqual([a, d]);
    expect(await house.queue.owners()).toContain(house.name('busy'));
    gate.open();
    await house.becomes({ queued: 0, running: 0, delayed: 1 });
    expect(await house.queue.withoutLeg([], [])).toEqual([]);
    expect(await house.queue.owners()).not.toContain(house.name('busy'));
  });

  it('forgets legs that ended before a time, and no others', async () => {
    const house = await open();
    await house.enqueue('a#1');
    await house.enqueue('b#1', { notBefore: '2999-01-01T00:00:00.000Z' });
    const { started, run } = noting();
    await house.work(run);
    await house.becomes({ queued: 0, running: 0, delayed: 1 });
    await eventually(() => expect(started).toHaveLength(1));
    await house.queue.prune('2000-01-01T00:00:00.000Z');
    expect(await house.enqueue('a#1')).toBe(false);
    expect(await house.queue.prune('2998-01-01T00:00:00.000Z')).toBeGreaterThanOrEqual(1);
    expect(await house.enqueue('a#1')).toBe(true);
    await eventually(() => expect(started).toHaveLength(2));
    expect(await house.state()).toMatchObject({ delayed: 1 });
  });
}
