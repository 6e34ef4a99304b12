import { expect, test } from 'vitest';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import type { ErrorRule } from '../../src/kernel/policy/error-class.ts';
import type { ModelEvent } from '../../src/kernel/providers/provider.ts';
import { REMOTE_MODEL } from '../../src/kernel/providers/provider.ts';
import { type Summarizer, summarize } from '../../src/kernel/threads/run/summarize.ts';
import { answers, fails, MODEL, VirtualClock } from '../loop/scripted.ts';

const OVERLOADED: ErrorRule = {
  id: 'overloaded',
  status: [{ first: 529, last: 529 }],
  type: [],
  phase: [],
  message: [],
  category: 'transient',
  retryable: true,
  policy: { kind: 'exponential', baseMs: 2000, maxMs: 60_000 },
};

/** A summarizer whose provider gives these answers in order. */
function summarizerOf(turns: (readonly ModelEvent[])[], clock: VirtualClock): Summarizer {
  return {
    model: MODEL,
    traits: () => REMOTE_MODEL,
    provider: () => ({
      name: 'scripted',
      async *stream() {
        yield* turns.shift() ?? fails();
        await Promise.resolve();
      },
    }),
    clock,
    errorRules: [OVERLOADED],
    random: () => 0.5,
    maxTokens: 1000,
    remainingMicroUsd: 1_000_000,
    allowUnpriced: false,
    retries: { maxSeconds: 300, maxRetries: undefined },
    about: () => Promise.resolve({ access: 'key: SOME_KEY, from the environment' }),
  };
}

const signal = (): AbortSignal => new AbortController().signal;

test('a summary outlasts an overload of minutes, with an event for each wait', async () => {
  const clock = new VirtualClock();
  const waits: (string | undefined)[] = [];
  const turns = [...Array.from({ length: 7 }, () => fails()), answers('Short.')];
  const summarizer = summarizerOf(turns, clock);
  const onRetry = ({ reason, purpose }: { reason?: string; purpose?: string }): void => {
    waits.push(`${purpose}: ${reason}`);
  };
  expect(await summarize({ ...summarizer, onRetry }, 'Long.', signal())).toMatchObject({
    text: 'Short.',
  });
  expect(waits).toEqual(Array.from({ length: 7 }, () => 'summary: overloaded'));
  expect(clock.time).toBeGreaterThan(100_000);
});

test('a summary gives up after retry.max_seconds, with the origin of the key', async () => {
  const clock = new VirtualClock();
  const answer = await summarize(summarizerOf([], clock), 'Long.', signal());
  expect(clock.time).toBeLessThanOrEqual(300_000);
  expect(answer).toMatchObject({
    error: {
      code: 'provider_unreachable',
      hint: 'The thread is unchanged. When the provider answers again: run the command again (key: SOME_KEY, from the environment)',
    },
  });
});

test('a wait for a summary ends at once when it is cancelled', async () => {
  const clock = new VirtualClock({ auto: false });
  const cancel = new AbortController();
  const summarizer = summarizerOf([], clock);
  const onRetry = (): void => queueMicrotask(() => cancel.abort());
  expect(await summarize({ ...summarizer, onRetry }, 'Long.', cancel.signal)).toMatchObject({
    error: { code: 'cancelled' },
  });
});

test('a summary that is broken off is paid for, also before its first byte', async () => {
  const cancel = new AbortController();
  const summarizer = summarizerOf([], new VirtualClock());
  const hanging = (events: readonly ModelEvent[], aborted: ModelEvent[]): Summarizer => ({
    ...summarizer,
    provider: () => ({
      name: 'scripted',
      async *stream(_request, stopped) {
        yield* events;
        cancel.abort();
        if (!stopped.aborted) await new Promise((go) => stopped.addEventListener('abort', go));
        yield* aborted;
      },
    }),
  });
  const aborted: ModelEvent = { type: 'error', failure: { message: 'aborted', phase: 'aborted' } };
  const silent = await summarize(hanging([], [aborted]), 'x'.repeat(14_000), cancel.signal);
  expect(silent).toMatchObject({ error: { code: 'cancelled' } });
  expect(silent.usage.input_tokens).toBeGreaterThanOrEqual(10_000);
  // one that is cancelled before it is sent costs nothing
  const unsent = await summarize(hanging([], [aborted]), 'x', cancel.signal);
  expect(unsent.usage).toMatchObject({ input_tokens: 0, output_tokens: 0 });
});

test('a summary is not sent if the budget has its price no more', async () => {
  let sent = 0;
  const summarizer: Summarizer = {
    ...summarizerOf([answers('Short.')], new VirtualClock()),
    hold: () => Promise.resolve(false),
    onRequest: () => {
      sent += 1;
    },
  };
  expect(await summarize(summarizer, 'Long.', signal())).toMatchObject({
    error: { code: 'budget_insufficient' },
  });
  expect(sent).toBe(0);
});

test('a summary that was broken off leaves its price to the budget of the next try', async () => {
  const usage = { ...NO_USAGE, input_tokens: 4000 };
  const broken = fails({}, [{ type: 'usage', usage }]);
  const turns = [broken, answers('Short.')];
  // enough for the shortest answer, but not with what the first try has used
  const summarizer = { ...summarizerOf(turns, new VirtualClock()), remainingMicroUsd: 6000 };
  expect(await summarize(summarizer, 'Long.', signal())).toMatchObject({
    error: { code: 'budget_insufficient' },
    usage: { input_tokens: 4000 },
  });
  expect(turns).toHaveLength(1);
});
