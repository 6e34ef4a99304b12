import { describe, expect, it } from 'vitest';
import { shippedKinds } from '../../src/kernel/app/models.ts';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { compact } from '../../src/kernel/core/json.ts';
import type { AssistantMessage } from '../../src/kernel/core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../src/kernel/core/plan.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import { traitsOf } from '../../src/kernel/providers/provider.ts';
import {
  type Connections,
  lostUsage,
  withLost,
} from '../../src/kernel/threads/recovery/lost-usage.ts';
import { logOf, MODEL, planOf } from '../loop/scripted.ts';

const DEAR: PlannedModel = { ...MODEL, id: 'dear', pricing: { input: 100, output: 100 } };
const PLAN = planOf({
  model: { ...MODEL, kind: 'anthropic', pricing: { input: 2, output: 10 } },
  fallbacks: [DEAR],
});

const TURN: EventDraft = { event_type: 'turn_started', payload: { turn: 3 } };
function estimate(input: number, output: number, reserved?: number) {
  return {
    provider: MODEL.provider,
    model: PLAN.model.id,
    input_tokens: input,
    max_tokens: output,
    reserved_usd: reserved ?? (input * 2 + output * 10) / 1e6,
  };
}
const asked = (input: number, output: number, reserved?: number): EventDraft => ({
  event_type: 'turn_started',
  payload: { turn: 3, request: estimate(input, output, reserved) },
});
const delta = (text: string): EventDraft => ({ event_type: 'token_delta', payload: { text } });
const booked: EventDraft = {
  event_type: 'cost',
  payload: { turn: 2, usage: NO_USAGE, total: { ...NO_COST, spend: 0.5 } },
};
function answer(output: number, model = PLAN.model.id): EventDraft {
  const message: AssistantMessage = {
    role: 'assistant',
    content: [{ type: 'text', text: 'Said.' }],
    provider: MODEL.provider,
    model,
    stop_reason: 'tool_calls',
    usage: { ...NO_USAGE, input_tokens: 100, output_tokens: output },
  };
  return { event_type: 'message', payload: { message } };
}

/** A draft with the milliseconds since the start of the log at which it was written. */
type Timed = readonly [ms: number, draft: EventDraft];

/** Returns what is lost at `endMs`, 0 being the start of the log. */
function lostAt(
  timed: readonly Timed[],
  endMs: number,
  { settled, ...changes }: Partial<ThreadPlan> & Pick<Connections, 'settled'> = {},
) {
  const { events, append } = logOf();
  append(timed.map(([, draft]) => draft));
  const at = (ms: number): string => new Date(START_MS + ms).toISOString();
  const written = events.map((event, index) => ({
    ...event,
    timestamp: at(timed[index]?.[0] ?? 0),
  }));
  const plan = { ...PLAN, ...changes };
  const traits = traitsOf(shippedKinds(), plan.model.kind);
  const rates: Readonly<Record<string, number>> = { [MODEL.provider]: 500, fast: 3000 };
  const rateOf = (provider: string): number => rates[provider] ?? Number.POSITIVE_INFINITY;
  return lostUsage(written, plan, {
    traits,
    endMs: START_MS + endMs,
    rateOf,
    ...compact({ settled }),
  });
}
const START_MS = Date.parse('2026-01-01T00:00:00.000Z');

function lostOf(drafts: readonly EventDraft[], changes: Partial<ThreadPlan> = {}) {
  const { events, append } = logOf();
  append([
    {
      event_type: 'message',
      payload: { message: { role: 'user', content: [{ type: 'text', text: 'x'.repeat(394) }] } },
    },
    ...drafts,
  ]);
  const plan = { ...PLAN, ...changes };
  const traits = traitsOf(shippedKinds(), plan.model.kind);
  return lostUsage(events, plan, { traits, endMs: Number.POSITIVE_INFINITY, rateOf: () => 500 });
}

describe('what a dead process had not booked', () => {
  it.each<[string, EventDraft[]]>([
    ['nothing was asked', []],
    ['the last turn is paid for', [TURN, delta('abcd'), answer(5), booked]],
    ['the answers were copied and not continued', [answer(5), answer(7)]],
  ])('is nothing where %s', (_, drafts) => {
    expect(lostOf(drafts)).toBeUndefined();
  });

  it('is the answers since, as they were counted', () => {
    const lost = lostOf([booked, TURN, delta('abcd'), answer(5), answer(7)]);
    expect(lost?.turn).toBe(3);
    expect(lost?.answered.usage).toEqual({ ...NO_USAGE, input_tokens: 200, output_tokens: 12 });
    expect(lost?.answered.price).toBe(200 * 2 + 12 * 10);
    expect(lost?.open.price).toBe(0);
  });

  it('is what was being heard, with the context that was asked, as an estimate', () => {
    const { open } = lostOf([TURN, delta('abcd'), delta('efgh')]) ?? {};
    expect(open?.usage.output_tokens).toBe(2);
    expect(open?.usage.input_tokens).toBeGreaterThan(98);
    expect(open?.usage.input_tokens).toBeLessThan(150);
    expect(open?.price).toBe((open?.usage.input_tokens ?? 0) * 2 + 2 * 10);
  });

  it('counts a second try apart from the first', () => {
    const { answered, open } = lostOf([TURN, delta('abcdefgh'), answer(2), delta('abcd')]) ?? {};
    expect([answered?.usage.output_tokens, open?.usage.output_tokens]).toEqual([2, 1]);
  });

  it('has the price of the model that was asked', () => {
    const change: EventDraft = {
      event_type: 'model_change',
      payload: { provider: MODEL.provider, model: 'dear' },
    };
    const lost = lostOf([TURN, answer(1), change, answer(1, 'dear'), delta('abcd')]);
    expect(lost?.answered.price).toBe(100 * 2 + 10 + 101 * 100);
    expect(lost?.open.price).toBe(100 * ((lost?.open.usage.input_tokens ?? 0) + 1));
  });

  it('is the estimate of the request when no word of the answer had arrived', () => {
    expect(lostOf([booked, TURN])?.open.usage.input_tokens).toBeGreaterThan(98);
    expect(lostOf([TURN, answer(5), booked, TURN])?.open.usage.output_tokens).toBe(0);
    expect(lostOf([TURN, answer(1), booked])).toBeUndefined();
  });

  it('is the input, what arrived and the time without a word of an open call', () => {
    const { open } =
      lostAt(
        [
          [0, asked(1000, 16_384)],
          [200, delta('words')],
        ],
        400,
      ) ?? {};
    // 0.2 s before, 0.2 s after, and 0.05 s in which the provider does not know of the end
    expect(open?.usage).toEqual({ ...NO_USAGE, input_tokens: 1000, output_tokens: 2 + 225 });
    expect(open?.price).toBeGreaterThanOrEqual(1000 * 2 + 227 * 10);
    expect(open?.price).toBeLessThanOrEqual(1000 * 2 + 227 * 10 + 1);
  });

  it('is measured as far as the provider counted: its input, or all once it was asked', () => {
    const usage = { ...NO_USAGE, input_tokens: 30, cache_read_tokens: 70, output_tokens: 1 };
    const begun: EventDraft = {
      event_type: 'answer_started',
      payload: { turn: 3, usage, at: new Date(START_MS + 900).toISOString(), response_id: 'gen-1' },
    };
    const cut: Timed[] = [
      [0, asked(1000, 16_384)],
      [1000, begun],
      [1000, delta('words')],
    ];
    const { open } = lostAt(cut, 1000) ?? {};
    expect(open?.usage).toEqual({ ...usage, output_tokens: 1 + 2 + 525 });
    expect(open).toMatchObject({ price: 30 * 2 + 70 * 2 + 5280, estimated: 5280 });
    const whole = { ...NO_USAGE, input_tokens: 100, output_tokens: 9 };
    const settled = new Map([['gen-1', whole]]);
    expect(lostAt(cut, 1000, { settled })?.open).toEqual({
      usage: whole,
      price: 290,
      estimated: 0,
    });
    // it tells nothing of another answer
    const retry: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'retry', request: estimate(7, 50) },
    };
    expect(lostAt([...cut, [1000, retry]], 90_000, { settled })?.open.estimated).toBe(514);
  });

  it('counts a judgment beside an answer that is still open', () => {
    const judgment: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'judgment', request: estimate(7, 50) },
    };
    const alone = lostAt(
      [
        [0, asked(100, 16_384)],
        [0, delta('words')],
      ],
      0,
    )?.open.usage;
    const both = lostAt(
      [
        [0, asked(100, 16_384)],
        [0, delta('words')],
        [0, judgment],
      ],
      0,
    )?.open;
    expect(both?.usage.input_tokens).toBe((alone?.input_tokens ?? 0) + 7);
  });

  it('counts each tool call of an open answer, with its name', () => {
    const call = (id: string): EventDraft => {
      return { event_type: 'toolcall_delta', payload: { call_id: id, json: '{}' } };
    };
    const both: Timed[] = [
      [0, call('a')],
      [0, call('b')],
      [0, call('a')],
    ];
    const { open } = lostAt([[0, asked(1, 16_384)], ...both], 0) ?? {};
    expect(open?.usage.output_tokens).toBe(Math.ceil(6 / 1.4 + 2 * 32 + 25));
  });

  it('has the rate of the provider of each call', () => {
    const request = { ...estimate(1, 16_384), provider: 'fast', model: 'dear' };
    const quick: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'retry', request },
    };
    const fallbacks = [{ ...DEAR, provider: 'fast' }];
    expect(lostAt([[0, quick]], 950, { fallbacks })?.open.usage.output_tokens).toBe(3000);
    const other = {
      ...quick,
      payload: { ...quick.payload, request: { ...request, provider: 'x' } },
    };
    expect(lostAt([[0, other]], 900, { fallbacks })?.open.usage.output_tokens).toBe(16_384);
  });

  it('counts a summary from its own start, beside an answer', () => {
    const summary: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'summary', request: estimate(10, 13_000) },
    };
    const { open } =
      lostAt(
        [
          [0, asked(1, 16_384)],
          [1000, answer(5)],
          [2000, summary],
        ],
        2950,
      ) ?? {};
    expect(open?.usage).toMatchObject({ input_tokens: 10, output_tokens: 500 });
    const both = lostAt(
      [
        [0, summary],
        [2000, asked(1, 16_384)],
      ],
      2950,
    );
    expect(both?.open.usage.output_tokens).toBe(1500 + 500);
  });

  it('does not book an open call twice: what a crash booked is booked', () => {
    const first = lostAt([[0, asked(1000, 16_384)]], 400);
    const again = lostAt(
      [
        [0, asked(1000, 16_384)],
        [500, booked],
      ],
      900,
    );
    expect(first?.open.usage.output_tokens).toBe(225);
    expect(again).toBeUndefined();
    const second = lostAt(
      [
        [0, asked(1000, 16_384)],
        [500, booked],
        [600, asked(7, 50)],
      ],
      60_000,
    );
    expect(second?.open.usage).toMatchObject({ input_tokens: 7, output_tokens: 50 });
  });

  it('is all that an open call had reserved when the log tells that', () => {
    expect(lostOf([booked, asked(1000, 500)])?.open).toEqual({
      usage: { ...NO_USAGE, input_tokens: 1000, output_tokens: 500 },
      price: 7000,
      estimated: 7000,
    });
    // what was heard proves no upper bound
    expect(lostOf([asked(1000, 500), delta('abcd')])?.open.price).toBe(7000);
    expect(lostOf([asked(1000, 500), delta('abcd'), answer(5)])?.open.price).toBe(0);
  });

  it('is not less than the reservation when a cache write costs more than input', () => {
    expect(lostOf([asked(1000, 500, 0.009)])?.open.price).toBe(9000);
  });

  it('counts each call of a turn: the failed one as far as it was counted, the open one whole', () => {
    const failed: EventDraft = {
      event_type: 'error_classified',
      payload: {
        category: 'transient',
        retryable: true,
        message: 'cut',
        usage: { ...NO_USAGE, input_tokens: 10 },
      },
    };
    const retry: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'retry', request: estimate(100, 50) },
    };
    const lost = lostOf([asked(1000, 500), failed, retry]);
    expect(lost?.answered.price).toBe(20);
    expect(lost?.open.price).toBe(100 * 2 + 50 * 10);
    expect(lostOf([asked(1000, 500), failed])?.open.price).toBe(0);
  });

  it('keeps a call for a summary open until it is booked', () => {
    const summary: EventDraft = {
      event_type: 'request_started',
      payload: { turn: 3, purpose: 'summary', request: estimate(100, 50) },
    };
    expect(lostOf([asked(1000, 500), answer(5), summary])?.open.price).toBe(700);
    expect(lostOf([booked, summary])?.open.price).toBe(700);
    expect(lostOf([asked(1000, 500), answer(5), summary, booked])).toBeUndefined();
  });

  it('is nothing where no model is asked', () => {
    const model = { ...PLAN.model, kind: 'literal' };
    expect(lostOf([TURN, delta('abcd'), answer(5)], { model })).toBeUndefined();
  });

  it('is added to what was booked, and once where the ledger had been told', () => {
    const lost = lostOf([booked, TURN, answer(10), delta('abcd')]);
    const open = lost?.open.price ?? 0;
    const total = { ...NO_COST, spend: 0.5 };
    expect(withLost(total, 0, lost).spend).toBeCloseTo(0.5 + (300 + open) / 1e6, 9);
    expect(withLost(total, 500_300, lost).spend).toBeCloseTo(0.5 + (300 + open) / 1e6, 9);
    expect(withLost(total, 600_000, lost).spend).toBeCloseTo(0.6 + open / 1e6, 9);
    expect(withLost(total, 0, undefined)).toEqual(total);
  });

  it('keeps the estimate apart from what was measured, over several crashes', () => {
    const lost = lostOf([booked, TURN, answer(10), delta('abcd')]);
    const open = (lost?.open.price ?? 0) / 1e6;
    const once = withLost({ ...NO_COST, spend: 0.5 }, 0, lost);
    expect(once.estimated_spend_usd).toBeCloseTo(open, 9);
    expect(once.spend - open).toBeCloseTo(0.5 + 300 / 1e6, 9);
    expect(withLost(once, 0, lost).estimated_spend_usd).toBeCloseTo(2 * open, 9);
    expect(withLost(NO_COST, 0, lostOf([TURN, answer(10)]))).not.toHaveProperty(
      'estimated_spend_usd',
    );
  });
});
