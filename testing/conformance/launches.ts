import { expect, it } from 'vitest';
import { COST, goneOwner, type OpenStore, otherHost, T0, T1, threadParams } from './fixtures.ts';

/** The queue of threads that wait for a process, and rows that are rebuilt. */
export function launchCases(open: OpenStore): void {
  const LIMITS = { maxChildren: 2, maxTotal: 3 };

  it('assigns an owner to a thread that has not started, and takes it away again', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    expect(await registry.assign('a-1', self, T1)).toBe(true);
    expect(await registry.get('a-1')).toMatchObject({
      status: 'created',
      epoch: 0,
      updated_at: T1,
      ...owners.columns(self),
    });
    expect(await registry.assign('a-1', null, T1)).toBe(true);
    expect(await registry.get('a-1')).toMatchObject({ pid: null, process_start: null, host: null });
    await registry.claim('a-1', self, T1);
    expect(await registry.assign('a-1', null, T1)).toBe(false);
    expect(await registry.get('a-1')).toMatchObject(owners.columns(self));
    expect(await registry.assign('none', self, T1)).toBe(false);
  });

  it('starts a queued thread once, also when two ask at the same time', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    await registry.register(threadParams('a-1'));
    const asked = await Promise.all(
      [1, 2, 3].map(async () => await registry.takeLaunch('a-1', self, LIMITS, T1)),
    );
    expect(asked.filter(Boolean)).toHaveLength(1);
    expect(await registry.get('a-1')).toMatchObject({
      status: 'created',
      ...owners.columns(self),
    });
    expect(await registry.takeLaunch('none', self, LIMITS, T1)).toBe(false);
  });

  it('counts owned threads against the slots, but no threads whose owners are gone', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    for (const id of ['a', 'b', 'c', 'd', 'e']) await registry.register(threadParams(id));
    await registry.assign('a', self, T0);
    await registry.claim('b', otherHost({ owners }), T0);
    await registry.claim('c', goneOwner({ owners }), T0);
    expect(await registry.takeLaunch('d', self, LIMITS, T1)).toBe(true);
    expect(await registry.takeLaunch('e', self, LIMITS, T1)).toBe(false);
    const end = { status: 'error', now: T1, cost: COST, result: '' } as const;
    await registry.finish('b', { ...end, epoch: 1 });
    expect(await registry.takeLaunch('e', self, LIMITS, T1)).toBe(true);
  });

  it('counts no thread of another host that is silent', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    for (const id of ['a', 'b', 'c']) await registry.register(threadParams(id));
    for (const id of ['a', 'b']) await registry.claim(id, otherHost({ owners }), T0);
    const after = (ms: number): string => new Date(Date.parse(T0) + ms).toISOString();
    await registry.heartbeat('b', 1, after(30_000), {});
    const two = { maxChildren: 2, maxTotal: 2 };
    expect(await registry.takeLaunch('c', self, two, after(59_000))).toBe(false);
    expect(await registry.takeLaunch('c', self, two, after(61_000))).toBe(true);
  });

  it('always leaves a parent one running child', async () => {
    const { registry, owners } = await open();
    const self = owners.self();
    for (const root of ['p', 'q', 'r']) {
      await registry.register(threadParams(root));
      await registry.claim(root, self, T0);
    }
    for (const child of ['k1', 'k2', 'k3'])
      await registry.register(threadParams(child, { parentId: 'p' }));
    expect(await registry.takeLaunch('k1', self, LIMITS, T1)).toBe(true);
    expect(await registry.takeLaunch('k2', self, LIMITS, T1)).toBe(false);
    const wide = { maxChildren: 2, maxTotal: 9 };
    expect(await registry.takeLaunch('k2', self, wide, T1)).toBe(true);
    expect(await registry.takeLaunch('k3', self, wide, T1)).toBe(false);
  });

  it('restores a row as it was, unless the thread is listed', async () => {
    const { registry } = await open();
    const made = await registry.register(threadParams('a-1'));
    const record = {
      ...made,
      thread_id: 'a-2',
      status: 'error',
      epoch: 4,
      pid: 7,
      process_start: 'x',
      host: 'h',
      cost: COST,
      outputs: { n: [1, null] },
      error: { code: 'limit_turns', message: 'too many' },
      completed_at: T1,
      spawn_count: 2,
      chain_root_id: 'a-0',
    } as const;
    expect(await registry.restore(record)).toBe(true);
    expect(await registry.get('a-2')).toEqual(record);
    expect(await registry.restore({ ...record, epoch: 9 })).toBe(false);
    expect((await registry.get('a-2'))?.epoch).toBe(4);
  });
}
