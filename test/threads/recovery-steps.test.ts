import { rmSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { type Cost, NO_COST } from '../../src/kernel/core/usage.ts';
import { settleDelivery } from '../../src/kernel/threads/family/deliver.ts';
import { endChildren } from '../../src/kernel/threads/family/end-children.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { parkDead, recoverEach, recoverThread } from '../../src/kernel/threads/recovery/recover.ts';
import { refreshRow } from '../../src/kernel/threads/recovery/stale-row.ts';
import { whileHeld } from '../../src/kernel/threads/recovery/while-held.ts';
import { runDirective, runResumed } from '../../src/kernel/threads/run/lifecycle.ts';
import { approvalPending } from '../../src/kernel/threads/run/waiting.ts';
import { goneOwner } from '../../testing/conformance/fixtures.ts';
import { reply } from '../helpers/wire-server.ts';
import { BEGUN, deadThread, endedAs, fails, portsDesk, STARTED } from './ports-desk.ts';

const now = new Date().toISOString();
const ROW = { directive: 'team/work', model: 'm', now, parentId: null } as const;
const RUNNER = { allow_unsigned: false } as const;

/** The ports with another handling of crashed threads and of their children. */
function configured(env: ThreadEnv, mode: 'fail' | 'resume' = 'fail'): ThreadEnv {
  const { coordination, recovery } = env.config;
  const policies = { onParentError: 'cancel', onParentCancel: 'cancel' } as const;
  return {
    ...env,
    config: {
      ...env.config,
      coordination: { ...coordination, ...policies },
      recovery: { ...recovery, mode },
    },
  };
}

/** Registers a queued child of `job`. Returns its status now, when it is asked. */
async function queuedChild({ store: { registry } }: ThreadEnv) {
  await registry.register({ ...ROW, threadId: 'kid', parentId: 'job', owner: null });
  return async () => (await registry.get('kid'))?.status;
}

it.each<[string, readonly EventDraft[] | undefined, 'fail' | 'resume', string]>([
  ['had no log yet', undefined, 'fail', 'cancelled'],
  ['was in its run', [BEGUN], 'fail', 'cancelled'],
  ['was in its run, and is resumed', [BEGUN], 'resume', 'created'],
  ['had written that it failed', [BEGUN, endedAs('error')], 'fail', 'cancelled'],
  ['had failed, so that nothing resumes it', [BEGUN, endedAs('error')], 'resume', 'cancelled'],
  ['had completed', [BEGUN, endedAs('completed')], 'fail', 'created'],
])('the children of a crashed thread follow the policy: it %s', async (_, log, mode, status) => {
  const { env } = await portsDesk();
  const crashed = configured(env, mode);
  await deadThread(crashed, log ? { log } : {});
  const child = await queuedChild(crashed);
  await recoverThread(crashed, 'job');
  expect(await child()).toBe(status);
});

it.each([
  ['no thread.json', false],
  ['no plan', true],
])('the children of a crashed thread with %s follow the policy', async (_, hasRun) => {
  const { env, lab } = await portsDesk();
  const crashed = configured(env);
  if (hasRun) {
    await deadThread(crashed, { log: [STARTED, BEGUN] });
    rmSync(path.join(lab.project, '.ai/state/threads/job/plan.json'));
  } else {
    const owner = goneOwner(env.store);
    await env.store.registry.register({ ...ROW, threadId: 'job', owner, isClaimed: true });
  }
  const child = await queuedChild(crashed);
  const { action } = await recoverThread(crashed, 'job');
  expect([action, await child()]).toEqual([hasRun ? 'failed' : 'never_ran', 'cancelled']);
});

it('a child that crashed too is left to its own recovery', async () => {
  const { env } = await portsDesk();
  const { registry } = env.store;
  const crashed = configured(env);
  await registry.register({ ...ROW, threadId: 'job', owner: env.owner, isClaimed: true });
  const kid = { ...ROW, threadId: 'kid', parentId: 'job', isClaimed: true };
  await registry.register({ ...kid, owner: goneOwner(env.store) });
  await registry.register({ ...kid, threadId: 'alive', owner: env.owner });
  await endChildren(crashed, 'job', 'error');
  expect(await registry.get('kid')).toMatchObject({ cancel_requested: null });
  expect((await registry.get('alive'))?.cancel_requested).toContain('ended as error');
});

it.each<[string, string | null, readonly EventDraft[], boolean, string]>([
  ['is parked', null, [BEGUN], true, 'suspended: failed'],
  ['was asked to stop', 'enough', [BEGUN], true, 'cancelled: cancelled'],
  ['has its end in the log', 'enough', [BEGUN, endedAs('completed')], true, 'completed: finished'],
  ['is on this machine', null, [BEGUN], false, 'error: failed'],
  ['was asked to stop here', 'enough', [BEGUN], false, 'cancelled: cancelled'],
])('a leg whose process is gone: it %s', async (_, reason, log, parks, end) => {
  const { env } = await portsDesk();
  const { record } = await deadThread(env, { log });
  if (reason !== null) await env.store.registry.requestCancel('job', reason, now);
  const found = (await env.store.registry.get('job')) ?? record;
  const recovered = parks ? await parkDead(env, found) : await recoverThread(env, 'job');
  expect(`${recovered.status}: ${recovered.action}`).toBe(end);
  // one that only waits keeps its money
  const [row] = await env.store.ledger.rows({ thread_id: 'job' });
  expect(row?.status).toBe(recovered.status === 'suspended' ? 'active' : 'released');
});

it('a thread that could not be recovered is as dead as before, and can be recovered later', async () => {
  const { env } = await portsDesk();
  const { record } = await deadThread(env, { log: [BEGUN] });
  const { ledger, registry } = env.store;
  const fence = ledger.fence.bind(ledger);
  fails(ledger, 'fence');
  await expect(recoverThread(env, 'job')).rejects.toThrow('the disk is full');
  expect(await registry.get('job')).toMatchObject({ process_start: record.process_start });
  Object.assign(ledger, { fence });
  expect(await recoverThread(env, 'job')).toMatchObject({ status: 'error' });
});

it('a sweep skips threads that another process was faster with, and names other failures', async () => {
  const { env } = await portsDesk();
  const { registry, ledger } = env.store;
  const { record: found } = await deadThread(env, { log: [BEGUN] });
  const dead = [{ found, death: 'gone' as const }];
  await registry.claim('job', env.owner, now);
  expect(await recoverEach(env, dead)).toEqual({ recovered: [], failures: [] });
  const end = { status: 'error', now, cost: NO_COST, result: '', epoch: 2 } as const;
  await registry.finish('job', end);
  await ledger.release('job', 2);
  expect(await recoverEach(env, dead)).toEqual({ recovered: [], failures: [] });
  const other = await deadThread(env, { log: [BEGUN], threadId: 'other' });
  fails(ledger, 'fence');
  const swept = await recoverEach(env, [{ found: other.record, death: 'gone' }]);
  expect(swept.failures).toMatchObject([{ thread_id: 'other' }]);
});

const SPENT: Cost = { ...NO_COST, turns: 1, spend: 0.25 };

it('a sweep settles and frees the budget of a thread that ended without doing so, unless it runs again', async () => {
  const { env } = await portsDesk();
  const { registry, ledger } = env.store;
  const owner = goneOwner(env.store);
  for (const threadId of ['ended', 'again']) {
    await registry.register({ ...ROW, threadId, owner, isClaimed: true });
    await ledger.register(threadId, 1_000_000);
    const end = { status: 'completed', now, cost: SPENT, result: '', epoch: 1 } as const;
    await registry.finish(threadId, end);
  }
  await ledger.fence('again', 2);
  const { recovered } = await recoverEach(env, []);
  expect(recovered).toMatchObject([
    { thread_id: 'ended', action: 'released', status: 'completed' },
  ]);
  expect(await ledger.rows()).toMatchObject([
    { thread_id: 'ended', status: 'released', actual: 250_000 },
    { thread_id: 'again', status: 'active', actual: 0 },
  ]);
});

it('a row is not restored while a process holds the log of its thread', async () => {
  const { env, notices } = await portsDesk([reply('Done.')]);
  const prepare = { directiveId: 'team/work' };
  await runDirective(env, { prepare, threadId: 'job', runner: RUNNER });
  const { registry, logs } = env.store;
  const record = await registry.get('job');
  if (!record) throw new Error('no thread');
  // as after the loss of the last commits
  Object.assign(registry, { runOf: async () => 0 });
  const hold = await logs.hold('job', env.owner, record.epoch);
  await refreshRow(env, record);
  expect(notices.join()).not.toContain('which is restored');
  await hold.release();
  await refreshRow(env, record);
  expect(notices.join()).toContain('which is restored');
});

it.each<[string, number, string | undefined]>([
  ['as it was found', Number.POSITIVE_INFINITY, 'acted'],
  ['continued before it is held', 0, undefined],
  ['continued while it is being held', 1, undefined],
])('an act under the hold of a thread: it is %s', async (_, looks, outcome) => {
  const { env } = await portsDesk();
  const { registry } = env.store;
  await registry.register({ ...ROW, threadId: 'job', owner: env.owner, isClaimed: true });
  const end = { status: 'error', now, cost: NO_COST, result: '', epoch: 1 } as const;
  const found = await registry.finish('job', end);
  let seen = 0;
  const get: typeof registry.get = async () => {
    seen += 1;
    return seen <= looks ? found : { ...found, epoch: 2 };
  };
  let released = 0;
  const hold = async () => ({ release: async () => void (released += 1) });
  const store = { ...env.store, registry: { ...registry, get }, logs: { ...env.store.logs, hold } };
  const acted = await whileHeld(
    { store: store as unknown as typeof env.store, owner: env.owner },
    found,
    async () => 'acted',
  );
  expect(acted).toBe(outcome);
  expect(released).toBe(looks === 0 ? 0 : 1);
});

it('a resume that names the run that it continues is refused once another one has begun', async () => {
  const { env, lab } = await portsDesk([reply('One.'), reply('Two.')]);
  await runDirective(env, {
    prepare: { directiveId: 'team/work' },
    threadId: 'job',
    runner: RUNNER,
  });
  const asked = lab.server.requests.length;
  const resume = { threadId: 'job', message: 'Again.', secrets: {}, runner: RUNNER };
  await expect(runResumed(env, { ...resume, epoch: 7 })).rejects.toMatchObject({
    code: 'thread_locked',
  });
  expect(lab.server.requests).toHaveLength(asked);
  const { epoch } = (await env.store.registry.get('job')) ?? { epoch: 0 };
  expect(await runResumed(env, { ...resume, epoch })).toMatchObject({ status: 'completed' });
});

it.each([
  ['has ended', false],
  ['waits for people', true],
])(
  'a resume that cannot begin gives a thread back its end and its money: it %s',
  async (_, waits) => {
    const { env } = await portsDesk(() => reply('Done.'));
    const { registry, ledger } = env.store;
    await runDirective(env, {
      prepare: { directiveId: 'team/work' },
      threadId: 'job',
      runner: RUNNER,
    });
    if (waits) {
      const record = await registry.get('job');
      if (!record) throw new Error('no thread');
      await ledger.reopen('job', 400_000, { epoch: record.epoch });
      const { epoch } = await registry.resume(record, env.owner, now);
      const error = approvalPending(['apr-1']);
      const end = {
        status: 'suspended',
        now,
        cost: record.cost,
        result: '',
        error,
        epoch,
      } as const;
      await registry.finish('job', end);
    }
    const [thread, rows] = [await registry.get('job'), await ledger.rows()];
    fails(env.files, 'writeDocument');
    const resume = { threadId: 'job', message: 'Again.', secrets: {}, runner: RUNNER };
    await expect(runResumed(env, resume)).rejects.toThrow('the disk is full');
    expect(await ledger.rows()).toEqual(rows);
    const { status, error, result } = (await registry.get('job')) ?? {};
    expect({ status, error, result }).toEqual({
      status: thread?.status,
      error: thread?.error,
      result: thread?.result,
    });
  },
);

it('a message of a crashed thread is settled once its log was asked', async () => {
  const { env } = await portsDesk();
  await deadThread(env, { log: [BEGUN] });
  const { seq } = await env.store.deliveries.enqueue({
    deliveryId: 'd-1',
    threadId: 'job',
    class: 'person',
    kind: 'steer',
    mode: 'auto',
    source: 'person',
    text: 'Hello.',
    requiresArtifact: false,
    now,
  });
  const request = { threadId: 'job', seq, as: 'dropped', now, newId: 'd-2' } as const;
  await settleDelivery(env, request);
  expect(await env.store.registry.get('job')).toMatchObject({ status: 'error' });
});

it('a crashed thread is charged for the time that its process lived, not until its recovery', async () => {
  const { env } = await portsDesk();
  const turn: EventDraft = { event_type: 'turn_started', payload: { turn: 1 } };
  await deadThread(env, { log: [STARTED, BEGUN, turn] });
  const later = { ...env.clock, now: () => env.clock.now() + 3_600_000 };
  await recoverThread({ ...configured(env), clock: later }, 'job');
  const { cost, status } = (await env.store.registry.get('job')) ?? {};
  expect(status).toBe('error');
  expect(cost?.elapsed_seconds).toBeLessThan(60);
});

it.each([
  ['at the end of its signed part', 0, 9],
  ['at an earlier place, by an earlier recovery', -1, undefined],
])('what was moved off the log of a crashed thread %s is reported', async (_, at, bytes) => {
  const { env } = await portsDesk();
  await deadThread(env, { log: [STARTED, BEGUN] });
  const { logs } = env.store;
  const crashed = configured(env);
  let end = 0;
  const { verify } = logs;
  Object.assign(logs, {
    verify: async (...args: Parameters<typeof verify>) => {
      const verdict = await verify.apply(logs, args);
      end = verdict.verified_bytes;
      return verdict;
    },
    quarantined: async () => [{ offset: end + at, bytes: 9, file: 'x', lines: 1, sha256: '' }],
  });
  expect((await recoverThread(crashed, 'job')).unverified_bytes).toBe(bytes);
});
