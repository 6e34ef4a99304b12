import { expect, it, vi } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { family, speaker, starts } from './family.ts';
import { calls, type House, marks, toolUse } from './house.ts';

interface Ended {
  readonly thread_id: string;
  readonly approvals: readonly string[];
}

/** Runs a directive whose family waits in the end. */
async function parked(here: House, id: string): Promise<Ended> {
  const result = await here.json(['run', id], 8);
  expect(result).toMatchObject({ status: 'suspended', waiting_for: 'approval', success: false });
  return result as unknown as Ended;
}

function told(here: House, name: string): string {
  const last = here.bodies.findLast((body) => speaker(body) === name);
  return JSON.stringify(last?.messages);
}

/** Number of calls that a thread started and of those that it settled. */
function startsAndEnds(here: House, threadId: string): readonly number[] {
  const types = here.log(threadId).map(({ event_type: type }) => type);
  return ['tool_call_start', 'tool_settled', 'child_thread_finished'].map(
    (wanted) => types.filter((type) => type === wanted).length,
  );
}

it('a child that waits suspends its parent, and a decision resumes first the child, then the parent', async () => {
  const here = await family({
    parent: [calls(starts('ask-child'), marks('beside'))],
    'ask-child': [calls(marks('mark'))],
  });
  const { thread_id: parent, approvals } = await parked(here, 'parent');
  const [request] = await here.waiting();
  expect(approvals).toEqual([request?.id]);
  expect(request).toMatchObject({ root_thread_id: parent, kind: 'call' });
  expect(request?.thread_id).not.toBe(parent);
  expect([here.file('mark'), here.file('beside')]).toEqual([undefined, 'ran\n']);
  expect(here.bodies.map(speaker)).toEqual(['parent', 'ask-child']);
  await here.json(['threads', 'resume', parent], 8);
  await here.json(['approve', request?.id ?? '']);
  await here.until(parent, 'completed');
  expect([here.file('mark'), here.file('beside')]).toEqual(['ran\n', 'ran\n']);
  expect(told(here, 'parent')).toContain('ask-child is done');
  expect(startsAndEnds(here, parent)).toEqual([2, 2, 1]);
  const { thread } = (await here.json(['threads', 'show', request?.thread_id ?? ''])) as {
    thread: { status: string };
  };
  expect(thread.status).toBe('completed');
  await here.json(['verify', 'thread', parent]);
  await here.json(['verify', 'thread', request?.thread_id ?? '']);
});

it('an ask of the first thread holds for its grandchild, whose denial reaches every thread above', async () => {
  const here = await family({
    'ask-top': [calls(starts('middle'))],
    middle: [calls(starts('leaf'))],
    leaf: [calls(marks('mark'))],
  });
  const { thread_id: top, approvals } = await parked(here, 'ask-top');
  expect(approvals).toHaveLength(1);
  await here.json(['deny', approvals[0] ?? '', '--comment', 'Not today.']);
  await here.until(top, 'completed');
  expect(here.file('mark')).toBeUndefined();
  expect(told(here, 'leaf')).toContain('Not today.');
  expect([told(here, 'middle'), told(here, 'ask-top')]).toEqual([
    expect.stringContaining('leaf is done'),
    expect.stringContaining('middle is done'),
  ]);
});

it('children that wait side by side let the others end, and each decision takes the family further', async () => {
  const here = await family({
    parent: [calls(starts('ask-one'), starts('free'), starts('ask-two'))],
    'ask-one': [calls(marks('one'))],
    'ask-two': [calls(marks('two'))],
    free: [calls(marks('three'))],
  });
  const { thread_id: parent, approvals } = await parked(here, 'parent');
  expect(approvals).toHaveLength(2);
  expect([here.file('one'), here.file('two'), here.file('three')]).toEqual([
    undefined,
    undefined,
    'ran\n',
  ]);
  const [first, second] = await here.waiting();
  await here.json(['approve', first?.id ?? '']);
  await here.until(first?.thread_id ?? '', 'completed');
  await here.until(parent, 'suspended');
  await here.json(['approve', second?.id ?? '']);
  await here.until(parent, 'completed');
  expect([here.file('one'), here.file('two'), here.file('three')]).toEqual([
    'ran\n',
    'ran\n',
    'ran\n',
  ]);
  expect(startsAndEnds(here, parent)).toEqual([3, 3, 3]);
  for (const name of ['ask-one', 'ask-two', 'free']) {
    expect(told(here, 'parent')).toContain(`${name} is done`);
  }
});

it('the items of a list wait together, and the list ends once each of them is decided', async () => {
  const here = await family({ 'ask-item': [calls(marks('mark')), calls(marks('mark'))] });
  here.signed(
    'directives/list.md',
    directive('list', {
      permissions:
        '<execute><directive>*</directive><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
      metadata: '<model provider="literal" />',
      limits: 'turns="20" spend="5"',
      children: `<outputs><output name="out" type="array" from="\${steps.each.results}">O.</output></outputs><process><foreach item="f" in="[1, 2]" parallel="2"><step name="each"><execute item_type="directive" item_id="ask-item"/></step></foreach></process>`,
    }),
  );
  const { thread_id: list, approvals } = await parked(here, 'list');
  expect(approvals).toHaveLength(2);
  await here.json(['approve', approvals[0] ?? '']);
  await here.json(['deny', approvals[1] ?? '', '--comment', 'One is enough.']);
  await here.until(list, 'completed');
  expect(here.file('mark')).toBe('ran\n');
  // the return of the outputs is settled too
  expect(startsAndEnds(here, list)).toEqual([2, 3, 2]);
});

it('a parent that waits for a child in another process is suspended with it', async () => {
  const here = await family({
    parent: [
      calls(starts('ask-child', { async: true })),
      calls(toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' })),
    ],
    'ask-child': [calls(marks('mark'))],
  });
  const { thread_id: parent, approvals } = await parked(here, 'parent');
  expect(approvals).toHaveLength(1);
  await here.json(['approve', approvals[0] ?? '']);
  await here.until(parent, 'completed');
  expect(here.file('mark')).toBe('ran\n');
  expect(told(here, 'parent')).toContain('ask-child is done');
});

it('a child that is cancelled while it waits is the result of its call', async () => {
  const here = await family({
    parent: [calls(starts('ask-child'))],
    'ask-child': [calls(marks('mark'))],
  });
  const { thread_id: parent } = await parked(here, 'parent');
  const [request] = await here.waiting();
  await here.json(['threads', 'cancel', request?.thread_id ?? '']);
  await here.until(parent, 'completed');
  expect(told(here, 'parent')).toContain('cancelled');
  expect((await here.cli(['approve', request?.id ?? ''])).code).toBe(4);
});

it('cancelling a parent cancels the child that its call waits for', async () => {
  const here = await family({
    parent: [calls(starts('ask-child'))],
    'ask-child': [calls(marks('mark'))],
  });
  const { thread_id: parent } = await parked(here, 'parent');
  const [request] = await here.waiting();
  await here.json(['threads', 'cancel', parent]);
  expect(await here.waiting()).toEqual([]);
  for (const id of [parent, request?.thread_id ?? '']) {
    await here.until(id, 'cancelled');
    await here.json(['verify', 'thread', id]);
  }
  expect(startsAndEnds(here, parent)).toEqual([1, 1, 0]);
});

it('a child whose request expired ends when its parent is resumed', async () => {
  const here = await family({
    parent: [calls(starts('free'))],
    free: [calls(marks('mark'))],
  });
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me'], expires: '1s' }] });
  const { thread_id: parent } = await parked(here, 'parent');
  await vi.waitUntil(async () => (await here.waiting()).length === 0, 60_000);
  await here.json(['threads', 'resume', parent]);
  await here.until(parent, 'completed');
  expect(told(here, 'free')).toContain('expired');
  expect(told(here, 'parent')).toContain('free is done');
});

it('a child that is killed after the decision is recovered, and its parent continues', async () => {
  const here = await family({
    parent: [calls(starts('ask-child'))],
    'ask-child': [calls(toolUse('rye_bash', { command: 'echo $$ > pid; exec sleep 300' }))],
  });
  const { thread_id: parent, approvals } = await parked(here, 'parent');
  const [request] = await here.waiting();
  const child = request?.thread_id ?? '';
  await here.json(['approve', approvals[0] ?? '']);
  await vi.waitUntil(() => (here.file('pid') ?? '') !== '', 60_000);
  const { thread } = (await here.json(['threads', 'show', child])) as { thread: { pid: number } };
  process.kill(thread.pid, 'SIGKILL');
  const recovery = async () => (await here.cli(['threads', 'recover'])).stdout;
  await vi.waitUntil(async () => (await recovery()).includes(child), 60_000);
  await here.until(parent, 'completed');
  expect(told(here, 'parent')).toContain('thread_crashed');
  expect(startsAndEnds(here, parent)).toEqual([1, 1, 1]);
}, 240_000);

it('a parent that is killed while its child waits in the process is recovered, and the call of the child still runs only as decided', async () => {
  const here = await family({
    parent: [calls(starts('free'))],
    free: [calls(marks('mark'))],
  });
  here.policy({ rules: [{ tool: 'rye/bash', ask: ['me'] }], wait_inline: '10m' });
  const ended = here.cli(['run', 'parent', '--thread-id', 'p', '--json'], { spawned: true });
  const first = async () => (await here.waiting()).at(0);
  const request = await vi.waitUntil(first, { timeout: 60_000, interval: 200 });
  const child = request?.thread_id ?? '';
  const { thread } = (await here.json(['threads', 'show', 'p'])) as { thread: { pid: number } };
  process.kill(thread.pid, 'SIGKILL');
  await ended;
  await vi.waitUntil(async () => (await here.cli(['threads', 'recover'])).code === 0, 60_000);
  for (const id of ['p', child]) await here.until(id, 'error');
  expect(here.file('mark')).toBeUndefined();
  expect((await here.waiting()).map(({ id }) => id)).toEqual([request?.id]);
  await here.json(['approve', request?.id ?? '', '--no-resume']);
  await here.json(['threads', 'resume', child]);
  expect(here.file('mark')).toBe('ran\n');
  await here.json(['threads', 'resume', 'p']);
  expect(here.file('mark')).toBe('ran\n');
  for (const id of ['p', child]) {
    expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
  }
}, 240_000);
