import { afterEach, describe, expect, it } from 'vitest';
import type { ScheduleState } from '../../src/kernel/storage/fleet-queue.ts';
import { eventually, House, noting, type OpenedQueue } from './fleet-fixtures.ts';
import { stoppingCases } from './fleet-stopping.ts';

const FAR = '2999-01-01T00:00:00.000Z';
const NONE = { global: null, partition: null, rate: null } as const;
/** Processes start slowly on a machine with other work. */
const TIMEOUT_MS = 180_000;

/**
 * Declares the tests of the port `FleetQueue`. `open` returns a queue for each call; the queues may share a server. The suite
 * closes what it opens.
 */
export function describeFleetQueue(name: string, open: () => Promise<OpenedQueue>): void {
  const houses: House[] = [];
  const house = async (): Promise<House> => {
    const made = new House(await open());
    houses.push(made);
    return made;
  };

  describe(`the queue contract: ${name}`, { timeout: TIMEOUT_MS }, () => {
    afterEach(async () => {
      for (const made of houses.splice(0)) await made.close();
    }, TIMEOUT_MS);
    queueingCases(house);
    limitCases(house);
    stoppingCases(house);
  });
}

type OpenHouse = () => Promise<House>;

function queueingCases(open: OpenHouse): void {
  it('runs a leg once, as it was queued, however often it is queued', async () => {
    const house = await open();
    expect(await house.enqueue('a#1')).toBe(true);
    expect(await house.enqueue('a#1')).toBe(false);
    const { legs, run } = noting();
    await house.work(run);
    await house.becomes({ queued: 0, running: 0 });
    expect(await house.enqueue('a#1')).toBe(false);
    await sentinel(house, legs);
    expect(legs.slice(0, -1)).toEqual([house.leg('a#1')]);
  });

  it('queues at most one leg of a thread, and lets the next one wait while a leg runs', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, run } = noting(async () => await gate.passed);
    expect(await house.enqueue('a#1')).toBe(true);
    expect(await house.enqueue('a#2')).toBe(false);
    await house.work(run, { slots: 1 });
    await eventually(() => expect(started).toEqual([house.name('a#1')]));
    // the leg a#2 was never queued, so its ID is free
    expect(await house.enqueue('a#2')).toBe(true);
    expect(await house.enqueue('a#3')).toBe(false);
    gate.open();
    await eventually(() => expect(started).toEqual([house.name('a#1'), house.name('a#2')]));
  });

  it('queues a leg with the transaction of the caller, or not at all', async () => {
    const house = await open();
    const failing = house.opened.transaction(async (tx) => {
      expect(await house.queue.enqueueLeg(tx, house.leg('a#1'))).toBe(true);
      throw new Error('rolled back');
    });
    await expect(failing).rejects.toThrow('rolled back');
    const { legs, run } = noting();
    await house.work(run);
    await sentinel(house, legs);
    expect(legs).toHaveLength(1);
    expect(await house.enqueue('a#1')).toBe(true);
    await eventually(() => expect(legs).toHaveLength(2));
  });

  it('gives several legs of one transaction the same rules', async () => {
    const house = await open();
    const queued = await house.opened.transaction(async (tx) => [
      await house.queue.enqueueLeg(tx, house.leg('a#1')),
      await house.queue.enqueueLeg(tx, house.leg('a#2')),
      await house.queue.enqueueLeg(tx, house.leg('b#1')),
    ]);
    expect(queued).toEqual([true, false, true]);
    expect(await house.state()).toMatchObject({ queued: 2 });
  });

  it('decides once when many queue the same leg at the same time', async () => {
    const house = await open();
    const all = await Promise.all(
      Array.from({ length: 8 }, async (_, index) => await house.enqueue(`a#${index % 2}`)),
    );
    expect(all.filter(Boolean)).toHaveLength(1);
    expect(await house.state()).toMatchObject({ queued: 1 });
  });

  it('starts urgent legs first, and equal ones in order', async () => {
    const house = await open();
    await house.queue.limit(house.name('main'), { ...NONE, global: 0 });
    for (const [legId, priority] of [
      ['late#1', 9],
      ['one#1', 5],
      ['two#1', 5],
      ['first#1', 0],
    ] as const)
      await house.enqueue(legId, { priority });
    const { started, run } = noting();
    await house.work(run, { slots: 1 });
    await house.queue.limit(house.name('main'), { ...NONE, global: 1 });
    await eventually(() => expect(started).toHaveLength(4));
    expect(started).toEqual(['first#1', 'one#1', 'two#1', 'late#1'].map((id) => house.name(id)));
  });

  it('starts no leg before its time', async () => {
    const house = await open();
    const { legs, started, run } = noting();
    await house.enqueue('later#1', { notBefore: FAR });
    const soon = new Date(Date.now() + 1500).toISOString();
    await house.enqueue('soon#1', { notBefore: soon });
    await house.work(run);
    await sentinel(house, legs);
    await eventually(() => expect(started).toContain(house.name('soon#1')));
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(soon) - 5);
    expect(started).not.toContain(house.name('later#1'));
    expect(await house.state()).toMatchObject({ queued: 0, delayed: 1, oldestAt: null });
  });

  it('brings a waiting leg forward when the thread is wanted earlier', async () => {
    const house = await open();
    const { started, run } = noting();
    await house.enqueue('a#1', { notBefore: FAR, priority: 9 });
    expect(await house.enqueue('a#2', { priority: 1 })).toBe(false);
    await house.work(run);
    await eventually(() => expect(started).toEqual([house.name('a#1')]));
  });

  it('reports what waits, runs and failed', async () => {
    const house = await open();
    const before = Date.now();
    await house.enqueue('a#1');
    await house.enqueue('b#1', { notBefore: FAR });
    const state = await house.state();
    expect(state).toMatchObject({ queued: 1, delayed: 1, running: 0, failed: 0, limits: NONE });
    // two clocks of one machine
    expect(Math.abs(Date.parse(state?.oldestAt ?? '') - before)).toBeLessThan(60_000);
    const gate = house.gate();
    const { run } = noting(async () => await gate.passed);
    await house.work(run);
    await house.becomes({ queued: 0, running: 1, oldestAt: null });
  });

  it('refuses legs, limits, workers and schedules that break the rules', async () => {
    const house = await open();
    const refused = { code: 'invalid_input' };
    const hostile: Record<string, unknown>[] = [
      { legId: '' },
      { legId: 'a\u0000' },
      { legId: 'x'.repeat(201) },
      { threadId: 7 },
      { queue: '../x' },
      { priority: 10 },
      { priority: 0.5 },
      { notBefore: 'tomorrow' },
      { partition: '' },
      { payload: [] },
      { payload: { text: 'x'.repeat(65_536) } },
      { firing: { schedule: 's' } },
    ];
    for (const changes of hostile)
      await expect(
        house.enqueue('a#1', changes),
        JSON.stringify(changes).slice(0, 80),
      ).rejects.toMatchObject(refused);
    const { queue } = house;
    const main = house.name('main');
    await expect(queue.limit(main, { ...NONE, global: -1 })).rejects.toMatchObject(refused);
    await expect(queue.limit(main, { ...NONE, partition: 0 })).rejects.toMatchObject(refused);
    await expect(
      queue.limit(main, { ...NONE, rate: { legs: 0, seconds: 1 } }),
    ).rejects.toMatchObject(refused);
    await expect(house.work(noting().run, { slots: 0 })).rejects.toMatchObject(refused);
    await expect(house.work(noting().run, { queues: [] })).rejects.toMatchObject(refused);
    await expect(queue.prune('yesterday')).rejects.toMatchObject(refused);
    const spec = {
      name: 's',
      cron: '0 3 * * *',
      queue: main,
      payload: {},
      missed: 'skip',
    } as const;
    await expect(queue.schedule({ ...spec, timezone: 'Europe/Atlantis' })).rejects.toMatchObject(
      refused,
    );
  });

  it('fires a schedule, with its name and time in the leg', async () => {
    const house = await open();
    const name = house.name('nightly');
    const spec = {
      name,
      cron: '0 3 1 1 *',
      timezone: 'Europe/Berlin',
      queue: house.name('main'),
      payload: { directive: 'reports/weekly' },
      missed: 'skip',
    } as const;
    await house.queue.schedule({ ...spec, payload: {} });
    await house.queue.schedule(spec);
    const { legs, run } = noting();
    await house.work(run);
    expect(await house.queue.pause(name, true)).toBe(true);
    await house.queue.fire(name);
    await eventually(() => expect(legs).toHaveLength(1));
    const [leg] = legs;
    expect(leg).toMatchObject({
      threadId: `schedule/${name}`,
      queue: spec.queue,
      payload: spec.payload,
      firing: { schedule: name },
    });
    expect(leg?.legId).toBe(`${name}@${leg?.firing?.at}`);
    const other = house.name('hourly');
    await house.queue.schedule({ ...spec, name: other, missed: 'all' });
    const own = async (): Promise<readonly ScheduleState[]> =>
      (await house.queue.schedules()).filter((one) => [name, other].includes(one.name));
    const hourly = { name: other, paused: false, spec: { ...spec, name: other, missed: 'all' } };
    expect(await own()).toEqual([hourly, { name, paused: true, spec }]);
    expect(await house.queue.pause(name, false)).toBe(true);
    expect(await own()).toEqual([hourly, { name, paused: false, spec }]);
    await house.queue.pause(name, true);
    await house.queue.schedule(spec);
    expect(await own()).toEqual([hourly, { name, paused: true, spec }]);
    expect(await house.queue.pause(house.name('nope'), true)).toBe(false);
    expect(await house.queue.unschedule(other)).toBe(true);
    expect(await house.queue.unschedule(name)).toBe(true);
    expect(await house.queue.unschedule(name)).toBe(false);
    await expect(house.queue.fire(name)).rejects.toMatchObject({ code: 'item_not_found' });
  });
}

function limitCases(open: OpenHouse): void {
  it('runs as many legs of a queue as its limit allows', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, legs, run } = noting(async (leg) => {
      if (leg.queue === house.name('main')) await gate.passed;
    });
    await house.queue.limit(house.name('main'), { ...NONE, global: 2 });
    for (const id of ['a', 'b', 'c', 'd']) await house.enqueue(`${id}#1`);
    await house.work(run);
    await house.becomes({ queued: 2, running: 2 });
    await sentinel(house, legs);
    expect(started).toHaveLength(3);
    await house.queue.limit(house.name('main'), NONE);
    await house.becomes({ queued: 0, running: 4 });
    expect(await house.state()).toMatchObject({ limits: NONE });
  });

  it('runs as many legs at once as a worker has slots, of all its queues together', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, run } = noting(async () => await gate.passed);
    for (const id of ['a', 'b', 'c']) await house.enqueue(`${id}#1`);
    await house.enqueue('d#1', { queue: house.name('other') });
    await house.work(run, { slots: 2 });
    await eventually(() => expect(started).toHaveLength(2));
    const second = noting();
    await house.elsewhere(second.run, { workerId: house.name('second'), slots: 1 });
    await eventually(() => expect(second.started).toHaveLength(2));
    expect(started).toHaveLength(2);
  });

  it('runs as many legs of a partition as its limit allows', async () => {
    const house = await open();
    const gate = house.gate();
    const { started, legs, run } = noting(async (leg) => {
      if (leg.queue === house.name('main')) await gate.passed;
    });
    await house.queue.limit(house.name('main'), { ...NONE, partition: 1 });
    for (const id of ['a', 'b']) await house.enqueue(`${id}#1`, { partition: 'tenant one' });
    for (const id of ['c', 'd']) await house.enqueue(`${id}#1`, { partition: 'tenant two' });
    await house.enqueue('e#1');
    await house.work(run);
    await house.becomes({ queued: 2, running: 3 });
    await sentinel(house, legs);
    expect(started.slice(0, 3).toSorted()).toEqual(
      ['a#1', 'c#1', 'e#1'].map((id) => house.name(id)),
    );
    gate.open();
    await house.becomes({ queued: 0, running: 0 });
    expect(started).toHaveLength(6);
  });

  it('starts as many legs in a period as the rate allows', async () => {
    const house = await open();
    const { started, legs, run } = noting();
    await house.queue.limit(house.name('main'), { ...NONE, rate: { legs: 2, seconds: 3600 } });
    for (const id of ['a', 'b', 'c']) await house.enqueue(`${id}#1`);
    await house.work(run);
    await house.becomes({ queued: 1, running: 0 });
    await sentinel(house, legs);
    expect(started).toHaveLength(3);
    await house.queue.limit(house.name('main'), NONE);
    await house.becomes({ queued: 0, running: 0 });
    expect(started).toHaveLength(4);
  });
}

/** Runs a leg of another queue: a leg that could start has started by then. */
async function sentinel(house: House, legs: readonly { legId: string }[]): Promise<void> {
  await house.enqueue('sentinel#1', { queue: house.name('other') });
  const legId = house.name('sentinel#1');
  await eventually(() => expect(legs.map((leg) => leg.legId)).toContain(legId));
}
