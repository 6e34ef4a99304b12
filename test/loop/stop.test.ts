import { array, assert, asyncProperty, constantFrom, integer, record } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { runLoop } from '../../src/kernel/loop/loop.ts';
import { errorOutput, textOutput } from '../../src/kernel/tools/tool.ts';
import {
  answers,
  fails,
  hangs,
  logOf,
  planOf,
  play,
  portsOf,
  type Script,
  toolOf,
  trace,
} from './scripted.ts';

const BUSY: Script = {
  tools: {
    rye_ls: toolOf('rye/ls'),
    rye_write: toolOf('rye/write', { traits: { reads_only: false } }),
    rye_alone: toolOf('rye/alone', { traits: { sequential: true } }),
  },
  turns: [
    fails(),
    answers('Look.', [
      { id: 'a', name: 'rye_ls' },
      { id: 'b', name: 'rye_alone' },
      { id: 'c', name: 'rye_write' },
      { id: 'd', name: 'nope' },
    ]),
    answers('More.', [{ id: 'e', name: 'rye_write' }]),
    answers('Done.'),
  ],
};

/** Every call of every recorded answer has exactly one result after it, in order, before the next answer. */
function expectPaired(events: readonly LogEvent[]): void {
  const asked: string[] = [];
  const answered: string[] = [];
  const mixedUp: string[] = [];
  for (const { event_type, payload } of events) {
    if (event_type !== 'message') continue;
    const { message } = payload;
    if (message.role === 'tool_result') answered.push(message.call_id);
    else if (message.role === 'assistant' && message.stop_reason !== 'aborted') {
      mixedUp.push(...asked.slice(answered.length));
      asked.push(...message.content.flatMap((b) => (b.type === 'tool_call' ? [b.call_id] : [])));
    }
  }
  expect(answered).toEqual(asked);
  expect(mixedUp).toEqual([]);
}

describe('cancellation', () => {
  // Requirement: skipped-call-result, cancel-waits
  it('at any event ends the run as cancelled, with a result for every call', async () => {
    const whole = await play(BUSY);
    expect(whole.outcome.kind).toBe('completed');
    for (let at = 1; at <= whole.events.length; at += 1) {
      for (const defer of [0, 1, 5]) {
        const cancel = new AbortController();
        const { outcome, events } = await play({
          ...BUSY,
          signal: cancel.signal,
          onEvent: ({ seq }) => {
            if (seq === at) void ticks(defer).then(() => cancel.abort('stop now'));
          },
        });
        expectPaired(events);
        // the last answer may already be there
        const mayBeOver = at >= whole.events.length - 3;
        const ended = outcome.kind === 'cancelled' ? outcome.reason : outcome.kind;
        expect(mayBeOver ? ['stop now', 'completed'] : ['stop now']).toContain(ended);
      }
    }
  });

  // Requirement: cancelled-run-calls-no-model
  it('before the start asks no model', async () => {
    const { outcome, requests } = await play({ ...BUSY, signal: AbortSignal.abort('never mind') });
    expect(outcome).toMatchObject({ kind: 'cancelled', reason: 'never mind' });
    expect(requests).toHaveLength(0);
  });

  // Requirement: abort-checked-after-turn
  it('by the port is seen at the next safe point', async () => {
    let turns = 0;
    const { outcome, requests } = await play({
      ...BUSY,
      onEvent: ({ event_type }) => {
        if (event_type === 'turn_started') turns += 1;
      },
      ports: { cancelled: () => (turns > 0 ? 'by its parent' : undefined) },
    });
    expect(outcome).toMatchObject({ kind: 'cancelled', reason: 'by its parent' });
    expect(requests).toHaveLength(2);
  });

  it('does not wait for a model that does not listen', async () => {
    const cancel = new AbortController();
    const { outcome } = await play({
      turns: [hangs('Hm', { obedient: false })],
      signal: cancel.signal,
      onEvent: ({ event_type }) => {
        if (event_type === 'token_delta') cancel.abort();
      },
    });
    expect(outcome.kind).toBe('cancelled');
  });

  it('ignores what a tool returns afterwards, except for saying it', async () => {
    const cancel = new AbortController();
    const { outcome, events } = await play({
      tools: {
        rye_slow: toolOf('rye/slow', {
          run: (_input, { signal }) =>
            new Promise((resolve) => {
              signal.addEventListener('abort', () => resolve(textOutput('finished anyway')));
            }),
        }),
        rye_next: toolOf('rye/next', { traits: { sequential: true } }),
      },
      turns: [
        answers('', [
          { id: 'a', name: 'rye_slow' },
          { id: 'b', name: 'rye_next' },
        ]),
      ],
      signal: cancel.signal,
      onEvent: ({ event_type }) => {
        if (event_type === 'tool_call_start') void ticks(5).then(() => cancel.abort());
      },
    });
    expect(outcome.kind).toBe('cancelled');
    expect(trace(events).slice(-5)).toEqual([
      'settled a aborted',
      'result a aborted',
      'settled b aborted',
      'result b aborted',
      'cost 1',
    ]);
    expect(trace(events)).not.toContain('start b rye/next');
  });

  it('does not wait for a hook', async () => {
    const cancel = new AbortController();
    const { outcome } = await play({
      ...BUSY,
      signal: cancel.signal,
      ports: {
        hooks: {
          control: () => {
            cancel.abort();
            return new Promise(() => undefined);
          },
          observe: () => new Promise(() => undefined),
          gate: () => new Promise(() => undefined),
        },
      },
    });
    expect(outcome.kind).toBe('cancelled');
  });
});

const start = (script: Script) => {
  const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
  return runLoop(planOf(), portsOf(script, facts), new AbortController().signal);
};

describe('the consumer', () => {
  it('that cannot write ends the run with its error, at any event', async () => {
    const { events } = await play(BUSY);
    for (let at = 1; at <= events.length; at += 1) {
      const loop = start(BUSY);
      const log = logOf();
      let step = await loop.next();
      while (step.done !== true) {
        step =
          log.events.length + step.value.length >= at
            ? await loop.throw(new RyeError('log_write_failed', 'no space left'))
            : await loop.next(log.append(step.value));
      }
      expect(step.value).toMatchObject({ kind: 'error', error: { code: 'log_write_failed' } });
      expect(log.events.length).toBeLessThan(at);
    }
  });

  it('that leaves stops what runs before the generator is done', async () => {
    let stopped = false;
    const loop = start({
      tools: {
        rye_slow: toolOf('rye/slow', {
          run: (_input, context) =>
            new Promise((resolve) => {
              context.progress('running');
              context.signal.addEventListener('abort', () => {
                stopped = true;
                resolve(textOutput(''));
              });
            }),
        }),
      },
      turns: [answers('', [{ id: 'a', name: 'rye_slow' }])],
    });
    const log = logOf();
    let step = await loop.next();
    while (step.done !== true && !step.value.some((d) => d.event_type === 'tool_call_progress')) {
      step = await loop.next(log.append(step.value));
    }
    await loop.return({ kind: 'handoff', cost: planCost, last_text: '' });
    expect(stopped).toBe(true);
  });

  it('gets its ports’ failures as an outcome', async () => {
    const { outcome } = await play({
      turns: [answers('Done.')],
      ports: {
        budget: {
          remainingMicroUsd: () => Promise.resolve(1e9),
          report: () => Promise.reject(new RyeError('storage_failed', 'the ledger is locked')),
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'storage_failed' } });
  });
});

// Requirement: one-result-per-call
it('answers every call exactly once, at any time of cancellation and with any tool', async () => {
  const tools = {
    ok: toolOf('rye/ok'),
    bad: toolOf('rye/bad', { run: () => Promise.resolve(errorOutput('bad')) }),
    throws: toolOf('rye/throws', { run: () => Promise.reject(new Error('boom')) }),
    slow: toolOf('rye/slow', { run: () => ticks(30).then(() => textOutput('slow')) }),
    deaf: toolOf('rye/deaf', {
      traits: { timeout_seconds: 2 },
      run: () => new Promise(() => undefined),
    }),
    alone: toolOf('rye/alone', { traits: { sequential: true } }),
    writes: toolOf('rye/writes', { traits: { reads_only: false }, writes: () => ['x'] }),
    denied: toolOf('other/denied'),
  };
  const kind = constantFrom(...Object.keys(tools), 'unknown', 'malformed', 'directive_return');
  const script = record({
    batches: array(array(kind, { minLength: 1, maxLength: 6 }), { maxLength: 3 }),
    cancelAt: integer({ min: 1, max: 60 }),
    parallel: integer({ min: 1, max: 4 }),
  });
  await assert(
    asyncProperty(script, async ({ batches, cancelAt, parallel }) => {
      const cancel = new AbortController();
      const { outcome, events } = await play({
        plan: {
          capabilities: ['rye.execute.tool.rye.*'],
          settings: { ...planOf().settings, tools_parallel: parallel },
        },
        tools,
        turns: [
          ...batches.map((names) =>
            // the same ids in every answer, on purpose
            answers(
              '',
              names.map((name, index) => ({
                id: `${index}`,
                name,
                ...(name === 'malformed' ? { malformed: '{' } : {}),
              })),
            ),
          ),
          answers('Done.'),
          answers('Done.'),
        ],
        signal: cancel.signal,
        onEvent: ({ seq }) => {
          if (seq === cancelAt) cancel.abort();
        },
      });
      expectPaired(events);
      expect(['completed', 'cancelled']).toContain(outcome.kind);
      const idsOf = (type: 'tool_call_start' | 'tool_settled'): string[] =>
        events.flatMap((event) => (event.event_type === type ? [event.payload.call_id] : []));
      const settled = idsOf('tool_settled');
      expect(new Set(settled).size).toBe(settled.length);
      for (const id of idsOf('tool_call_start')) expect(settled).toContain(id);
    }),
    { numRuns: 150, seed: 7 },
  );
});

const planCost = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
  turns: 0,
  spend: 0,
  elapsed_seconds: 0,
};

async function ticks(count: number): Promise<void> {
  for (let tick = 0; tick < count; tick += 1) await Promise.resolve();
}
