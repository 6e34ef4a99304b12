import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { classify, parseErrorRules, retryDelayMs } from '../../src/kernel/policy/error-class.ts';
import type { ModelProvider } from '../../src/kernel/providers/provider.ts';
import {
  aRequest,
  collect,
  contentIn,
  failureIn,
  grammarProblems,
} from '../../testing/conformance/provider.ts';
import {
  type ChatServer,
  type ChatTurn,
  chatCall,
  chatText,
  startChatServer,
} from '../helpers/chat-server.ts';
import {
  startWireServer,
  text,
  toolUse,
  type WireServer,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { chatAt, claudeAt, manualClock } from './fixtures.ts';

const FILE = new URL('../../.ai/config/agent/error_classification.yaml', import.meta.url);
const { patterns } = parse(readFileSync(FILE, 'utf8')) as { patterns: unknown[] };
const RULES = parseErrorRules(patterns, 'error_classification.yaml');

/** The clock of the adapters stays at this time, so that dates in headers are exact. */
const NOW = Date.UTC(2026, 10, 21, 12, 0, 0);

let claude: WireServer;
let chat: ChatServer;
beforeAll(async () => {
  claude = await startWireServer([]);
  chat = await startChatServer([]);
});
afterAll(async () => {
  await claude.close();
  await chat.close();
});

/** One failure as each of the two wires brings it. */
interface Fault {
  readonly claude: WireTurn;
  readonly chat: ChatTurn;
}

function answered(status: number, headers: Readonly<Record<string, string>> = {}): Fault {
  const turn = { status, headers, error: { type: 'some_error', message: 'not now' } };
  return { claude: turn, chat: turn };
}

function midway(
  ...steps: readonly ({ kind: 'reset' } | { kind: 'truncate' } | { kind: 'raw'; bytes: string })[]
): Fault {
  return {
    claude: { steps: [text('a'), ...steps] },
    chat: { steps: [...chatText('a'), ...steps] },
  };
}

function reported(type: string): Fault {
  return {
    claude: { steps: [text('a'), { kind: 'error', type, message: 'reported in the stream' }] },
    chat: {
      steps: [
        ...chatText('a'),
        {
          kind: 'raw',
          bytes: `data: {"error":{"type":"${type}","message":"reported in the stream"}}\n\n`,
        },
      ],
    },
  };
}

/** Category, whether it is tried again, and the longest wait before the first and before the fifth retry in seconds. */
type Verdict = readonly [category: string, retryable: boolean, first: number, fifth: number];
const AS_ASKED = (seconds: number): Verdict => ['rate_limited', true, seconds, seconds];
const NEVER = (category: string): Verdict => [category, false, 0, 0];

const MATRIX: readonly (readonly [name: string, fault: Fault, verdict: Verdict])[] = [
  ['429 with seconds', answered(429, { 'retry-after': '7' }), AS_ASKED(7)],
  ['429 with a fraction of a second', answered(429, { 'retry-after': '0.5' }), AS_ASKED(0.5)],
  [
    '429 with an HTTP date',
    answered(429, { 'retry-after': 'Sat, 21 Nov 2026 12:01:30 GMT' }),
    AS_ASKED(90),
  ],
  [
    '429 with a date that has passed',
    answered(429, { 'retry-after': 'Sat, 21 Nov 2026 11:00:00 GMT' }),
    AS_ASKED(0),
  ],
  [
    '429 with retry-after-ms, which is the finer one',
    answered(429, { 'retry-after-ms': '250', 'retry-after': '9' }),
    AS_ASKED(0.25),
  ],
  [
    '429 with a header that makes no sense',
    answered(429, { 'retry-after': 'soon' }),
    ['rate_limited', true, 2, 32],
  ],
  [
    '429 with a negative number',
    answered(429, { 'retry-after': '-3' }),
    ['rate_limited', true, 2, 32],
  ],
  ['429 without a header', answered(429), ['rate_limited', true, 2, 32]],
  ...[408, 409, 425].map(
    (status) => [`${status}`, answered(status), ['transient', true, 2, 30]] as const,
  ),
  ...[500, 502, 503, 504, 520, 529].map(
    (status) => [`${status}`, answered(status), ['transient', true, 2, 32]] as const,
  ),
  ['503 that asks for a wait', answered(503, { 'retry-after': '3' }), ['transient', true, 3, 3]],
  ['400', answered(400), NEVER('permanent')],
  ['401', answered(401), NEVER('auth')],
  ['402', answered(402), NEVER('quota')],
  ['403', answered(403), NEVER('auth')],
  ['404', answered(404), NEVER('permanent')],
  ['413', answered(413), NEVER('context_exceeded')],
  ['422', answered(422), NEVER('permanent')],
  ['a reset before the headers', { claude: 'reset', chat: 'reset' }, ['transient', true, 2, 32]],
  ['a reset in the middle of the answer', midway({ kind: 'reset' }), ['transient', true, 2, 32]],
  [
    'a stream that ends politely and too early',
    midway({ kind: 'truncate' }),
    ['transient', true, 2, 32],
  ],
  [
    'an event that is not JSON',
    midway({ kind: 'raw', bytes: 'data: {"choices": [\n\n' }),
    ['transient', true, 2, 32],
  ],
  ['an overload reported in the stream', reported('overloaded_error'), ['transient', true, 2, 32]],
  [
    'a rate limit reported in the stream',
    reported('rate_limit_error'),
    ['rate_limited', true, 2, 32],
  ],
  ['a refusal reported in the stream', reported('invalid_request_error'), NEVER('permanent')],
  [
    'a content type that is no stream',
    {
      claude: { pieces: ['<html>'], contentType: 'text/html' },
      chat: { pieces: ['<html>'], contentType: 'text/html' },
    },
    NEVER('permanent'),
  ],
];

describe.each([
  {
    adapter: 'anthropic',
    serve: ({ claude: turn }: Fault): ModelProvider => {
      claude.push(turn);
      return claudeAt(claude.url, manualClock(NOW));
    },
  },
  {
    adapter: 'openai',
    serve: ({ chat: turn }: Fault): ModelProvider => {
      chat.push(turn);
      return chatAt(chat.url, {}, manualClock(NOW));
    },
  },
])('what $adapter makes of', ({ serve }) => {
  test.each(MATRIX)('%s', async (_name, fault, [category, retryable, first, fifth]) => {
    const events = await collect(serve(fault));
    expect(grammarProblems(events)).toEqual([]);
    const failure = failureIn(events);
    const classified = classify(failure, RULES);
    expect(classified).toMatchObject({ category, retryable });
    const longest = (attempt: number): number =>
      retryDelayMs({
        policy: classified.policy,
        attempt,
        retryAfterMs: failure.retry_after_ms,
        random: () => 1,
      });
    expect([longest(1), longest(5)]).toEqual([first * 1000, fifth * 1000]);
  });
});

/** A stall is a matter of the clock: nothing comes while it moves. */
test.each([
  { adapter: 'anthropic', open: async () => await startWireServer(['hang']) },
  { adapter: 'openai', open: async () => await startChatServer(['hang']) },
])(
  'a server that sends no byte to $adapter for stall_seconds is asked again',
  async ({ adapter, open }) => {
    const server = await open();
    onTestFinished(() => server.close());
    const clock = manualClock(NOW);
    const provider =
      adapter === 'anthropic' ? claudeAt(server.url, clock, 60) : chatAt(server.url, {}, clock, 60);
    const reading = collect(provider);
    await server.request(0);
    for (const ms of [59_000, 1000, 60_000]) await clock.advance(ms);
    const failure = failureIn(await reading);
    expect(failure).toMatchObject({ phase: 'stalled' });
    expect(classify(failure, RULES)).toMatchObject({ category: 'transient', retryable: true });
  },
);

/** Odd calls in an answer are no failure: the loop answers them without a retry. */
test.each([
  {
    adapter: 'anthropic',
    answer: (): ModelProvider => {
      const odd = { kind: 'tool', id: 'same', name: 'rye_second', chunks: ['{"a": '] } as const;
      claude.push({ steps: [toolUse('rye_first', { a: 1 }, 'same'), odd] });
      return claudeAt(claude.url);
    },
  },
  {
    adapter: 'openai',
    answer: (): ModelProvider => {
      const odd = { index: 1, id: 'same', function: { name: 'rye_second', arguments: '{"a": ' } };
      chat.push({
        steps: [
          ...chatCall(0, 'rye_first', { a: 1 }, 'same'),
          { kind: 'delta', delta: { tool_calls: [odd] } },
        ],
      });
      return chatAt(chat.url);
    },
  },
])(
  'two calls of one id, one with arguments that are no JSON, are an answer of $adapter',
  async ({ answer }) => {
    const events = await collect(answer(), aRequest());
    expect(grammarProblems(events)).toEqual([]);
    expect(contentIn(events)).toEqual([
      { type: 'tool_call', call_id: 'same', name: 'rye_first', input: { a: 1 } },
      { type: 'tool_call', call_id: 'same-2', name: 'rye_second', input: {}, malformed: '{"a": ' },
    ]);
  },
);
