import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/core/events.ts';
import type { AssistantMessage } from '../../src/core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../src/core/plan.ts';
import { NO_COST, NO_USAGE } from '../../src/core/usage.ts';
import { lostUsage, withLost } from '../../src/threads/lost-usage.ts';
import { logOf, MODEL, planOf } from '../loop/scripted.ts';

const DEAR: PlannedModel = { ...MODEL, id: 'dear', pricing: { input: 100, output: 100 } };
const PLAN = planOf({
  model: { ...MODEL, kind: 'anthropic', pricing: { input: 2, output: 10 } },
  fallbacks: [DEAR],
});

const TURN: EventDraft = { event_type: 'turn_started', payload: { turn: 3 } };
const said = (text: string): EventDraft => ({ event_type: 'token_delta', payload: { text } });
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
  return lostUsage(events, { ...PLAN, ...changes });
}

describe('what a dead process had not booked', () => {
  it.each<[string, EventDraft[]]>([
    ['nothing was asked', []],
    ['the last turn is paid for', [TURN, said('abcd'), answer(5), booked]],
    ['not a word of the answer had come', [TURN, answer(5), booked, TURN]],
    ['the answers were copied and nobody had gone on from them', [answer(5), answer(7)]],
  ])('is nothing where %s', (_, drafts) => {
    expect(lostOf(drafts)).toBeUndefined();
  });

  it('is the answers since, as they were counted', () => {
    const lost = lostOf([booked, TURN, said('abcd'), answer(5), answer(7)]);
    expect(lost?.turn).toBe(3);
    expect(lost?.answered.usage).toEqual({ ...NO_USAGE, input_tokens: 200, output_tokens: 12 });
    expect(lost?.answered.price).toBe(200 * 2 + 12 * 10);
    expect(lost?.heard.price).toBe(0);
  });

  it('is what was being heard, with the context that was asked, as an estimate', () => {
    const { heard } = lostOf([TURN, said('abcd'), said('efgh')]) ?? {};
    expect(heard?.usage.output_tokens).toBe(2);
    expect(heard?.usage.input_tokens).toBeGreaterThan(98);
    expect(heard?.usage.input_tokens).toBeLessThan(150);
    expect(heard?.price).toBe((heard?.usage.input_tokens ?? 0) * 2 + 2 * 10);
  });

  it('counts a second try apart from the first', () => {
    const { answered, heard } = lostOf([TURN, said('abcdefgh'), answer(2), said('abcd')]) ?? {};
    expect([answered?.usage.output_tokens, heard?.usage.output_tokens]).toEqual([2, 1]);
  });

  it('has the price of the model that was asked', () => {
    const change: EventDraft = {
      event_type: 'model_change',
      payload: { provider: MODEL.provider, model: 'dear' },
    };
    const lost = lostOf([TURN, answer(1), change, answer(1, 'dear'), said('abcd')]);
    expect(lost?.answered.price).toBe(100 * 2 + 10 + 101 * 100);
    expect(lost?.heard.price).toBe(100 * ((lost?.heard.usage.input_tokens ?? 0) + 1));
  });

  it('is charged where the log has no deltas, and nobody knows', () => {
    const settings = { ...PLAN.settings, token_deltas: 'off' as const };
    expect(lostOf([booked, TURN], { settings })?.heard.usage.input_tokens).toBeGreaterThan(98);
    expect(lostOf([TURN, answer(1), booked], { settings })).toBeUndefined();
  });

  it('is nothing where no model is asked', () => {
    const model = { ...PLAN.model, kind: 'literal' as const };
    expect(lostOf([TURN, said('abcd'), answer(5)], { model })).toBeUndefined();
  });

  it('is added to what was booked, and once where the ledger had been told', () => {
    const lost = lostOf([booked, TURN, answer(10), said('abcd')]);
    const heard = lost?.heard.price ?? 0;
    const total = { ...NO_COST, spend: 0.5 };
    expect(withLost(total, 0, lost).spend).toBeCloseTo(0.5 + (300 + heard) / 1e6, 9);
    expect(withLost(total, 500_300, lost).spend).toBeCloseTo(0.5 + (300 + heard) / 1e6, 9);
    expect(withLost(total, 600_000, lost).spend).toBeCloseTo(0.6 + heard / 1e6, 9);
    expect(withLost(total, 0, undefined)).toEqual(total);
  });
});
