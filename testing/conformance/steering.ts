import { expect, it } from 'vitest';
import {
  fromThread,
  NOTHING_CARRIED,
  NOW_MS,
  type OpenStore,
  POINT,
  READS_ONLY,
  running,
  steer,
  T1,
  T2,
  threadParams,
} from './fixtures.ts';

/** Background deliveries: into an active run with a proof, or into a new run. */
export function steerCases(open: OpenStore): void {
  it('publishes the state of the open run, and forgets it when the run ends', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    expect(await deliveries.activeTurn('a-1')).toBeUndefined();
    await deliveries.publishPoint(key, POINT);
    expect(await deliveries.activeTurn('a-1')).toMatchObject({
      thread_id: 'a-1',
      epoch: 1,
      active_run_id: key.runId,
      active_run_kind: 'regular',
      risk_class: 'read_only_low_risk',
      steerable: true,
      revision: 1,
      observed_at: T1,
      after_tool_batch: true,
    });
    await deliveries.updateRun(key, 'regular', { ...READS_ONLY, requires_network: null });
    expect(await deliveries.activeTurn('a-1')).toMatchObject({
      revision: 2,
      requires_network: null,
      risk_class: 'unknown',
    });
    await deliveries.endRun({ key, end: 'completed', requested: new Set(), now: T1 });
    expect(await deliveries.activeTurn('a-1')).toBeUndefined();
  });

  it('publishes the state of a run with its beginning', async () => {
    const { deliveries, registry, owners } = await open();
    const own = { owner: owners.self(), isClaimed: true };
    const { epoch } = await registry.register({ ...threadParams('a-1'), ...own });
    const key = { threadId: 'a-1', epoch, runId: 'run' };
    const run = { ...key, ...NOTHING_CARRIED, traits: READS_ONLY, now: T1 };
    await deliveries.openRun({ ...run, point: POINT });
    const turn = { active_run_id: 'run', epoch, observed_at: T1, after_tool_batch: true };
    expect(await deliveries.activeTurn('a-1')).toMatchObject(turn);
  });

  it('steers a run whose state is proven, and settles the delivery with the run', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    expect(await deliveries.requestSteer(steer(key))).toBeUndefined();
    for (const id of ['d-1', 'd-2']) await deliveries.enqueue(fromThread(id));
    expect(await deliveries.requestSteer(steer(key))).toMatchObject({ outcome: 'steer' });
    expect(await deliveries.requestSteer(steer(key))).toMatchObject({ outcome: 'hold' });
    expect(await deliveries.admitSteer(steer(key))).toMatchObject({
      delivery_id: 'd-1',
      entry_id: 'steered',
    });
    await deliveries.accept(key, ['steered'], T1);
    expect(await deliveries.admitSteer(steer(key))).toBeUndefined();
    await deliveries.consume(key, { entryIds: ['steered'], answerId: 'answer' }, T1);
    const requested = new Set(['steered']);
    await deliveries.endRun({ key, end: 'completed', requested, now: T1 });
    expect(await deliveries.list('a-1')).toMatchObject([
      {
        close_reason: 'delivered',
        attempts: 1,
        tries: [
          {
            attempt_id: 'attempt-1',
            kind: 'turn_steer',
            state: 'delivered',
            marker: 'steered',
            run_id: key.runId,
            proof: { risk_class: 'read_only_low_risk', observed_at: T1 },
          },
        ],
      },
      { state: 'queued', attempts: 0, tries: [] },
    ]);
  });

  it('holds back what has no proof, and rejects a request whose run has changed', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    await deliveries.enqueue(fromThread('d-1'));
    const stale = { ...POINT, valid_until: NOW_MS - 1 };
    expect(await deliveries.requestSteer(steer(key, { point: stale }))).toMatchObject({
      outcome: 'idle',
    });
    expect(await deliveries.requestSteer(steer(key))).toMatchObject({ outcome: 'steer' });
    await deliveries.updateRun(key, 'regular', READS_ONLY);
    expect(await deliveries.admitSteer(steer(key))).toBeUndefined();
    expect(await deliveries.list('a-1')).toMatchObject([
      {
        state: 'queued',
        attempts: 0,
        entry_id: null,
        tries: [{ state: 'rejected', run_id: null }],
      },
    ]);
    const elevated = { ...READS_ONLY, requires_write_access: true };
    await deliveries.updateRun(key, 'regular', elevated);
    expect(await deliveries.requestSteer(steer(key))).toMatchObject({ outcome: 'idle' });
  });

  it('opens a run for the first waiting delivery when the thread is idle', async () => {
    const store = await open();
    const { deliveries } = store;
    const key = await running(store);
    const next = {
      runId: 'run-2',
      attemptId: 'attempt-2',
      entryId: 'entry-2',
      traits: READS_ONLY,
      onlyIfWaiting: true,
    };
    const end = { key, end: 'completed', requested: new Set<string>(), next, now: T1 } as const;
    await deliveries.publishPoint(key, POINT);
    expect(await deliveries.endRun(end)).toBeUndefined();
    expect(await deliveries.activeTurn('a-1')).toBeDefined();
    for (const id of ['d-1', 'd-2']) await deliveries.enqueue(fromThread(id));
    expect(await deliveries.endRun(end)).toMatchObject({
      delivery_id: 'd-1',
      entry_id: 'entry-2',
    });
    const second = { ...key, runId: 'run-2' };
    await deliveries.publishPoint(second, POINT);
    expect(await deliveries.activeTurn('a-1')).toMatchObject({
      active_run_id: 'run-2',
      active_run_kind: 'delivery',
    });
    await deliveries.accept(second, ['entry-2'], T1);
    await deliveries.consume(second, { entryIds: ['entry-2'], answerId: 'answer' }, T1);
    const requested = new Set(['entry-2']);
    await deliveries.endRun({ key: second, end: 'completed', requested, now: T2 });
    expect(await deliveries.list('a-1')).toMatchObject([
      { close_reason: 'delivered', attempts: 1, tries: [{ kind: 'turn_start', proof: null }] },
      { state: 'queued' },
    ]);
  });

  it('charges an attempt for a delivery that was sent, not for a rejected request', async () => {
    const store = await open();
    const { deliveries } = store;
    let key = await running(store);
    const { max_attempts: most } = await deliveries.enqueue(fromThread('d-1'));
    for (let attempt = 1; attempt <= most; attempt += 1) {
      const ids = { attempt: () => `attempt-${attempt}`, entry: () => `entry-${attempt}` };
      expect(await deliveries.requestSteer(steer(key, { ids }))).toMatchObject({
        outcome: 'steer',
      });
      await deliveries.updateRun(key, 'regular', READS_ONLY);
      expect(await deliveries.admitSteer(steer(key, { ids }))).toBeUndefined();
    }
    // a rejected attempt costs nothing
    expect(await deliveries.list('a-1')).toMatchObject([{ attempts: 0, state: 'queued' }]);
    const next = {
      runId: 'run-2',
      attemptId: 'last',
      entryId: 'last entry',
      traits: READS_ONLY,
      onlyIfWaiting: false,
    };
    await deliveries.endRun({ key, end: 'completed', requested: new Set(), next, now: T1 });
    key = { ...key, runId: 'run-2' };
    await deliveries.accept(key, ['last entry'], T1);
    const requested = new Set(['last entry']);
    await deliveries.endRun({ key, end: 'failed', requested, now: T2 });
    expect(await deliveries.list('a-1')).toMatchObject([
      { attempts: 1, state: 'manual', manual_reason: expect.stringContaining('failed') as string },
    ]);
  });
}
