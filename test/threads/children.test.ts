import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { directive, type Lab, lab } from './lab.ts';

type Seen = (LogEvent | UnknownEvent) & { readonly depth?: number };

const child = (id: string, name: string, attributes = ''): string =>
  `<execute item_type="directive" item_id="${id}" ${attributes}><param name="name">${name}</param></execute>`;

const operation = (name: string, more = ''): string =>
  `<execute item_type="tool" item_id="rye/agent/threads/orchestrator"><param name="operation">${name}</param>${more}</execute>`;

const GRANTS = {
  tools: ['team/gate', 'rye/agent/threads/orchestrator'],
  directives: ['team/*'],
  limits: 'turns="9" spend="0.2" spawns="20" depth="4"',
};

function put(here: Lab, id: string, text: string): void {
  here.write(`.ai/directives/${id}.md`, text);
}

async function execute(here: Lab, directiveId: string) {
  const seen: Seen[] = [];
  const result = await here.rye.threads.execute({
    directiveId,
    onEvent: (event) => seen.push(event),
  });
  return { result, seen };
}

async function eventsOf(here: Lab, threadId: string, type: string) {
  const { events } = await here.store.logs.read(threadId);
  return events.filter(({ event_type }) => event_type === type).map(({ payload }) => payload);
}

// Requirement: child-events, child-events-bubble, child-start-fails
test('synchronous children of one batch run side by side; their events bubble with id and depth', async () => {
  const here = await lab();
  put(
    here,
    'team/middle',
    directive('team/middle', {
      ...GRANTS,
      limits: 'turns="9" spend="0.05" spawns="20" depth="3"',
      inputs: '<input name="name" type="string" required="true">Gate.</input>',
      steps: `<step name="below">${child('team/job', '{input:name}')}</step>`,
    }),
  );
  put(
    here,
    'team/top',
    directive('team/top', {
      ...GRANTS,
      steps: `<step name="batch">${child('team/job', 'a')}${child('team/middle', 'b')}</step>`,
    }),
  );
  await here.sign();
  const running = execute(here, 'team/top');
  // both are inside at once, so neither waited for the other
  await here.until('both arrivals', () =>
    ['a', 'b'].every((name) => existsSync(path.join(here.project, `arrived-${name}`))),
  );
  here.openGate('all');
  const { result, seen } = await running;
  expect(result).toMatchObject({ success: true, status: 'completed' });
  expect(result.children).toHaveLength(2);

  const bubbled = seen.filter(({ event_type }) => event_type.startsWith('child.'));
  const depths = new Map(bubbled.map(({ thread_id, depth }) => [thread_id, depth]));
  expect([...depths.values()].map(Number).toSorted((a, b) => a - b)).toEqual([1, 1, 2]);
  for (const threadId of depths.keys()) {
    const types = bubbled
      .filter(({ thread_id }) => thread_id === threadId)
      .map(({ event_type }) => event_type);
    expect(types).toContain('child.thread_started');
    expect(types).toContain('child.thread_finished');
    const { events } = await here.store.logs.read(threadId);
    const seqs = bubbled.filter(({ thread_id }) => thread_id === threadId).map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.toSorted((left, right) => left - right));
    expect(seqs.every((seq) => events.some((event) => event.seq === seq))).toBe(true);
  }
  // the parent's log has only the ends of its children, not their events
  const started = await eventsOf(here, result.thread_id, 'child_thread_started');
  expect(
    started.map((one) => (one as { child_thread_id: string }).child_thread_id).toSorted(),
  ).toEqual(result.children.toSorted());
  expect(await eventsOf(here, result.thread_id, 'child_thread_finished')).toHaveLength(2);
  expect(await eventsOf(here, result.thread_id, 'child.message')).toEqual([]);
  const order = seen.map(({ event_type }) => event_type);
  expect(order.indexOf('child_thread_started')).toBeLessThan(order.indexOf('child.thread_started'));
});

test('child_finished hooks hear of each child once, and a child of the hook does not start it again', async () => {
  const here = await lab();
  here.openGate('all');
  here.write(
    '.ai/config/agent/hooks.yaml',
    `hooks:
  - id: note_child
    event: child_finished
    action: { emit: { custom_type: heard, data: { child: "\${child_thread_id}", status: "\${status}" } } }
  - id: run_another
    event: child_finished
    condition: { path: directive, op: eq, value: team/top }
    action: { primary: execute, item_type: directive, item_id: team/job, params: { name: hooked } }
`,
  );
  put(
    here,
    'team/top',
    directive('team/top', {
      ...GRANTS,
      steps: `<step name="one">${child('team/job', 'a')}</step>`,
    }),
  );
  await here.sign();
  const { result } = await execute(here, 'team/top');
  expect(result.success).toBe(true);
  const customs = await eventsOf(here, result.thread_id, 'custom');
  expect(customs.filter((one) => JSON.stringify(one).includes('heard'))).toMatchObject([
    { custom_type: 'heard', data: { child: result.children[0], status: 'completed' } },
  ]);
  expect(result.children).toHaveLength(2);
});

test('a gate can refuse a child', async () => {
  const here = await lab();
  here.write(
    '.ai/config/agent/hooks.yaml',
    `hooks:
  - id: no_children
    event: tool_gate
    condition: { path: item_type, op: eq, value: directive }
    action: { control: fail, error: "no children here" }
`,
  );
  put(
    here,
    'team/top',
    directive('team/top', {
      ...GRANTS,
      steps: `<step name="one">${child('team/job', 'a')}</step>`,
    }),
  );
  await here.sign();
  const { result } = await execute(here, 'team/top');
  expect(result.success).toBe(false);
  expect(result.children).toEqual([]);
  expect(
    await here.store.registry.list({ parentId: result.thread_id, order: 'oldest first' }),
  ).toEqual([]);
});

test('a thread starts children asynchronously, waits, collects and reads; one that fails costs nothing else', async () => {
  const here = await lab();
  here.write('broken-bad', '');
  here.openGate('good');
  put(
    here,
    'team/top',
    directive('team/top', {
      ...GRANTS,
      outputs:
        '<output name="waited" type="object" required="true" from="${steps.wait.data}">.</output>' +
        '<output name="all" type="object" required="true" from="${steps.collect.data}">.</output>' +
        '<output name="children" type="object" required="true" from="${steps.list.data}">.</output>' +
        '<output name="log" type="string" required="true" from="${steps.read.data.content}">.</output>',
      steps: [
        `<step name="start">${child('team/job', 'good', 'async="true"')}${child('team/job', 'bad', 'async="true"')}</step>`,
        `<step name="wait">${operation('wait_threads', '<param name="thread_ids" type="array">${steps.start.data}</param>')}</step>`,
        `<step name="collect">${operation('aggregate_results')}</step>`,
        `<step name="list">${operation('list_children')}</step>`,
        `<step name="read">${operation('read_transcript', '<param name="thread_id">${steps.list.data.threads.0.thread_id}</param>')}</step>`,
      ].join(''),
    }),
  );
  await here.sign();
  const { result } = await execute(here, 'team/top');
  expect(result).toMatchObject({
    success: true,
    outputs: {
      waited: { success: false, timed_out: false },
      all: { total: 2, completed: 1, failed: 1 },
      children: { total: 2 },
    },
  });
  expect(result.outputs?.['all']).toMatchObject({
    results: expect.arrayContaining([
      expect.objectContaining({ status: 'completed', outputs: { passed: 'good' } }),
      expect.objectContaining({ status: 'error' }),
    ]),
  });
  expect(result.outputs?.['log']).toContain('thread_finished');
  expect(await eventsOf(here, result.thread_id, 'child_thread_started')).toHaveLength(2);
  expect(await eventsOf(here, result.thread_id, 'child_thread_finished')).toHaveLength(2);
});

test('a thread acts only on threads below it', async () => {
  const here = await lab();
  const other = await here.job('other');
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-other')));
  for (const name of [
    'cancel_thread',
    'kill_thread',
    'get_status',
    'wait_threads',
    'chain_search',
  ]) {
    put(
      here,
      'team/top',
      directive('team/top', {
        ...GRANTS,
        steps: `<step name="one">${operation(
          name,
          `<param name="thread_id">${other.thread_id}</param><param name="query">x</param>`,
        )}</step>`,
      }),
    );
    await here.sign();
    const { result } = await execute(here, 'team/top');
    expect(`${name}: ${result.error?.message}`).toContain('not_descendant');
  }
  expect((await here.record(other.thread_id)).status).toBe('running');
  here.openGate('all');
  await here.rye.children.wait([other.thread_id]);
});

test('a thread cancels and kills what it started, and finds words in a chain', async () => {
  const here = await lab();
  put(
    here,
    'team/top',
    directive('team/top', {
      ...GRANTS,
      outputs:
        '<output name="end" type="object" required="true" from="${steps.wait.data}">.</output>' +
        '<output name="found" type="object" required="true" from="${steps.search.data}">.</output>' +
        '<output name="chain" type="object" required="true" from="${steps.chain.data}">.</output>',
      steps: [
        `<step name="start">${child('team/job', 'x', 'async="true"')}${child('team/job', 'y', 'async="true"')}</step>`,
        `<step name="cancel">${operation('cancel_thread', '<param name="thread_id">${steps.start.data.0.thread_id}</param><param name="reason">no more</param>')}</step>`,
        `<step name="kill">${operation('kill_thread', '<param name="thread_id">${steps.start.data.1.thread_id}</param>')}</step>`,
        `<step name="wait">${operation('wait_threads')}</step>`,
        `<step name="search">${operation('chain_search', '<param name="thread_id">${steps.start.data.1.thread_id}</param><param name="query">cancel+ed</param><param name="search_type">regex</param>')}</step>`,
        `<step name="chain">${operation('get_chain', '<param name="thread_id">${steps.start.data.0.thread_id}</param>')}</step>`,
      ].join(''),
    }),
  );
  await here.sign();
  const { result } = await execute(here, 'team/top');
  expect(result.error).toBeUndefined();
  expect(result).toMatchObject({
    success: true,
    outputs: {
      end: { threads: [{ status: 'cancelled' }, { status: 'cancelled' }] },
      chain: { chain_length: 1 },
    },
  });
});
