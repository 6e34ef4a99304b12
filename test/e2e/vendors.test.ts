import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startChatServer } from '../helpers/chat-server.ts';
import { spoken } from '../helpers/vendor-wires.ts';
import { startWireServer, text, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const KEY = 'sk-secret-of-this-vendor';
const CALLING = {
  text: 'Two greetings.',
  calls: [
    { name: 'rye_core_greet', input: { who: 'Ada' } },
    { name: 'rye_core_greet', input: { who: 'Bob' } },
  ],
};
const DONE = { text: 'Greeted.', calls: [] };

interface Result {
  readonly status: string;
  readonly result: string;
  readonly thread_id: string;
  readonly cost: Readonly<Record<string, number>>;
  readonly paths: Readonly<Record<string, string>>;
}

/** Runs a directive that greets twice; its model is the general one of the provider. */
async function greet(here: Workspace, provider: string, env: Record<string, string>) {
  const folder = path.join(here.project, '.ai', 'directives');
  mkdirSync(folder, { recursive: true });
  const xml = [
    '<directive name="twice" version="1.0.0">',
    '<metadata><description>Greet.</description><category></category><author>me</author>',
    '<limits turns="9" spend="1"/><permissions><execute><tool>rye/core/greet</tool></execute></permissions>',
    '</metadata><process/></directive>',
  ];
  writeFileSync(path.join(folder, 'twice.md'), ['# Twice', '```xml', ...xml, '```', ''].join('\n'));
  await here.rye(['sign', 'directive', 'twice']);
  const args = ['run', 'twice', '--provider', provider];
  const result = (await here.json(args, { env })) as unknown as Result;
  const log = readFileSync(result.paths['transcript'] ?? '', 'utf8');
  expect(log).not.toContain(KEY);
  return { result, log };
}

test.each([
  ['gemini', 'gemini', { GEMINI_API_KEY: KEY }, 'GEMINI_BASE_URL'],
  ['azure', 'azure', { AZURE_OPENAI_API_KEY: KEY }, 'AZURE_OPENAI_ENDPOINT'],
  ['mistral', 'mistral', { MISTRAL_API_KEY: KEY }, 'MISTRAL_BASE_URL'],
  ['groq', 'groq', { GROQ_API_KEY: KEY }, 'GROQ_BASE_URL'],
  ['vllm', 'vllm', {}, 'VLLM_BASE_URL'],
  ['lmstudio', 'lmstudio', {}, 'LMSTUDIO_BASE_URL'],
] as const)(
  '%s runs a directive with two calls in one answer',
  async (name, dialect, keys, address) => {
    const turns = [spoken(dialect, CALLING, 'm'), spoken(dialect, DONE, 'm')];
    const server = await startChatServer(turns, dialect);
    onTestFinished(async () => await server.close());
    const here = await workspace();
    const { result } = await greet(here, name, { ...keys, [address]: server.url });
    expect(result).toMatchObject({ status: 'completed', result: 'Greeted.', cost: { turns: 2 } });
    const [, second] = server.requests;
    const sent = second?.body.messages ?? [];
    expect(sent.filter(({ role }) => role === 'tool')).toHaveLength(2);
    expect(JSON.stringify(sent)).toContain('Hello, Bob');
    const hidden = name === 'gemini' ? 170 : 30;
    expect(result.cost).toMatchObject({ input_tokens: 240, output_tokens: 2 * hidden });
    if (name !== 'gemini') return;
    // the signature of the first call comes back with it, after it was written and read
    const [first, other] = sent.find(({ tool_calls }) => tool_calls)?.tool_calls ?? [];
    expect(first).toMatchObject({ extra_content: { google: { thought_signature: 'c2ln' } } });
    expect(other).not.toHaveProperty('extra_content');
  },
);

test('bedrock runs a directive with signed requests, and no key reaches the log', async () => {
  const server = await startWireServer([
    { steps: [text('One.'), toolUse('rye_core_greet', { who: 'Bob' })] },
    { steps: [text('Greeted.')] },
  ]);
  onTestFinished(async () => await server.close());
  const here = await workspace();
  const { result } = await greet(here, 'bedrock', {
    AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
    AWS_SECRET_ACCESS_KEY: KEY,
    ANTHROPIC_BEDROCK_MANTLE_BASE_URL: server.url,
  });
  expect(result).toMatchObject({ status: 'completed', result: 'Greeted.' });
  for (const { headers } of server.requests) {
    expect(headers.authorization).toMatch(/^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\//);
  }
});

test('the file of an own provider states what its server accepts', async () => {
  const turns = [spoken('mistral', CALLING, 'm'), spoken('mistral', DONE, 'm')];
  const server = await startChatServer(turns, 'mistral');
  onTestFinished(async () => await server.close());
  const here = await workspace();
  const file = path.join(here.project, '.ai', 'config', 'agent', 'providers', 'lab.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  const lines = [
    'kind: openai',
    'dialect: mistral',
    `base_url: ${server.url}`,
    'prices_as_of: "2026-11-21"',
    'tiers: { general: m }',
    'models: { m: { context_window: 90000, max_output_tokens: 4096, pricing: { input: 0, output: 0 } } }',
    'wire:',
    '  tool_name: { length: 14 }',
  ];
  writeFileSync(file, lines.join('\n'));
  await here.rye(['sign', 'config', 'agent/providers/lab']);
  const { result } = await greet(here, 'lab', {});
  expect(result).toMatchObject({ status: 'completed', result: 'Greeted.' });
  const names = server.requests.flatMap(({ body }) =>
    (body.tools ?? []).map((one) => one.function),
  );
  for (const { name } of names) expect(name).toMatch(/^[a-zA-Z0-9_-]{1,14}$/);
  const ids = server.requests[1]?.body.messages.flatMap(({ tool_call_id: id }) => id ?? []) ?? [];
  expect(ids).toHaveLength(2);
  for (const id of ids) expect(id).toMatch(/^[a-zA-Z0-9]{9}$/);

  writeFileSync(file, [...lines, '  call_id: { regex: "(a+)+$" }'].join('\n'));
  const refused = await here.rye(['sign', 'config', 'agent/providers/lab']);
  expect(refused.stderr).toContain('provider lab: wire.call_id.regex is not a known key');
  expect(refused.code).not.toBe(0);
});

test('a provider that is named and not set up asks for its variables', async () => {
  const here = await workspace();
  const refused = await here.rye([
    'run',
    'rye/core/ask',
    '--input',
    'question=x',
    '--provider',
    'azure',
  ]);
  expect(refused.code).toBe(7);
  expect(refused.stderr).toContain('the provider azure has no key [provider_key_missing]');
  expect(refused.stderr).toContain('Set AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT');
});

test('AWS access keys alone choose no provider', async () => {
  const here = await workspace();
  const env = { AWS_ACCESS_KEY_ID: 'A', AWS_SECRET_ACCESS_KEY: 'B' };
  const refused = await here.rye(['run', 'rye/core/ask', '--input', 'question=x'], { env });
  expect(refused.code).toBe(7);
  expect(refused.stderr).toContain('[provider_key_missing]');
});
