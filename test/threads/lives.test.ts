import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import {
  calls,
  reply,
  toolUse,
  type WireAnswer,
  type WireRequest,
  type WireScript,
} from '../helpers/wire-server.ts';

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
});

const LIST = '<execute><tool>rye/file-system/ls</tool></execute>';
const list = (id: string): WireAnswer => calls(toolUse('rye_file_system_ls', {}, id));
const messages = ({ body }: WireRequest): string => JSON.stringify(body.messages);
const hooks = (...parts: readonly string[]): string =>
  `hooks:\n${parts.map((part) => `  - ${part}\n`).join('')}`;
const inject = (id: string, event: string, text: string, more = ''): string =>
  `{ id: ${id}, event: ${event}, ${more}action: { inject: ${JSON.stringify(text)} } }`;

interface Ran {
  readonly result: ThreadResult;
  readonly requests: readonly WireRequest[];
  readonly emitted: readonly unknown[];
}

/** Runs the directive `work` on this script, with the hooks that the project has. */
async function ran(
  script: WireScript,
  parts: Parameters<typeof directive>[1] = {},
  request: object = {},
): Promise<Ran> {
  const { requests } = await lab.model(script);
  lab.signed('directives/work.md', directive('work', parts));
  const result = await lab.run('work', request);
  const events = await lab.events(result.thread_id);
  const emitted = events.flatMap(({ event_type, payload }) => {
    const { custom_type: type, data } = payload as { custom_type?: string; data?: unknown };
    return event_type === 'custom' && type === 'told' ? [data] : [];
  });
  return { result, requests, emitted };
}

const signedHooks = (...parts: readonly string[]): void =>
  void lab.signed('config/agent/hooks.yaml', hooks(...parts));
const threadJson = (id: string): Record<string, unknown> =>
  JSON.parse(lab.read(`state/threads/${id}/thread.json`)) as Record<string, unknown>;

describe('a thread', () => {
  it('runs, and is then completed, an error, cancelled or continued', async () => {
    const seen: (string | undefined)[] = [];
    const statusNow = async (): Promise<void> => {
      const [row] = await lab.rye().threads.list({ active: true });
      seen.push(row?.status);
    };
    const completed = await ran(async () => (await statusNow(), reply('Done.')));
    const failed = await ran([{ status: 401 }]);
    const stop = new AbortController();
    const cancelled = await ran(() => (stop.abort(), 'hang'), {}, { signal: stop.signal });
    const settings = 'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n';
    lab.signed('config/agent/coordination.yaml', settings);
    const usage = { input_tokens: 1000, output_tokens: 10 };
    const handed = await ran(
      ({ index }) => (index === 0 ? { ...list('a'), usage } : reply('Done.')),
      { permissions: LIST },
    );
    expect(seen).toEqual(['running']);
    expect([completed, failed, cancelled, handed].map(({ result }) => result.status)).toEqual([
      'completed',
      'error',
      'cancelled',
      'continued',
    ]);
  });

  it('is in the registry with its directive, its status and its parent', async () => {
    lab.signed('directives/child.md', directive('child'));
    const permissions = '<execute><directive>child</directive></execute>';
    const call = toolUse('rye_execute', { item_type: 'directive', item_id: 'child' }, 'a');
    const { result } = await ran([calls(call), reply('Child.'), reply('Done.')], { permissions });
    const rows = await lab.rye().threads.list({});
    const facts = rows.map(({ thread_id: id, directive: of, status, parent_id }) => [
      id,
      of,
      status,
      parent_id,
    ]);
    expect(facts).toContainEqual([result.thread_id, 'work', 'completed', null]);
    expect(facts).toContainEqual([result.children[0], 'child', 'completed', result.thread_id]);
  });

  it('that another one starts has its parent, one level less, and no more than its parent may', async () => {
    lab.signed(
      'directives/child.md',
      directive('child', { permissions: LIST, limits: 'turns="99"' }),
    );
    const permissions = `${LIST}<execute><directive>child</directive></execute>`;
    const call = toolUse('rye_execute', { item_type: 'directive', item_id: 'child' }, 'a');
    const { result } = await ran([calls(call), reply('Child.'), reply('Done.')], { permissions });
    const [parent, child] = [result.thread_id, result.children[0] ?? ''].map(threadJson);
    const { turns, depth } = (parent?.['limits'] ?? {}) as Record<string, number>;
    expect(child).toMatchObject({
      parent_thread_id: result.thread_id,
      capabilities: ['rye.execute.tool.rye.file-system.ls'],
      limits: { turns, depth: Number(depth) - 1 },
    });
  });

  it('with a parent that does not exist is refused before it starts', async () => {
    lab.signed('directives/work.md', directive('work'));
    const env = { ...lab.env, HOME: lab.home };
    const { code, stderr } = await runCli(['run', 'work', '--parent', 'nope'], {
      cwd: lab.project,
      env,
    });
    expect([code, stderr]).toEqual([6, expect.stringContaining('nope')]);
    expect(await lab.rye().threads.list({})).toEqual([]);
  });

  it('has a document with its id, directive, status, model, cost, limits and capabilities', async () => {
    const { result } = await ran([reply('Done.')], { permissions: LIST });
    expect(threadJson(result.thread_id)).toMatchObject({
      thread_id: result.thread_id,
      directive: 'work',
      status: 'completed',
      model: expect.any(String) as string,
      created_at: expect.stringMatching(/^2\d{3}-.+Z$/) as string,
      updated_at: expect.stringMatching(/^2\d{3}-.+Z$/) as string,
      limits: { turns: 6, spend: 0.1 },
      capabilities: ['rye.execute.tool.rye.file-system.ls'],
      cost: { turns: 1 },
      _signature: expect.anything() as unknown,
    });
  });

  it('leaves a signed list of its capabilities, and a signed entry that refers to it', async () => {
    const { result } = await ran([reply('The quokka.')], { permissions: LIST });
    const { thread_id: id } = result;
    const granted = lab.read(`state/threads/${id}/capabilities.md`);
    expect(granted).toMatch(/^<!-- rye:signed:/);
    expect(granted).toContain('rye.execute.tool.rye.file-system.ls');
    const entry = lab.read(`knowledge/agent/threads/work/${id}.md`);
    expect(entry).toMatch(/^<!-- rye:signed:/);
    expect(entry).toMatch(/capabilities_ref: .*capabilities\.md/);
    expect(entry).toContain('The quokka.');
    const { checks } = await lab.rye().threads.verify(id);
    expect(checks.filter(({ ok }) => !ok)).toEqual([]);
    expect(checks.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['capabilities', 'knowledge']),
    );
  });

  it('has the pieces of its answers in its log', async () => {
    const steps = [{ kind: 'text', chunks: ['All ', 'done.'] }] as const;
    const { result } = await ran([{ steps }]);
    const events = await lab.events(result.thread_id);
    const pieces = events.flatMap(({ event_type, payload }) =>
      event_type === 'token_delta' ? [(payload as { text: string }).text] : [],
    );
    expect(pieces.join('')).toBe('All done.');
  });

  it('frees its budget and stores status, result and cost when it ends', async () => {
    const { result } = await ran([reply('The end.', { input_tokens: 100, output_tokens: 10 })]);
    const { thread } = await lab.rye().threads.show(result.thread_id);
    expect(thread).toMatchObject({ status: 'completed', result: 'The end.', cost: { turns: 1 } });
    expect(thread.cost.spend).toBeGreaterThan(0);
    expect(threadJson(result.thread_id)).toMatchObject({
      status: 'completed',
      cost: { spend: thread.cost.spend },
    });
    expect(await lab.rye().threads.list({ active: true })).toEqual([]);
  });

  it('that is killed in a tool has its answer and one result of each call when it is resumed', async () => {
    lab.sandbox('off');
    const fifo = path.join(lab.project, 'gate');
    execFileSync('mkfifo', [fifo]);
    const { requests, request } = await lab.model([
      calls(
        toolUse('rye_file_system_ls', {}, 'call_a'),
        toolUse('rye_bash', { command: `cat ${fifo}` }, 'call_b'),
      ),
      reply('Done.'),
    ]);
    const permissions = `${LIST}<execute><tool>rye/bash</tool></execute><acknowledge risk="unrestricted">A test.</acknowledge>`;
    lab.signed('directives/work.md', directive('work', { permissions }));
    const running = runCli(['run', 'work', '--thread-id', 't'], {
      cwd: lab.project,
      env: lab.env,
      spawned: true,
    });
    await request(0);
    // opens once the second call reads it
    const gate = await open(fifo, 'w');
    const [thread] = await lab.rye().threads.list();
    process.kill(thread?.pid ?? 0, 'SIGKILL');
    await running;
    await gate.close();
    await lab.rye().recovery.recover({ threadId: 't' });
    const resumed = await lab.rye().recovery.resume({ threadId: 't' });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Done.' });
    const sent = messages(requests[1] as WireRequest);
    for (const id of ['call_a', 'call_b'])
      expect(sent.match(new RegExp(`"tool_use_id":"${id}"`, 'g'))).toHaveLength(1);
    expect(sent).toMatch(/call_b.*interrupted/s);
    expect((await lab.rye().threads.verify('t')).ok).toBe(true);
  });

  it('gives its id to the commands that it runs', async () => {
    lab.sandbox('off');
    const { result, requests } = await ran(
      [
        calls(toolUse('rye_bash', { command: 'echo "of $RYE_PARENT_THREAD_ID"' }, 'a')),
        reply('Done.'),
      ],
      {
        permissions:
          '<execute><tool>rye/bash</tool></execute><acknowledge risk="unrestricted">A test.</acknowledge>',
      },
    );
    expect(messages(requests[1] as WireRequest)).toContain(`of ${result.thread_id}`);
  });
});

describe('a directive', () => {
  it('of the project hides one of the user with its id', async () => {
    lab.signed('~/.ai/directives/work.md', directive('work', { body: 'Of the user.' }));
    lab.signed('~/.ai/directives/mine.md', directive('mine', { body: 'Mine.' }));
    const { requests } = await ran([reply('a'), reply('b')], { body: 'Of the project.' });
    expect(messages(requests[0] as WireRequest)).toContain('Of the project.');
    await lab.run('mine');
    expect(messages(requests[1] as WireRequest)).toContain('Mine.');
  });

  it('sets limits, permissions, model and inputs in its XML', async () => {
    lab.signed(
      'directives/work.md',
      directive('work', {
        permissions: LIST,
        limits: 'turns="3" tokens="5000" spend="0.20"',
        metadata: '<model id="claude-haiku-5-5" provider="anthropic"/>',
        children: '<inputs><input name="n" type="integer" required="true">N.</input></inputs>',
      }),
    );
    await lab.model([]);
    const plan = await lab.rye().threads.plan({ directiveId: 'work', inputs: { n: '4' } });
    expect(plan).toMatchObject({
      limits: { turns: 3, tokens: 5000, spend: 0.2 },
      capabilities: ['rye.execute.tool.rye.file-system.ls'],
      model: { id: 'claude-haiku-5-5' },
      inputs: { n: 4 },
    });
  });

  it('gets its inputs once: a value that looks like a reference stays as it is', async () => {
    const children =
      '<inputs><input name="a" type="string">A.</input><input name="b" type="string">B.</input></inputs>';
    const inputs = { a: 'see {input:b} and ${inputs.b}', b: 'SECOND' };
    const { requests } = await ran(
      [reply('Done.')],
      { children, body: 'Read {input:a}.' },
      { inputs },
    );
    expect(messages(requests[0] as WireRequest)).toContain('Read see {input:b} and ${inputs.b}.');
  });

  it('is resumed without its inputs, which it had before', async () => {
    const children =
      '<inputs><input name="topic" type="string" required="true">T.</input></inputs>';
    const { result, requests } = await ran(
      [reply('First.'), reply('Second.')],
      { children, body: 'About {input:topic}.' },
      { inputs: { topic: 'quokkas' } },
    );
    const resumed = await lab.rye().recovery.resume({ threadId: result.thread_id, message: 'On.' });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Second.' });
    expect(messages(requests[1] as WireRequest)).toContain('About quokkas.');
  });

  it('is the first message, after the text of hooks, and there is no system prompt', async () => {
    signedHooks(inject('before', 'thread_started', 'HOOK TEXT', 'position: before, '));
    const { requests } = await ran([reply('Done.')], { body: 'The whole task.' });
    const { body } = requests[0] as WireRequest;
    expect(body.messages.map(({ role }) => role)).toEqual(['user']);
    expect(JSON.stringify(body.messages)).toMatch(/HOOK TEXT.*<directive name=.*The whole task\./s);
    expect(body.system).toBeUndefined();
  });

  it('inherits the hooks of the directive that it extends', async () => {
    const children =
      '<hooks><hook id="of_base" event="thread_started"><action inject="BASE HOOK"/></hook></hooks>';
    lab.signed('directives/base.md', directive('base', { children, permissions: LIST }));
    const { requests } = await ran([reply('Done.')], { extends: 'base' });
    expect(messages(requests[0] as WireRequest)).toContain('BASE HOOK');
    const plan = await lab.rye().threads.plan({ directiveId: 'work' });
    expect(plan.capabilities).toEqual(['rye.execute.tool.rye.file-system.ls']);
  });

  it('with a hook of its XML acts on its own threads alone', async () => {
    const children =
      '<hooks><hook id="own" event="thread_started"><action inject="OWN HOOK"/></hook></hooks>';
    lab.signed('directives/other.md', directive('other'));
    const { requests } = await ran([reply('a'), reply('b')], { children });
    await lab.run('other');
    expect(requests.map((one) => messages(one).includes('OWN HOOK'))).toEqual([true, false]);
  });

  it('that declares outputs is told what its return lacks, and may return again', async () => {
    signedHooks(
      '{ id: heard, event: directive_return, action: { emit: told, data: { n: "${outputs.n}" } } }',
    );
    const children =
      '<outputs><output name="n" type="integer" required="true">N.</output></outputs>';
    const back = (input: object, id: string) => calls(toolUse('rye_directive_return', input, id));
    const { result, requests, emitted } = await ran([back({}, 'a'), back({ n: 4 }, 'b')], {
      children,
    });
    expect(messages(requests[1] as WireRequest)).toMatch(/missing|required/);
    expect(result).toMatchObject({ status: 'completed', outputs: { n: 4 } });
    expect(emitted).toHaveLength(1);
  });

  it('that uses no tool completes with its text; it is asked once more only if it wants that', async () => {
    const plain = await ran([reply('Text.')], { permissions: LIST });
    expect([plain.requests.length, plain.result.result]).toEqual([1, 'Text.']);
    const nudged = await ran([reply('Text.'), reply('More.')], {
      permissions: LIST,
      metadata: '<behavior nudge="true"/>',
    });
    expect([nudged.requests.length, nudged.result.result]).toEqual([2, 'More.']);
  });

  it('whose model answers with nothing for ever ends as an error', async () => {
    const { result, requests } = await ran(() => ({ steps: [] }));
    expect(result).toMatchObject({ success: false, status: 'error' });
    expect(requests.length).toBeLessThan(6);
  });
});

describe('the tools of a thread', () => {
  it('match its capabilities, with their schemas and flat names, and the primary actions beside them', async () => {
    const permissions =
      '<execute><tool>rye/file-system/read</tool><tool>rye/file-system/ls</tool></execute><fetch>*</fetch>';
    const { requests } = await ran([reply('Done.')], { permissions });
    const tools = requests[0]?.body.tools ?? [];
    const names = tools.map(({ name }) => name);
    expect(names).toEqual(
      expect.arrayContaining(['rye_file_system_read', 'rye_file_system_ls', 'rye_fetch']),
    );
    expect(names).not.toContain('rye_file_system_write');
    expect(tools.find(({ name }) => name === 'rye_file_system_read')?.input_schema).toMatchObject({
      properties: { path: { type: 'string' } },
    });
  });

  it('are described by the constants of their files, which are read and not run', async () => {
    lab.signed(
      'tools/shop/price.py',
      [
        'open("ran", "w")',
        '__version__ = "1.0.0"',
        '__category__ = "shop"',
        '__tool_description__ = "The price of an item."',
        '__traits__ = {"reads_only": True, "network": False, "risk": "safe"}',
        'CONFIG_SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}',
        '',
      ].join('\n'),
    );
    const permissions =
      '<execute><tool>shop/price</tool></execute><acknowledge risk="elevated">A test.</acknowledge>';
    const { requests } = await ran([reply('Done.')], { permissions });
    const tool = requests[0]?.body.tools?.find(({ name }) => name === 'shop_price');
    expect(tool).toMatchObject({
      description: 'The price of an item.',
      input_schema: { properties: { item: { type: 'string' } }, required: ['item'] },
    });
    expect(existsSync(path.join(lab.project, 'ran'))).toBe(false);
  });
});

describe('hooks', () => {
  it('of resolve_extends set the directive to extend, and the first match decides', async () => {
    for (const name of ['one', 'two'])
      lab.signed(`directives/${name}.md`, directive(name, { permissions: LIST }));
    const route = (id: string, when: string, to: string): string =>
      `{ id: ${id}, event: resolve_extends, condition: { path: directive, op: eq, value: ${when} }, action: { set_extends: ${to} } }`;
    signedHooks(
      route('never', 'other', 'two'),
      route('first', 'work', 'one'),
      route('second', 'work', 'two'),
    );
    lab.signed('directives/work.md', directive('work'));
    await lab.model([]);
    const plan = await lab.rye().threads.plan({ directiveId: 'work' });
    expect(plan.chain.map(({ id }) => id)).toEqual(['one', 'work']);
  });

  it('of the user act in every project', async () => {
    lab.signed(
      '~/.ai/config/agent/hooks.yaml',
      hooks(inject('mine', 'thread_started', 'MY HABITS')),
    );
    const { requests } = await ran([reply('Done.')]);
    expect(messages(requests[0] as WireRequest)).toContain('MY HABITS');
  });

  it('after each step and of a limit see their numbers', async () => {
    signedHooks(
      '{ id: step, event: after_step, action: { emit: told, data: { turns: "${cost.turns}", thread: "${thread_id}" } } }',
      '{ id: limit, event: limit, action: { emit: told, data: { code: "${limit_code}", now: "${current_value}", max: "${current_max}" } } }',
    );
    const { result, emitted } = await ran(({ index }) => list(`t${index}`), {
      permissions: LIST,
      limits: 'turns="2" spend="0.10"',
    });
    expect(result.error?.code).toBe('limit_turns');
    const thread = result.thread_id;
    expect(emitted).toEqual([
      { turns: 1, thread },
      { turns: 2, thread },
      { code: 'limit_turns', now: 2, max: 2 },
    ]);
  });

  it('of an error see the error and its class', async () => {
    signedHooks(
      '{ id: error, event: error, action: { emit: told, data: { code: "${error.code}", class: "${classification.category}" } } }',
    );
    const { emitted } = await ran([{ status: 401 }]);
    expect(emitted).toEqual([{ code: 'provider_auth', class: expect.any(String) as string }]);
  });

  it('of a continued thread know the thread before', async () => {
    signedHooks(inject('again', 'thread_continued', 'CONTINUES ${previous_thread_id}.'));
    lab.signed(
      'config/agent/coordination.yaml',
      'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n',
    );
    const usage = { input_tokens: 1000, output_tokens: 10 };
    const { result, requests } = await ran(
      ({ index }) => (index === 0 ? { ...list('a'), usage } : reply('Done.')),
      { permissions: LIST },
    );
    expect(result.status).toBe('continued');
    expect(messages(requests.at(-1) as WireRequest)).toContain(`CONTINUES ${result.thread_id}.`);
  });

  it('fetch directives and execute tools within the capabilities of their thread', async () => {
    signedHooks(
      '{ id: fetches, event: thread_started, action: { primary: fetch, item_type: directive, item_id: other } }',
      '{ id: runs, event: thread_started, action: { primary: execute, item_type: tool, item_id: rye/file-system/ls } }',
    );
    lab.signed('directives/other.md', directive('other', { body: 'OTHER TASK' }));
    const { requests } = await ran([reply('Done.')], {
      permissions: `${LIST}<fetch><directive>other</directive></fetch>`,
    });
    const sent = messages(requests[0] as WireRequest);
    expect(sent).toContain('OTHER TASK');
    expect(sent).toContain('.ai');
  });

  it('have every operator, any, all and not, also on paths that may be missing', async () => {
    const when: readonly (readonly [string, string])[] = [
      ['eq', '{ path: directive, op: eq, value: work }'],
      ['ne', '{ path: directive, op: ne, value: other }'],
      ['gt', '{ path: limits.turns, op: gt, value: 5 }'],
      ['gte', '{ path: limits.turns, op: gte, value: 6 }'],
      ['lt', '{ path: limits.turns, op: lt, value: 7 }'],
      ['lte', '{ path: limits.turns, op: lte, value: 6 }'],
      ['in', '{ path: directive, op: in, value: [work, other] }'],
      ['contains', '{ path: directive, op: contains, value: or }'],
      ['regex', '{ path: directive, op: regex, value: "^w" }'],
      ['exists', '{ path: inputs.n, op: exists }'],
      [
        'any',
        '{ any: [{ path: directive, op: eq, value: x }, { path: inputs.n, op: eq, value: 4 }] }',
      ],
      [
        'all',
        '{ all: [{ path: directive, op: eq, value: work }, { path: inputs.n, op: gt, value: 3 }] }',
      ],
      ['not', '{ not: { path: inputs.missing, op: exists } }'],
    ];
    const wrong: readonly (readonly [string, string])[] = [
      ['missing', '{ path: inputs.missing, op: gt, value: 0 }'],
      ['unlike', '{ path: directive, op: eq, value: other }'],
    ];
    signedHooks(
      ...[...when, ...wrong].map(([name, condition]) =>
        inject(`h_${name}`, 'thread_started', `IS-${name}.`, `condition: ${condition}, `),
      ),
    );
    const children = '<inputs><input name="n" type="integer">N.</input></inputs>';
    const { requests } = await ran([reply('Done.')], { children }, { inputs: { n: 4 } });
    const sent = messages(requests[0] as WireRequest);
    expect(when.filter(([name]) => !sent.includes(`IS-${name}.`))).toEqual([]);
    expect(wrong.filter(([name]) => sent.includes(`IS-${name}.`))).toEqual([]);
  });
});
