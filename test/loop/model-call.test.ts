import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { userText } from '../../src/kernel/core/message.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { hiddenMessage } from '../../src/kernel/loop/conversation.ts';
import type { ErrorRule } from '../../src/kernel/policy/error-class.ts';
import type { ModelEvent, ModelProvider } from '../../src/kernel/providers/provider.ts';
import {
  answers,
  fails,
  hangs,
  MODEL,
  planOf,
  play,
  toolOf,
  trace,
  VirtualClock,
} from './scripted.ts';

const START: ModelEvent = { type: 'start', model: 'model-1' };
const OTHER = { ...MODEL, provider: 'other', id: 'model-2' };
const settings = (max_retries: number) => ({ settings: { ...planOf().settings, max_retries } });

const OVERLOADED: ErrorRule = {
  id: 'overloaded',
  status: [{ first: 529, last: 529 }],
  type: [],
  phase: [],
  message: [],
  category: 'transient',
  retryable: true,
  policy: {
    kind: 'use_header',
    fallback: { kind: 'exponential', baseMs: 2000, maxMs: 60_000 },
  },
};

async function* streamOf(
  events: readonly ModelEvent[],
  ..._rest: readonly unknown[]
): AsyncGenerator<ModelEvent> {
  yield* events;
  await Promise.resolve();
}

const cut = (text: string) => answers(text, [], { reason: 'max_tokens' });

describe('retries', () => {
  // Requirement: retries-never-made
  it('are bounded by max_retries', async () => {
    const { outcome, requests } = await play({
      plan: settings(2),
      turns: [fails(), fails(), fails(), answers('never')],
    });
    expect(requests).toHaveLength(3);
    expect(outcome).toMatchObject({
      kind: 'error',
      error: { code: 'provider_unreachable', message: 'scripted/model-1: overloaded' },
    });
  });

  it('of an overload last five minutes and end with its error, the thread and the command', async () => {
    const clock = new VirtualClock();
    const { outcome, events, requests } = await play({
      turns: Array.from({ length: 400 }, () => fails()),
      ports: {
        clock,
        errorRules: [OVERLOADED],
        about: () => Promise.resolve({ access: 'key: SOME_KEY, from ~/.ai/.env' }),
      },
    });
    expect(requests.length).toBeGreaterThan(9);
    expect(clock.time).toBeGreaterThan(240_000);
    expect(clock.time).toBeLessThanOrEqual(300_000);
    expect(outcome).toMatchObject({
      kind: 'error',
      error: {
        code: 'provider_unreachable',
        message: 'scripted/model-1: overloaded',
        hint: 'When the provider answers again: rye threads resume demo-1 (key: SOME_KEY, from ~/.ai/.env)',
        details: { access: 'key: SOME_KEY, from ~/.ai/.env' },
      },
    });
    const waits = events.flatMap(({ event_type, payload }) =>
      event_type === 'retry_scheduled' ? [payload] : [],
    );
    expect(waits[0]).toEqual({
      attempt: 1,
      delay_ms: 1500,
      policy: 'use_header',
      reason: 'overloaded',
    });
    expect(waits.map(({ delay_ms: ms }) => ms)).toEqual(
      waits.map(({ delay_ms: ms }) => ms).toSorted((a, b) => a - b),
    );
  });

  it('outlast an overload of four minutes', async () => {
    const clock = new VirtualClock();
    const { outcome } = await play({
      turns: Array.from(
        { length: 20 },
        () => (request, signal) =>
          streamOf(clock.time < 240_000 ? fails() : answers('Done.'), request, signal),
      ),
      ports: { clock, errorRules: [OVERLOADED] },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
  });

  it('are charged for what broken answers cost, and end at the spend limit', async () => {
    const { outcome, requests } = await play({
      plan: { limits: { ...planOf().limits, spend: 0.2 } },
      turns: Array.from({ length: 9 }, () =>
        fails({ phase: 'stream' }, [START, { type: 'text_delta', text: 'x'.repeat(40_000) }]),
      ),
    });
    expect(requests.length).toBeLessThan(4);
    expect(outcome).toMatchObject({ kind: 'limit', name: 'spend' });
  });

  it('leave the run to another process that is to continue it', async () => {
    const clock = new VirtualClock();
    const { outcome, requests } = await play({
      turns: [fails(), fails(), answers('never')],
      ports: {
        clock,
        errorRules: [OVERLOADED],
        parkReason: () => (clock.time > 2000 ? 'the worker drains' : undefined),
      },
    });
    expect(requests).toHaveLength(2);
    expect(clock.time).toBeLessThan(4000);
    expect(outcome).toMatchObject({
      kind: 'suspended',
      isParked: true,
      reason: 'the worker drains',
    });
  });

  it('take a message to the thread along at once', async () => {
    const clock = new VirtualClock();
    let isSent = false;
    const message = hiddenMessage('delivery', 'Hurry up.');
    const { outcome, requests } = await play({
      turns: [fails(), answers('Done.')],
      ports: {
        clock,
        errorRules: [{ ...OVERLOADED, policy: { kind: 'fixed', delayMs: 60_000 } }],
        inbox: {
          isWaiting: () => Promise.resolve(!isSent && clock.time >= 2000),
          take: (point) => {
            if (isSent || clock.time < 2000) return Promise.resolve([]);
            isSent = true;
            expect(point).toBe('before_turn');
            return Promise.resolve([message]);
          },
        },
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(clock.time).toBeLessThan(5000);
    expect(requests[1]?.messages.at(-1)).toEqual(userText('Hurry up.'));
  });

  it('send the same context again, without the partial answer', async () => {
    const { requests, events } = await play({
      turns: [
        fails({ phase: 'stalled' }, [START, { type: 'text_delta', text: 'Ha' }]),
        answers('Hi.'),
      ],
    });
    expect(requests[1]).toEqual(requests[0]);
    const partial = events.find(
      ({ event_type, payload }) =>
        event_type === 'message' &&
        payload.message.role === 'assistant' &&
        payload.message.stop_reason === 'aborted',
    );
    expect(trace(events)).toContain(`omit ${partial?.id}`);
  });

  it('are not made for a permanent failure', async () => {
    const { outcome, requests } = await play({ turns: [fails({ status: 400 })] });
    expect(requests).toHaveLength(1);
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'provider_rejected' } });
  });

  it('wait for the delay that a hook sets', async () => {
    const clock = new VirtualClock();
    const { events } = await play({
      turns: [fails({ status: 400 }), answers('Done.')],
      control: (event) => (event === 'error' ? { control: 'retry', delay_seconds: 7 } : undefined),
      ports: { clock },
    });
    expect(trace(events)).toContain('retry 1 after 7000');
    expect(clock.slept).toContain(7000);
  });

  it('by hooks are bounded too', async () => {
    const { requests } = await play({
      turns: Array.from({ length: 9 }, () => fails({ status: 400 })),
      control: (event) => (event === 'error' ? { control: 'retry', delay_seconds: 0 } : undefined),
    });
    expect(requests).toHaveLength(4);
  });

  it('end at once when the run is cancelled while waiting', async () => {
    const cancel = new AbortController();
    const { outcome, requests } = await play({
      turns: [fails(), answers('never')],
      signal: cancel.signal,
      ports: { clock: new VirtualClock({ auto: false }) },
      onEvent: ({ event_type }) => {
        if (event_type === 'retry_scheduled') queueMicrotask(() => cancel.abort('enough'));
      },
    });
    expect(outcome).toMatchObject({ kind: 'cancelled', reason: 'enough' });
    expect(requests).toHaveLength(1);
  });

  it('end with the duration limit', async () => {
    const { outcome } = await play({
      plan: { limits: { ...planOf().limits, duration_seconds: 5 } },
      turns: [fails(), answers('never')],
      control: (event) => (event === 'error' ? { control: 'retry', delay_seconds: 60 } : undefined),
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'duration_seconds' });
  });
});

describe('a wait that the provider asks for', () => {
  const limited = { status: 429, message: 'slow down', retry_after_ms: 60_000 } as const;
  const errorRules: readonly ErrorRule[] = [
    {
      id: 'limited',
      status: [{ first: 429, last: 429 }],
      type: [],
      phase: [],
      message: [],
      category: 'rate_limited',
      retryable: true,
      policy: { kind: 'use_header', fallback: { kind: 'none' } },
    },
  ];
  const plan = { limits: { ...planOf().limits, duration_seconds: 50 } };

  it('is waited where there is time for it', async () => {
    const clock = new VirtualClock();
    const { outcome, events } = await play({
      turns: [fails(limited), answers('Done.')],
      ports: { clock, errorRules },
    });
    expect(outcome.kind).toBe('completed');
    expect(trace(events)).toContain('retry 1 after 60000');
    expect(clock.slept).toContain(60_000);
  });

  it('beyond the limit is not begun: the next model takes over at once', async () => {
    const clock = new VirtualClock();
    const { outcome, requests, events } = await play({
      plan: { ...plan, fallbacks: [OTHER] },
      turns: [fails(limited), answers('Done.')],
      ports: { clock, errorRules },
    });
    expect(outcome.kind).toBe('completed');
    expect(requests.map(({ model }) => model)).toEqual(['model-1', 'model-2']);
    expect(clock.slept).not.toContain(60_000);
    expect(trace(events)).not.toContain('retry');
  });

  it('beyond the limit ends the run at once with the delay in the error when there is no other model', async () => {
    const { outcome, requests } = await play({
      plan,
      turns: [fails(limited), answers('never')],
      ports: { errorRules },
    });
    expect(requests).toHaveLength(1);
    expect(outcome).toMatchObject({
      kind: 'error',
      error: {
        code: 'provider_rate_limited',
        message:
          'scripted/model-1: slow down; it asks to wait 60 s, which is longer than the thread may still run',
        details: { retry_after_seconds: 60 },
      },
    });
  });
});

describe('error hooks', () => {
  it.each([
    [
      { control: 'fail', error: 'no' },
      { kind: 'error', error: { message: 'no' } },
    ],
    [{ control: 'abort' }, { kind: 'error', error: { code: 'aborted_by_hook' } }],
    [
      { control: 'suspend', reason: 'r' },
      { kind: 'suspended', reason: 'r' },
    ],
    [{ control: 'handoff' }, { kind: 'handoff' }],
    [{ control: 'fail' }, { kind: 'error', error: { code: 'provider_unreachable' } }],
  ] as const)('decide %j', async (action, expected) => {
    const { outcome, requests } = await play({
      turns: [fails()],
      control: (event) => (event === 'error' ? action : undefined),
    });
    expect(outcome).toMatchObject(expected);
    expect(requests).toHaveLength(1);
  });

  it('see the failure and its class', async () => {
    const { hooks } = await play({ turns: [fails({ status: 401, type: 'auth' })] });
    expect(hooks[0]).toMatchObject({
      event: 'error',
      context: {
        source: 'model',
        error: { message: 'overloaded', status: 401, type: 'auth' },
        classification: { category: 'permanent', retryable: false },
        attempt: 1,
        turn: 1,
      },
    });
  });
});

describe('fallbacks', () => {
  it('take over after a permanent failure, without the first model’s thoughts', async () => {
    const thought = { type: 'thinking', text: 'hm', signature: 's' } as const;
    const { outcome, events, requests } = await play({
      plan: { fallbacks: [OTHER] },
      turns: [fails({ status: 400 }), answers('Done.')],
      ports: {
        history: [
          userText('Do it.'),
          {
            role: 'assistant',
            content: [thought, { type: 'text', text: 'Well' }],
            provider: 'scripted',
            model: 'model-1',
            stop_reason: 'end',
            usage: {
              input_tokens: 0,
              output_tokens: 0,
              cache_read_tokens: 0,
              cache_write_tokens: 0,
            },
          },
          userText('Go on.'),
        ],
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(trace(events)).toContain('model_change');
    expect(requests.map(({ model }) => model)).toEqual(['model-1', 'model-2']);
    expect(requests[0]?.messages[1]?.content).toHaveLength(2);
    expect(requests[1]?.messages[1]?.content).toEqual([{ type: 'text', text: 'Well' }]);
  });

  it('take over after exhausted retries and get their own', async () => {
    const { requests, outcome } = await play({
      plan: { ...settings(1), fallbacks: [OTHER] },
      turns: [fails(), fails(), fails(), fails()],
    });
    expect(requests.map(({ model }) => model)).toEqual([
      'model-1',
      'model-1',
      'model-2',
      'model-2',
    ]);
    expect(outcome).toMatchObject({
      kind: 'error',
      error: { message: 'other/model-2: overloaded' },
    });
  });

  it('take over when a provider cannot be made', async () => {
    const missing = (): never => {
      throw new RyeError('provider_key_missing', 'SOME_KEY is not set');
    };
    const { outcome } = await play({ turns: [], ports: { provider: missing } });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'provider_key_missing' } });
    const other: ModelProvider = {
      name: 'other',
      async *stream() {
        yield* answers('Done.') as readonly ModelEvent[];
        await Promise.resolve();
      },
    };
    const asked: string[] = [];
    const second = await play({
      plan: { fallbacks: [OTHER] },
      turns: [],
      ports: {
        provider: ({ id }) => {
          asked.push(id);
          return id === 'model-1' ? missing() : other;
        },
      },
    });
    expect(second.outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
    expect(asked).toEqual(['model-1', 'model-2']);
  });

  // Requirement: failed-call-closes-turn
  it('take over in the middle of an answer: its partial text is paid for, recorded and not sent', async () => {
    const usage = {
      input_tokens: 50,
      output_tokens: 1,
      cache_read_tokens: 0,
      cache_write_tokens: 0,
    };
    const { outcome, events, requests } = await play({
      plan: { ...settings(0), fallbacks: [{ ...OTHER, pricing: { input: 2, output: 20 } }] },
      turns: [
        fails({ phase: 'stream' }, [
          START,
          { type: 'usage', usage },
          { type: 'text_delta', text: 'Half an answer, '.repeat(25) },
        ]),
        answers('A whole one.'),
      ],
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'A whole one.' });
    expect(requests.map(({ model }) => model)).toEqual(['model-1', 'model-2']);
    expect(requests[1]?.messages).toEqual(requests[0]?.messages);
    // 50 in at 1 and 100 out at 10 USD for a million, then 100 in at 2 and 10 out at 20
    expect(outcome.cost).toMatchObject({ input_tokens: 150, output_tokens: 110, turns: 1 });
    expect(outcome.cost.spend).toBeCloseTo((50 + 1000 + 200 + 200) / 1e6, 9);
    const partial = events.find(
      ({ event_type, payload }) =>
        event_type === 'message' &&
        payload.message.role === 'assistant' &&
        payload.message.stop_reason === 'aborted',
    );
    expect(partial?.payload).toMatchObject({ message: { model: 'model-1', provider: 'scripted' } });
    const order = trace(events);
    const places = [`omit ${partial?.id}`, 'transient', 'model_change'].map((what) =>
      order.findIndex((line) => line.includes(what)),
    );
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(places).not.toContain(-1);
  });
});

describe('what a call costs', () => {
  it('is charged when it fails half-way, by the provider’s count', async () => {
    const usage = {
      input_tokens: 50,
      output_tokens: 1,
      cache_read_tokens: 5,
      cache_write_tokens: 0,
    };
    const heard: ModelEvent[] = [
      START,
      { type: 'usage', usage },
      { type: 'text_delta', text: 'x'.repeat(400) },
    ];
    const { outcome } = await play({
      plan: settings(0),
      turns: [fails({ phase: 'stream' }, heard)],
    });
    expect(outcome.cost).toMatchObject({
      input_tokens: 50,
      output_tokens: 100,
      cache_read_tokens: 5,
    });
  });

  it('is the provider’s count, as it is, when the answer is whole', async () => {
    const { outcome } = await play({ turns: [answers('x'.repeat(4000))] });
    expect(outcome.cost.output_tokens).toBe(10);
  });

  it('is estimated when the stream died without a count', async () => {
    const { outcome } = await play({
      plan: settings(0),
      turns: [fails({ phase: 'stream' }, [START, { type: 'text_delta', text: 'x'.repeat(400) }])],
    });
    expect(outcome.cost.output_tokens).toBe(100);
    expect(outcome.cost.input_tokens).toBeGreaterThan(0);
  });

  it.each([
    { status: 400 },
    { message: 'Overloaded', phase: 'stream', type: 'overloaded_error' },
  ] as const)('is nothing when the provider refused it: %j', async (refusal) => {
    const { outcome } = await play({ plan: settings(0), turns: [fails(refusal)] });
    expect(outcome.cost).toMatchObject({ input_tokens: 0, output_tokens: 0, spend: 0 });
  });
});

describe('odd streams', () => {
  it('that end without a finish are failures', async () => {
    const { outcome, events } = await play({ turns: [[START], answers('Done.')] });
    expect(trace(events)).toContain('classified transient');
    expect(outcome.kind).toBe('completed');
  });

  it('that throw are failures', async () => {
    const { outcome } = await play({
      plan: settings(0),
      turns: [
        () => {
          throw new Error('socket');
        },
      ],
    });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'provider_unreachable' } });
  });

  it('with a filtered answer fail as such, and the answer leaves the context', async () => {
    const { outcome, events } = await play({
      turns: [answers('Bad', [], { reason: 'content_filtered' })],
    });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'content_filtered' } });
    expect(trace(events)).toContain('omit e3');
  });

  it('cut at max_tokens are continued and joined', async () => {
    const { outcome, requests } = await play({
      turns: [cut('One '), cut('two '), answers('three')],
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'One two three' });
    expect(requests[2]?.messages).toHaveLength(5);
  });

  it('cut at max_tokens forever end the thread, with what there is', async () => {
    const { outcome } = await play({ turns: Array.from({ length: 20 }, () => cut('x')) });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'answer_cut' } });
    expect(outcome.last_text).toMatch(/^x{4,}$/);
  });

  it('with an empty answer get one more chance', async () => {
    const { outcome, requests } = await play({ turns: [answers(''), answers('')] });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'answer_empty' } });
    // the empty answer is not sent back
    expect(requests[1]?.messages.map(({ role }) => role)).toEqual(['user', 'user']);
  });

  it('that overflow the context are compacted once and tried again', async () => {
    const full = fails({ type: 'context_exceeded', status: 400 });
    let compactions = 0;
    const { outcome, requests } = await play({
      turns: [full, full],
      ports: {
        compact: () => {
          compactions += 1;
          const usage = {
            input_tokens: 0,
            output_tokens: 0,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
          };
          return Promise.resolve({ drafts: [], messages: [userText('Short.')], usage });
        },
      },
    });
    expect(compactions).toBe(1);
    expect(requests[1]?.messages).toEqual([userText('Short.')]);
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'context_exceeded' } });
  });
});

const watchFor = (word: string, keepPartial: boolean) => {
  let fired = false;
  return {
    watchStream: () => ({
      observe: (event: ModelEvent) => {
        if (fired || event.type !== 'text_delta' || !event.text.includes(word)) return undefined;
        fired = true;
        return {
          reason: 'rule',
          keepPartial,
          drafts: [hiddenMessage('rule', 'Do not say that.')],
        };
      },
      settle: () => Promise.resolve(undefined),
      takeTriggers: () => [],
      accept: () => {},
      reminderFor: () => undefined,
      takeFollowUps: () => [],
    }),
  };
};

describe('a stream watcher', () => {
  it('interrupts, records the partial first and asks again without it', async () => {
    const { outcome, events, requests } = await play({
      turns: [hangs('a secret'), answers('Done.')],
      ports: watchFor('secret', false),
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
    expect(trace(events)).toEqual([
      'turn 1',
      'delta a secret',
      'assistant aborted',
      'omit e3',
      'inject rule',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ]);
    expect(requests[1]?.messages).toEqual([userText('Do it.'), userText('Do not say that.')]);
  });

  it('keeps the partial where asked, without its calls', async () => {
    const { requests, events } = await play({
      turns: [
        [
          START,
          { type: 'toolcall_start', call_id: 'a', name: 'rye_echo' },
          { type: 'toolcall_delta', call_id: 'a', json: '{}' },
          { type: 'text_delta', text: 'a secret' },
        ],
        answers('Done.'),
      ],
      tools: { rye_echo: toolOf('rye/echo') },
      ports: watchFor('secret', true),
    });
    expect(trace(events)).toContain('assistant aborted');
    expect(requests[1]?.messages[1]?.content).toEqual([{ type: 'text', text: 'a secret' }]);
    expect(requests[1]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
  });
});

it('reads a stream no faster than the log takes it', async () => {
  const { runLoop } = await import('../../src/kernel/loop/loop.ts');
  const { portsOf } = await import('./scripted.ts');
  let read = 0;
  const endless = async function* (): AsyncGenerator<ModelEvent> {
    for (;;) {
      read += 1;
      yield { type: 'text_delta', text: 'x' };
    }
  };
  const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
  const loop = runLoop(planOf(), portsOf({ turns: [endless] }, facts), AbortSignal.any([]));
  // the turn's start, then the first deltas; then the consumer stops
  await loop.next();
  await loop.next([]);
  for (let tick = 0; tick < 5000; tick += 1) await Promise.resolve();
  expect(read).toBeLessThan(300);
  await loop.return({ kind: 'handoff', cost: NO_COST, last_text: '' });
});

// Requirement: memory-grows
it('takes half a million deltas in flat memory, each for microseconds', {
  timeout: 300_000,
}, async () => {
  const COUNT = 500_000;
  let peak = 0;
  const base = process.memoryUsage().heapUsed;
  const { runLoop } = await import('../../src/kernel/loop/loop.ts');
  const { portsOf } = await import('./scripted.ts');
  const delta: ModelEvent = { type: 'text_delta', text: 'abcd' };
  const free = { ...MODEL, context_window: 4e6, max_output_tokens: 2e6, pricing: null };
  const loop = runLoop(
    planOf({
      model: free,
      allow_unpriced: true,
      limits: { ...planOf().limits, tokens: 4e6 },
    }),
    portsOf(
      {
        turns: [
          async function* () {
            yield START;
            for (let index = 0; index < COUNT; index += 1) yield delta;
            yield { type: 'finish', reason: 'end', content: [{ type: 'text', text: 'x' }] };
          },
        ],
      },
      { requests: [], reported: [], hooks: [], artifacts: new Map() },
    ),
    new AbortController().signal,
  );
  const began = performance.now();
  let deltas = 0;
  let step = await loop.next();
  while (step.done !== true) {
    for (const { event_type } of step.value) if (event_type === 'token_delta') deltas += 1;
    if (deltas % 4096 < 256) peak = Math.max(peak, process.memoryUsage().heapUsed - base);
    step = await loop.next([]);
  }
  expect(deltas).toBe(COUNT);
  expect(step.value.kind).toBe('completed');
  // generous: garbage is only collected now and then; keeping the events would take more than this
  expect(peak).toBeLessThan(60e6);
  expect(performance.now() - began).toBeLessThan(120_000);
});
