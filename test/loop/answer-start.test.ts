import { describe, expect, it } from 'vitest';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { AnswerStart } from '../../src/kernel/loop/answer.ts';
import type { ModelEvent } from '../../src/kernel/providers/provider.ts';

const NOON_MS = Date.parse('2026-01-01T12:00:00.000Z');
const START: ModelEvent = { type: 'start', model: 'm' };
const NAMED: ModelEvent = { ...START, id: 'gen-1' };
const USAGE: ModelEvent = { type: 'usage', usage: { ...NO_USAGE, input_tokens: 9 } };
const TEXT: ModelEvent = { type: 'text_delta', text: 'a' };
const FINISH: ModelEvent = { type: 'finish', reason: 'end', content: [] };

/** Returns each announcement, for events that come so many milliseconds after the request. */
function announced(...timed: readonly (readonly [ms: number, event: ModelEvent])[]) {
  let at = 0;
  const clock = { now: () => NOON_MS + at, monotonic: () => 5000 + at };
  const start = new AnswerStart(clock, 2);
  return timed.flatMap(([ms, event]) => {
    at = ms;
    const draft = start.take(event);
    return draft ? [[ms, draft.payload]] : [];
  });
}

describe('the start of a slow answer', () => {
  it('is announced once, with the first count and its time', () => {
    const counted = { usage: { ...NO_USAGE, input_tokens: 9 }, at: '2026-01-01T12:00:00.100Z' };
    expect(announced([90, START], [100, USAGE], [200, TEXT], [260, TEXT], [300, USAGE])).toEqual([
      [260, { turn: 2, ...counted }],
    ]);
    expect(announced([300, START], [301, USAGE], [302, TEXT])).toHaveLength(1);
  });

  it('is announced with the id by which the provider can be asked', () => {
    expect(announced([300, NAMED], [400, TEXT])).toEqual([
      [300, { turn: 2, response_id: 'gen-1' }],
    ]);
  });

  it.each<[string, readonly (readonly [number, ModelEvent])[]]>([
    [
      'it was fast',
      [
        [10, START],
        [20, USAGE],
        [30, TEXT],
        [200, FINISH],
      ],
    ],
    [
      'it ended slowly',
      [
        [10, START],
        [20, USAGE],
        [300, FINISH],
      ],
    ],
    [
      'nothing is known of it',
      [
        [300, START],
        [400, TEXT],
        [500, TEXT],
      ],
    ],
    [
      'the count came after text, which would hide what came before',
      [
        [300, START],
        [310, TEXT],
        [400, USAGE],
        [500, TEXT],
      ],
    ],
  ])('is not announced if %s', (_, timed) => {
    expect(announced(...timed)).toEqual([]);
  });
});
