import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type ChatTurn, chatCall, chatText, startChatServer } from '../helpers/chat-server.ts';
import { calls, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEY = 'sk-secret-of-this-test';
const reply = (text: string): ChatTurn => ({ steps: chatText(text) });
const does = (name: string, input: unknown, id: string) => ({
  steps: chatCall(0, name, input, id),
});

async function serve(...turns: readonly ChatTurn[]) {
  const server = await startChatServer(turns);
  onTestFinished(() => server.close());
  return { server, env: { OPENAI_API_KEY: KEY, OPENAI_BASE_URL: server.url } };
}

interface Result {
  readonly success: boolean;
  readonly status: string;
  readonly outputs?: unknown;
  readonly result: string;
  readonly error?: { readonly code: string; readonly message: string };
  readonly cost: Record<string, number>;
  readonly paths: Record<string, string>;
  readonly thread_id: string;
}

async function runHello(
  here: Workspace,
  env: Readonly<Record<string, string>>,
  ...more: readonly string[]
): Promise<Result> {
  const args = ['run', 'hello', '--model', 'general', '--input', 'who=Ada', ...more];
  return (await here.json(args, { env })) as unknown as Result;
}

/** A directive that declares no outputs. */
async function count(here: Workspace): Promise<void> {
  const folder = path.join(here.project, '.ai', 'directives');
  mkdirSync(folder, { recursive: true });
  const xml = [
    '<directive name="count" version="1.0.0">',
    '<metadata><description>Count.</description><category></category><author>me</author>',
    '<limits turns="9" spend="1"/><permissions><execute><tool>rye/core/greet</tool></execute></permissions>',
    '</metadata><process/></directive>',
  ];
  writeFileSync(path.join(folder, 'count.md'), ['# Count', '```xml', ...xml, '```', ''].join('\n'));
  await here.rye(['sign', 'directive', 'count']);
}

// Requirement: cache-usage
test('with a key of OpenAI the same directive runs there, and its key stays in the header', async () => {
  const here = await workspace();
  const { server, env } = await serve(
    {
      ...does('rye_core_greet', { who: 'Ada' }, 'call_1'),
      usage: {
        prompt_tokens: 1000,
        completion_tokens: 20,
        prompt_tokens_details: { cached_tokens: 400 },
      },
    },
    does('rye_directive_return', { greeting: 'Hello, Ada!' }, 'call_2'),
  );
  const result = await runHello(here, env);
  expect(result).toMatchObject({ success: true, outputs: { greeting: 'Hello, Ada!' } });
  expect(result.cost).toMatchObject({ turns: 2, input_tokens: 610, cache_read_tokens: 400 });
  expect(result.cost['spend']).toBeGreaterThan(0);
  expect(server.requests.every(({ headers }) => headers.authorization === `Bearer ${KEY}`)).toBe(
    true,
  );
  const log = readFileSync(String(result.paths['transcript']), 'utf8');
  expect(log).not.toContain(KEY);
  expect((await here.rye(['verify', 'thread', result.thread_id])).code).toBe(0);

  const [first, second] = server.requests.map(({ body }) =>
    JSON.stringify(body.messages).slice(0, -1),
  );
  expect(second?.startsWith(String(first))).toBe(true);
  expect(server.requests[0]?.body.tools).toEqual(server.requests[1]?.body.tools);
});

test('a schema is kept: natively from the first request on, and with the result as outputs', async () => {
  const here = await workspace();
  await count(here);
  const schema = path.join(here.project, 'schema.json');
  writeFileSync(
    schema,
    JSON.stringify({
      type: 'object',
      properties: { n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    }),
  );
  const { server, env } = await serve(
    does('rye_core_greet', { who: 'Ada' }, 'call_1'),
    reply('There are four.'),
    reply('{"n": "four"}'),
    reply('{"n": 4}'),
  );
  const result = (await here.json(['run', 'count', '--json-schema', schema], {
    env,
  })) as unknown as Result;
  expect(result).toMatchObject({ success: true, outputs: { n: 4 } });
  expect(server.requests.map(({ body }) => 'response_format' in body)).toEqual([
    true,
    true,
    true,
    true,
  ]);
  expect(JSON.stringify(server.requests[3]?.body)).toContain('must be integer');
});

test('a schema that is none is refused before anything runs', async () => {
  const here = await workspace();
  await count(here);
  const schema = path.join(here.project, 'schema.json');
  const { server, env } = await serve();
  for (const bad of [{ type: 'object', properties: { n: { type: 'whole' } } }, { type: 'array' }]) {
    writeFileSync(schema, JSON.stringify(bad));
    const { code, stdout } = await here.rye(['--json', 'run', 'count', '--json-schema', schema], {
      env,
    });
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({ success: false });
  }
  expect(server.requests).toHaveLength(0);
  expect(await here.json(['threads', 'list'])).toMatchObject({ total: 0 });
});

test('declared outputs are held to a schema on their return', async () => {
  const here = await workspace();
  const schema = path.join(here.project, 'schema.json');
  writeFileSync(
    schema,
    JSON.stringify({ type: 'object', properties: { greeting: { type: 'string', minLength: 12 } } }),
  );
  const { server, env } = await serve(
    does('rye_directive_return', { greeting: 'Hi' }, 'call_1'),
    does('rye_directive_return', { greeting: 'Hello, dear Ada!' }, 'call_2'),
  );
  const result = await runHello(here, env, '--json-schema', schema);
  expect(result).toMatchObject({ success: true, outputs: { greeting: 'Hello, dear Ada!' } });
  expect(JSON.stringify(server.requests[1]?.body)).toContain('Validation error: ');
});

test('a model of another provider takes over when the first fails for good', async () => {
  const here = await workspace();
  const folder = path.join(here.project, '.ai', 'config', 'agent', 'providers');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'openai.yaml'), 'fallback: [anthropic/claude-sonnet-5-5]\n');
  expect((await here.rye(['sign', 'config', 'agent/providers/openai'])).code).toBe(0);
  const { server, env } = await serve({
    status: 401,
    error: { message: 'bad key', code: 'invalid_api_key' },
  });
  const claude = await startWireServer([
    calls(toolUse('rye_directive_return', { greeting: 'Hello' })),
  ]);
  onTestFinished(() => claude.close());
  const result = await runHello(
    here,
    { ...env, ANTHROPIC_API_KEY: KEY, ANTHROPIC_BASE_URL: claude.url },
    '--provider',
    'openai',
  );
  expect(result).toMatchObject({ success: true, outputs: { greeting: 'Hello' } });
  expect(server.requests).toHaveLength(1);
  expect(claude.requests[0]?.body.model).toBe('claude-sonnet-5-5');
  const log = readFileSync(String(result.paths['transcript']), 'utf8');
  expect(log).toContain('"provider":"anthropic","model":"claude-sonnet-5-5"');
});

test('a local server without a key and without tool support is called by text', async () => {
  const here = await workspace();
  const folder = path.join(here.project, '.ai', 'config', 'agent', 'providers');
  mkdirSync(folder, { recursive: true });
  const yaml = [
    'kind: openai',
    'dialect: llamacpp',
    'base_url_env: LOCAL_URL',
    'tiers: { general: plain }',
    'models:',
    '  plain: { context_window: 32000, max_output_tokens: 2000, pricing: { input: 0, output: 0 }, capabilities: [] }',
  ];
  writeFileSync(path.join(folder, 'local.yaml'), `${yaml.join('\n')}\n`);
  await here.rye(['sign', 'config', 'agent/providers/local']);
  const { server } = await serve(
    reply(
      'I greet.\n<tool_call>\n{"name": "rye_core_greet", "arguments": {"who": "Ada"}}\n</tool_call>',
    ),
    reply(
      '```tool_call\n{"name": "rye_directive_return", "arguments": {"greeting": "Hello, Ada!"}}\n```',
    ),
  );
  const result = await runHello(here, { LOCAL_URL: server.url }, '--provider', 'local');
  expect(result).toMatchObject({
    success: true,
    outputs: { greeting: 'Hello, Ada!' },
    cost: { spend: 0 },
  });
  expect(server.requests[0]?.headers.authorization).toBeUndefined();
  expect(server.requests[1]?.body.messages.at(-1)?.content).toContain(
    '<tool_result name="rye_core_greet" outcome="ok">',
  );
});

test('without a key a directive without steps is refused before it runs, with the way out', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai/directives/say.md');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(
    file,
    '# Say\n\n```xml\n<directive name="say" version="1.0.0"><metadata><description>Say.</description><category></category><author>test</author><model tier="high" /></metadata></directive>\n```\n\nSay it.\n',
  );
  expect((await here.rye(['sign', 'directive', 'say'])).code).toBe(0);
  const refused = await here.rye(['run', 'say']);
  expect(refused.code).toBe(7);
  expect(refused.stderr).toContain(
    'rye: No API key [provider_key_missing]\nhint: Set ANTHROPIC_API_KEY (others: rye models list), or use a local server: --provider ollama\n',
  );
  expect(await here.json(['threads', 'list'])).toMatchObject({ total: 0 });
  const plan = await here.rye(['run', 'say', '--dry-run']);
  expect(plan.stdout).toContain('a run would be refused: No API key. Set ANTHROPIC_API_KEY');
  const { stdout } = await here.rye(['doctor'], {
    env: { OPENAI_API_KEY: KEY, ANTHROPIC_API_KEY: KEY },
  });
  expect(stdout).toContain('models: anthropic, openai; default anthropic/claude-sonnet-5-5');
});

test('models list shows what can be used, its tiers, its window, its price and the date of that', async () => {
  const here = await workspace();
  const document = await here.json(['models', 'list'], { env: { OPENAI_API_KEY: KEY } });
  const models = document['models'] as Record<string, unknown>[];
  expect(models.find(({ model }) => model === 'gpt-6-luna')).toEqual({
    provider: 'openai',
    model: 'gpt-6-luna',
    usable: true,
    tiers: ['fast', 'haiku', 'low', 'mini', 'small'],
    context_window: 272_000,
    max_output_tokens: 128_000,
    pricing: { input: 0.1, output: 0.5, cache_read: 0.01, cache_write: 0.125 },
    prices_as_of: '2026-11-21',
    capabilities: ['tools', 'images', 'forced_tools', 'structured_output'],
    fallback: [],
    key_variable: 'OPENAI_API_KEY',
    default_provider: false,
    needs: [],
    chosen: false,
    chosen_because: null,
  });
  const { stdout } = await here.rye(['models', 'list'], { env: { OPENAI_API_KEY: KEY } });
  expect(stdout).toMatch(/PROVIDER +MODEL +TIERS +WINDOW +USD PER MILLION IN\/OUT +READY/);
  expect(stdout).toMatch(/openai +gpt-6-luna +fast +272k +0\.10 \/ 0\.50 +yes/);
  expect(stdout).toMatch(/anthropic +claude-sonnet-5-5 .*set ANTHROPIC_API_KEY/);
  expect(stdout).toMatch(/Prices as of .*2026-11-21, USD/);
  expect(stdout).not.toContain(KEY);
});

test('a schema on the command line reaches the model in its first request, and one answer is enough', async () => {
  const here = await workspace();
  await count(here);
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const { server, env } = await serve(does('rye_directive_return', { n: 4 }, 'call_1'));
  const { stdout } = await here.rye(['run', 'count', '--json-schema', JSON.stringify(schema)], {
    env,
  });
  expect(stdout).toBe('n: 4\n');
  expect(server.requests).toHaveLength(1);
  expect(server.requests[0]?.body).toMatchObject({
    response_format: { json_schema: { schema } },
  });
  expect(JSON.stringify(server.requests[0]?.body.tools)).toContain('"n":{"type":"integer"}');
});

test('validate names the place of a schema that cannot be used', async () => {
  const here = await workspace();
  await count(here);
  const file = path.join(here.project, '.ai/directives/count.md');
  const text = readFileSync(file, 'utf8');
  const output = '<outputs><output name="n"><schema>{"type": "whole"}</schema></output></outputs>';
  writeFileSync(file, text.replace('<process/>', output));
  const { code, stdout } = await here.rye(['validate', 'directive', 'count']);
  expect(code).toBe(2);
  expect(stdout).toMatch(/count\.md:\d+.*the schema of the output "n" cannot be used: .*type/);
  const run = await here.json(['run', 'count', '--allow-unsigned']);
  expect(run).toMatchObject({ success: false });
});
