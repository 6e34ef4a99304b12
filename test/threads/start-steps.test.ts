import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { launchThread } from '../../src/kernel/threads/family/spawn.ts';
import { prepareThread } from '../../src/kernel/threads/prepare/prepare.ts';
import { reserveBudget, startThread } from '../../src/kernel/threads/run/start.ts';
import { fails, portsDesk } from './ports-desk.ts';

it.each(['its budget', 'thread.json', 'its plan'] as const)(
  'a start that fails ends the thread and frees its money: %s',
  async (step) => {
    const { env, notices } = await portsDesk();
    const { registry, ledger } = env.store;
    const prepared = await prepareThread(env, { directiveId: 'team/work' });
    if (step === 'its budget') fails(ledger, 'register');
    else fails(env.files, step === 'its plan' ? 'writePlan' : 'writeDocument');
    for (const how of ['here', 'elsewhere'] as const) {
      const start =
        how === 'here'
          ? startThread(env, prepared.plan, { threadId: how })
          : launchThread(env, { prepared, threadId: how, options: { allow_unsigned: false } });
      await expect(start).rejects.toThrow('the disk is full');
      // one that failed to write thread.json cannot write its end there either, and has its row first
      expect(await registry.get(how)).toMatchObject({ status: 'error' });
    }
    expect((await ledger.rows()).filter(({ status }) => status === 'active')).toEqual([]);
    if (step === 'its plan') expect(notices).toEqual([]);
  },
);

it('a child leaves its parent the money of the next call', async () => {
  const { env } = await portsDesk();
  const { ledger } = env.store;
  await ledger.register('parent', 1_000_000);
  await ledger.report('parent', 0, 1, 600_000);
  const { plan } = await prepareThread(env, { directiveId: 'team/work' });
  const child = (spend: number) => ({
    ...plan,
    parent_thread_id: 'parent',
    limits: { ...plan.limits, spend },
  });
  await expect(reserveBudget(env, child(0.5), 'kid')).rejects.toMatchObject({
    code: 'budget_insufficient',
  });
  await reserveBudget(env, child(0.4), 'kid');
  expect(await ledger.rows({ thread_id: 'kid' })).toMatchObject([
    { parent_id: 'parent', max: 400_000, reserved: 400_000 },
  ]);
});

it('a folder of a thread that the registry does not list is never overwritten', async () => {
  const { env, lab } = await portsDesk();
  const { plan } = await prepareThread(env, { directiveId: 'team/work' });
  const first = await startThread(env, plan, {});
  await env.files.writeDocument({ ...first.document, thread_id: 'lost' });
  await expect(startThread(env, plan, { threadId: 'lost' })).rejects.toMatchObject({
    code: 'thread_exists',
  });
  expect(await env.store.registry.get('lost')).toBeUndefined();
  mkdirSync(path.join(lab.project, '.ai/state/threads/empty'), { recursive: true });
  expect(await startThread(env, plan, { threadId: 'empty' })).toMatchObject({ threadId: 'empty' });
});
