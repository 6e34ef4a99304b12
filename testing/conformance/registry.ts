import { expect, it } from 'vitest';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import type { RegisterParams } from '../../src/kernel/storage/store.ts';
import {
  COST,
  fulfilled,
  goneOwner,
  type OpenStore,
  T0,
  T1,
  T2,
  threadParams,
} from './fixtures.ts';

/** The table of threads: registration, claims, ends, chains. */
export function registryCases(open: OpenStore): void {
  it('registers a thread once and gives it back', async () => {
    const { registry } = await open();
    const record = await registry.register(threadParams('a-1'));
    expect(record).toEqual({
      thread_id: 'a-1',
      directive: 'demo/count',
      parent_id: null,
      status: 'created',
      created_at: T0,
      updated_at: T0,
      completed_at: null,
      pid: null,
      process_start: null,
      host: null,
      epoch: 0,
      heartbeat_at: null,
      model: 'm',
      cost: NO_COST,
      spawn_count: 0,
      result: null,
      outputs: null,
      error: null,
      continuation_of: null,
      continuation_thread_id: null,
      chain_root_id: null,
      cancel_requested: null,
      worker: null,
    });
    expect(await registry.get('a-1')).toEqual(record);
    expect(await registry.get('a-2')).toBeUndefined();
    await expect(registry.register(threadParams('a-1'))).rejects.toMatchObject({
      code: 'thread_id_taken',
    });
  });

  it('runs a thread from claim to end, through the state machine only', async () => {
    const { registry, owners } = await open();
    const owner = owners.self();
    await registry.register(threadParams('a-1'));
    const claimed = await registry.claim('a-1', owner, T1);
    expect(claimed).toMatchObject({
      status: 'running',
      epoch: 1,
      ...owners.columns(owner),
      heartbeat_at: T1,
    });
    await registry.heartbeat('a-1', 1, T1, { cost: COST });
    expect((await registry.get('a-1'))?.cost).toEqual(COST);
    const done = await registry.finish('a-1', {
      status: 'completed',
      now: T1,
      cost: COST,
      result: 'fine',
      outputs: { n: 3 },
      epoch: 1,
    });
    expect(done).toMatchObject({
      status: 'completed',
      completed_at: T1,
      result: 'fine',
      outputs: { n: 3 },
    });
    for (const status of ['running', 'error', 'completed'] as const) {
      await expect(
        registry.finish('a-1', { status, now: T1, cost: COST, result: '', epoch: 1 }),
      ).rejects.toMatchObject({ code: 'illegal_transition' });
    }
    await expect(registry.claim('a-1', owner, T1)).rejects.toMatchObject({
      code: 'illegal_transition',
    });
    await expect(registry.claim('nope', owner, T1)).rejects.toMatchObject({
      code: 'thread_not_found',
    });
  });

  it('registers a thread that its owner runs at once', async () => {
    const { registry, owners } = await open();
    const owner = owners.self();
    await registry.register(threadParams('p-1'));
    const made = await registry.register({
      ...threadParams('a-1', { parentId: 'p-1' }),
      owner,
      maxSpawns: 1,
      isClaimed: true,
    });
    const columns = { ...owners.columns(owner), heartbeat_at: T0 };
    expect(made).toMatchObject({ status: 'running', epoch: 1, parent_id: 'p-1', ...columns });
    expect(await registry.get('a-1')).toEqual(made);
    expect((await registry.get('p-1'))?.spawn_count).toBe(1);
    await expect(registry.claim('a-1', owner, T1)).rejects.toMatchObject({ code: 'thread_locked' });
    await expect(
      registry.register({
        ...threadParams('a-2', { parentId: 'p-1' }),
        maxSpawns: 1,
        isClaimed: true,
      }),
    ).rejects.toMatchObject({ code: 'limit_spawns' });
    expect(await registry.get('a-2')).toBeUndefined();
  });

  it('keeps the error of a failed thread, and claims a suspended one again', async () => {
    const { registry, owners } = await open();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', owners.self(), T0);
    const end = { now: T1, cost: COST, result: '' };
    const held = await registry.finish('a-1', { ...end, status: 'suspended', epoch: 1 });
    expect(held.completed_at).toBeNull();
    expect(await registry.claim('a-1', owners.self(), T1)).toMatchObject({
      status: 'running',
      epoch: 2,
    });
    const error = { code: 'limit_turns', message: 'too many' } as const;
    expect(
      await registry.finish('a-1', { ...end, status: 'error', error, epoch: 2 }),
    ).toMatchObject({
      status: 'error',
      error,
      outputs: null,
    });
  });

  it('gives a running thread only away when its owner is dead, and fences that owner', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', self, T0);
    await expect(registry.claim('a-1', self, T1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await registry.register(threadParams('a-2'));
    await registry.claim('a-2', goneOwner({ owners }), T0);
    expect((await registry.claim('a-2', self, T1)).epoch).toBe(2);
    await expect(registry.heartbeat('a-2', 1, T1, { cost: COST })).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await expect(
      registry.finish('a-2', { status: 'error', now: T1, cost: COST, result: '', epoch: 1 }),
    ).rejects.toMatchObject({ code: 'thread_locked' });
  });

  it('gives a thread to one of many that claim it at once', async () => {
    const { registry, owners } = await open();
    await registry.register(threadParams('a-1'));
    const claims = await Promise.allSettled(
      [1, 2, 3, 4].map(async () => await registry.claim('a-1', owners.self(), T1)),
    );
    expect(fulfilled(claims, 'thread_locked')).toBe(1);
    expect(await registry.get('a-1')).toMatchObject({ epoch: 1 });
    await expect(registry.heartbeat('none', 1, T1)).rejects.toMatchObject({
      code: 'thread_not_found',
    });
  });

  it('gives an ended thread to one of many that resume it at once, without its earlier end', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    const { epoch } = await registry.claim('a-1', self, T0);
    await registry.requestCancel('a-1', 'enough', T0);
    const end = { now: T1, cost: COST, result: 'done', outputs: { n: 1 }, epoch };
    const before = await registry.finish('a-1', { ...end, status: 'completed' });
    await expect(registry.claim('a-1', self, T1)).rejects.toMatchObject({
      code: 'illegal_transition',
    });
    const resumes = await Promise.allSettled(
      [1, 2, 3, 4].map(async () => await registry.resume(before, self, T1)),
    );
    expect(fulfilled(resumes, 'thread_locked')).toBe(1);
    const reopened = { result: null, outputs: null, completed_at: null, cancel_requested: null };
    expect(await registry.get('a-1')).toMatchObject({
      ...reopened,
      status: 'running',
      epoch: 2,
      cost: COST,
    });
    await registry.revert(before, 2);
    expect(await registry.get('a-1')).toMatchObject({
      status: 'completed',
      result: 'done',
      outputs: { n: 1 },
      completed_at: before.completed_at,
      cancel_requested: 'enough',
      epoch: 2,
    });
    await expect(registry.resume(before, self, T1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
  });

  it('keeps the end of a run for those who wait for it, also when the next ones have begun', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    expect(await registry.runOf('a-1')).toBe(0);
    expect(await registry.endOf('a-1', 1)).toBeUndefined();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', self, T0);
    expect(await registry.runOf('a-1')).toBe(1);
    expect(await registry.endOf('a-1', 1)).toBeUndefined();
    const end = { status: 'completed', now: T1, cost: COST } as const;
    const first = await registry.finish('a-1', { ...end, result: 'one', outputs: {}, epoch: 1 });
    expect(await registry.endOf('a-1', 1)).toEqual(first);
    const running = await registry.resume(first, self, T1);
    expect(running.completed_at).toBeNull();
    expect(await registry.runOf('a-1')).toBe(2);
    expect(await registry.endOf('a-1', 2)).toBeUndefined();
    expect(await registry.endOf('a-1', 1)).toMatchObject({
      status: 'completed',
      result: 'one',
      outputs: {},
      completed_at: T1,
    });
    await registry.requestCancel('a-1', 'enough', T1);
    const error = { code: 'cancelled', message: 'enough' } as const;
    const cancelled = {
      ...end,
      status: 'cancelled',
      now: T2,
      result: '',
      error,
      epoch: 2,
    } as const;
    const second = await registry.finish('a-1', cancelled);
    expect(second).toMatchObject({ completed_at: T2, outputs: null, error });
    await registry.resume(second, self, T2);
    expect(await registry.endOf('a-1', 1)).toMatchObject({ result: 'one', error: null });
    expect(await registry.endOf('a-1', 2)).toMatchObject({ status: 'cancelled', error });
    expect(await registry.get('a-1')).toMatchObject({ cancel_requested: null, cost: COST });
    expect(await registry.endOf('a-1', 3)).toBeUndefined();
  });

  it('gives a thread its earlier end back when a run wrote nothing, with the same time', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', self, T0);
    const end = { status: 'completed', cost: COST, result: 'one' } as const;
    const first = await registry.finish('a-1', { ...end, now: T1, epoch: 1 });
    await registry.resume(first, goneOwner({ owners }), T2);
    const { epoch } = await registry.claim('a-1', self, T2);
    const recovered = await registry.finish('a-1', { ...end, now: T2, epoch, run: 1 });
    expect(recovered).toEqual({ ...first, epoch: 3, updated_at: T2, heartbeat_at: T2 });
    expect(await registry.runOf('a-1')).toBe(1);
    await registry.resume(recovered, self, T2);
    await registry.revert(recovered, 4);
    expect(await registry.runOf('a-1')).toBe(1);
    expect(await registry.endOf('a-1', 1)).toMatchObject({ status: 'completed', result: 'one' });
  });

  it('refuses an id that differs from another one only in letter case', async () => {
    const { registry } = await open();
    await registry.register(threadParams('demo/a-1'));
    await expect(registry.register(threadParams('demo/A-1'))).rejects.toMatchObject({
      code: 'thread_id_taken',
    });
  });

  it('gives away a thread whose living owner has sent no heartbeat since it was checked', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', self, T0);
    await registry.heartbeat('a-1', 1, T1);
    await expect(registry.claim('a-1', self, T1, T0)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    expect(await registry.claim('a-1', self, T1, T1)).toMatchObject({ epoch: 2 });
    await expect(registry.heartbeat('a-1', 1, T1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
  });

  it('lists newest first, by every filter, and children oldest first', async () => {
    const { registry, owners } = await open();
    await registry.register(threadParams('root-1', { directive: 'demo/root' }));
    for (let child = 1; child <= 3; child += 1) {
      await registry.register(
        threadParams(`child-${child}`, { parentId: 'root-1', directive: `demo/c${child}` }),
      );
    }
    await registry.register(threadParams('odd-1', { directive: 'demo/[x]?', now: T1 }));
    await registry.claim('root-1', owners.self(), T1);
    await registry.finish('child-1', {
      status: 'cancelled',
      now: T1,
      cost: COST,
      result: '',
      epoch: 0,
    });
    const ids = async (filter: Parameters<typeof registry.list>[0]): Promise<readonly string[]> =>
      (await registry.list(filter)).map(({ thread_id }) => thread_id);
    expect(await ids({})).toEqual(['odd-1', 'child-3', 'child-2', 'child-1', 'root-1']);
    expect(await ids({ limit: 2 })).toEqual(['odd-1', 'child-3']);
    expect(await ids({ active: true })).toEqual(['odd-1', 'child-3', 'child-2', 'root-1']);
    expect(await ids({ active: false })).toEqual(['child-1']);
    expect(await ids({ status: 'running' })).toEqual(['root-1']);
    expect(await ids({ directive: 'demo/c*' })).toEqual(['child-3', 'child-2', 'child-1']);
    expect(await ids({ directive: 'demo/[x]?*' })).toEqual(['odd-1']);
    expect(await ids({ directive: 'demo/root', parentId: 'x' })).toEqual([]);
    expect(await ids({ parent: 'none' })).toEqual(['odd-1', 'root-1']);
    expect(await ids({ parent: 'unlisted' })).toEqual([]);
    await registry.restore({
      ...((await registry.get('child-1')) ?? expect.fail()),
      thread_id: 'lost-1',
      parent_id: 'elsewhere',
    });
    expect(await ids({ parent: 'unlisted', directive: 'demo/*' })).toEqual(['lost-1']);
    await registry.register(threadParams('root-2', { now: T1, continuationOf: 'root-1' }));
    await registry.linkContinuation('root-1', 'root-2', T1);
    expect(await ids({ parent: 'none', isLast: true })).toEqual(['root-2', 'odd-1']);
    expect(await registry.count({})).toBe(7);
    expect(await registry.count({ parentId: 'root-1', limit: 1 })).toBe(3);
    expect(await registry.count({ parent: 'none', isLast: true, active: true })).toBe(2);
    expect(
      (await registry.list({ parentId: 'root-1', order: 'oldest first' })).map(
        ({ thread_id }) => thread_id,
      ),
    ).toEqual(['child-1', 'child-2', 'child-3']);
  });

  it('finds ids by their start or end, literally', async () => {
    const { registry } = await open();
    for (const id of ['demo/a-100', 'demo/a-101', 'demo/b_x-100'])
      await registry.register(threadParams(id));
    expect(await registry.findIds('demo/a', 9)).toEqual(['demo/a-101', 'demo/a-100']);
    expect(await registry.findIds('100', 9)).toEqual(['demo/b_x-100', 'demo/a-100']);
    expect(await registry.findIds('b%x', 9)).toEqual([]);
    expect(await registry.findIds('demo/b.x', 9)).toEqual([]);
    expect(await registry.findIds('demo', 2)).toHaveLength(2);
    expect(await registry.findIds('demo', -1)).toHaveLength(3);
  });

  it('counts spawns in the transaction that registers the child', async () => {
    const { registry } = await open();
    await registry.register(threadParams('p-1'));
    const child = (id: string): RegisterParams =>
      threadParams(id, { parentId: 'p-1', maxSpawns: 3 });
    const outcomes = await Promise.allSettled(
      ['a', 'b', 'c', 'd', 'e'].map(async (id) => await registry.register(child(id))),
    );
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    await expect(registry.register(child('f'))).rejects.toMatchObject({
      code: 'limit_spawns',
      details: { current: 3, max: 3 },
    });
    expect((await registry.get('p-1'))?.spawn_count).toBe(3);
    await expect(registry.register(threadParams('x', { parentId: 'none' }))).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    expect(await registry.get('x')).toBeUndefined();
  });
}
