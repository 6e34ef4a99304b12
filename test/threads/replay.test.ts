import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type DirectiveParts, directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import {
  calls,
  reply,
  text,
  toolUse,
  type WireBody,
  type WireScript,
} from '../helpers/wire-server.ts';
import { desk, LOOK, THREAD } from './steering-desk.ts';

const WRITES = calls(toolUse('rye_file_system_write', { path: 'a.txt', content: 'one\n' }, 'w1'));
const WRITE = '<execute><tool>rye/file-system/write</tool></execute>';
const RULE = '---\ncondition: FORBIDDEN\n---\nDo not say so.\n';

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(async () => await made.remove());
  return made;
}

/** A thread that answers a word and writes a file, under the current permissions and rules. */
async function recorded(here: Lab, permissions = WRITE): Promise<string> {
  await here.model([
    calls(
      text('This is FORBIDDEN.'),
      toolUse('rye_file_system_write', { path: 'a.txt', content: 'one\n' }, 'toolu_1'),
    ),
    reply('Done.'),
    reply('Done again.'),
  ]);
  here.signed('directives/job.md', directive('job', { permissions }));
  const { thread_id, status } = await here.run('job');
  expect(status).toBe('completed');
  return thread_id;
}

async function replay(here: Lab, id: string) {
  return await here.rye().trees.replay(id);
}

it('shows where a rule of today would cut the recorded answer', async () => {
  const here = await lab();
  const id = await recorded(here);
  expect(await replay(here, id)).toMatchObject({ difference: null, answers: 2 });
  here.signed('rules/no-word.md', RULE);
  const { difference } = await replay(here, id);
  expect(difference).toMatchObject({
    recorded: { kind: 'answer', text: 'This is FORBIDDEN.' },
    replayed: { kind: 'rules', rules: ['no-word'] },
  });
});

it('cuts again what a rule cut, and shows that the rule is gone', async () => {
  const here = await lab();
  const file = here.signed('rules/no-word.md', RULE);
  const id = await recorded(here);
  const events = await here.events(id);
  expect(events.filter(({ event_type }) => event_type === 'rule_injection')).toHaveLength(1);
  expect(await replay(here, id)).toMatchObject({ difference: null });
  here.signed('rules/no-word.md', RULE.replace('FORBIDDEN', 'something else'));
  await here.sign('rule', 'no-word');
  expect(readFileSync(file, 'utf8')).toContain('something else');
  expect((await replay(here, id)).difference).toMatchObject({ recorded: { kind: 'rules' } });
});

it('judges each recorded call by the permissions and hooks of today', async () => {
  const here = await lab();
  const id = await recorded(here);
  const steps = (await replay(here, id)).matched;
  here.signed(
    'config/agent/hooks.yaml',
    'hooks:\n  - id: no_notes\n    event: tool_gate\n    condition: {path: input.path, op: eq, value: a.txt}\n    action: {control: fail, error: not there}\n',
  );
  const gated = await replay(here, id);
  expect(gated.difference).toMatchObject({
    path: 'result.outcome',
    recorded: 'ok',
    replayed: 'blocked',
  });
  expect(gated.matched).toBeLessThan(steps);
  here.signed('config/agent/hooks.yaml', 'hooks: []\n');
  here.signed('directives/job.md', directive('job', { permissions: '' }));
  // the model is offered one tool less, which is the first thing that differs
  expect((await replay(here, id)).difference).toMatchObject({ path: 'system.tools', step: 0 });
});

it('gives the same report each time, even if the files have changed', async () => {
  const here = await lab();
  const id = await recorded(here);
  const first = await replay(here, id);
  writeFileSync(path.join(here.project, 'a.txt'), 'of another\n');
  for (let again = 0; again < 3; again += 1) expect(await replay(here, id)).toEqual(first);
  expect(readFileSync(path.join(here.project, 'a.txt'), 'utf8')).toBe('of another\n');
});

it('refuses an edited recording', async () => {
  const here = await lab();
  const id = await recorded(here);
  const file = here.path(`state/threads/${id}/transcript.jsonl`);
  writeFileSync(file, readFileSync(file, 'utf8').replace('Done.', 'Gone.'));
  await expect(replay(here, id)).rejects.toMatchObject({ code: 'transcript_tampered' });
});

it('is a failure on the command line only where that is asked for', async () => {
  const here = await lab();
  const id = await recorded(here);
  const run = async (...args: readonly string[]) =>
    await runCli(['threads', 'replay', id, ...args], {
      cwd: here.project,
      env: { HOME: here.home },
    });
  expect(await run('--verify')).toMatchObject({ code: 0 });
  expect(await run('--run', '2')).toMatchObject({ code: 2 });
  here.signed('directives/job.md', directive('job', { permissions: WRITE, body: 'Other work.' }));
  const told = await run();
  expect(told).toMatchObject({ code: 0 });
  expect(told.stdout).toMatch(/first difference at step \d+, entry \S+: user\.text/);
  const verified = await run('--verify', '--json');
  expect(verified.code).toBe(1);
  expect(JSON.parse(verified.stdout)).toMatchObject({
    success: false,
    same: false,
    thread_id: id,
    difference: { path: 'user.text' },
  });
  expect(await run('--from', 'zzz')).toMatchObject({ code: 6 });
});

/** The text of a request's conversation. */
function wordsOf({ messages }: WireBody): string {
  return JSON.stringify(messages);
}

const CHILD = { item_type: 'directive', item_id: 'child', parameters: {} };
const SCHEMA = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};

interface Scene {
  readonly script: WireScript;
  readonly parts?: DirectiveParts;
  readonly files?: Readonly<Record<string, string>>;
  readonly request?: Parameters<Lab['run']>[1];
  /** The events that the recording must have for the scene to be the intended one. */
  readonly shows: RegExp;
  readonly status?: string;
}

const SCENES: Readonly<Record<string, Scene>> = {
  'children, two at once and one in the background': {
    script: ({ body }) => {
      const spoken = wordsOf(body);
      if (spoken.includes('Be a child.')) return reply('A word of the child.');
      if (!spoken.includes('tool_result')) {
        return calls(toolUse('rye_execute', CHILD, 'c1'), toolUse('rye_execute', CHILD, 'c2'));
      }
      if (!spoken.includes('"c3"')) {
        return calls(toolUse('rye_execute', { ...CHILD, async: true }, 'c3'));
      }
      if (!spoken.includes('"c4"')) {
        return calls(
          toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' }, 'c4'),
        );
      }
      return reply('All heard.');
    },
    parts: {
      permissions:
        '<execute><directive>child</directive><tool>rye/agent/threads/orchestrator</tool></execute>',
      limits: 'turns="9" spend="1.00" spawns="5" depth="3"',
    },
    files: { 'directives/child.md': directive('child', { body: 'Be a child.' }) },
    shows: /child_thread_finished[^]*child_thread_finished[^]*A word of the child/,
  },
  'a result that had to be corrected until it matched its schema': {
    script: ({ index }) =>
      [reply('Seven.'), reply('{"n": "seven"}'), reply('{"n": 7}')][index] ?? reply('{"n": 7}'),
    request: { behavior: { schema: SCHEMA } },
    shows: /"outputs":\{"n":7\}/,
  },
  'rules that cut two answers, one of them with a slow expression': {
    script: ({ index }) =>
      [reply('This is FORBIDDEN.'), reply('This is foobaz.'), reply('This is fine.')][index] ??
      reply('More.'),
    files: {
      'rules/no-word.md': RULE,
      'rules/slow.md': "---\ncondition: 'foo(?!bar)'\nengine: js\n---\nNot that.\n",
    },
    shows: /rule_injection[^]*rule_injection/,
  },
  'failures of a provider, and the model that it fell back on': {
    script: ({ body, index }) => {
      if (index === 0) return { status: 529, error: { type: 'overloaded_error', message: 'no' } };
      if (body.model === 'claude-haiku-5-5') {
        return { status: 404, error: { type: 'not_found_error', message: 'no such model' } };
      }
      return reply('Done.');
    },
    parts: {
      metadata: '<model id="claude-haiku-5-5" provider="anthropic" fallback="claude-sonnet-5" />',
    },
    shows: /retry_scheduled[^]*model_change/,
  },
  'a provider that failed for good': {
    script: ({ index }) =>
      index === 0
        ? calls(toolUse('rye_file_system_write', { path: 'b.txt', content: 'b' }, 'w1'))
        : { status: 401, error: { type: 'authentication_error', message: 'no' } },
    parts: { permissions: WRITE },
    shows: /provider_auth/,
    status: 'error',
  },
};

it.each(Object.entries(SCENES))('plays %s as it was, and does nothing', async (_name, scene) => {
  const here = await lab();
  const server = await here.model(scene.script);
  for (const [file, content] of Object.entries(scene.files ?? {})) here.signed(file, content);
  here.signed('directives/job.md', directive('job', scene.parts));
  const { thread_id, status } = await here.run('job', scene.request);
  expect(status).toBe(scene.status ?? 'completed');
  expect(JSON.stringify(await here.events(thread_id))).toMatch(scene.shows);
  const { threads } = here.rye();
  const before = await threads.list({});
  const requests = server.requests.length;

  const report = await replay(here, thread_id);
  expect(report).toMatchObject({ difference: null, matched: report.steps });
  expect(report.steps).toBeGreaterThan(1);
  expect(await replay(here, thread_id)).toEqual(report);
  expect(server.requests).toHaveLength(requests);
  expect(await threads.list({})).toEqual(before);
});

it('plays messages of people and other threads at the turns at which they were heard', async () => {
  const here = await desk([
    async ({ rye, fromThread }) => {
      await rye.deliveries.send(THREAD, 'Use metric units.');
      await fromThread('A word of another thread.');
      return LOOK;
    },
    LOOK,
    async ({ rye }) => {
      await rye.deliveries.send(THREAD, 'And a summary.', { mode: 'idle' });
      return reply('Metric.');
    },
    reply('Heard.'),
    reply('Summary.'),
    reply('Nothing more.'),
  ]);
  expect(await here.run()).toMatchObject({ status: 'completed' });
  const events = JSON.stringify(await here.events());
  expect(events).toMatch(/metric units[^]*a summary[^]*A word of another thread/);
  const { trees, deliveries } = here.rye;
  const states = await deliveries.list(THREAD);
  const asked = here.server.requests.length;
  const report = await trees.replay(THREAD);
  expect(report).toMatchObject({ difference: null, matched: report.steps });
  expect(await trees.replay(THREAD)).toEqual(report);
  expect(await deliveries.list(THREAD)).toEqual(states);
  expect(here.server.requests).toHaveLength(asked);
});

it('plays each run of a thread that was suspended and resumed', async () => {
  const here = await lab();
  await here.model(({ index }) => (index === 0 ? WRITES : reply('Done.')));
  here.signed(
    'config/agent/hooks.yaml',
    'hooks:\n  - id: pause\n    event: after_step\n    condition: {path: turn, op: eq, value: 1}\n    action: {control: suspend, reason: look}\n',
  );
  here.signed('directives/job.md', directive('job', { permissions: WRITE }));
  const paused = await here.run('job');
  expect(paused.status).toBe('suspended');
  const { thread_id: id } = paused;
  const first = await replay(here, id);
  expect(first).toMatchObject({ difference: null, answers: 1 });
  await here.rye().recovery.resume({ threadId: id, message: 'Looked at.' });
  const whole = await replay(here, id);
  expect(whole).toMatchObject({ runs: [1, 2], difference: null, answers: 2 });
  expect(whole.matched).toBe(whole.steps);
  expect(await here.rye().trees.replay(id, { run: 1 })).toEqual(first);
  // an entry of both runs: the first one, up to where it was suspended
  const { rows } = await here.rye().trees.view(id, { filter: 'all' });
  const from = rows.find(({ kind }) => kind === 'user')?.entry.id ?? '';
  expect(await here.rye().trees.replay(id, { from })).toMatchObject({
    difference: null,
    steps: first.steps - 2,
  });
});

it('plays what the run did, regardless of its later entries and the head', async () => {
  const here = await lab();
  const id = await recorded(here);
  const { trees } = here.rye();
  const { rows } = await trees.view(id);
  const { steps } = await replay(here, id);
  await trees.branch(id, { at: (await trees.view(id)).leaf_id ?? '', message: 'And now?' });
  expect(await replay(here, id)).toMatchObject({ difference: null, steps, matched: steps });
  const { thread_id: copy } = await trees.extract(id, { at: rows[1]?.entry.id ?? '' });
  expect(await replay(here, copy)).toMatchObject({ difference: null, steps: 0 });
  await trees.branch(id, { at: rows[1]?.entry.id ?? '', message: 'Another way.' });
  expect(await replay(here, id)).toMatchObject({
    difference: null,
    answers: 2,
    steps,
    matched: steps,
  });
});

describe('a thread of several runs', () => {
  async function resumed(here: Lab): Promise<string> {
    await here.model([
      WRITES,
      reply('One.'),
      calls(toolUse('rye_file_system_write', { path: 'b.txt', content: 'two\n' }, 'w2')),
      reply('Two.'),
      calls(
        text('Three is FORBIDDEN.'),
        toolUse('rye_file_system_write', { path: 'c.txt', content: 'three\n' }, 'w3'),
      ),
      reply('Three.'),
    ]);
    here.signed('directives/job.md', directive('job', { permissions: WRITE }));
    const { thread_id: id } = await here.run('job');
    const { recovery, trees } = here.rye();
    await recovery.resume({ threadId: id, message: 'And two.' });
    await trees.branch(id, { at: 'root', message: 'Another way.' });
    await recovery.resume({ threadId: id });
    return id;
  }

  it('is replayed run after run, each from the conversation that it began with', async () => {
    const here = await lab();
    const id = await resumed(here);
    const whole = await replay(here, id);
    expect(whole).toMatchObject({ runs: [1, 2, 3], difference: null, answers: 6 });
    expect(whole.matched).toBe(whole.steps);
    const { trees } = here.rye();
    const each = [];
    for (const run of [1, 2, 3]) each.push(await trees.replay(id, { run }));
    expect(each).toMatchObject([
      { runs: [1], answers: 2, difference: null },
      { runs: [2], answers: 2, difference: null },
      { runs: [3], answers: 2, difference: null },
    ]);
    expect(each.reduce((sum, { matched }) => sum + matched, 0)).toBe(whole.matched);
    await expect(trees.replay(id, { run: 4 })).rejects.toMatchObject({ code: 'usage' });
  });

  it('is replayed from the earlier entry at which a later run began', async () => {
    const here = await lab();
    const server = await here.model([WRITES, reply('One.'), reply('Two.')]);
    here.signed('directives/job.md', directive('job', { permissions: WRITE }));
    const { thread_id: id } = await here.run('job');
    const { recovery, trees } = here.rye();
    const { rows } = await trees.view(id);
    const result = rows.find(({ kind }) => kind === 'tool_result')?.entry.id ?? '';
    await trees.branch(id, { at: result });
    expect(await recovery.resume({ threadId: id })).toMatchObject({ result: 'Two.' });
    // the model answers the result: no message asks it to continue
    const asked = server.requests.map(({ body }) => JSON.stringify(body.messages));
    expect(asked.at(-1)).toBe(asked[1]);
    expect(await trees.replay(id, { run: 1 })).toMatchObject({ answers: 2, difference: null });
    const second = await trees.replay(id, { run: 2 });
    expect(second).toMatchObject({ answers: 1, difference: null });
    expect(second.matched).toBe(second.steps);
    expect(second.steps).toBeGreaterThan(1);
  });

  it('shows the run in which a rule of today would cut the answer', async () => {
    const here = await lab();
    const id = await resumed(here);
    here.signed('rules/no-word.md', RULE);
    expect(await replay(here, id)).toMatchObject({
      runs: [1, 2, 3],
      difference: { recorded: { kind: 'answer', text: 'Three is FORBIDDEN.' } },
    });
    expect((await here.rye().trees.replay(id, { run: 2 })).difference).toBeNull();
  });

  it('is replayed after an entry within the run of that entry', async () => {
    const here = await lab();
    const id = await resumed(here);
    const { trees } = here.rye();
    const { rows } = await trees.view(id, { filter: 'all' });
    const results = rows.flatMap(({ kind, entry }) => (kind === 'tool_result' ? [entry] : []));
    const from = results.toSorted((one, other) => one.seq - other.seq)[1]?.id ?? '';
    const report = await trees.replay(id, { from });
    expect(report).toMatchObject({ runs: [2], answers: 1, difference: null });
  });
});
