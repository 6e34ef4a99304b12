import { expect, it } from 'vitest';
import { registryDatabase } from '../../src/kernel/storage/open-registry.ts';
import { processOwners } from '../../src/kernel/storage/owners.ts';
import { sqlRegistry } from '../../src/kernel/storage/sql/registry.ts';
import { one } from '../../src/kernel/storage/sql-work.ts';
import { threadParams } from '../../testing/conformance/fixtures.ts';

const NOW = '2026-01-02T03:04:05.000Z';

it('each way to own a thread notes the worker that runs it', async () => {
  const owners = processOwners();
  const noted: string[] = [];
  const registry = sqlRegistry(registryDatabase(':memory:'), owners, {
    *assertRemoved() {
      yield* one('SELECT 1');
      return false;
    },
    *note(threadId) {
      yield* one('SELECT 1');
      noted.push(threadId);
    },
  });
  const owner = owners.self();
  await registry.register(threadParams('waits'));
  expect(noted.splice(0)).toEqual([]);
  await registry.register(threadParams('new', { owner, isClaimed: true }));
  expect(noted.splice(0)).toEqual(['new']);
  const claimed = await registry.claim('waits', owner, NOW);
  expect(noted.splice(0)).toEqual(['waits']);
  const end = { cost: claimed.cost, result: '', run: 1, now: NOW };
  await registry.finish('waits', { ...end, status: 'error', epoch: claimed.epoch });
  const ended = await registry.get('waits');
  if (!ended) throw new Error('no row');
  await registry.resume(ended, owner, NOW);
  expect(noted.splice(0)).toEqual(['waits']);
});
