import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { directive, type Lab, lab } from './lab.ts';

const start = (name: string): string =>
  `<execute item_type="directive" item_id="team/job" async="true"><param name="name">${name}</param></execute>`;
const gate = (name: string): string =>
  `<execute item_type="tool" item_id="team/gate"><param name="name">${name}</param></execute>`;
const WAIT =
  '<execute item_type="tool" item_id="rye/agent/threads/orchestrator"><param name="operation">wait_threads</param></execute>';

async function labWith(steps: string, options: Parameters<typeof lab>[0] = {}): Promise<Lab> {
  const here = await lab(options);
  here.write(
    '.ai/directives/team/top.md',
    directive('team/top', {
      tools: ['team/gate', 'rye/agent/threads/orchestrator'],
      directives: ['team/*'],
      limits: 'turns="12" spend="0.2" spawns="20" depth="4"',
      steps,
    }),
  );
  await here.sign();
  return here;
}

const arrived = (here: Lab, name: string): boolean =>
  existsSync(path.join(here.project, `arrived-${name}`));

async function childrenEnded(here: Lab, parent: string, count: number): Promise<void> {
  await here.until('the ends of the children', async () => {
    const children = await here.store.registry.list({ parentId: parent, order: 'oldest first' });
    return children.length === count && children.every(({ status }) => status === 'completed');
  });
}

const PARENT = 'team/top-1';

test('a background child that ends while its parent works is delivered to it, in order, when that has finished', async () => {
  const here = await labWith(
    `<step name="start">${start('a')}${start('b')}</step><step name="work">${gate('work')}</step>`,
  );
  const running = here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT });
  await here.until('the work', () => arrived(here, 'work') && arrived(here, 'b'));
  here.openGate('b');
  await here.until(
    'the first end',
    async () => (await here.rye.deliveries.list(PARENT)).length > 0,
  );
  here.openGate('a');
  await childrenEnded(here, PARENT, 2);
  here.openGate('work');
  expect(await running).toMatchObject({ status: 'completed' });
  const deliveries = await here.rye.deliveries.list(PARENT);
  expect(deliveries.map(({ kind, close_reason }) => [kind, close_reason])).toEqual([
    ['child_result', 'delivered'],
    ['child_result', 'delivered'],
  ]);
  const { events } = await here.store.logs.read(PARENT);
  const entries = events.flatMap(({ event_type, payload }) =>
    event_type === 'custom_message' ? [(payload as { content: string }).content] : [],
  );
  expect(entries).toHaveLength(2);
  expect(entries[0]).toContain('"passed": "b"');
  expect(entries[1]).toContain('"passed": "a"');
  expect(entries[0]).toContain('not instructions');
  // an end is one delivery, however often it is told
  const [first] = deliveries;
  await here.store.deliveries.enqueue({
    deliveryId: 'again',
    threadId: PARENT,
    class: 'background',
    kind: 'child_result',
    mode: 'auto',
    source: first?.source ?? '',
    sourceKey: `child:${first?.source ?? ''}`,
    text: '',
    requiresArtifact: false,
    now: new Date().toISOString(),
  });
  expect(await here.rye.deliveries.list(PARENT)).toHaveLength(2);
});

test('a child whose end the parent waited for is consumed by that, once, and not delivered as well', async () => {
  const here = await labWith(
    `<step name="start">${start('a')}</step><step name="wait">${WAIT}</step><step name="work">${gate('work')}</step>`,
  );
  here.openGate('all');
  expect(
    await here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT }),
  ).toMatchObject({ status: 'completed' });
  const [only, ...more] = await here.rye.deliveries.list(PARENT);
  expect(more).toEqual([]);
  expect(only).toMatchObject({ state: 'closed', close_reason: 'consumed_by_wait', entry_id: null });
  expect(only?.decisions.filter(({ decision }) => decision === 'consume')).toHaveLength(1);
  expect(JSON.stringify((await here.store.logs.read(PARENT)).events)).not.toContain('<delivery');
});

test('a child that ends after its parent is held in the inbox; one that runs in the process of its parent is no delivery', async () => {
  const here = await labWith(
    `<step name="start">${start('late')}<execute item_type="directive" item_id="team/job"><param name="name">sync</param></execute></step>`,
  );
  here.openGate('sync');
  expect(
    await here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT }),
  ).toMatchObject({ status: 'completed' });
  expect(await here.rye.deliveries.list(PARENT)).toEqual([]);
  here.openGate('late');
  await childrenEnded(here, PARENT, 2);
  const [held] = (await here.rye.threads.show(PARENT)).deliveries;
  expect(held).toMatchObject({ kind: 'child_result', state: 'queued' });
});

test('with on_finished: resume the late result starts the parent again, which takes it in', async () => {
  const here = await labWith(`<step name="start">${start('late')}</step>`, {
    coordination: 'deliveries: { on_finished: resume }\n',
  });
  await here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT });
  here.openGate('late');
  await here.until('the second run', async () => {
    const { document } = await here.rye.threads.show(PARENT);
    return document?.status === 'completed' && document.runs?.length === 2;
  });
  const [only] = await here.rye.deliveries.list(PARENT);
  expect(only).toMatchObject({ state: 'closed', close_reason: 'delivered', sent_to: PARENT });
});

test('a child that is killed is an end like any other', async () => {
  const here = await labWith(
    `<step name="start">${start('a')}</step><step name="work">${gate('work')}</step>`,
  );
  const running = here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT });
  await here.until('the work', () => arrived(here, 'work') && arrived(here, 'a'));
  const [child] = await here.store.registry.list({ parentId: PARENT, order: 'oldest first' });
  await here.rye.children.kill(child?.thread_id ?? '');
  await here.until('the delivery', async () => (await here.rye.deliveries.list(PARENT)).length > 0);
  here.openGate('work');
  expect(await running).toMatchObject({ status: 'completed' });
  expect(await here.rye.deliveries.list(PARENT)).toMatchObject([
    { kind: 'child_result', close_reason: 'delivered' },
  ]);
});

test('a thread may write only to its parent and its descendants', async () => {
  const here = await lab();
  const send = (to: string, message: string): string =>
    `<execute item_type="tool" item_id="rye/agent/threads/send_message"><param name="to">${to}</param><param name="message">${message}</param></execute>`;
  const stranger = await here.job('stranger');
  here.write(
    '.ai/directives/team/child.md',
    directive('team/child', {
      tools: ['rye/agent/threads/send_message'],
      limits: 'turns="5" spend="0.01" depth="2"',
      steps: `<step name="up">${send('parent', 'half way')}</step>`,
    }),
  );
  here.write(
    '.ai/directives/team/nosy.md',
    directive('team/nosy', {
      tools: ['rye/agent/threads/send_message'],
      limits: 'turns="5" spend="0.01" depth="2"',
      steps: `<step name="out">${send(stranger.thread_id, 'psst')}</step>`,
    }),
  );
  here.write(
    '.ai/directives/team/top.md',
    directive('team/top', {
      tools: ['rye/agent/threads/send_message'],
      directives: ['team/*'],
      limits: 'turns="12" spend="0.2" spawns="20" depth="4"',
      steps: '<step name="go"><execute item_type="directive" item_id="team/child"/></step>',
    }),
  );
  await here.sign();
  const result = await here.rye.threads.execute({ directiveId: 'team/top', threadId: PARENT });
  expect(result.error).toBeUndefined();
  const [message] = await here.rye.deliveries.list(PARENT);
  expect(message).toMatchObject({ kind: 'message', text: 'half way', close_reason: 'delivered' });
  const nosy = await here.rye.threads.execute({ directiveId: 'team/nosy' });
  expect(JSON.stringify((await here.store.logs.read(nosy.thread_id)).events)).toContain(
    'not_descendant',
  );
  expect(await here.rye.deliveries.list(stranger.thread_id)).toEqual([]);
});
