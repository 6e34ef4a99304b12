import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import type { Usage } from '../../../src/kernel/core/usage.ts';
import { ToolNames } from '../../../src/kernel/providers/adapter.ts';
import type { Dialect } from '../../../src/kernel/providers/catalog.ts';
import { chunkDecoder } from '../../../src/kernel/providers/openai/stream.ts';
import type { ModelEvent, ModelProvider } from '../../../src/kernel/providers/provider.ts';
import { wireRules } from '../../../src/kernel/providers/wire-rules.ts';
import {
  collect,
  contentIn,
  failureIn,
  grammarProblems,
} from '../../../testing/conformance/provider.ts';
import { startChatServer } from '../../helpers/chat-server.ts';
import { chatAt } from '../fixtures.ts';

function recorded(name: string): Buffer {
  return readFileSync(new URL(`../../fixtures/wire/openai/${name}.sse`, import.meta.url));
}

const THOUGHT = { type: 'thinking', text: 'Größe zählen' };
const TEXT = { type: 'text', text: 'I look 🔍 at “src”.' };

function calls(first: string, second: string) {
  return [
    {
      type: 'tool_call',
      call_id: first,
      name: 'rye_file_system_ls',
      input: { path: 'src/ü', depth: 2 },
    },
    { type: 'tool_call', call_id: second, name: 'rye_file_system_glob', input: {} },
  ];
}

const USAGE = {
  input_tokens: 4312,
  output_tokens: 87,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
};
const CACHED = { ...USAGE, input_tokens: 216, cache_read_tokens: 4096 };

/** One body for each server that the adapter claims to speak to: its content must come out the same. */
const SERVERS: readonly {
  readonly name: string;
  readonly dialect?: Dialect;
  readonly content: readonly object[];
  readonly usage: Usage;
}[] = [
  { name: 'openai', content: [TEXT, ...calls('call_Yy2nqNR1', 'call_k0Q8Lw7d')], usage: CACHED },
  {
    name: 'openrouter',
    content: [
      {
        ...THOUGHT,
        signature:
          '[{"type":"reasoning.text","text":"Größe zählen","format":"anthropic-claude-v1","index":0,"signature":"EqQB+/="}]',
      },
      TEXT,
      ...calls('toolu_01A', 'toolu_01B'),
    ],
    usage: { ...USAGE, input_tokens: 12, cache_read_tokens: 4000, cache_write_tokens: 300 },
  },
  {
    name: 'ollama',
    content: [THOUGHT, TEXT, ...calls('call_mmmf8pcj', 'call_x81hcbq2')],
    usage: USAGE,
  },
  {
    name: 'vllm',
    content: [THOUGHT, TEXT, ...calls('chatcmpl-tool-5f2e', 'chatcmpl-tool-91ac')],
    usage: USAGE,
  },
  {
    name: 'llamacpp',
    content: [THOUGHT, TEXT, ...calls('QsVf1ZbUoYkq', '7nBqTjW3aLxe')],
    usage: CACHED,
  },
  { name: 'gemini-2', content: [TEXT, ...calls('call', 'call-2')], usage: USAGE },
  {
    name: 'gemini',
    dialect: 'gemini',
    content: [
      {
        type: 'thinking',
        text: '',
        signature:
          '{"call_extras":{"jm4owj31":{"google":{"thought_signature":"EjQKMgEMOdbHJChLX75QUCJj+/8="}}}}',
      },
      TEXT,
      ...calls('jm4owj31', 'p0c1vn8x'),
    ],
    usage: USAGE,
  },
  {
    name: 'azure',
    dialect: 'azure',
    content: [TEXT, ...calls('call_8JzAz01', 'call_8JzAz02')],
    usage: CACHED,
  },
  {
    name: 'groq',
    dialect: 'groq',
    content: [THOUGHT, TEXT, ...calls('fc_7d1c', 'fc_7d1d')],
    usage: CACHED,
  },
  {
    name: 'lmstudio',
    dialect: 'lmstudio',
    content: [THOUGHT, TEXT, ...calls('337085911', '337085912')],
    usage: USAGE,
  },
  {
    name: 'mistral',
    dialect: 'mistral',
    content: [THOUGHT, TEXT, ...calls('D681PevKs', 'yvJGlXxT4')],
    usage: CACHED,
  },
];

describe.each(SERVERS)('the wire of $name', ({ name, dialect = 'openai', content, usage }) => {
  const body = recorded(name);
  const at = (url: string): ModelProvider => chatAt(url, { dialect });

  test('decodes to its blocks, its usage and the reason', async () => {
    const server = await startChatServer([{ pieces: [body] }], dialect);
    const events = await collect(at(server.url));
    await server.close();
    expect(grammarProblems(events)).toEqual([]);
    expect(contentIn(events)).toEqual(content);
    expect(events.at(-1)).toMatchObject({ reason: 'tool_calls' });
    expect(events.findLast(({ type }) => type === 'usage')).toEqual({ type: 'usage', usage });
  });

  test('decodes alike however its bytes are cut', async () => {
    const server = await startChatServer([], dialect);
    const provider = at(server.url);
    const cuts = fc.uniqueArray(fc.nat(body.length), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(cuts, async (places) => {
        const edges = [0, ...places.toSorted((a, b) => a - b), body.length];
        server.push({ pieces: edges.slice(1).map((end, i) => body.subarray(edges[i], end)) });
        expect(contentIn(await collect(provider))).toEqual(content);
      }),
      { numRuns: 12, seed: 7 },
    );
    await server.close();
  });

  test('decodes alike when every byte comes by itself', async () => {
    const server = await startChatServer(
      [{ pieces: [...body].map((byte) => Buffer.of(byte)) }],
      dialect,
    );
    const events = await collect(at(server.url));
    await server.close();
    expect(contentIn(events)).toEqual(content);
  });

  test('cut before its finish reason it is a failure of the stream, never an end', async () => {
    const server = await startChatServer([], dialect);
    const provider = at(server.url);
    const whole = body.indexOf('"finish_reason":"');
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: whole }), async (length) => {
        server.push({ pieces: [body.subarray(0, length)] });
        const events = await collect(provider);
        expect(grammarProblems(events)).toEqual([]);
        expect(failureIn(events)).toMatchObject({ phase: 'stream' });
      }),
      { numRuns: 12, seed: 7 },
    );
    await server.close();
  });
});

test('an answer with ends of line of another system decodes alike cut at any byte', async () => {
  const chunks = [delta({ content: 'ü🔍\n”' }), STOP].map((chunk) => JSON.stringify(chunk));
  const lines = [': a', '', ...chunks.flatMap((json) => [`data: ${json}`, '']), ''];
  const body = Buffer.from(lines.join('\r\n'));
  const server = await startChatServer([]);
  const provider = chatAt(server.url);
  for (let at = 0; at <= body.length; at += 1) {
    server.push({ pieces: [body.subarray(0, at), body.subarray(at)] });
    const [block] = contentIn(await collect(provider));
    expect([at, block]).toEqual([at, { type: 'text', text: 'ü🔍\n”' }]);
  }
  await server.close();
});

const TOOLS = ['rye_file_system_read', 'rye_bash'].map((name) => ({
  name,
  description: '',
  input_schema: {},
}));

function decode(...chunks: readonly JsonObject[]): readonly ModelEvent[] {
  const decoder = chunkDecoder({
    takenIds: new Set(['old']),
    names: new ToolNames(TOOLS, wireRules('chat')),
    textCalls: false,
  });
  const events = chunks.flatMap((chunk) => decoder.push(chunk).events);
  return [...events, ...decoder.end(true).events];
}

/** The fault with which the decoder ends after these chunks. */
function failureOfEnd(...chunks: readonly JsonObject[]) {
  const decoder = chunkDecoder({
    takenIds: new Set<string>(),
    names: new ToolNames(TOOLS, wireRules('chat')),
    textCalls: false,
  });
  for (const chunk of chunks) decoder.push(chunk);
  return decoder.end(true).error;
}

function delta(members: JsonObject, finish_reason: string | null = null): JsonObject {
  return { model: 'm', choices: [{ index: 0, delta: members, finish_reason }] };
}

function call(members: JsonObject): JsonObject {
  return delta({ tool_calls: [members] });
}

const STOP = delta({}, 'stop');

test.each([
  ['no id and no index', [call({ function: { name: 'a', arguments: '{}' } })], ['call']],
  [
    'an id that the thread has used',
    [call({ id: 'old', index: 0, function: { name: 'a' } })],
    ['old-2'],
  ],
  [
    'one index and two ids',
    [
      call({ id: 'x', index: 0, function: { name: 'a', arguments: '{}' } }),
      call({ id: 'y', index: 0, function: { name: 'a', arguments: '{}' } }),
    ],
    ['x', 'y'],
  ],
  [
    'the id repeated in every piece',
    [
      call({ id: 'x', index: 0, function: { name: 'a', arguments: '{' } }),
      call({ id: 'x', index: 0, function: { name: 'a', arguments: '}' } }),
    ],
    ['x'],
  ],
  [
    'arguments as an object',
    [call({ id: 'x', index: 0, function: { name: 'a', arguments: { b: 1 } } })],
    ['x'],
  ],
  [
    'interleaved pieces',
    [
      call({ id: 'x', index: 0, function: { name: 'a', arguments: '{' } }),
      call({ id: 'y', index: 1, function: { name: 'b', arguments: '{' } }),
      call({ index: 0, function: { arguments: '}' } }),
      call({ index: 1, function: { arguments: '}' } }),
    ],
    ['x', 'y'],
  ],
] as const)('calls with %s stay apart', (_name, chunks, ids) => {
  const events = decode(...chunks, STOP);
  expect(grammarProblems(events)).toEqual([]);
  const made = contentIn(events).filter((block) => block.type === 'tool_call');
  expect(made.map(({ call_id }) => call_id)).toEqual(ids);
  expect(made.every(({ malformed }) => malformed === undefined)).toBe(true);
  expect(events.at(-1)).toMatchObject({ reason: 'tool_calls' });
});

const READ = 'rye_file_system_read';
const PATH = '{"path":"note.txt"}';
const piece = (name: string | null, args: JsonObject | string | null, id?: string, index = 0) =>
  call({
    ...(id === undefined ? {} : { id }),
    index,
    function: { ...(name === null ? {} : { name }), ...(args === null ? {} : { arguments: args }) },
  });

// what servers send in place of one call with a name, an id and pieces of its arguments
test.each<readonly [string, readonly JsonObject[]]>([
  [
    'arguments before the id and the name',
    [piece(null, '{"pa'), piece(READ, 'th":"note.txt"}', 'a')],
  ],
  ['all arguments before the name', [piece(null, PATH), piece(READ, '', 'a')]],
  ['the name after the id', [piece('', '', 'a'), piece(READ, null), piece(null, PATH)]],
  ['the name last', [piece(null, '', 'a'), piece(null, PATH), piece(READ, null)]],
  ['the id last', [piece(READ, PATH), piece(null, '', 'a')]],
  ['the name in each piece', [piece(READ, '{"path":', 'a'), piece(READ, '"note.txt"}', 'a')]],
  [
    'name and id in each piece, the id changing',
    [piece(READ, '{"path":', 'a'), piece(READ, '"note.txt"}', 'b')],
  ],
  [
    'another id in each piece',
    [piece(READ, '{"path":', 'a'), piece(null, '"note.', 'b'), piece(null, 'txt"}', 'c')],
  ],
  [
    'the arguments so far',
    [piece(READ, '{"path":', 'a'), piece(null, '{"path":"note', 'a'), piece(null, PATH, 'a')],
  ],
  [
    'the arguments so far, from the first letter',
    [piece(READ, '{', 'a'), piece(null, '{"path"', 'a'), piece(null, PATH, 'a')],
  ],
  ['the whole arguments twice', [piece(READ, PATH, 'a'), piece(null, PATH, 'a')]],
  ['the whole call twice', [piece(READ, PATH, 'a'), piece(READ, PATH, 'a')]],
  ['the whole call twice without an id', [piece(READ, PATH), piece(READ, PATH)]],
  [
    'the whole arguments after their pieces',
    [piece(READ, '{"path":', 'a'), piece(null, '"note.txt"}', 'a'), piece(null, PATH, 'a')],
  ],
  ['JSON in JSON', [piece(READ, JSON.stringify(PATH), 'a')]],
  ['an object', [piece(READ, { path: 'note.txt' }, 'a')]],
  ['a namespace', [piece(`functions.${READ}`, PATH, 'a')]],
  ['a namespace with a colon', [piece(`default_api:${READ}`, PATH, 'a')]],
  ['space around the name', [piece(` ${READ}\n`, PATH, 'a')]],
  // litellm#4537
  ['empty arguments before them', [piece(READ, '{}', 'a'), piece(null, PATH, 'a')]],
  ['empty arguments with them', [piece(READ, `{}${PATH}`, 'a')]],
  [
    'the one call of old servers',
    [
      delta({ function_call: { name: READ, arguments: '{"path":' } }),
      delta({ function_call: { arguments: '"note.txt"}' } }),
    ],
  ],
  ['no list', [delta({ tool_calls: { id: 'a', function: { name: READ, arguments: PATH } } })]],
  ['no function', [call({ id: 'a', name: READ, arguments: PATH })]],
  [
    'an index that is a text',
    [call({ index: '0', id: 'a', function: { name: READ, arguments: PATH } })],
  ],
  [
    'an id that is a number',
    [call({ index: 0, id: 7, function: { name: READ, arguments: PATH } })],
  ],
  [
    'message in place of delta',
    [
      {
        model: 'm',
        choices: [
          {
            index: 0,
            message: {
              content: null,
              tool_calls: [{ id: 'a', function: { name: READ, arguments: PATH } }],
            },
            finish_reason: 'tool_calls',
          },
        ],
      },
    ],
  ],
])('one call that comes as %s is one call', (_what, chunks) => {
  const events = decode(...chunks, STOP);
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events)).toEqual([
    {
      type: 'tool_call',
      call_id: expect.stringMatching(/^(?:a|call)$/),
      name: READ,
      input: { path: 'note.txt' },
    },
  ]);
});

test.each<readonly [string, readonly JsonObject[], readonly string[]]>([
  ['two names without ids', [piece('rye_bash', '{}'), piece(READ, PATH)], ['rye_bash', READ]],
  ['two inputs without ids', [piece(READ, '{"path":"a"}'), piece(READ, PATH)], [READ, READ]],
  [
    'no arguments and two ids',
    [piece('rye_bash', '', 'a'), piece('rye_bash', '', 'b')],
    ['rye_bash', 'rye_bash'],
  ],
  [
    'an id from the second on',
    [piece('rye_bash', '{}'), piece(READ, PATH, 'b')],
    ['rye_bash', READ],
  ],
])('%s are two calls', (_what, chunks, names) => {
  const made = contentIn(decode(...chunks, STOP)).filter((block) => block.type === 'tool_call');
  expect(made.map(({ name }) => name)).toEqual(names);
  expect(made.every(({ malformed }) => malformed === undefined)).toBe(true);
});

test.each(['', 'null', ' null ', '{}'])('arguments that are %j are none', (json) => {
  expect(contentIn(decode(piece('rye_bash', json, 'a'), STOP))).toEqual([
    { type: 'tool_call', call_id: 'a', name: 'rye_bash', input: {} },
  ]);
});

test.each(['{"a": 1', '[1]', 'not json'])('arguments that are %s are kept as malformed', (json) => {
  const events = decode(
    call({ id: 'x', index: 0, function: { name: 'a', arguments: json } }),
    STOP,
  );
  expect(contentIn(events)).toEqual([
    { type: 'tool_call', call_id: 'x', name: 'a', input: {}, malformed: json },
  ]);
});

test.each([
  ['stop', 'end'],
  ['STOP', 'end'],
  ['length', 'max_tokens'],
  ['MAX_TOKENS', 'max_tokens'],
  ['model_context_window_exceeded', 'max_tokens'],
  ['sensitive', 'content_filtered'],
  ['SAFETY', 'content_filtered'],
  ['content_filter', 'content_filtered'],
  ['tool_calls', 'end'],
  ['eos', 'end'],
  // vercel/ai's Mistral and Gemini, Bedrock, opencode#44092
  ['model_length', 'max_tokens'],
  ['IMAGE_SAFETY', 'content_filtered'],
  ['PROHIBITED_CONTENT', 'content_filtered'],
  ['SPII', 'content_filtered'],
  ['guardrail_intervened', 'content_filtered'],
  ['end_turn', 'end'],
  ['FinishReason.STOP', 'end'],
])('the reason %s means %s', (wire, reason) => {
  expect(decode(delta({ content: 'x' }), delta({}, wire)).at(-1)).toMatchObject({ reason });
});

test.each([
  'error',
  'network_error',
  'insufficient_system_resource',
  'abort',
  'repetition',
  'malformed_function_call',
  'MALFORMED_FUNCTION_CALL',
  'timeout',
  'cancelled',
  'UNEXPECTED_TOOL_CALL',
  'TOO_MANY_TOOL_CALLS',
  'server_error',
])('the reason %s is a broken answer', (reason) => {
  const fault = failureOfEnd(delta({ content: 'The three causes are: first, the' }, reason));
  expect(fault).toMatchObject({ type: 'answer_broken_off' });
});

test.each([
  'OTHER',
  'LANGUAGE',
  'MISSING_THOUGHT_SIGNATURE',
  'NO_IMAGE',
  'constructor',
  '__proto__',
])('the reason %s is no end of a text', (reason) => {
  const fault = failureOfEnd(delta({ content: 'Half of' }, reason));
  expect(fault).toMatchObject({ type: 'unknown_stop_reason' });
});

test('an empty reason in each chunk is none', () => {
  const made = decode(delta({ content: 'a' }, ''), delta({ content: 'b' }, ''), STOP);
  expect(contentIn(made)).toEqual([{ type: 'text', text: 'ab' }]);
});

test('a reason that no list has is no end of a text, and no obstacle to its calls', () => {
  expect(failureOfEnd(delta({ content: 'Half of' }, 'solar_flare'))).toMatchObject({
    type: 'unknown_stop_reason',
    message: expect.stringContaining('"solar_flare"'),
  });
  expect(decode(piece('rye_bash', '{}', 'a'), delta({}, 'solar_flare')).at(-1)).toMatchObject({
    reason: 'tool_calls',
  });
});

test.each<readonly [string, readonly JsonObject[], Partial<Usage>]>([
  [
    'zeros at the end',
    [
      { prompt_tokens: 100, completion_tokens: 10 },
      { prompt_tokens: 0, completion_tokens: 0 },
    ],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'null at the end',
    [
      { prompt_tokens: 100, completion_tokens: 10 },
      { prompt_tokens: null, completion_tokens: null },
    ],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'thoughts in the total',
    [{ prompt_tokens: 100, completion_tokens: 10, total_tokens: 3110 }],
    { input_tokens: 100, output_tokens: 3010 },
  ],
  [
    'a total without a prompt',
    [{ completion_tokens: 10, total_tokens: 3110 }],
    { input_tokens: 0, output_tokens: 10 },
  ],
  [
    'a fraction',
    [{ prompt_tokens: 1.5, completion_tokens: 10 }],
    { input_tokens: 0, output_tokens: 10 },
  ],
  // CLIProxyAPI#3173, LocalAI#9927, litellm#39618
  [
    'null in each chunk but the last',
    [{ prompt_tokens: null }, { prompt_tokens: 100, completion_tokens: 10 }],
    { input_tokens: 100, output_tokens: 10 },
  ],
  ['only zeros', [{ prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }], {}],
  ['texts', [{ prompt_tokens: '100', completion_tokens: '10' }], {}],
  ['negative counts', [{ prompt_tokens: -100, completion_tokens: -10, total_tokens: -110 }], {}],
  ['counts above all numbers', [{ prompt_tokens: 1e300, completion_tokens: 2 ** 60 }], {}],
  ['lists', [{ prompt_tokens: [100], completion_tokens: { a: 1 } }], {}],
  [
    'a fraction of a whole number',
    [{ prompt_tokens: 100, completion_tokens: 10.0 }],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'the names of another API',
    [{ input_tokens: 100, output_tokens: 10 }],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'counts that grow',
    [
      { prompt_tokens: 100, completion_tokens: 1 },
      { prompt_tokens: 100, completion_tokens: 10 },
    ],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'counts that shrink',
    [
      { prompt_tokens: 100, completion_tokens: 10 },
      { prompt_tokens: 3, completion_tokens: 1 },
    ],
    { input_tokens: 100, output_tokens: 10 },
  ],
  [
    'what the cache had at the end',
    [
      { prompt_tokens: 100, completion_tokens: 1 },
      {
        prompt_tokens: 100,
        completion_tokens: 10,
        prompt_tokens_details: { cached_tokens: 80 },
      },
    ],
    { input_tokens: 20, output_tokens: 10, cache_read_tokens: 80 },
  ],
  [
    'more from the cache than there was',
    [{ prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 900 } }],
    { input_tokens: 0, output_tokens: 1, cache_read_tokens: 100 },
  ],
  [
    'more thoughts than answer',
    [
      {
        prompt_tokens: 100,
        completion_tokens: 10,
        completion_tokens_details: { reasoning_tokens: 3000 },
      },
    ],
    { input_tokens: 100, output_tokens: 3010 },
  ],
  [
    'thoughts within the answer',
    [
      {
        prompt_tokens: 100,
        completion_tokens: 3010,
        completion_tokens_details: { reasoning_tokens: 3000 },
      },
    ],
    { input_tokens: 100, output_tokens: 3010 },
  ],
  [
    'a total below the prompt',
    [{ prompt_tokens: 100, completion_tokens: 10, total_tokens: 9 }],
    { input_tokens: 100, output_tokens: 10 },
  ],
])('usage with %s', (_what, usages, expected) => {
  const events = decode(...usages.map((usage) => ({ ...delta({ content: 'x' }), usage })), STOP);
  const usage = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, ...expected };
  expect(events.findLast(({ type }) => type === 'usage')).toMatchObject({ usage });
});

test('usage in the choice, as of Moonshot, counts', () => {
  const usage = { prompt_tokens: 100, completion_tokens: 10 };
  const last = { model: 'm', choices: [{ index: 0, delta: {}, finish_reason: 'stop', usage }] };
  const events = decode(delta({ content: 'x' }), last);
  expect(events.find(({ type }) => type === 'usage')).toMatchObject({
    usage: { input_tokens: 100, output_tokens: 10 },
  });
});

test('an answer without usage and without a reason ends at the end mark', () => {
  const events = decode(delta({ content: 'x' }));
  expect(events.map(({ type }) => type)).toEqual(['start', 'text_delta', 'finish']);
});

test('the last usage counts, and counts that make no sense are nothing', () => {
  const usage = {
    prompt_tokens: -4,
    completion_tokens: 'x',
    prompt_tokens_details: { cached_tokens: 9 },
  };
  const events = decode({ ...delta({ content: 'x' }), usage }, STOP);
  expect(events.find(({ type }) => type === 'usage')).toMatchObject({
    usage: { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 },
  });
});

test.each([
  [
    'OpenRouter',
    { error: { code: 502, message: 'upstream died' } },
    { status: 502, type: 'api_error' },
  ],
  [
    'OpenAI',
    { error: { type: 'server_error', code: null, message: 'overloaded' } },
    { type: 'server_error' },
  ],
  [
    'llama.cpp',
    { error: { code: 500, type: 'server_error', message: 'slot died' } },
    { status: 500, type: 'server_error' },
  ],
  [
    'old vLLM',
    { object: 'error', type: 'BadRequestError', code: 400, message: 'no' },
    { status: 400 },
  ],
  ['a text', { error: 'gone' }, { type: 'api_error', message: 'gone' }],
  // with the status 200
  [
    'z.ai',
    { code: 1261, msg: 'Prompt exceeds max length' },
    { message: 'Prompt exceeds max length' },
  ],
  [
    'MiniMax',
    { base_resp: { status_code: 1008, status_msg: 'insufficient balance' }, choices: null },
    { message: 'insufficient balance' },
  ],
  ['FastAPI', { detail: 'Not Found' }, { message: 'Not Found' }],
  ['SiliconFlow', { code: 20015, message: 'bad value', data: null }, { message: 'bad value' }],
  ['a gateway', { success: false, message: 'no channel' }, { message: 'no channel' }],
] as const)('an error of %s in the middle of a stream ends it', async (_name, body, failure) => {
  const bytes = `data: ${JSON.stringify(body)}\n\n`;
  const server = await startChatServer([
    {
      steps: [
        { kind: 'delta', delta: { content: 'a' } },
        { kind: 'raw', bytes },
      ],
    },
  ]);
  const events = await collect(chatAt(server.url));
  await server.close();
  expect(grammarProblems(events)).toEqual([]);
  expect(failureIn(events)).toMatchObject({ phase: 'stream', ...failure });
});

test.each([
  { code: 0, msg: 'success' },
  { code: 200, message: 'ok' },
  { message: 'queued', status: 'processing' },
  { base_resp: { status_code: 0, status_msg: '' }, choices: null },
  { type: 'ping' },
])('%j in the middle of a stream is no error', (chunk) => {
  const made = decode(delta({ content: 'a' }), chunk, delta({ content: 'b' }), STOP);
  expect(contentIn(made)).toEqual([{ type: 'text', text: 'ab' }]);
});

test.each([
  ['a part that is alone', delta({ content: { type: 'text', text: 'a' } })],
  ['a list of parts', delta({ content: [{ type: 'text', text: 'a' }] })],
  ['the text of old servers', { model: 'm', choices: [{ index: 0, text: 'a' }] }],
  ['a refusal', delta({ content: null, refusal: 'a' })],
] as const)('%s is text', (_what, chunk) => {
  expect(contentIn(decode(chunk, STOP))).toEqual([{ type: 'text', text: 'a' }]);
});

test('a chunk that is not JSON ends the stream', async () => {
  const server = await startChatServer([{ pieces: ['data: {"choices":\n\n'] }]);
  const events = await collect(chatAt(server.url));
  await server.close();
  expect(failureIn(events)).toMatchObject({ phase: 'stream', type: 'malformed_event' });
});

test('hostile shapes of chunks neither throw nor leave the grammar', () => {
  const chunk = fc.oneof(
    fc.object({
      key: fc.constantFrom('choices', 'delta', 'tool_calls', 'content', 'index', 'id', 'usage'),
      maxDepth: 4,
    }),
    fc
      .record({ content: fc.anything(), tool_calls: fc.anything(), reasoning: fc.anything() })
      .map((one) => ({ choices: [{ index: 0, delta: one, finish_reason: null }] })),
    fc
      .record({ index: fc.anything(), id: fc.anything(), function: fc.anything() })
      .map((one) => ({ choices: [{ delta: { tool_calls: [one] } }] })),
  );
  fc.assert(
    fc.property(fc.array(chunk, { maxLength: 6 }), (chunks) => {
      const plain = JSON.parse(JSON.stringify(chunks)) as JsonObject[];
      expect(grammarProblems(decode(...plain, STOP))).toEqual([]);
    }),
    { numRuns: 200, seed: 7 },
  );
});
