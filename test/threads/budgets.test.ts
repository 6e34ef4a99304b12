import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { toMicroUsd } from '../../src/kernel/core/usage.ts';
import { runCli } from '../helpers/run-cli.ts';
import {
  calls,
  startWireServer,
  toolUse,
  type WireRequest,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { directive, type Lab, lab } from './lab.ts';

/** A model-run directive: what it does is in the script of the wire server. */
function thinker(id: string, limits: string, directives: readonly string[]): string {
  return directive(id, {
    limits: `turns="20" ${limits}`,
    directives,
    tools: ['rye/agent/threads/orchestrator'],
    steps: '',
    outputs: '<output name="done" type="string" required="true">.</output>',
  });
}

const USAGE = { input_tokens: 1000, output_tokens: 100 };
/** The directive that asks, by its first message. */
const nameOf = (request: WireRequest): string =>
  /<directive name="(\w+)"/.exec(
    JSON.stringify(request.body.messages[0]).replaceAll('\\', ''),
  )?.[1] ?? '';

// Requirement: child-reserved-twice
test('what a parent has left is right at every turn of every descendant, in this process and others', async () => {
  const here = await lab();
  here.write(
    '.ai/directives/team/root.md',
    thinker('team/root', 'spend="1" spawns="9" depth="4"', ['team/*']),
  );
  here.write(
    '.ai/directives/team/mid.md',
    thinker('team/mid', 'spend="0.4" spawns="9" depth="3"', ['team/*']),
  );
  here.write('.ai/directives/team/leaf.md', thinker('team/leaf', 'spend="0.1"', []));
  await here.sign();
  const start = (id: string, async: boolean, call: string) =>
    toolUse('rye_execute', { item_type: 'directive', item_id: id, async }, call);
  const done = (call: string) => toolUse('rye_directive_return', { done: 'yes' }, call);
  const wait = (call: string) =>
    toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' }, call);
  const turns: Record<string, WireTurn[]> = {
    // a child in this process that has one in another, then one in another with one inside it
    root: [
      calls(start('team/mid', false, 'r1')),
      calls(start('team/mid', true, 'r2')),
      calls(wait('r3')),
      calls(done('r4')),
    ],
    mid: [
      calls(start('team/leaf', true, 'm1')),
      calls(wait('m2')),
      calls(done('m3')),
      calls(start('team/leaf', false, 'm4')),
      calls(done('m5')),
    ],
    leaf: [calls(done('l1')), calls(done('l2'))],
  };
  const audits: Audit[] = [];
  let answered = 0;
  const server = await startWireServer(async (request) => {
    const name = nameOf(request);
    audits.push({ answered, spent: await audit(here) });
    answered += 1;
    const turn = turns[name]?.shift();
    if (turn === undefined || typeof turn !== 'object' || !('steps' in turn))
      return { status: 400, error: { type: 'script', message: `nothing for ${name}` } };
    return { ...turn, usage: USAGE };
  });
  onTestFinished(() => server.close());
  const rye = here.open({
    env: {
      PATH: process.env['PATH'],
      HOME: here.home,
      ANTHROPIC_API_KEY: 'sk-ant-test',
      ANTHROPIC_BASE_URL: server.url,
    },
  });
  const result = await rye.threads.execute({ directiveId: 'team/root' });
  expect(result.error).toBeUndefined();
  expect(result.success).toBe(true);
  const requests = server.requests.length;
  expect(requests).toBe(11);
  // to the micro-dollar: every request cost the same; of three levels two may have an answer on its way
  const perCall = toMicroUsd(result.cost.spend) / 4;
  for (const { answered: before, spent } of audits) {
    expect(spent % perCall).toBe(0);
    expect(before - spent / perCall).toBeLessThanOrEqual(2);
    expect(spent / perCall).toBeLessThanOrEqual(before);
  }
  expect(await here.store.ledger.subtreeSpend(result.thread_id)).toBe(perCall * requests);
  expect(await here.store.ledger.remaining(result.thread_id)).toBe(1_000_000 - perCall * requests);
  const rows = await here.store.ledger.rows();
  expect(rows.map(({ status }) => status)).toEqual(rows.map(() => 'released'));
});

/** Recomputes every thread's remaining budget from the rows, checks the invariants of all, and returns the sum. */
async function audit(here: Lab): Promise<number> {
  const rows = await here.store.ledger.rows();
  const childrenOf = (id: string) => rows.filter(({ parent_id }) => parent_id === id);
  const spent = (id: string): number =>
    childrenOf(id).reduce(
      (sum, { thread_id }) => sum + spent(thread_id),
      rows.find(({ thread_id }) => thread_id === id)?.actual ?? 0,
    );
  const held = (id: string): number =>
    childrenOf(id).reduce(
      (sum, child) => {
        const below = held(child.thread_id);
        return sum + (child.status === 'active' ? Math.max(child.reserved, below) : below);
      },
      rows.find(({ thread_id }) => thread_id === id)?.actual ?? 0,
    );
  for (const { thread_id, max } of rows) {
    const left = await here.store.ledger.remaining(thread_id);
    expect({ thread_id, left }).toEqual({ thread_id, left: max - held(thread_id) });
    expect(left).toBeGreaterThanOrEqual(0);
    expect(left + spent(thread_id)).toBeLessThanOrEqual(max);
  }
  const [root] = rows;
  return root === undefined ? 0 : spent(root.thread_id);
}

interface Audit {
  readonly answered: number;
  readonly spent: number;
}

// Requirement: first-child-takes-budget
test('a child without a declared spend limit gets a share, so that its siblings get theirs', async () => {
  const here = await lab();
  here.write(
    '.ai/directives/team/free.md',
    directive('team/free', {
      limits: 'turns="5"',
      tools: ['team/gate'],
      steps:
        '<step name="gate"><execute item_type="tool" item_id="team/gate"><param name="name">free</param></execute></step>',
    }),
  );
  await here.sign();
  const parent = await here.job('parent', { limits: { spend: 1 } });
  const parentThreadId = parent.thread_id;
  const launch = async (limits?: { spend: number }) =>
    await here.rye.children.launch({
      directiveId: 'team/free',
      parentThreadId,
      ...(limits ? { limits } : {}),
    });
  const maxOf = async (id: string) =>
    (await here.store.ledger.rows()).find(({ thread_id }) => thread_id === id)?.max;
  const first = await launch();
  const second = await launch();
  expect(await maxOf(first.thread_id)).toBe(200_000);
  expect(await maxOf(second.thread_id)).toBe(160_000);
  expect(await here.store.ledger.remaining(parentThreadId)).toBe(640_000);
  const declared = await launch({ spend: 0.5 });
  expect(await maxOf(declared.thread_id)).toBe(500_000);
  await expect(launch({ spend: 0.5 })).rejects.toMatchObject({ code: 'budget_insufficient' });
  const plan = await here.rye.threads.plan({ directiveId: 'team/free', parentThreadId });
  expect(plan.limits.spend).toBeCloseTo(0.028);
  expect(plan.origins['limits.spend']).toContain('of the remaining budget of');
  here.openGate('all');
  const ids = [first, second, declared].map(({ thread_id }) => thread_id);
  await here.rye.children.wait([...ids, parentThreadId]);
  expect(await here.store.ledger.remaining(parentThreadId)).toBe(1_000_000);
  const refused = (
    await here.store.registry.list({ parentId: parentThreadId, order: 'oldest first' })
  ).at(-1);
  expect(refused).toMatchObject({ status: 'error', error: { code: 'budget_insufficient' } });
});

test('where one child may run at a time, it gets half of the rest', async () => {
  const here = await lab({ coordination: 'concurrency: { max_children: 1 }\n' });
  here.write(
    '.ai/directives/team/free.md',
    directive('team/free', {
      limits: 'turns="5"',
      tools: ['team/gate'],
      steps:
        '<step name="gate"><execute item_type="tool" item_id="team/gate"><param name="name">free</param></execute></step>',
    }),
  );
  await here.sign();
  const { thread_id: parentThreadId } = await here.job('parent', { limits: { spend: 1 } });
  const plan = await here.rye.threads.plan({ directiveId: 'team/free', parentThreadId });
  expect(plan.limits.spend).toBeCloseTo(0.5);
  here.openGate('all');
  await here.rye.children.wait([parentThreadId]);
});

// Requirement: spawns-counted-per-process
test('two processes that start children of one parent get no more of them than its spawns limit', async () => {
  const here = await lab();
  const parent = await here.job('parent', { limits: { spawns: 3 } });
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-parent')));
  here.openGate('child');
  const launch = async () =>
    await runCli(
      [
        'run',
        'team/job',
        '--async',
        '--json',
        '--input',
        'name=child',
        '--limit',
        'spend=0.0001',
        '--parent',
        parent.thread_id,
      ],
      { cwd: here.project, env: { HOME: here.home } },
    );
  const results = await Promise.all(Array.from({ length: 6 }, launch));
  expect(results.map(({ code }) => String(code)).toSorted()).toEqual('000555'.split(''));
  const refused = results.filter(({ code }) => code === 5);
  expect(refused.every(({ stdout }) => stdout.includes('limit_spawns'))).toBe(true);
  const children = await here.store.registry.list({
    parentId: parent.thread_id,
    order: 'oldest first',
  });
  expect(children).toHaveLength(3);
  expect((await here.record(parent.thread_id)).spawn_count).toBe(3);
  await here.rye.children.wait(children.map(({ thread_id }) => thread_id));
  here.openGate('parent');
  await here.rye.children.wait([parent.thread_id]);
});
