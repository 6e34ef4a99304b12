import { describe, expect, it } from 'vitest';
import { logAccount } from '../../../src/faces/ui/render/log-line.ts';
import type { EventDraft } from '../../../src/kernel/core/events.ts';
import { NO_COST } from '../../../src/kernel/core/usage.ts';
import { event } from '../events.ts';

type Row = {
  [T in EventDraft['event_type']]: [T, Extract<EventDraft, { event_type: T }>['payload'], string];
};

const ROWS: readonly Row[keyof Row][] = [
  ['budget', { max_usd: 0.5, parent_thread_id: 'boss-1' }, '$0.5000 of boss-1'],
  ['turn_started', { turn: 2 }, 'turn 2'],
  ['system_prompt', { text: 'You are.', tools: [{}, {}] }, '8 characters, 2 tools: You are.'],
  ['context_injected', { position: 'before', blocks: [] }, 'before: nothing'],
  [
    'hook_fired',
    {
      id: 'h',
      layer: 3,
      event: 'limit',
      matched: true,
      duration_ms: 5,
      outcome: 'failed',
      error: 'no',
    },
    'h on limit: failed, 5ms: no',
  ],
  ['label', { target_id: 'a1', label: null }, 'none on a1'],
  [
    'context_edit',
    { target_id: 'a1', action: 'omit', reason: 'cut' },
    'the model no longer sees a1: cut',
  ],
  ['leaf', { target_id: null }, 'moved to the root'],
  ['delivery', { decision: 'hold', reason: 'unknown_risk', at: null }, 'hold: unknown_risk'],
  [
    'thread_finished',
    { status: 'error', result: '', cost: NO_COST, error: { code: 'internal', message: 'oh\nno' } },
    'error (0 turns, 0 tokens, $0.00, 0ms): oh␊no [internal]',
  ],
];

describe('logAccount', () => {
  it.each(ROWS)('of %s', (type, payload, expected) => {
    expect(logAccount(event(type, payload as never))).toBe(expected);
  });

  it('is one line that a terminal takes no orders from, and no longer than a screen needs', () => {
    const line = logAccount(event('title', { title: `\u001B[2J${'x'.repeat(500)}\n` }));
    expect(line).not.toMatch(/\p{Cc}/u);
    expect(line?.length).toBeLessThanOrEqual(160);
  });

  it('is undefined for events whose type is enough, and for unknown ones', () => {
    expect(logAccount(event('thinking_delta', { text: 'hm' }))).toBeUndefined();
    expect(
      logAccount({ event_type: 'toString', payload: {}, seq: 1, timestamp: '', thread_id: 't' }),
    ).toBeUndefined();
  });
});
