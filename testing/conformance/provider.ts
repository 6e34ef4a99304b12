import { afterEach, describe, expect, test } from 'vitest';
import { isJsonObject, parseJson } from '../../src/kernel/core/json.ts';
import type { AssistantBlock, Message } from '../../src/kernel/core/message.ts';
import { userText } from '../../src/kernel/core/message.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
} from '../../src/kernel/providers/provider.ts';

/** The content of an answer. Adapters translate it to their wire. */
export interface Scenario {
  readonly text: string;
  readonly calls: readonly { readonly name: string; readonly input: Record<string, unknown> }[];
}

/** A provider that is about to answer, and what the suite needs to know of it. */
export interface Opened {
  readonly provider: ModelProvider;
  /** Default: {@link aRequest}. */
  readonly request?: ModelRequest;
  /** Called after the test, even if it failed. */
  readonly close?: () => Promise<void>;
  /** Settles when the connection of the only call is gone: true when the client left early. Absent where there is none. */
  readonly disconnected?: () => Promise<boolean>;
  /** True once the other side could write everything it had. */
  readonly drained?: () => boolean;
}

/** Brings one adapter into each situation. */
export interface ProviderSituations {
  /** Answers with text and, where there are any, calls. */
  readonly answering: (scenario: Scenario) => Promise<Opened>;
  /** Fails, in a way that is usual for it. */
  readonly failing: () => Promise<Opened>;
  /** Speaks a little and then waits for ever. */
  readonly hanging?: () => Promise<Opened>;
  /** Sends more than buffers hold. */
  readonly flooding?: () => Promise<Opened>;
  /** Reasons why `hanging` or `flooding` cannot occur; each is given or has one. */
  readonly skips?: Readonly<Record<string, string>>;
}

export function aRequest(overrides: Partial<ModelRequest> = {}): ModelRequest {
  return {
    model: 'claude-sonnet-5-5',
    system: 'You are a test.',
    messages: [userText('go')] satisfies Message[],
    tools: [
      { name: 'rye_first', description: 'first', input_schema: { type: 'object' } },
      { name: 'rye_second', description: 'second', input_schema: { type: 'object' } },
    ],
    max_tokens: 1000,
    thinking: 'off',
    cache: true,
    ...overrides,
  };
}

export async function collect(
  provider: ModelProvider,
  request: ModelRequest = aRequest(),
  signal: AbortSignal = new AbortController().signal,
): Promise<ModelEvent[]> {
  const events: ModelEvent[] = [];
  for await (const event of provider.stream(request, signal)) events.push(event);
  return events;
}

/** The failure that a stream ended with; fails the test where it ended well. */
export function failureIn(events: readonly ModelEvent[]): ProviderFailure {
  const last = events.at(-1);
  if (last?.type !== 'error') throw new Error(`the stream ended with ${JSON.stringify(last)}`);
  return last.failure;
}

/** The content that a stream ended with; fails the test where it failed. */
export function contentIn(events: readonly ModelEvent[]): readonly AssistantBlock[] {
  const last = events.at(-1);
  if (last?.type !== 'finish') throw new Error(`the stream ended with ${JSON.stringify(last)}`);
  return last.content;
}

/** Lists where events break the grammar of the port, or deltas and content disagree. */
export function grammarProblems(events: readonly ModelEvent[]): string[] {
  const types = events.map(({ type }) => type);
  const ends = types.filter((type) => type === 'finish' || type === 'error');
  const problems: string[] = [];
  if (ends.length !== 1) problems.push(`${ends.length} ends`);
  if (types.at(-1) !== ends[0]) problems.push('something comes after the end');
  if (types.length > 1 && types[0] !== 'start')
    problems.push(`${types[0] ?? 'nothing'} comes before start`);
  if (types.lastIndexOf('start') > 0) problems.push('a second start');
  return [...problems, ...callProblems(events), ...contentProblems(events)];
}

function callProblems(events: readonly ModelEvent[]): string[] {
  const problems: string[] = [];
  const state = new Map<string, 'open' | 'ended'>();
  for (const event of events) {
    if (!('call_id' in event)) continue;
    const { type, call_id } = event;
    const before = state.get(call_id);
    if (type === 'toolcall_start' && before !== undefined)
      problems.push(`the call id ${call_id} twice`);
    if (type !== 'toolcall_start' && before !== 'open')
      problems.push(`${type} of ${call_id}, which is not open`);
    state.set(call_id, type === 'toolcall_end' ? 'ended' : 'open');
  }
  const finished = events.at(-1)?.type === 'finish';
  if (finished && [...state.values()].includes('open')) problems.push('a call that never ended');
  return problems;
}

function contentProblems(events: readonly ModelEvent[]): string[] {
  const last = events.at(-1);
  if (last?.type !== 'finish') return [];
  const problems: string[] = [];
  const deltas = events
    .flatMap((event) => (event.type === 'text_delta' ? [event.text] : []))
    .join('');
  const text = last.content
    .flatMap((block) => (block.type === 'text' ? [block.text] : []))
    .join('');
  if (deltas !== text) problems.push('the text deltas do not add up to the text');
  const started = events.flatMap((event) =>
    event.type === 'toolcall_start' ? [event.call_id] : [],
  );
  const calls = last.content.filter((block) => block.type === 'tool_call');
  if (started.join() !== calls.map(({ call_id }) => call_id).join())
    problems.push('calls and content differ');
  for (const { call_id, input, malformed } of calls) {
    const streamed = events
      .flatMap((event) =>
        event.type === 'toolcall_delta' && event.call_id === call_id ? [event.json] : [],
      )
      .join('');
    // servers that send all so far in each piece, or JSON in JSON, leave deltas that are no JSON object
    const value = parseJson(streamed || '{}');
    const agrees =
      malformed === undefined
        ? !isJsonObject(value) || JSON.stringify(value) === JSON.stringify(input)
        : streamed === malformed;
    if (!agrees) problems.push(`the deltas of ${call_id} do not add up to its input`);
  }
  return problems;
}

/** Declares the tests of the port to models. */
export function describeProvider(name: string, harness: ProviderSituations): void {
  describe(`the provider contract: ${name}`, () => {
    const closers: (() => Promise<void>)[] = [];
    afterEach(async () => {
      for (const close of closers.splice(0)) await close();
    });
    const opened = async (open: Promise<Opened>): Promise<Opened & { request: ModelRequest }> => {
      const result = await open;
      if (result.close) closers.push(result.close);
      return { request: aRequest(), ...result };
    };

    test('streams text and ends with all of it', async () => {
      const { provider, request } = await opened(
        harness.answering({ text: 'One 🙂 two', calls: [] }),
      );
      const events = await collect(provider, request);
      expect(grammarProblems(events)).toEqual([]);
      const text = contentIn(events).flatMap((block) =>
        block.type === 'text' ? [block.text] : [],
      );
      expect(text.join('')).toContain('One 🙂 two');
      expect(events.at(-1)).toMatchObject({ type: 'finish', reason: 'end' });
    });

    test('streams calls in order with their arguments', async () => {
      const calls = [
        { name: 'rye_first', input: { path: 'a b', n: 1, nested: { list: [1, 'zwei', null] } } },
        { name: 'rye_second', input: {} },
      ];
      const { provider, request } = await opened(harness.answering({ text: 'calling', calls }));
      const events = await collect(provider, request);
      expect(grammarProblems(events)).toEqual([]);
      const made = contentIn(events).flatMap((block) =>
        block.type === 'tool_call' ? [{ name: block.name, input: block.input }] : [],
      );
      expect(made).toEqual(calls);
      expect(events.at(-1)).toMatchObject({ type: 'finish', reason: 'tool_calls' });
    });

    test('reports usage at least once, never below zero', async () => {
      const { provider, request } = await opened(harness.answering({ text: 'x', calls: [] }));
      const usages = (await collect(provider, request)).flatMap((event) =>
        event.type === 'usage' ? [event.usage] : [],
      );
      expect(usages.length).toBeGreaterThan(0);
      for (const usage of usages) {
        expect(
          Object.values(usage).every((tokens) => Number.isSafeInteger(tokens) && tokens >= 0),
        ).toBe(true);
      }
    });

    test('a failure is the last event, with a message and a phase', async () => {
      const { provider, request } = await opened(harness.failing());
      const events = await collect(provider, request);
      expect(grammarProblems(events)).toEqual([]);
      const failure = failureIn(events);
      expect(failure.message.length).toBeGreaterThan(5);
      expect(failure.phase).not.toBe('aborted');
    });

    test('an aborted signal ends the call before it begins', async () => {
      const { provider, request } = await opened(harness.answering({ text: 'x', calls: [] }));
      const events = await collect(provider, request, AbortSignal.abort());
      expect(failureIn(events).phase).toBe('aborted');
      expect(events).toHaveLength(1);
    });

    test('an abort in the middle ends the stream after the text so far', async () => {
      const { provider, request } = await opened(
        harness.answering({ text: 'word '.repeat(400), calls: [] }),
      );
      const abort = new AbortController();
      const events: ModelEvent[] = [];
      for await (const event of provider.stream(request, abort.signal)) {
        events.push(event);
        if (event.type === 'text_delta') abort.abort();
      }
      expect(grammarProblems(events)).toEqual([]);
      expect(failureIn(events).phase).toBe('aborted');
    });

    test('two calls of one provider do not mix', async () => {
      const { provider, request } = await opened(harness.answering({ text: 'same', calls: [] }));
      const [left, right] = await Promise.all([
        collect(provider, request),
        collect(provider, request),
      ]);
      expect([...grammarProblems(left), ...grammarProblems(right)]).toEqual([]);
    });

    test('situations that cannot occur have a reason', () => {
      const missing = (['hanging', 'flooding'] as const).filter((situation) => !harness[situation]);
      expect(Object.keys(harness.skips ?? {})).toEqual(missing);
    });

    test.for(harness.hanging ? [harness.hanging] : [])(
      'an abort while nothing comes ends the call and closes the connection',
      async (hanging) => {
        const { provider, request, disconnected } = await opened(hanging());
        const abort = new AbortController();
        const events: ModelEvent[] = [];
        for await (const event of provider.stream(request, abort.signal)) {
          events.push(event);
          if (event.type === 'text_delta') setImmediate(() => abort.abort());
        }
        expect(failureIn(events).phase).toBe('aborted');
        await expect(disconnected?.()).resolves.toBe(true);
      },
    );

    test.for(harness.hanging ? [harness.hanging] : [])(
      'a consumer that leaves early closes the connection',
      async (hanging) => {
        const { provider, request, disconnected } = await opened(hanging());
        for await (const event of provider.stream(request, new AbortController().signal)) {
          if (event.type === 'text_delta') break;
        }
        await expect(disconnected?.()).resolves.toBe(true);
      },
    );

    test.for(harness.flooding ? [harness.flooding] : [])(
      'does not read ahead of its consumer',
      async (flooding) => {
        const { provider, request, drained } = await opened(flooding());
        const events = provider.stream(request, new AbortController().signal);
        const iterator = events[Symbol.asyncIterator]();
        await iterator.next();
        // many turns of the event loop in which a greedy adapter would take everything
        for (let turn = 0; turn < 200; turn += 1) await new Promise(setImmediate);
        expect(drained?.()).toBe(false);
        await iterator.return?.();
      },
    );
  });
}
