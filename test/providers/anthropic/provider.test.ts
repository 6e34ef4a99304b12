import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { anthropicProvider } from '../../../src/kernel/providers/anthropic/provider.ts';
import { retryAfter } from '../../../src/kernel/providers/failure.ts';
import type { ModelEvent, ProviderFailure } from '../../../src/kernel/providers/provider.ts';
import {
  aRequest,
  collect,
  failureIn,
  grammarProblems,
} from '../../../testing/conformance/provider.ts';
import {
  reply,
  startWireServer,
  text,
  type WireServer,
  type WireStep,
  type WireTurn,
} from '../../helpers/wire-server.ts';
import { claudeAt, manualClock, providerConfig, SECRET_KEY, systemClock } from '../fixtures.ts';

async function withServer<T>(
  turns: readonly WireTurn[],
  use: (server: WireServer) => Promise<T>,
): Promise<T> {
  const server = await startWireServer(turns);
  try {
    return await use(server);
  } finally {
    await server.close();
  }
}

async function readUntilText(events: AsyncIterator<ModelEvent>): Promise<void> {
  for (let next = await events.next(); next.done !== true; next = await events.next()) {
    if (next.value.type === 'text_delta') return;
  }
}

async function failureOf(turn: WireTurn): Promise<ProviderFailure> {
  return withServer([turn], async (server) => failureIn(await collect(claudeAt(server.url))));
}

describe('failures of a response', () => {
  test.for([
    [400, 'invalid_request_error'],
    [401, 'authentication_error'],
    [408, 'timeout_error'],
    [429, 'rate_limit_error'],
    [500, 'api_error'],
    [529, 'overloaded_error'],
  ] as const)('%i carries status, type, message and request id', async ([status, type]) => {
    await expect(failureOf({ status, error: { type, message: 'because' } })).resolves.toEqual({
      phase: 'response',
      status,
      type,
      message: 'because',
      request_id: 'req_0',
    });
  });

  test.for([
    [{ 'retry-after': '7' }, 7000],
    [{ 'retry-after': '0.5' }, 500],
    [{ 'retry-after-ms': '150', 'retry-after': '9' }, 150],
    [{ 'retry-after': 'Sat, 21 Nov 2026 00:00:30 GMT' }, 30_000],
    [{ 'retry-after': 'Sat, 21 Nov 2020 00:00:30 GMT' }, 0],
    [{ 'retry-after': 'soon' }, undefined],
    [{ 'retry-after': '-3' }, undefined],
  ] as const)('headers %j ask to wait %s ms', ([headers, expected]) => {
    const entries = Object.entries(headers) as [string, string][];
    expect(retryAfter(new Headers(entries), Date.UTC(2026, 10, 21))).toBe(expected);
  });

  test('the wait that a 429 asks for is in its failure', async () => {
    const failure = await failureOf({ status: 429, headers: { 'retry-after': '3' } });
    expect(failure.retry_after_ms).toBe(3000);
  });

  test('a page of a proxy is cut and put on one line', async () => {
    const failure = await failureOf({
      status: 502,
      body: `<html>\n<h1>Bad</h1>\n${'x'.repeat(9000)}`,
    });
    expect(failure).toMatchObject({ phase: 'response', status: 502 });
    expect(failure.message).toMatch(/^127\.0\.0\.1:\d+ answered 502: <html> <h1>Bad/);
    expect(failure.message.length).toBeLessThan(300);
  });

  test('a wrong content type is a failure of the response', async () => {
    await expect(
      failureOf({ pieces: ['<', 'html>'], contentType: 'text/html' }),
    ).resolves.toMatchObject({
      phase: 'response',
      status: 200,
      type: 'unexpected_content_type',
    });
  });

  test('one attempt is made for every failure', async () => {
    await withServer([{ status: 529 }, reply('no')], async (server) => {
      await collect(claudeAt(server.url));
      expect(server.requests).toHaveLength(1);
    });
  });
});

describe('failures of a connection', () => {
  test('the server is down', async () => {
    const probe = createServer();
    await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
    const { port } = probe.address() as AddressInfo;
    await new Promise((resolve) => probe.close(resolve));
    const failure = failureIn(await collect(claudeAt(`http://127.0.0.1:${port}`)));
    expect(failure).toEqual({
      phase: 'connect',
      type: 'ECONNREFUSED',
      message: `cannot reach 127.0.0.1:${port}: ECONNREFUSED`,
    });
  });

  test('a reset before the response', async () => {
    await expect(failureOf('reset')).resolves.toMatchObject({
      phase: 'connect',
      type: 'ECONNRESET',
    });
  });

  test('a reset in the middle of the answer', async () => {
    const failure = await failureOf({ steps: [text('a'), { kind: 'reset' }] });
    expect(failure.phase).toBe('stream');
    expect(failure.type).toBe('ECONNRESET');
  });

  test.for([
    'nowhere',
    'user:password@nowhere',
    'http://user:password@127.0.0.1:1',
    'file:///password',
  ])('the address %s is refused and not repeated', async (address) => {
    const failure = failureIn(await collect(claudeAt(address)));
    expect(failure).toMatchObject({ phase: 'connect', type: 'ERR_INVALID_URL' });
    expect(failure.message).not.toContain('password');
  });
});

describe('failures inside the stream', () => {
  test('an error event ends it, after the text so far', async () => {
    const turn: WireTurn = {
      steps: [text('half'), { kind: 'error', type: 'overloaded_error', message: 'busy' }],
    };
    const events = await withServer([turn], async (server) => collect(claudeAt(server.url)));
    expect(grammarProblems(events)).toEqual([]);
    expect(events).toContainEqual({ type: 'text_delta', text: 'half' });
    expect(failureIn(events)).toEqual({
      phase: 'stream',
      type: 'overloaded_error',
      message: 'busy',
    });
  });

  test('an event that is not JSON', async () => {
    const failure = await failureOf({
      steps: [{ kind: 'raw', bytes: 'event: x\ndata: {"a":\n\n' }],
    });
    expect(failure).toMatchObject({ phase: 'stream', type: 'malformed_event' });
  });

  test('a body that ends politely but too early', async () => {
    const failure = await failureOf({ steps: [text('a'), { kind: 'truncate' }] });
    expect(failure).toMatchObject({ phase: 'stream', type: 'incomplete_stream' });
  });
});

describe('stalls', () => {
  test('no answer at all for stall_seconds breaks the call and closes the connection', async () => {
    const clock = manualClock();
    await withServer(['hang'], async (server) => {
      const outcome = collect(claudeAt(server.url, clock, 60));
      const { closed } = await server.request(0);
      await clock.advance(59_000);
      await clock.advance(1000);
      await clock.advance(60_000);
      expect(failureIn(await outcome)).toMatchObject({ phase: 'stalled' });
      await expect(closed).resolves.toBe(true);
    });
  });

  test('a model may think for longer before its first byte than within its answer', async () => {
    const clock = manualClock();
    const waits = { kind: 'wait', until: new Promise(() => undefined) } as const;
    await withServer(['hang', { steps: [text('a'), waits] }], async (server) => {
      const claude = claudeAt(server.url, clock, 120, 300);
      const silent = collect(claude);
      await server.request(0);
      for (const ms of [200_000, 99_000, 1000]) await clock.advance(ms);
      expect(failureIn(await silent).message).toContain('300 s (retry.first_byte_seconds)');
      const events = claude.stream(aRequest(), new AbortController().signal);
      const iterator = events[Symbol.asyncIterator]();
      await readUntilText(iterator);
      const next = iterator.next();
      for (const ms of [1000, 119_000, 120_000]) await clock.advance(ms);
      const message = expect.stringContaining('120 s (retry.idle_seconds)');
      await expect(next).resolves.toMatchObject({ value: { failure: { message } } });
    });
  });

  test('0 means that nothing is too long', async () => {
    const clock = manualClock();
    let go = (): void => undefined;
    const until = new Promise<void>((resolve) => {
      go = resolve;
    });
    await withServer([{ steps: [{ kind: 'wait', until }, text('late')] }], async (server) => {
      const outcome = collect(claudeAt(server.url, clock, 0));
      await server.request(0);
      await clock.advance(10 * 86_400_000);
      go();
      expect((await outcome).at(-1)).toMatchObject({ type: 'finish' });
    });
  });

  test('silence in the middle of the answer counts as well', async () => {
    const clock = manualClock();
    const turn: WireTurn = {
      steps: [text('a'), { kind: 'wait', until: new Promise(() => undefined) }],
    };
    await withServer([turn], async (server) => {
      const events = claudeAt(server.url, clock, 60).stream(
        aRequest(),
        new AbortController().signal,
      );
      const iterator = events[Symbol.asyncIterator]();
      await readUntilText(iterator);
      const next = iterator.next();
      await clock.advance(60_000);
      await clock.advance(60_000);
      await expect(next).resolves.toMatchObject({
        value: {
          type: 'error',
          failure: { phase: 'stalled', message: expect.stringContaining('60 s') },
        },
      });
    });
  });

  test('pings keep it alive, and so do comments', async () => {
    const clock = manualClock();
    const open: (() => void)[] = [];
    const gate = (): WireStep => ({
      kind: 'wait',
      until: new Promise<void>((resolve) => open.push(resolve)),
    });
    const remark: WireStep = { kind: 'raw', bytes: ': here\n\n' };
    const turn: WireTurn = {
      steps: [text('a'), gate(), { kind: 'ping' }, gate(), remark, gate(), text('b')],
    };
    await withServer([turn], async (server) => {
      const events = claudeAt(server.url, clock, 60).stream(
        aRequest(),
        new AbortController().signal,
      );
      const iterator = events[Symbol.asyncIterator]();
      await readUntilText(iterator);
      const rest = iterator.next();
      const [ping, comment, words] = open;
      for (const letThrough of [ping, comment]) {
        await clock.advance(40_000);
        const read = clock.asked();
        letThrough?.();
        // the adapter looks at the clock when it starts to wait for the next byte
        await read;
      }
      await clock.advance(40_000);
      words?.();
      await expect(rest).resolves.toEqual({
        done: false,
        value: { type: 'text_delta', text: 'b' },
      });
      await iterator.return?.();
    });
  });

  test('a slow reader is not a dead server', async () => {
    const clock = manualClock();
    let open = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const turn: WireTurn = { steps: [text('a'), { kind: 'wait', until: gate }, text('b')] };
    await withServer([turn], async (server) => {
      const provider = claudeAt(server.url, clock, 60);
      const events: ModelEvent[] = [];
      for await (const event of provider.stream(aRequest(), new AbortController().signal)) {
        events.push(event);
        // more than the limit passes here, while no read is waiting
        if (event.type === 'text_delta')
          for (let minute = 0; minute < 5; minute += 1) await clock.advance(60_000);
        if (event.type === 'text_delta') open();
      }
      expect(grammarProblems(events)).toEqual([]);
      expect(events.at(-1)?.type).toBe('finish');
    });
  });
});

async function ask(env: Record<string, string>, config = providerConfig()): Promise<ModelEvent[]> {
  return collect(anthropicProvider({ config, env, clock: systemClock, stallSeconds: 60 }));
}

describe('credentials', () => {
  test('the key, else the token, of the given environment is sent', async () => {
    await withServer([reply('a'), reply('b')], async ({ url, requests }) => {
      await ask({
        ANTHROPIC_BASE_URL: url,
        ANTHROPIC_API_KEY: 'the-key',
        ANTHROPIC_AUTH_TOKEN: 'the-token',
      });
      await ask({ ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: 'the-token' });
      expect(requests.map(({ headers }) => headers.authorization)).toEqual([
        'Bearer the-key',
        'Bearer the-token',
      ]);
    });
  });

  test('extra headers and the configured address are used', async () => {
    await withServer([reply('a')], async ({ url, requests }) => {
      const config = providerConfig({ baseUrl: `${url}/proxy`, headers: { 'X-Team': 'blue' } });
      await ask({ ANTHROPIC_API_KEY: 'k' }, config);
      expect(requests[0]).toMatchObject({
        path: '/proxy/v1/messages',
        headers: { 'x-team': 'blue' },
      });
    });
  });

  test('without any the call fails before it reaches out, and names the variable', async () => {
    const failure = failureIn(await ask({}));
    expect(failure).toMatchObject({ phase: 'connect', type: 'provider_key_missing' });
    expect(failure.message).toContain('ANTHROPIC_API_KEY');
  });

  test('no failure shows the key, even where the server does', async () => {
    const turns: WireTurn[] = [
      {
        status: 401,
        error: { type: 'authentication_error', message: `invalid key ${SECRET_KEY}` },
      },
      { status: 502, body: `<p>${SECRET_KEY}</p>` },
      { steps: [{ kind: 'error', type: 'api_error', message: `${SECRET_KEY} ${SECRET_KEY}` }] },
    ];
    await withServer(turns, async (server) => {
      const provider = claudeAt(server.url);
      for (const _ of turns) {
        const failure = JSON.stringify(failureIn(await collect(provider)));
        expect(failure).toContain('***');
        expect(failure).not.toContain(SECRET_KEY);
      }
    });
  });
});

test('nothing is written to the terminal, not even about deprecated models', async () => {
  const methods = ['log', 'info', 'warn', 'error', 'debug'] as const;
  const spies = methods.map((method) =>
    vi.spyOn(console, method).mockImplementation(() => undefined),
  );
  vi.stubEnv('ANTHROPIC_LOG', 'debug');
  const malformed: WireTurn = { steps: [{ kind: 'raw', bytes: 'event: x\ndata: {\n\n' }] };
  await withServer([reply('a'), malformed, { status: 500 }], async ({ url }) => {
    const provider = claudeAt(url);
    for (let call = 0; call < 3; call += 1)
      await collect(provider, aRequest({ model: 'claude-sonnet-4-5' }));
  });
  vi.unstubAllEnvs();
  const written = spies.flatMap((spy) => spy.mock.calls);
  vi.restoreAllMocks();
  expect(written).toEqual([]);
});
