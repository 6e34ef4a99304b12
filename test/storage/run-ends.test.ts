import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { COST, T0, T1, T2, threadParams } from '../../testing/conformance/fixtures.ts';
import { countingIds, stoppedClock } from './support.ts';

it('a run that never began leaves its place to the run before, with the end that this one has now', async () => {
  const { registry, owners } = openMemoryStore({ clock: stoppedClock, ids: countingIds() });
  const owner = owners.self();
  await registry.register({ ...threadParams('a-1'), owner, isClaimed: true, now: T0 });
  const end = { cost: COST, result: '', run: 1 };
  await registry.finish('a-1', { ...end, status: 'error', now: T0, epoch: 1 });
  const ended = await registry.get('a-1');
  if (!ended) throw new Error('no row');
  const { epoch } = await registry.resume(ended, owner, T1);
  expect(await registry.runOf('a-1')).toBe(2);
  expect((await registry.endOf('a-1', 1))?.status).toBe('error');
  await registry.finish('a-1', { ...end, status: 'cancelled', now: T2, epoch });
  expect(await registry.runOf('a-1')).toBe(1);
  expect((await registry.endOf('a-1', 1))?.status).toBe('cancelled');
});
