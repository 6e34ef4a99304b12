import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import { ToolNames } from '../../../src/kernel/providers/adapter.ts';
import { streamDecoder } from '../../../src/kernel/providers/anthropic/stream.ts';
import type { ModelEvent } from '../../../src/kernel/providers/provider.ts';
import { wireRules } from '../../../src/kernel/providers/wire-rules.ts';
import {
  collect,
  contentIn,
  failureIn,
  grammarProblems,
} from '../../../testing/conformance/provider.ts';
import { startWireServer } from '../../helpers/wire-server.ts';
import { claudeAt } from '../fixtures.ts';

const RECORDED = readFileSync(
  new URL('../../fixtures/wire/anthropic/thinking-and-tools.sse', import.meta.url),
);

const EXPECTED_CONTENT = [
  { type: 'thinking', text: 'Größe zählen: 数える', signature: 'EqQB+/=' },
  { type: 'thinking', text: '', redacted: 'cmVkYWN0ZWQ=' },
  { type: 'text', text: 'I look 🔍 at “src”.\n' },
  {
    type: 'tool_call',
    call_id: 'toolu_01A',
    name: 'rye_file_system_ls',
    input: { path: 'src/ü', depth: 2 },
  },
  { type: 'tool_call', call_id: 'toolu_01B', name: 'rye_file_system_glob', input: {} },
];

function decode(...data: readonly JsonObject[]): readonly ModelEvent[] {
  const decoder = streamDecoder(new Set(['old']), new ToolNames([], wireRules('messages')));
  return data.flatMap((item) => decoder.push(item).events);
}

function block(
  index: number,
  content_block: JsonObject,
  ...deltas: readonly JsonObject[]
): JsonObject[] {
  return [
    { type: 'content_block_start', index, content_block },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ];
}

const STOP: readonly JsonObject[] = [
  { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
  { type: 'message_stop' },
];

function toolBlock(json: string, id = 'toolu_1', input: JsonObject = {}): JsonObject[] {
  const deltas = json === '' ? [] : [{ type: 'input_json_delta', partial_json: json }];
  return block(0, { type: 'tool_use', id, name: 'rye_x', input }, ...deltas);
}

// envoy ai-gateway#1631, auto_ai_router#142, otari#256
test.each<readonly [string, JsonObject | null, JsonObject | null, object]>([
  ['a zero at the end', { input_tokens: 100 }, { input_tokens: 0, output_tokens: 10 }, {}],
  ['a zero at the start', { input_tokens: 0 }, { input_tokens: 100, output_tokens: 10 }, {}],
  ['null at the end', { input_tokens: 100 }, { input_tokens: null, output_tokens: 10 }, {}],
  ['a text at the end', { input_tokens: 100 }, { input_tokens: '7', output_tokens: 10 }, {}],
  ['a negative count', { input_tokens: 100 }, { input_tokens: -5, output_tokens: 10 }, {}],
  ['a fraction', { input_tokens: 100 }, { input_tokens: 300.5, output_tokens: 10 }, {}],
  ['a smaller count', { input_tokens: 100 }, { input_tokens: 7, output_tokens: 10 }, {}],
  ['nothing at the start', null, { input_tokens: 100, output_tokens: 10 }, {}],
  [
    'the answer counted at the start',
    { input_tokens: 100, output_tokens: 10 },
    { output_tokens: 0 },
    {},
  ],
  [
    'what the cache had at the end',
    { input_tokens: 100, cache_read_input_tokens: 0 },
    { input_tokens: 20, cache_read_input_tokens: 80, output_tokens: 10 },
    { input_tokens: 20, cache_read_tokens: 80 },
  ],
  [
    'more at the end',
    { input_tokens: 9, cache_read_input_tokens: 1 },
    { input_tokens: 100, output_tokens: 10 },
    { cache_read_tokens: 1 },
  ],
  ['nothing at all', null, null, { input_tokens: 0, output_tokens: 0 }],
])('usage with %s', (_, first, last, expected) => {
  const events = decode(
    { type: 'message_start', message: { model: 'm', usage: first } },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: last },
  );
  const found = events.findLast(({ type }) => type === 'usage');
  const usage = found?.type === 'usage' ? found.usage : NO_USAGE;
  expect(usage).toEqual({ ...NO_USAGE, input_tokens: 100, output_tokens: 10, ...expected });
});

// Requirement: cache-usage, token-counts-wrong
test('a recorded answer decodes to its blocks, usage and reason', async () => {
  const server = await startWireServer([{ pieces: [RECORDED] }]);
  const events = await collect(claudeAt(server.url));
  await server.close();
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events)).toEqual(EXPECTED_CONTENT);
  expect(events.at(-1)).toMatchObject({ reason: 'tool_calls' });
  expect(events.filter(({ type }) => type === 'usage')).toEqual([
    {
      type: 'usage',
      usage: {
        input_tokens: 12,
        output_tokens: 1,
        cache_read_tokens: 4000,
        cache_write_tokens: 300,
      },
    },
    {
      type: 'usage',
      usage: {
        input_tokens: 12,
        output_tokens: 87,
        cache_read_tokens: 4000,
        cache_write_tokens: 300,
      },
    },
  ]);
});

test('an answer decodes alike however its bytes are cut', async () => {
  const server = await startWireServer([]);
  const provider = claudeAt(server.url);
  const cuts = fc.uniqueArray(fc.nat(RECORDED.length), { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(cuts, async (at) => {
      const edges = [0, ...at.toSorted((a, b) => a - b), RECORDED.length];
      server.push({
        pieces: edges.slice(1).map((end, index) => RECORDED.subarray(edges[index], end)),
      });
      expect(contentIn(await collect(provider))).toEqual(EXPECTED_CONTENT);
    }),
    { numRuns: 40, seed: 7 },
  );
  await server.close();
});

test('an answer decodes alike when every byte comes by itself', async () => {
  const pieces = [...RECORDED].map((byte) => Buffer.of(byte));
  const server = await startWireServer([{ pieces }]);
  const events = await collect(claudeAt(server.url));
  await server.close();
  expect(contentIn(events)).toEqual(EXPECTED_CONTENT);
});

test('an answer that is cut anywhere is a failure of the stream, never an end', async () => {
  const server = await startWireServer([]);
  const provider = claudeAt(server.url);
  // after the last event there is nothing to lose
  const lengths = fc.integer({ min: 0, max: RECORDED.length - 'event: message_stop'.length });
  await fc.assert(
    fc.asyncProperty(lengths, async (length) => {
      server.push({ pieces: [RECORDED.subarray(0, length)] });
      const events = await collect(provider);
      expect(grammarProblems(events)).toEqual([]);
      expect(failureIn(events)).toMatchObject({ phase: 'stream', type: 'incomplete_stream' });
    }),
    { numRuns: 40, seed: 7 },
  );
  await server.close();
});

test.for([
  ['{"a": 1', '{"a": 1'],
  ['[1]', '[1]'],
  ['"text"', '"text"'],
  ['{"a": 1} trailing', '{"a": 1} trailing'],
] as const)('arguments %s are kept as malformed and never run', ([json, malformed]) => {
  const events = decode({ type: 'message_start', message: {} }, ...toolBlock(json), ...STOP);
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events)).toEqual([
    { type: 'tool_call', call_id: 'toolu_1', name: 'rye_x', input: {}, malformed },
  ]);
});

test('arguments that come with the start of the block are used', () => {
  const events = decode(
    { type: 'message_start', message: {} },
    ...toolBlock('', 'toolu_1', { a: 1 }),
    ...STOP,
  );
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events)).toMatchObject([{ input: { a: 1 } }]);
});

test('call ids that come twice, or came before, or are missing, are made distinct', () => {
  const ids = ['twice', 'twice', 'old', ''];
  const blocks = ids.flatMap((id, index) =>
    block(index, { type: 'tool_use', id, name: 'rye_x', input: {} }),
  );
  const events = decode({ type: 'message_start', message: {} }, ...blocks, ...STOP);
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events).map((call) => ('call_id' in call ? call.call_id : ''))).toEqual([
    'twice',
    'twice-2',
    'old-2',
    'call',
  ]);
});

test.for([
  ['end_turn', 'end'],
  ['stop_sequence', 'end'],
  ['pause_turn', 'end'],
  ['max_tokens', 'max_tokens'],
  ['model_context_window_exceeded', 'max_tokens'],
  ['refusal', 'content_filtered'],
  [null, 'end'],
] as const)('the stop reason %s is %s', ([stop_reason, reason]) => {
  const events = decode(
    { type: 'message_start', message: {} },
    { type: 'message_delta', delta: { stop_reason } },
    { type: 'message_stop' },
  );
  expect(events.at(-1)).toEqual({ type: 'finish', reason, content: [] });
});

test('an answer with calls ends with tool_calls for every stop reason', () => {
  const events = decode({ type: 'message_start', message: {} }, ...toolBlock('{}'), ...STOP);
  expect(events.at(-1)).toMatchObject({ type: 'finish', reason: 'tool_calls' });
});

test('events, blocks and deltas of unknown kinds are ignored', () => {
  const events = decode(
    { type: 'message_start', message: { model: 'm' } },
    { type: 'constructor' },
    ...block(
      0,
      { type: 'server_tool_use', id: 'srv' },
      { type: 'input_json_delta', partial_json: '{' },
    ),
    ...block(
      1,
      { type: 'text', text: '' },
      { type: 'citations_delta' },
      { type: 'text_delta', text: 'ok' },
    ),
    ...STOP,
  );
  expect(grammarProblems(events)).toEqual([]);
  expect(contentIn(events)).toEqual([{ type: 'text', text: 'ok' }]);
});

const begin = (index: number, content_block: JsonObject): JsonObject => ({
  type: 'content_block_start',
  index,
  content_block,
});
const more = (index: number, delta: JsonObject): JsonObject => ({
  type: 'content_block_delta',
  index,
  delta,
});
const TEXT = { type: 'text', text: '' };
const CALL = { type: 'tool_use', id: 'a', name: 'rye_x', input: {} };
const says = (text: string): JsonObject => ({ type: 'text_delta', text });
const thinks = (thinking: string): JsonObject => ({ type: 'thinking_delta', thinking });
const asks = (partial_json: JsonObject | string): JsonObject => ({
  type: 'input_json_delta',
  partial_json,
});
const WHOLE = '{"path":"note.txt"}';
const MADE = { type: 'tool_call', call_id: 'a', name: 'rye_x', input: { path: 'note.txt' } };
const SAID = { type: 'text', text: 'Hi.' };
const THOUGHT = { type: 'thinking', text: 'hm' };

// what gateways send in place of one block after the other, each with its start and end
test.each<readonly [string, readonly JsonObject[], readonly object[]]>([
  ['a delta without a start', [more(0, says('Hi.'))], [SAID]],
  [
    'ollama#17101: a start at an index that is open',
    [begin(0, TEXT), more(0, says('Hi.')), begin(0, { type: 'thinking' }), more(0, thinks('hm'))],
    [SAID, THOUGHT],
  ],
  [
    'all blocks at index 0',
    [begin(0, TEXT), more(0, says('Hi.')), begin(0, CALL), more(0, asks(WHOLE))],
    [SAID, MADE],
  ],
  [
    'two calls at index 0',
    [begin(0, CALL), more(0, asks(WHOLE)), begin(0, { ...CALL, id: 'b' }), more(0, asks(WHOLE))],
    [MADE, { ...MADE, call_id: 'b' }],
  ],
  [
    'sglang#24293: text in an open call',
    [begin(0, CALL), more(0, asks('{"path":')), more(0, says('Hi.')), more(0, asks('"note.txt"}'))],
    [MADE, SAID],
  ],
  [
    'llm-rosetta#246: text at the index of the thought',
    [begin(0, { type: 'thinking' }), more(0, thinks('hm')), more(0, says('Hi.'))],
    [THOUGHT, SAID],
  ],
  [
    'kiro-gateway#74: text at an index that was never opened',
    [...block(0, { type: 'thinking' }, thinks('hm')), more(1, says('H')), more(1, says('i.'))],
    [THOUGHT, SAID],
  ],
  ['text after the end of its block', [...block(0, TEXT, says('H')), more(0, says('i.'))], [SAID]],
  [
    'a thought in a text',
    [begin(0, TEXT), more(0, says('Hi.')), more(0, thinks('hm'))],
    [SAID, THOUGHT],
  ],
  ['arguments at another index', [begin(0, CALL), more(1, asks(WHOLE))], [MADE]],
  ['a block without an end', [begin(0, CALL), more(0, asks(WHOLE))], [MADE]],
  ['arguments as an object', [begin(0, CALL), more(0, asks({ path: 'note.txt' }))], [MADE]],
  [
    'the whole arguments twice',
    [begin(0, CALL), more(0, asks(WHOLE)), more(0, asks(WHOLE))],
    [MADE],
  ],
  [
    'the arguments so far',
    [
      begin(0, CALL),
      more(0, asks('{"path":')),
      more(0, asks('{"path":"note')),
      more(0, asks(WHOLE)),
    ],
    [MADE],
  ],
  ['JSON in JSON', [begin(0, CALL), more(0, asks(JSON.stringify(WHOLE)))], [MADE]],
  ['the input as a text', [begin(0, { ...CALL, input: WHOLE })], [MADE]],
  ['the input at the start', [begin(0, { ...CALL, input: { path: 'note.txt' } })], [MADE]],
  ['the input twice', [begin(0, { ...CALL, input: { a: 1 } }), more(0, asks(WHOLE))], [MADE]],
  ['an input that is null', [begin(0, { ...CALL, input: null })], [{ ...MADE, input: {} }]],
  [
    'a second start of the message',
    [begin(0, TEXT), more(0, says('H')), { type: 'message_start' }, more(0, says('i.'))],
    [SAID],
  ],
])('%s loses nothing', (_, data, content) => {
  const events = decode({ type: 'message_start', message: { model: 'm' } }, ...data, ...STOP);
  expect(contentIn(events)).toEqual(content);
  const ends = events.filter(({ type }) => type === 'toolcall_end');
  expect(ends).toHaveLength(content.filter((one) => 'call_id' in one).length);
});

test('hostile shapes of wire data neither throw nor leave the grammar', () => {
  const types = [
    'message_start',
    'content_block_start',
    'content_block_delta',
    'content_block_stop',
    'message_delta',
  ];
  const data = fc.record({
    type: fc.constantFrom(...types),
    index: fc.oneof(fc.nat(2), fc.jsonValue()),
    message: fc.jsonValue(),
    content_block: fc.oneof(
      fc.jsonValue(),
      fc.record({ type: fc.constantFrom('text', 'tool_use', 'thinking') }),
    ),
    delta: fc.jsonValue(),
    usage: fc.oneof(fc.jsonValue(), fc.record({ output_tokens: fc.jsonValue() })),
  });
  fc.assert(
    fc.property(fc.array(data, { maxLength: 12 }), (items) => {
      const events = decode(...(items as unknown as JsonObject[]), ...STOP);
      expect(events.at(-1)?.type).toBe('finish');
      const counts = events.flatMap((event) =>
        event.type === 'usage' ? Object.values(event.usage) : [],
      );
      expect(counts.every((tokens) => Number.isFinite(tokens) && tokens >= 0)).toBe(true);
    }),
    { numRuns: 200, seed: 7 },
  );
});
