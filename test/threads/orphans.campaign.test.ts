import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished, test } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import type { Owner } from '../../src/kernel/storage/store.ts';
import { openLab } from '../attacks/lab.ts';
import { lab } from './lab.ts';

const NOW = '2026-11-21T08:00:00.000Z';

/** A parent whose process is gone, with a child and a grandchild that live, a queued one and one that died with it. */
async function family(coordination?: string) {
  const here = await openLab();
  onTestFinished(async () => await here.remove());
  if (coordination !== undefined) here.signed('config/agent/coordination.yaml', coordination);
  const store = openStore({ projectPath: here.project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const self = store.owners.self();
  const gone = ownerOf({ pid: process.pid, process_start: 'another boot:1', host: hostname() });
  const rows: readonly (readonly [string, string | null, Owner | null])[] = [
    ['parent', null, gone],
    ['child', 'parent', self],
    ['grandchild', 'child', self],
    ['queued', 'child', null],
    ['dead', 'parent', gone],
    ['other', null, self],
  ];
  for (const [threadId, parentId, owner] of rows) {
    await store.registry.register({
      threadId,
      directive: 'd',
      parentId,
      model: 'm',
      now: NOW,
      owner,
    });
    if (owner === self) await store.registry.claim(threadId, owner, NOW);
  }
  const told = async (threadId: string) => {
    const { status, cancel_requested: reason } = (await store.registry.get(threadId)) ?? {};
    return status === 'cancelled' ? status : reason;
  };
  return { here, store, told };
}

describe('the children of a parent whose process is gone', () => {
  const ways: Readonly<Record<string, (rye: Rye) => Promise<unknown>>> = {
    'threads recover': async (rye) => await rye.recovery.recover(),
    'threads recover ID': async (rye) => await rye.recovery.recover({ threadId: 'parent' }),
    'threads wait': async (rye) => await rye.children.wait(['parent']),
    'threads resume': async (rye) =>
      await rye.recovery.resume({ threadId: 'parent' }).catch(() => undefined),
    'the start of another thread': async (rye) =>
      await rye.run({ directiveId: 'hello', inputs: { who: 'Ada' } }),
  };
  it.each(Object.keys(ways))('are cancelled with all below them by %s', async (way) => {
    const { here, told, store } = await family();
    await ways[way]?.(here.rye());
    const reason = 'its parent parent ended as error';
    expect([await told('child'), await told('grandchild')]).toEqual([reason, reason]);
    // a process that waits starts queued threads, and ends those that it cannot start
    if (way !== 'threads wait') expect(await told('queued')).toBe('cancelled');
    expect(await told('other')).toBeNull();
    // its own recovery ends it as crashed
    expect(await told('dead')).toBeNull();
    expect((await store.registry.get('parent'))?.status).toBe('error');
  });

  it('continue with on_parent_error: keep', async () => {
    const { here, told } = await family('child_policy: { on_parent_error: keep }\n');
    await here.rye().recovery.recover();
    expect(await told('child')).toBeNull();
  });

  it('are cancelled by the policy of a cancelled parent if it was asked to stop', async () => {
    const { here, told, store } = await family('child_policy: { on_parent_cancel: keep }\n');
    await here.rye().children.cancel('parent', { reason: 'enough' });
    await here.rye().recovery.recover();
    expect((await store.registry.get('parent'))?.status).toBe('cancelled');
    expect(await told('child')).toBeNull();
  });
});

test('a killed parent takes its background descendants with it, and its next run sees how they ended', async () => {
  const here = await lab();
  const arrived = (name: string): boolean => existsSync(path.join(here.project, `arrived-${name}`));
  const parent = await here.job('parent');
  const limits = { spend: 0.001 };
  const child = await here.job('child', { parentThreadId: parent.thread_id, limits });
  const below = { parentThreadId: child.thread_id, limits: { spend: 0.0001 } };
  const grandchild = await here.job('grandchild', below);
  await here.until('the arrivals', () => ['parent', 'child', 'grandchild'].every(arrived));
  process.kill(parent.pid ?? 0, 'SIGKILL');
  const { recovered } = await here.open().recovery.recover();
  expect(recovered.map(({ thread_id }) => thread_id)).toEqual([parent.thread_id]);
  const all = [parent, child, grandchild].map(({ thread_id }) => thread_id);
  const { threads } = await here.rye.children.wait(all);
  expect(threads.map(({ status }) => status)).toEqual(['error', 'cancelled', 'cancelled']);
  const rows = await here.store.ledger.rows();
  expect(rows.map(({ status }) => status)).toEqual(all.map(() => 'released'));
  for (const id of all) expect((await here.rye.threads.verify(id)).ok).toBe(true);
  here.openGate('all');
  const resumed = await here.rye.recovery.resume({ threadId: parent.thread_id });
  expect(resumed.success).toBe(true);
});
