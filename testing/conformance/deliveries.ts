import { expect, it } from 'vitest';
import type { DeliveryFacts } from '../../src/kernel/core/delivery.ts';
import type { RunKey } from '../../src/kernel/storage/deliveries.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import {
  COST,
  fromPerson,
  fromThread,
  goneOwner,
  NOTHING_CARRIED,
  type OpenStore,
  POINT,
  READS_ONLY,
  running,
  steer,
  T0,
  T1,
  T2,
  threadParams,
} from './fixtures.ts';

/** Puts everything that waits into the log of the run: entries e-1, e-2… */
async function admitted(
  { deliveries }: Store,
  key: RunKey,
  changes: { readonly atMost?: number } = {},
): Promise<readonly string[]> {
  let count = 0;
  const newEntryId = (): string => {
    count += 1;
    return `${key.runId}/e-${count}`;
  };
  const admit = { key, modes: ['auto', 'active'], newEntryId, now: T1, ...changes } as const;
  const ids = (await deliveries.admitPeople(admit)).map(({ entry_id }) => entry_id ?? '');
  await deliveries.accept(key, ids, T1);
  return ids;
}

const facts = (changes: Partial<DeliveryFacts> = {}): DeliveryFacts => ({
  entries: new Set(),
  requested: new Set(),
  answers: new Map(),
  finished: undefined,
  waitedFor: [],
  ...changes,
});

/** Messages to threads and their status. */
export function deliveryCases(open: OpenStore): void {
  it('delivers a message once, to the run that is open', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const key = await running(store);
    await deliveries.enqueue(fromPerson('d-1', { sourceKey: 'k' }));
    expect(await deliveries.enqueue(fromPerson('d-2', { sourceKey: 'k' }))).toMatchObject({
      delivery_id: 'd-1',
    });
    expect(await deliveries.list('a-1')).toHaveLength(1);
    expect(await deliveries.isAnyWaiting('a-1')).toBe(true);
    expect(await deliveries.isAnyWaiting('a-2')).toBe(false);
    const [entry = ''] = await admitted(store, key);
    expect(await deliveries.isAnyWaiting('a-1')).toBe(false);
    expect(await admitted(store, key)).toEqual([]);
    await deliveries.consume(key, { entryIds: [entry], answerId: 'e-2' }, T1);
    await deliveries.endRun({ key, end: 'completed', requested: new Set([entry]), now: T1 });
    const [report] = await deliveries.list('a-1');
    expect(report).toMatchObject({
      delivery_id: 'd-1',
      state: 'closed',
      close_reason: 'delivered',
      entry_id: entry,
      answer_id: 'e-2',
      closed_at: T1,
      tries: [],
    });
    expect(report?.decisions.map(({ decision }) => decision)).toEqual([
      'enqueue',
      'allow',
      'accept',
      'consume',
      'deliver',
    ]);
    await registry.claim('a-1', owners.self(), T1, T0);
    await expect(
      deliveries.openRun({ ...key, ...NOTHING_CARRIED, traits: READS_ONLY, now: T1 }),
    ).rejects.toMatchObject({ code: 'thread_locked' });
  });

  it('admits the oldest messages of the wanted modes, and none into a run that is over', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    for (const id of ['d-1', 'd-2']) await deliveries.enqueue(fromPerson(id));
    await deliveries.enqueue(fromPerson('d-3', { mode: 'follow-up' }));
    await deliveries.enqueue(fromThread('d-4'));
    expect(await admitted(store, key, { atMost: 1 })).toHaveLength(1);
    const states = async (): Promise<readonly (string | null)[]> =>
      (await deliveries.list('a-1')).map(({ entry_id }) => entry_id && 'in the log');
    expect(await states()).toEqual(['in the log', null, null, null]);
    await deliveries.endRun({ key, end: 'failed', requested: new Set(), now: T1 });
    await expect(admitted(store, key)).rejects.toMatchObject({ code: 'illegal_transition' });
    // no request carried it: it waits again, and its entry is not reserved twice
    expect(await deliveries.list('a-1')).toMatchObject([{ state: 'queued' }, {}, {}, {}]);
  });

  it('refuses every change of a run by an owner that lost the thread', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const key = await running(store);
    await deliveries.enqueue(fromPerson('d-1'));
    const [entry = ''] = await admitted(store, key);
    await registry.claim('a-1', owners.self(), T1, T0);
    const before = await deliveries.list('a-1');
    const late = [
      () => admitted(store, key),
      () => deliveries.accept(key, [entry], T1),
      () => deliveries.consume(key, { entryIds: [entry], answerId: 'x' }, T1),
      () => deliveries.consumeWaited(key, [{ threadId: 'b-1' }], T1),
      () => deliveries.updateRun(key, 'compact', READS_ONLY),
      () => deliveries.publishPoint(key, POINT),
      () => deliveries.requestSteer(steer(key)),
      () => deliveries.admitSteer(steer(key)),
      () => deliveries.endRun({ key, end: 'completed', requested: new Set(), now: T1 }),
      () => deliveries.recover({ threadId: 'a-1', epoch: key.epoch, facts: facts(), now: T1 }),
    ];
    for (const change of late)
      await expect(change()).rejects.toMatchObject({ code: 'thread_locked' });
    expect(await deliveries.list('a-1')).toEqual(before);
  });

  it('lets a person decide about a message that the model may have seen', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    for (const id of ['d-1', 'd-2', 'd-3']) await deliveries.enqueue(fromPerson(id));
    const [first = '', second = ''] = await admitted(store, key, { atMost: 2 });
    const resolve = { threadId: 'a-1', newId: 'new', now: T2 };
    await expect(deliveries.resolve({ ...resolve, seq: 1, as: 'dropped' })).rejects.toMatchObject({
      code: 'illegal_transition',
    });
    const requested = new Set([first, second]);
    await deliveries.endRun({ key, end: 'interrupted', requested, now: T1 });
    const listed = await deliveries.list('a-1');
    expect(listed.map(({ state }) => state)).toEqual(['manual', 'manual', 'queued']);
    const [one = 0, two = 0, three = 0] = listed.map(({ seq }) => seq);
    expect(await deliveries.resolve({ ...resolve, seq: one, as: 'delivered' })).toMatchObject({
      state: 'closed',
      close_reason: 'operator_confirmed',
      manual_reason: null,
    });
    expect(await deliveries.resolve({ ...resolve, seq: two, as: 'retry' })).toMatchObject({
      delivery_id: 'new',
      state: 'queued',
      text: 'text of d-2',
      entry_id: null,
    });
    expect(await deliveries.resolve({ ...resolve, seq: three, as: 'dropped' })).toMatchObject({
      close_reason: 'operator_dropped',
    });
    await expect(deliveries.resolve({ ...resolve, seq: three, as: 'retry' })).rejects.toMatchObject(
      { code: 'illegal_transition' },
    );
    await expect(deliveries.resolve({ ...resolve, seq: 999, as: 'dropped' })).rejects.toMatchObject(
      { code: 'entry_not_found' },
    );
  });

  it('moves what waits to the thread that continues this one', async () => {
    const store = await open();
    const { deliveries, registry } = store;
    await running(store);
    await deliveries.enqueue(fromPerson('d-1'));
    await registry.register(threadParams('a-2', { continuationOf: 'a-1' }));
    await registry.linkContinuation('a-1', 'a-2', T1, 1);
    expect(await deliveries.list('a-2')).toMatchObject([{ delivery_id: 'd-1', sent_to: 'a-1' }]);
    await deliveries.enqueue(fromPerson('d-2'));
    expect(await deliveries.list('a-1')).toMatchObject([
      { thread_id: 'a-2' },
      { delivery_id: 'd-2', thread_id: 'a-2' },
    ]);
    await expect(deliveries.enqueue(fromPerson('d-3', { threadId: 'none' }))).rejects.toMatchObject(
      { code: 'thread_not_found' },
    );
  });

  it('keeps an entry that the next run carries, and asks a person about one that it left', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const key = await running(store);
    for (const id of ['d-1', 'd-2']) await deliveries.enqueue(fromPerson(id));
    const [kept = '', left = ''] = await admitted(store, key);
    await deliveries.endRun({ key, end: 'interrupted', requested: new Set(), now: T1 });
    const { epoch } = await registry.claim('a-1', owners.self(), T1, T0);
    const carried = new Set([kept]);
    const next = { threadId: 'a-1', epoch, runId: 'next', carried, from: [] };
    const open2 = await deliveries.openRun({ ...next, traits: READS_ONLY, now: T2 });
    expect(open2).toMatchObject([{ delivery_id: 'd-1', entry_id: kept }]);
    expect(await deliveries.list('a-1')).toMatchObject([
      { state: 'queued' },
      { state: 'manual', entry_id: left },
    ]);
  });

  it('recovers the deliveries of a crashed run by what its log proves', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const key = await running(store);
    for (const id of ['d-1', 'd-2', 'd-3', 'd-4']) await deliveries.enqueue(fromPerson(id));
    let count = 0;
    const newEntryId = (): string => {
      count += 1;
      return `e-${count}`;
    };
    await deliveries.admitPeople({ key, modes: ['auto'], newEntryId, now: T1 });
    // it crashed before it could tell what it had written
    const { epoch } = await registry.claim('a-1', owners.self(), T1, T0);
    await deliveries.recover({
      threadId: 'a-1',
      epoch,
      facts: facts({
        entries: new Set(['e-1', 'e-2', 'e-3']),
        requested: new Set(['e-1', 'e-2']),
        answers: new Map([['e-1', 'answer']]),
        finished: 'completed',
      }),
      now: T2,
    });
    expect(await deliveries.list('a-1')).toMatchObject([
      { state: 'closed', close_reason: 'delivered', answer_id: 'answer' },
      { state: 'manual' },
      { state: 'queued', entry_id: 'e-3' },
      { state: 'queued', entry_id: null },
    ]);
    expect(await deliveries.activeTurn('a-1')).toBeUndefined();
  });

  it('sends the end of a background child to its parent, unless the parent has waited for it', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const key = await running(store);
    for (const id of ['k-1', 'k-2', 'k-3']) {
      await registry.register(threadParams(id, { parentId: 'a-1' }));
      if (id !== 'k-3') await registry.assign(id, null, T0);
      await registry.claim(id, owners.self(), T0);
      const end = { status: 'completed', now: T1, cost: COST, result: 'ok', epoch: 1 } as const;
      await registry.finish(id, end);
    }
    expect(await deliveries.list('a-1')).toMatchObject([
      { kind: 'child_result', source: 'k-1', class: 'background', state: 'queued' },
      { source: 'k-2' },
    ]);
    await deliveries.consumeWaited(key, [{ threadId: 'k-1' }, { threadId: 'k-3' }], T1);
    expect(await deliveries.list('a-1')).toMatchObject([
      { state: 'closed', close_reason: 'consumed_by_wait' },
      { state: 'queued' },
    ]);
  });

  it('sends the end of each run of a background child, once', async () => {
    const store = await open();
    const { deliveries, registry, owners } = store;
    const self = owners.self();
    const key = await running(store);
    await registry.register(threadParams('k-1', { parentId: 'a-1' }));
    await registry.assign('k-1', null, T0);
    await registry.claim('k-1', self, T0);
    const end = { status: 'completed', now: T1, cost: COST, result: 'ok' } as const;
    const first = await registry.finish('k-1', { ...end, epoch: 1 });
    // a run that wrote nothing has no end
    await registry.resume(first, goneOwner({ owners }), T1);
    await registry.claim('k-1', self, T1);
    const again = await registry.finish('k-1', { ...end, epoch: 3, run: 1 });
    expect(await deliveries.list('a-1')).toHaveLength(1);
    await registry.resume(again, self, T1);
    await registry.finish('k-1', { ...end, epoch: 4 });
    expect(await deliveries.list('a-1')).toMatchObject([
      { delivery_id: 'child/k-1', state: 'queued' },
      { delivery_id: 'child/k-1#2', state: 'queued', source: 'k-1', child_run: 2 },
    ]);
    await deliveries.consumeWaited(key, [{ threadId: 'k-1', run: 2 }], T1);
    expect(await deliveries.list('a-1')).toMatchObject([
      { state: 'queued' },
      { state: 'closed', close_reason: 'consumed_by_wait' },
    ]);
    await deliveries.consumeWaited(key, [{ threadId: 'k-1' }], T1);
    expect(await deliveries.list('a-1')).toMatchObject([{ state: 'closed' }, { state: 'closed' }]);
  });
}
