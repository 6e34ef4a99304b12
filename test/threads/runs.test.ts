import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { toMicroUsd } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';

const MODEL = { model: 'claude-haiku-5-5', provider: 'anthropic' } as const;

let lab: Lab;
let store: Store;
/** Answers by the directive that asks; without one the model replies `Done.`. */
let script: Record<string, (() => WireTurn | Promise<WireTurn>)[]>;

beforeEach(async () => {
  lab = await openLab();
  script = {};
  await lab.model(async ({ body }) => {
    const first = JSON.stringify(body.messages[0]).replaceAll('\\', '');
    const name = /<directive name="(\w+)"/.exec(first)?.[1] ?? '';
    return (await script[name]?.shift()?.()) ?? reply('Done.');
  });
  for (const [name, spend] of [
    ['root', '1.00'],
    ['mid', '0.50'],
    ['kid', '0.20'],
  ] as const) {
    lab.signed(
      `directives/${name}.md`,
      directive(name, {
        permissions: '<execute><directive>*</directive></execute>',
        limits: `turns="10" spend="${spend}" spawns="5" depth="4"`,
      }),
    );
  }
  store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
});

afterEach(async () => {
  store.close();
  await lab.remove();
});

function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

/** A turn that the test ends: `asked` resolves when the model is asked. */
function held(answer: WireTurn) {
  const asked = gate();
  const gone = gate();
  const turn = async (): Promise<WireTurn> => {
    asked.open();
    await gone.passed;
    return answer;
  };
  return { turn, asked: asked.passed, answer: gone.open };
}

const start = (name: string, call: string): WireTurn =>
  calls(toolUse('rye_execute', { item_type: 'directive', item_id: name }, call));

async function row(threadId: string) {
  const [found] = await store.ledger.rows({ thread_id: threadId });
  if (!found) throw new Error(`no budget: ${threadId}`);
  return found;
}

async function idOf(name: string): Promise<string> {
  const [found] = await store.registry.list({ directive: name });
  if (!found) throw new Error(`no thread of ${name}`);
  return found.thread_id;
}

/** Every active thread and all below it stay below its maximum. */
async function audit(): Promise<void> {
  for (const { thread_id, max } of await store.ledger.rows({ status: 'active' })) {
    expect(await store.ledger.committed(thread_id)).toBeLessThanOrEqual(max);
  }
}

describe('a root that is resumed', () => {
  it('gets the rest of its limits, or exactly what it is granted; the total counts once', async () => {
    const { thread_id: id, cost: first } = await lab.run('root', MODEL);
    const used = toMicroUsd(first.spend);
    const second = await lab.rye().recovery.resume({ threadId: id, message: 'again' });
    expect(second.thread_id).toBe(id);
    expect(await row(id)).toMatchObject({ max: 1_000_000, status: 'released' });
    const spent = (await row(id)).actual;
    expect(spent).toBe(2 * used);
    await lab.rye().recovery.resume({
      threadId: id,
      message: 'more',
      limits: { spend: 0.25 },
      raiseLimits: true,
    });
    expect(await row(id)).toMatchObject({ max: spent + 250_000, actual: 3 * used });
    const record = await store.registry.get(id);
    expect(toMicroUsd(record?.cost.spend ?? 0)).toBe(3 * used);
    expect(await lab.rye().threads.list()).toHaveLength(1);
  });

  it('is resumed also if the store could not take the end of its run, only that of the thread', async () => {
    await lab.run('kid', { threadId: 't-1' });
    const database = new Database(lab.path('state/threads/registry.db'));
    database.exec(`UPDATE runs SET status = 'running', ended_at = NULL WHERE thread_id = 't-1'`);
    database.close();
    expect(await store.deliveries.activeTurn('t-1')).toBeDefined();
    const { status, thread_id: id } = await lab
      .rye()
      .recovery.resume({ threadId: 't-1', message: 'again' });
    expect([status, id]).toEqual(['completed', 't-1']);
    expect(await store.deliveries.activeTurn('t-1')).toBeUndefined();
  });

  it('is resumed by one of two at once', async () => {
    const { thread_id: id } = await lab.run('root', MODEL);
    const outcomes = await Promise.allSettled(
      ['x', 'y'].map(async (message) => await lab.rye().recovery.resume({ threadId: id, message })),
    );
    const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(failed).toMatchObject([{ reason: { code: 'thread_locked' } }]);
    expect(await store.registry.runOf(id)).toBe(2);
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
  });

  it('is waited for until the end of the current run, also if another one follows', async () => {
    const { thread_id: id } = await lab.run('root', MODEL);
    const second = held(reply('The second answer.'));
    const third = held(reply('The third answer.'));
    script['root'] = [second.turn, third.turn];
    const rye = lab.rye();
    const resumed = rye.recovery.resume({ threadId: id, message: 'second' });
    await second.asked;
    // the first wait loads its modules, and may look at the thread only after the run has ended
    expect((await rye.children.wait([id], { timeoutSeconds: 0 })).timed_out).toBe(true);
    const waiting = rye.children.wait([id]);
    second.answer();
    await resumed;
    const again = rye.recovery.resume({ threadId: id, message: 'third' });
    await third.asked;
    expect((await waiting).threads).toMatchObject([
      { done: true, status: 'completed', result: 'The second answer.' },
    ]);
    expect((await rye.children.wait([id], { timeoutSeconds: 0 })).timed_out).toBe(true);
    third.answer();
    await again;
    expect((await rye.children.wait([id])).threads).toMatchObject([
      { result: 'The third answer.' },
    ]);
  });

  it('was canceled: the request ends with its run', async () => {
    const first = held(reply('Too late.'));
    script['root'] = [first.turn];
    const rye = lab.rye();
    const running = lab.run('root', MODEL);
    await first.asked;
    const id = await idOf('root');
    await rye.children.cancel(id, { reason: 'enough' });
    expect(await running).toMatchObject({ status: 'cancelled' });
    first.answer();
    const resumed = await rye.recovery.resume({ threadId: id, message: 'go on' });
    expect(resumed).toMatchObject({ thread_id: id, status: 'completed', result: 'Done.' });
    expect(await store.registry.get(id)).toMatchObject({ cancel_requested: null, error: null });
    expect(await store.registry.endOf(id, 1)).toMatchObject({ status: 'cancelled' });
  });
});

describe('a fork', () => {
  it('holds no budget until it is resumed', async () => {
    const { thread_id: id } = await lab.run('root', MODEL);
    const rye = lab.rye();
    const { thread_id: fork } = await rye.trees.extract(id, { at: 'root' });
    expect(await row(fork)).toMatchObject({ status: 'released', actual: 0 });
    const { rows } = await rye.trees.view(id, { filter: 'all' });
    const at = rows.find(({ kind }) => kind === 'system_prompt')?.entry.id ?? '';
    const { thread_id: empty } = await rye.trees.extract(id, { at });
    const [opening] = (await rye.trees.context(id)).messages;
    expect((await rye.trees.context(empty)).messages).toEqual([opening]);
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
  });
});

describe('a run from an entry before the first message', () => {
  it('asks the opening message again', async () => {
    const { thread_id: id } = await lab.run('root', MODEL);
    const rye = lab.rye();
    const [opening] = (await rye.trees.context(id)).messages;
    const { rows } = await rye.trees.view(id, { filter: 'all' });
    const from = rows.find(({ kind }) => kind === 'system_prompt')?.entry.id ?? '';
    expect(await rye.recovery.resume({ threadId: id, from })).toMatchObject({ success: true });
    expect((await rye.trees.context(id)).messages[0]).toEqual(opening);
  });
});

describe('a child that is resumed', () => {
  it('is paid by its living parent, and refused when the parent lacks the room', async () => {
    const later = held(reply('Root is done.'));
    script['root'] = [() => start('kid', 'k1'), later.turn];
    const running = lab.run('root', MODEL);
    await later.asked;
    const [root, kid] = [await idOf('root'), await idOf('kid')];
    const before = await store.ledger.remaining(root);
    const kidTurn = held(reply('Kid again.'));
    script['kid'] = [kidTurn.turn];
    const rye = lab.rye();
    const resumed = rye.recovery.resume({
      threadId: kid,
      message: 'x',
      limits: { spend: 0.3 },
      raiseLimits: true,
    });
    await kidTurn.asked;
    expect(await store.ledger.remaining(root)).toBe(before - 300_000);
    await audit();
    kidTurn.answer();
    expect(await resumed).toMatchObject({ thread_id: kid, status: 'completed' });
    await expect(
      rye.recovery.resume({ threadId: kid, message: 'x', limits: { spend: 1 }, raiseLimits: true }),
    ).rejects.toMatchObject({ code: 'budget_insufficient' });
    expect(await store.registry.get(kid)).toMatchObject({ status: 'completed' });
    expect(await store.registry.runOf(kid)).toBe(2);
    later.answer();
    await running;
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
  });

  it('is paid by its grandparent when its parent has ended', async () => {
    const later = held(reply('Root is done.'));
    script['root'] = [() => start('mid', 'm1'), later.turn];
    script['mid'] = [() => start('kid', 'k1')];
    const running = lab.run('root', MODEL);
    await later.asked;
    const [root, kid] = [await idOf('root'), await idOf('kid')];
    const before = await store.ledger.remaining(root);
    const kidTurn = held(reply('Kid again.'));
    script['kid'] = [kidTurn.turn];
    const resumed = lab
      .rye()
      .recovery.resume({ threadId: kid, message: 'x', limits: { spend: 0.4 }, raiseLimits: true });
    await kidTurn.asked;
    expect(await store.ledger.remaining(root)).toBe(before - 400_000);
    await audit();
    kidTurn.answer();
    await resumed;
    later.answer();
    await running;
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
  });

  it('is paid by the successor of its parent when that was handed off', async () => {
    lab.signed(
      'config/agent/coordination.yaml',
      'continuation: { mode: handoff, trigger_threshold: 0.05 }\n',
    );
    const later = held(reply('Root is done.'));
    script['root'] = [
      () => start('kid', 'k1'),
      () => ({
        steps: [toolUse('rye_execute', { item_type: 'directive', item_id: 'kid' }, 'k2')],
        usage: { input_tokens: 50_000, output_tokens: 10 },
      }),
      later.turn,
    ];
    const running = lab.run('root', MODEL);
    await later.asked;
    const [, kid] = await store.registry.list({ directive: 'kid' });
    const [next, root] = await store.registry.list({ directive: 'root' });
    if (!kid || !next || !root) throw new Error('a thread is missing');
    expect([root.status, next.status]).toEqual(['continued', 'running']);
    const before = await store.ledger.remaining(next.thread_id);
    const spent = async () =>
      (await store.ledger.rows()).reduce((sum, { actual }) => sum + actual, 0);
    const total = await spent();
    const kidTurn = held(reply('Kid again.'));
    script['kid'] = [kidTurn.turn];
    const rye = lab.rye();
    const request = {
      threadId: kid.thread_id,
      message: 'x',
      limits: { spend: 0.3 },
      raiseLimits: true,
    };
    const resumed = rye.recovery.resume(request);
    await kidTurn.asked;
    expect(await store.ledger.remaining(next.thread_id)).toBe(before - 300_000);
    await audit();
    kidTurn.answer();
    await resumed;
    const used = (await spent()) - total;
    expect(await store.ledger.remaining(next.thread_id)).toBe(before - used);
    await expect(
      rye.recovery.resume({ ...request, limits: { spend: 1 }, raiseLimits: true }),
    ).rejects.toMatchObject({
      code: 'budget_insufficient',
    });
    expect(await store.registry.runOf(kid.thread_id)).toBe(2);
    later.answer();
    await running;
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
  });

  it('is its own cap when its parent has ended and no ancestor runs', async () => {
    const later = held(reply('Root is done.'));
    script['root'] = [() => start('kid', 'k1'), later.turn];
    const running = lab.run('root', MODEL);
    await later.asked;
    const kid = await idOf('kid');
    later.answer();
    expect(await running).toMatchObject({ status: 'completed' });
    // the parent has ended: no thread pays, and the child is its own cap
    const again = await lab.rye().recovery.resume({ threadId: kid, message: 'x' });
    expect(again).toMatchObject({ thread_id: kid, status: 'completed' });
    expect(await store.registry.endOf(kid, 1)).toMatchObject({ status: 'completed' });
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
    expect((await lab.rye().threads.verify(kid)).ok).toBe(true);
  });
});
