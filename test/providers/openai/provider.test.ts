import { describe, expect, onTestFinished, test } from 'vitest';
import type { ProviderFailure } from '../../../src/kernel/providers/provider.ts';
import {
  aRequest,
  collect,
  contentIn,
  failureIn,
  grammarProblems,
} from '../../../testing/conformance/provider.ts';
import { type ChatTurn, chatCall, chatText, startChatServer } from '../../helpers/chat-server.ts';
import { chatAt, manualClock, SECRET_KEY, systemClock } from '../fixtures.ts';

async function serve(...turns: readonly ChatTurn[]) {
  const server = await startChatServer(turns);
  onTestFinished(() => server.close());
  return server;
}

async function failureOf(turn: ChatTurn) {
  const { url } = await serve(turn);
  const events = await collect(chatAt(url));
  expect(grammarProblems(events)).toEqual([]);
  return failureIn(events);
}

describe('failures before the stream', () => {
  test.each([
    [
      'OpenAI, no quota',
      429,
      {
        message: 'You exceeded your current quota',
        type: 'insufficient_quota',
        param: null,
        code: 'insufficient_quota',
      },
      { type: 'insufficient_quota' },
    ],
    [
      'OpenAI, too long',
      400,
      {
        message: "This model's maximum context length is 1 tokens",
        type: 'invalid_request_error',
        code: 'context_length_exceeded',
      },
      { type: 'context_length_exceeded' },
    ],
    [
      'OpenAI, bad key',
      401,
      { message: 'Incorrect API key', type: 'invalid_request_error', code: 'invalid_api_key' },
      { type: 'invalid_api_key' },
    ],
    [
      'OpenRouter, no credits',
      402,
      { message: 'Insufficient credits', code: 402 },
      { message: 'Insufficient credits' },
    ],
    [
      'vLLM',
      400,
      { message: 'no such model', type: 'NotFoundError', param: null, code: 404 },
      { type: 'NotFoundError' },
    ],
    [
      'llama.cpp',
      503,
      { code: 503, message: 'Loading model', type: 'unavailable_error' },
      { type: 'unavailable_error' },
    ],
  ])('%s', async (_name, status, error, expected) => {
    expect(await failureOf({ status, error })).toMatchObject({
      phase: 'response',
      status,
      request_id: 'req_7',
      ...expected,
    });
  });

  test.each([
    [
      'old vLLM',
      '{"object":"error","message":"too long","type":"BadRequestError","code":400}',
      'too long',
    ],
    ['FastAPI', '{"detail":"Not Found"}', 'Not Found'],
    ['a text error', '{"error":"model not found"}', 'model not found'],
    ['a page of a proxy', '<html>Bad gateway</html>', 'Bad gateway'],
    ['nothing', '', 'answered 502'],
  ])('the body of %s becomes the message', async (_name, body, message) => {
    const failure = await failureOf({
      status: 502,
      body,
      headers: { 'content-type': 'application/json' },
    });
    expect(failure).toMatchObject({ phase: 'response', status: 502 });
    expect(failure.message).toContain(message);
  });

  test.each([
    [{ 'retry-after': '7' }, 7000],
    [{ 'retry-after-ms': '250' }, 250],
    [{}, undefined],
  ])('what a response asks to wait: %j', async (headers, ms) => {
    expect((await failureOf({ status: 429, headers })).retry_after_ms).toBe(ms);
  });

  test('a connection that is refused names the host and the cause', async () => {
    const server = await startChatServer([]);
    await server.close();
    const failure = failureIn(await collect(chatAt(server.url)));
    expect(failure).toMatchObject({ phase: 'connect', type: 'ECONNREFUSED' });
    expect(failure.message).toContain('127.0.0.1');
  });

  test('a reset before the headers', async () => {
    expect(await failureOf('reset')).toMatchObject({ phase: 'connect' });
  });

  test('an answer that is not a stream', async () => {
    for (const pieces of [['<html>'], ['event', ' of the day'], ['\n\n', 'Hello: x']]) {
      const failure = await failureOf({ pieces, contentType: 'text/plain' });
      expect(failure).toMatchObject({ phase: 'response', type: 'unexpected_content_type' });
    }
  });
});

describe('failures in the stream', () => {
  test('a reset', async () => {
    const failure = await failureOf({ steps: [...chatText('a'), { kind: 'reset' }] });
    expect(failure).toMatchObject({ phase: 'stream', type: 'ECONNRESET' });
  });

  test('a polite end without the last chunk', async () => {
    const failure = await failureOf({ steps: [...chatText('a'), { kind: 'truncate' }] });
    expect(failure).toMatchObject({ phase: 'stream', type: 'incomplete_stream' });
  });

  test('no answer at all is a stall', async () => {
    const server = await serve('hang');
    const clock = manualClock();
    const reading = collect(chatAt(server.url, {}, clock, 60));
    await server.request(0);
    for (const ms of [59_000, 1000, 60_000]) await clock.advance(ms);
    const message = expect.stringContaining('60 s') as string;
    expect(failureIn(await reading)).toMatchObject({ phase: 'stalled', message });
  });

  test('silence in the middle of an answer is a stall', async () => {
    const wait = { kind: 'wait', until: new Promise(() => undefined) } as const;
    const { url } = await serve({ steps: [...chatText('a'), wait] });
    const clock = manualClock();
    const failures: ProviderFailure[] = [];
    for await (const event of chatAt(url, {}, clock, 60).stream(
      aRequest(),
      new AbortController().signal,
    )) {
      if (event.type === 'error') failures.push(event.failure);
      if (event.type !== 'text_delta') continue;
      setImmediate(() => {
        void clock.advance(60_000).then(async () => clock.advance(60_000));
      });
    }
    expect(failures).toMatchObject([{ phase: 'stalled' }]);
  });
});

test('a key that a server repeats is not repeated further', async () => {
  const failure = await failureOf({
    status: 401,
    error: { message: `Incorrect API key: ${SECRET_KEY}` },
  });
  expect(JSON.stringify(failure)).not.toContain(SECRET_KEY);
});

test('the key goes into the header, and a server without a key gets none', async () => {
  const server = await serve({ steps: chatText('a') }, { steps: chatText('a') });
  await collect(chatAt(server.url, { headers: { 'x-title': 'rye' } }));
  await collect(chatAt(server.url, { apiKeyEnv: null }));
  const [first, second] = server.requests;
  expect(first?.headers).toMatchObject({ authorization: `Bearer ${SECRET_KEY}`, 'x-title': 'rye' });
  expect(second?.headers['authorization']).toBeUndefined();
  expect(first?.path).toBe('/v1/chat/completions');
});

test.each([
  ['m', null, '/v1/chat/completions'],
  ['m', '/deployments/{model}/chat', '/v1/deployments/m/chat'],
  ['team/m 1?x', '/deployments/{model}/chat', '/v1/deployments/team%2Fm%201%3Fx/chat'],
])('the model %s is asked at the path %s', async (model, chatPath, path) => {
  const { url, requests } = await serve({ steps: chatText('a') });
  await collect(chatAt(url, { chatPath }), { ...aRequest(), model });
  expect(requests.map((request) => request.path)).toEqual([path]);
});

test('without its key, or with an address that is none, nothing is asked', async () => {
  const { url, requests } = await serve();
  expect(failureIn(await collect(chatAt(url, { apiKeyEnv: 'NOT_SET' })))).toMatchObject({
    type: 'provider_key_missing',
  });
  for (const address of ['ftp://x', 'http://user:pw@x', 'nowhere']) {
    const failure = failureIn(await collect(chatAt(address)));
    expect(failure).toMatchObject({ type: 'ERR_INVALID_URL' });
    expect(failure.message).not.toContain('pw');
  }
  expect(requests).toHaveLength(0);
});

test('a call of a tool whose name was cut comes back under its whole name', async () => {
  const name = `rye_${'deep_'.repeat(20)}end`;
  const server = await startChatServer(() => ({ steps: [] }));
  const tools = [{ name, description: '', input_schema: { type: 'object' } }];
  await collect(chatAt(server.url), aRequest({ tools }));
  const short = server.requests[0]?.body.tools?.[0]?.function.name ?? '';
  await server.close();
  const { url } = await serve({ steps: chatCall(0, short, {}) });
  const content = contentIn(await collect(chatAt(url, {}, systemClock), aRequest({ tools })));
  expect(content).toMatchObject([{ type: 'tool_call', name }]);
});

const STREAM = [
  'data: {"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
  'data: [DONE]\n\n',
];
const DOCUMENT = {
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 3, completion_tokens: 1 },
};

test.each([
  ['text/plain; charset=utf-8', STREAM],
  ['Text/Event-Stream', STREAM],
  ['application/octet-stream', STREAM],
  ['application/json', STREAM],
  ['text/html', [': ping\n\n', ...STREAM]],
  ['binary/unknown', ['\n', 'd', 'ata', ...STREAM.map((text) => text.replace(/^data/, ''))]],
  ['application/json', [JSON.stringify(DOCUMENT)]],
  ['text/event-stream', [JSON.stringify(DOCUMENT, null, 2)]],
  ['application/json; charset=utf-8', ['\uFEFF', JSON.stringify(DOCUMENT, null, '\n\n')]],
] as const)('an answer that is labeled %s is read', async (contentType, pieces) => {
  const server = await startChatServer([{ pieces, contentType }]);
  const events = await collect(chatAt(server.url));
  expect(contentIn(events)).toEqual([{ type: 'text', text: 'Hi' }]);
  await server.close();
});
