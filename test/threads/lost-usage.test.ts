import { describe, expect, it } from 'vitest';
import { shippedKinds } from '../../src/app/models.ts';
import type { EventDraft } from '../../src/core/events.ts';
import type { AssistantMessage } from '../../src/core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../src/core/plan.ts';
import { NO_COST, NO_USAGE } from '../../src/core/usage.ts';
import { traitsOf } from '../../src/providers/provider.ts';
import { lostUsage, withLost } from '../../src/threads/recovery/crashed-log.ts';
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
  return lostUsage(events, plan, traitsOf(shippedKinds(), plan.model.kind));
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

  it('is all that an open call had reserved when the log tells that', () => {
    expect(lostOf([booked, asked(1000, 500)])?.open).toEqual({
      usage: { ...NO_USAGE, input_tokens: 1000, output_tokens: 500 },
      price: 7000,
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
});
