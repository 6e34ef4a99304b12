import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { toMicroUsd } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { BudgetRow, Store } from '../../src/kernel/storage/store.ts';
import { COST, T0, T1, threadParams } from '../../testing/conformance/fixtures.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { type Mortal, openMortal } from './mortal-store.ts';

let lab: Lab;
/** The answers of each directive's model, in order; afterwards it is done. */
let script: Record<string, WireTurn[]>;

beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
  script = {};
  await lab.model(({ body }) => {
    const speaker = /I am (\w+)\./.exec(JSON.stringify(body.messages))?.[1] ?? '';
    return script[speaker]?.shift() ?? reply('Done.');
  });
});

const RUNS = '<acknowledge risk="elevated">Tests.</acknowledge>';
const NOTE = toolUse('rye_file_system_write', { path: 'note.txt', content: 'x' });

/** Signs a directive that asks before it writes, and may start the others. */
function asks(name: string, spend: number): void {
  lab.signed(
    `directives/${name}.md`,
    directive(name, {
      limits: `turns="9" spend="${spend}"`,
      permissions: `<execute><tool ask="true">rye/file-system/write</tool><tool>rye/agent/*</tool><directive>*</directive></execute>${RUNS}`,
      body: `I am ${name}.`,
    }),
  );
}

async function rows(): Promise<readonly BudgetRow[]> {
  const { store } = openMortal(lab.project);
  try {
    return await store.ledger.rows();
  } finally {
    store.close();
  }
}

const starts = (id: string, more: object = {}) =>
  calls(toolUse('rye_execute', { item_type: 'directive', item_id: id, parameters: {}, ...more }));

/** Runs a parent whose child asks; both wait for a person, and the process that ran them is gone. */
async function waitingFamily() {
  asks('parent', 1);
  asks('child', 0.2);
  script = { parent: [starts('child')], child: [calls(NOTE)] };
  const { store } = openMortal(lab.project);
  const rye = lab.rye({ store });
  const parent = await rye.threads.execute({ directiveId: 'parent' });
  expect(parent.waiting_for).toBe('approval');
  const [{ thread_id: childId } = { thread_id: '' }] = await lab.rye().threads.list({
    directive: 'child',
  });
  return { parentId: parent.thread_id, childId, approval: parent.approvals?.[0] ?? '' };
}

it('threads that wait for a person keep their money through every sweep', async () => {
  await waitingFamily();
  const before = await rows();
  expect(before.map(({ status }) => status)).toEqual(['active', 'active']);
  const rye = lab.rye();
  expect((await rye.recovery.recover()).recovered).toEqual([]);
  expect(await rows()).toEqual(before);
  // a run of another thread recovers first
  asks('other', 0.1);
  await lab.run('other');
  expect((await rows()).slice(0, 2)).toEqual(before);
  await rye.recovery.repair();
  expect((await rows()).slice(0, 2)).toEqual(before);
  await rye.recovery.collect({ olderThanMs: 0 });
  expect((await rows()).slice(0, 2)).toEqual(before);
  // a lost ledger is rebuilt with it
  for (const end of ['', '-wal', '-shm']) {
    rmSync(lab.path(`state/threads/budget_ledger.db${end}`), { force: true });
  }
  await lab.rye().recovery.repair();
  expect((await rows()).slice(0, 2).map(({ status }) => status)).toEqual(['active', 'active']);
});

it('a resume that is refused leaves a waiting thread its money', async () => {
  const { childId, approval } = await waitingFamily();
  await lab.rye().approvals.decide({ id: approval, decision: 'approve', resume: false });
  const before = await rows();
  const resume = lab.rye().recovery.resume({ threadId: childId, limits: { spend: 1 } });
  await expect(resume).rejects.toMatchObject({ code: 'budget_insufficient' });
  expect(await rows()).toEqual(before);
  expect((await lab.rye().threads.show(childId)).thread.status).toBe('suspended');
});

it('an approval tells that its thread was not resumed', async () => {
  const { childId, approval } = await waitingFamily();
  writeFileSync(lab.path(`state/threads/${childId}/plan.json`), '{}');
  lab.notices.length = 0;
  const decided = await lab.rye().approvals.decide({ id: approval, decision: 'approve' });
  expect(decided).toMatchObject({ state: 'approved', resumed: false });
  expect(lab.notices.join()).toContain(`thread ${childId} was not resumed`);
}, 240_000);

it('a parent that its child could not wake is woken by the next command', async () => {
  const { parentId, childId, approval } = await waitingFamily();
  const rye = lab.rye();
  await rye.approvals.decide({ id: approval, decision: 'approve', resume: false });
  // a program that does not exist wakes no thread
  const resume = { threadId: childId };
  const ended = await lab.rye({ program: ['/nowhere/rye.js'] }).recovery.resume(resume);
  expect(ended.status).toBe('completed');
  expect((await rye.threads.show(parentId)).thread.status).toBe('suspended');
  const program = [join(await cliPackage(), 'bin/rye.js')];
  const { threads } = await lab.rye({ program }).children.wait([parentId]);
  expect(threads).toMatchObject([{ thread_id: parentId, status: 'completed' }]);
  expect((await rows()).map(({ status }) => status)).toEqual(['released', 'released']);
}, 240_000);

it('a descendant that is resumed after its root gets no more than the root left', async () => {
  asks('parent', 0.05);
  asks('child', 0.03);
  const usage = { input_tokens: 1000, output_tokens: 10 };
  script = {
    parent: [
      { ...starts('child'), usage },
      { ...reply('All.'), usage: { ...usage, output_tokens: 3500 } },
    ],
    child: [reply('Done.', usage)],
  };
  const parent = await lab.run('parent');
  expect(parent.status).toBe('completed');
  const [child] = await lab.rye().threads.list({ directive: 'child' });
  const spent = parent.cost.total.spend;
  expect(spent).toBeGreaterThan(0.04);
  script = { child: [reply('Again.', { ...usage, output_tokens: 100 })] };
  await lab.rye().recovery.resume({ threadId: child?.thread_id ?? '', message: 'Go on.' });
  const max = (await rows())[1]?.max ?? 0;
  expect(max).toBeLessThanOrEqual(toMicroUsd(0.05 - parent.cost.spend));
});

const HANDS_OFF = 'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n';

it('a handoff that dies before its money is passed on can be resumed', async () => {
  lab.signed('config/agent/coordination.yaml', HANDS_OFF);
  asks('work', 0.5);
  const search = calls(toolUse('rye_search', { query: 'x', item_type: 'knowledge' }));
  script = { work: [{ ...search, usage: { input_tokens: 1000, output_tokens: 10 } }] };
  const mortal: Mortal = openMortal(lab.project);
  const { ledger } = mortal.store;
  const dying: Store = {
    ...mortal.store,
    ledger: new Proxy(ledger, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key);
        if (typeof value !== 'function') return value;
        if (key === 'handOver') mortal.arm(1, false);
        return value.bind(target);
      },
    }),
  };
  void lab
    .rye({ store: dying })
    .threads.execute({ directiveId: 'work' })
    .catch(() => undefined);
  await mortal.death;
  await mortal.bury();
  const rye = lab.rye();
  lab.notices.length = 0;
  await rye.recovery.recover();
  expect(lab.notices).toEqual([]);
  const [last] = await rye.threads.list();
  const [first, second] = await rows();
  expect(first).toMatchObject({ status: 'released' });
  expect((second?.max ?? 0) + (first?.actual ?? 0)).toBe(500_000);
  const resumed = await rye.recovery.resume({ threadId: last?.thread_id ?? '' });
  expect(resumed.error).toBeUndefined();
}, 20_000);

it('the budget of a thread that has ended waits for its owner while the owner lives', async () => {
  const { store } = openMortal(lab.project);
  const living = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
  for (const [id, { registry, ledger, owners }] of [
    ['of-living', living],
    ['of-dead', store],
  ] as const) {
    await registry.register(threadParams(id));
    const { epoch } = await registry.claim(id, owners.self(), T0);
    await ledger.register(id, 100);
    await registry.finish(id, { status: 'error', now: T1, cost: COST, result: '', epoch });
  }
  const { recovered } = await lab.rye().recovery.recover();
  expect(recovered).toMatchObject([{ thread_id: 'of-dead', action: 'released' }]);
  expect((await rows()).map(({ thread_id: id, status }) => [id, status])).toEqual([
    ['of-living', 'active'],
    ['of-dead', 'released'],
  ]);
  for (const opened of [living, store]) opened.close();
});

it('an owner that was taken for dead adds nothing to the budget that recovery has settled', async () => {
  const { store } = openMortal(lab.project);
  await store.registry.register(threadParams('t'));
  const { epoch } = await store.registry.claim('t', store.owners.self(), T0);
  await store.ledger.register('t', 100);
  expect((await lab.rye().recovery.recover()).recovered).toMatchObject([{ action: 'never_ran' }]);
  await expect(store.ledger.report('t', 50, epoch)).rejects.toMatchObject({
    code: 'thread_locked',
  });
  expect(await rows()).toMatchObject([{ actual: 0, status: 'released' }]);
  store.close();
});
