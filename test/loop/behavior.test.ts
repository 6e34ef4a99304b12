import { describe, expect, it } from 'vitest';
import { parseBehavior, thinkingOfRun } from '../../src/loop/behavior.ts';

describe('behavior', () => {
  it('is nothing special where nothing is said', () => {
    expect(parseBehavior({ somebody_elses: 1 })).toEqual({
      schema: undefined,
      thinkingDecay: undefined,
      tail: undefined,
      elideStaleReads: false,
      nudge: true,
    });
  });

  it.each([
    [{ compact_strategy: 'tail' }, { tail: { thresholdBytes: 131_072, keepTurns: 4 } }],
    [
      { compactStrategy: 'tail', compactThreshold: '9000', compactKeepTurns: 2 },
      { tail: { thresholdBytes: 9000, keepTurns: 2 } },
    ],
    [
      { elide_stale_reads: 'true', nudge: 'false' },
      { elideStaleReads: true, nudge: false },
    ],
    [{ schema: '{"type":"object"}' }, { schema: { type: 'object' } }],
    [
      { thinkingDecay: { afterRuns: '2', floor: 'minimal' } },
      { thinkingDecay: { afterRuns: 2, floor: 'minimal' } },
    ],
  ])('%j', (raw, parsed) => {
    expect(parseBehavior(raw)).toMatchObject(parsed);
  });

  it.each([
    [{ compact_strategy: 'head' }, 'compact_strategy is "head", not off or tail'],
    [{ compact_strategy: 'tail', compact_threshold: -1 }, 'compact_threshold is -1'],
    [{ elide_stale_reads: 'yes' }, 'elide_stale_reads is "yes", not true or false'],
    [{ schema: 'not json' }, 'schema is "not json"'],
    [{ schema: { type: 'array' } }, 'not a JSON Schema of the type "object"'],
    [{ thinking_decay: 'fast' }, 'thinking_decay is "fast"'],
    [{ thinking_decay: { floor: 'deep' } }, 'thinking_decay.floor is "deep"'],
  ])('%j is refused', (raw, message) => {
    expect(() => parseBehavior(raw)).toThrow(
      expect.objectContaining({
        code: 'directive_malformed',
        message: expect.stringContaining(message) as string,
      }),
    );
  });

  it.each([
    ['high', 1, 'high'],
    ['high', 3, 'low'],
    ['high', 9, 'minimal'],
    ['off', 9, 'off'],
  ] as const)('%s in run %i is %s', (base, run, level) => {
    expect(thinkingOfRun(base, run, { afterRuns: 1, floor: 'minimal' })).toBe(level);
  });
});
