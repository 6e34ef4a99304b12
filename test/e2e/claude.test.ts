import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  calls,
  reply,
  startWireServer,
  text,
  toolUse,
  type WireBlock,
  type WireScript,
} from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEY = 'sk-ant-secret-of-this-test';

async function serve(script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return { server, env: { ANTHROPIC_API_KEY: KEY, ANTHROPIC_BASE_URL: server.url } };
}

/** Everything that a thread left on disk, as one text. */
function written({ paths }: { paths: Record<string, string> }): string {
  return [
    `${paths['thread']}/thread.json`,
    `${paths['thread']}/capabilities.md`,
    paths['transcript'],
    paths['knowledge'],
  ]
    .map((file) => readFileSync(String(file), 'utf8'))
    .join('\n');
}

async function runHello(
  here: Workspace,
  env: Readonly<Record<string, string>>,
  more: readonly string[] = [],
) {
  return (await here.json(['run', 'hello', '--model', 'general', '--input', 'who=Ada', ...more], {
    env,
  })) as {
    success: boolean;
    status: string;
    outputs?: unknown;
    error?: { code: string; message: string };
    cost: Record<string, number>;
    paths: Record<string, string>;
    thread_id: string;
  };
}

test('with a key in the environment the same directive talks to Claude and returns the same outputs', async () => {
  const here = await workspace();
  const literal = await runHello(here, {});
  const { server, env } = await serve([
    {
      ...calls(toolUse('rye_core_greet', { who: 'Ada' }, 'toolu_1')),
      usage: { input_tokens: 1000, output_tokens: 20, cache_creation_input_tokens: 500 },
    },
    {
      ...calls(toolUse('rye_directive_return', { greeting: 'Hello, Ada!' }, 'toolu_2')),
      usage: { input_tokens: 100, output_tokens: 10, cache_read_input_tokens: 1500 },
    },
  ]);
  const result = await runHello(here, env);
  expect(result.outputs).toEqual(literal.outputs);
  expect(result).toMatchObject({ success: true, status: 'completed' });
  expect(result.cost).toMatchObject({
    turns: 2,
    input_tokens: 1100,
    output_tokens: 30,
    cache_read_tokens: 1500,
    cache_write_tokens: 500,
  });
  expect(result.cost['spend']).toBeGreaterThan(0);

  const [first, second] = server.requests.map(({ body }) => body);
  const golden = path.resolve(import.meta.dirname, '../golden/wire/hello.json');
  expect([first, second]).toEqual(JSON.parse(readFileSync(golden, 'utf8')));
  expect(server.requests.every(({ headers }) => JSON.stringify(headers).includes(KEY))).toBe(true);
  expect(written(result)).not.toContain(KEY);
  expect((await here.rye(['verify', 'thread', result.thread_id])).code).toBe(0);
});

test('a recording replays without a network and gives the same outputs', async () => {
  const here = await workspace();
  const { env } = await serve([
    calls(toolUse('rye_core_greet', { who: 'Ada' })),
    calls(toolUse('rye_directive_return', { greeting: 'Hello, Ada!' })),
  ]);
  const tape = path.join(here.project, 'hello.tape.jsonl');
  const recorded = await runHello(here, env, ['--record', tape]);
  expect(readFileSync(tape, 'utf8')).not.toContain(KEY);
  const replayed = await runHello(here, {}, ['--replay', tape]);
  expect(replayed.outputs).toEqual(recorded.outputs);
  expect(replayed).toMatchObject({ success: true, status: 'completed' });
});

test('a call that the directive does not permit is refused, and the refusal is in the log', async () => {
  const here = await workspace();
  const { server, env } = await serve([
    calls(toolUse('rye_bash', { command: 'touch stolen' })),
    calls(toolUse('rye_directive_return', { greeting: 'no' })),
  ]);
  const result = await runHello(here, env);
  expect(result.success).toBe(true);
  expect(JSON.stringify(server.requests[1]?.body)).toContain('Blocked: ');
  expect(written(result)).toContain('"outcome":"blocked"');
  expect(
    (await here.rye(['execute', 'tool', 'rye/file-system/ls', '--param', 'path=.'])).stdout,
  ).not.toContain('stolen');
});

test('an overloaded provider is asked again; one that refuses the key is not', async () => {
  const here = await workspace();
  const busy = await serve([
    {
      status: 529,
      error: { type: 'overloaded_error', message: 'Overloaded' },
      headers: { 'retry-after': '0' },
    },
    calls(toolUse('rye_directive_return', { greeting: 'Hello' })),
  ]);
  expect(await runHello(here, busy.env)).toMatchObject({ success: true });
  const closed = await serve([
    { status: 401, error: { type: 'authentication_error', message: 'bad key' } },
  ]);
  const { code, stdout } = await here.rye(['--json', 'run', 'hello', '--model', 'general'], {
    env: closed.env,
  });
  expect(code).toBe(7);
  expect(JSON.parse(stdout)).toMatchObject({
    success: false,
    status: 'error',
    error: { code: 'provider_auth' },
  });
  expect(closed.server.requests).toHaveLength(1);
});

test('the spend cap is a promise: the call that could break it is not made', async () => {
  const here = await workspace();
  const { server, env } = await serve([reply('never asked')]);
  const { code, stdout } = await here.rye(
    ['--json', 'run', 'hello', '--model', 'general', '--limit', 'spend=0.000001'],
    {
      env,
    },
  );
  expect(code).toBe(5);
  expect(JSON.parse(stdout)).toMatchObject({
    status: 'error',
    error: { code: 'limit_spend' },
    cost: { spend: 0 },
  });
  expect(server.requests).toHaveLength(0);
});

test('search finds a phrase that only a tool result contained', async () => {
  const here = await workspace();
  const { env } = await serve([
    calls(toolUse('rye_core_greet', { who: 'xylophonist-4711' })),
    calls(toolUse('rye_directive_return', { greeting: 'done' })),
  ]);
  const { thread_id: id } = await runHello(here, env);
  const { results } = await here.json(['search', 'knowledge', '"Hello, xylophonist-4711!"']);
  expect(results).toEqual([expect.objectContaining({ id: `agent/threads/hello/${id}` })]);
});

test('the project report comes out the same through Claude as through its explicit steps', async () => {
  const here = await workspace();
  mkdirSync(path.join(here.project, 'data'));
  writeFileSync(path.join(here.project, 'data', 'readme.md'), '# Data\n\nTODO: more\n');
  writeFileSync(path.join(here.project, 'data', 'list.csv'), 'a,b\n1,2\n3,4\n');
  const args = ['run', 'rye/core/project_report', '--input', 'path=data'];
  const literal = (await here.json(args)) as { outputs: Record<string, unknown> };
  expect(literal.outputs).toMatchObject({ files: 2, lines: 6, todo_count: 1 });

  const { server, env } = await serve((request) => {
    const results = request.body.messages.flatMap(({ content }) =>
      typeof content === 'string' ? [] : content.filter(({ type }) => type === 'tool_result'),
    );
    const survey = (): Record<string, unknown> =>
      JSON.parse(textIn(results[2])) as Record<string, unknown>;
    const steps = [
      () => toolUse('rye_file_system_glob', { path: 'data', pattern: '**' }),
      () => toolUse('rye_file_system_grep', { path: 'data', pattern: 'TODO|FIXME' }),
      () => toolUse('rye_core_survey', { path: 'data' }),
      () => toolUse('rye_file_system_read', { path: survey()['lead'] }),
      () =>
        toolUse('rye_file_system_write', {
          path: '.ai/reports/project_report.md',
          content: `# Data\n\n${String(survey()['files'])} files.\n`,
        }),
      () =>
        toolUse('rye_directive_return', {
          report_path: '.ai/reports/project_report.md',
          files: survey()['files'],
          lines: survey()['lines'],
          todo_count: textIn(results[1]).match(/TODO/g)?.length,
          largest: survey()['largest'],
        }),
    ];
    return calls((steps[results.length] ?? (() => text('too many turns')))());
  });
  const result = (await here.json([...args, '--model', 'general'], { env })) as {
    outputs: unknown;
    success: boolean;
  };
  expect(result.outputs).toEqual(literal.outputs);
  expect(readFileSync(path.join(here.project, '.ai/reports/project_report.md'), 'utf8')).toContain(
    '2 files.',
  );
  expect(server.requests).toHaveLength(6);
  const prefixes = server.requests.map(({ body }) => JSON.stringify([body.system, body.tools]));
  expect(new Set(prefixes).size).toBe(1); // byte-identical, so the provider's cache stays warm
});

/** Returns the text of a tool result on the wire. */
function textIn(block: WireBlock | undefined): string {
  const { content } = block as unknown as { content: readonly { readonly text: string }[] };
  return content.map((part) => part.text).join('');
}
