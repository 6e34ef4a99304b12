import { describe, expect, it } from 'vitest';
import { parseBehavior, thinkingOfRun, unknownBehavior } from '../../src/kernel/loop/behavior.ts';
import { answers, play } from './scripted.ts';

describe('behavior', () => {
  it('has its defaults when nothing is set', () => {
    expect(parseBehavior({ somebody_elses: 1 })).toEqual({
      schema: undefined,
      thinking: undefined,
      thinkingDecay: undefined,
      maxTokens: undefined,
      cache: undefined,
      tail: undefined,
      elideStaleReads: false,
      nudge: false,
      toolBudgets: new Map(),
      toolOutputBudget: undefined,
      dedupTools: new Set(),
      dedupReads: true,
      loopRepeats: 5,
      requireReadBeforeEdit: false,
      readLineNumbers: true,
      persistThreshold: undefined,
      persistExcludeTools: new Set(),
      toolAliases: new Map(),
      shellMaxOutputBytes: undefined,
      shellMetadata: true,
      steerBetweenCalls: false,
    });
  });

  it('names the members that mean nothing', () => {
    expect(unknownBehavior({ tool_budget: {}, nudge: false, toolAliases: {} })).toEqual([
      'behavior.tool_budget means nothing. Did you mean tool_budgets?',
    ]);
  });

  // Requirement: behavior-bounds-requests
  it('bounds the output, the thinking and the cache of a request', async () => {
    const { requests } = await play({
      plan: { behavior: { max_tokens: '500', thinking: 'low', cache: false } },
      turns: [answers('Done.')],
    });
    expect(requests[0]).toMatchObject({ max_tokens: 500, thinking: 'low', cache: false });
    const small = await play({ plan: { behavior: { maxTokens: 10 } }, turns: [answers('Done.')] });
    expect(small.requests[0]?.max_tokens).toBe(10);
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
      { tool_budgets: { 'rye/bash': '3', rye_grep: { max: 1, on_exceed: 'steer', grace: 0 } } },
      {
        toolBudgets: new Map([
          ['rye_bash', { max: 3, mode: 'block', grace: 2, message: undefined }],
          ['rye_grep', { max: 1, mode: 'steer', grace: 0, message: undefined }],
        ]),
      },
    ],
    [{ dedup_tools: 'rye/a, rye_b' }, { dedupTools: new Set(['rye_a', 'rye_b']) }],
    [{ tool_aliases: { 'rye/bash': 'Bash' } }, { toolAliases: new Map([['rye_bash', 'Bash']]) }],
    [
      { thinkingDecay: { afterRuns: '2', floor: 'minimal' } },
      { thinkingDecay: { afterRuns: 2, afterTurns: undefined, floor: 'minimal' } },
    ],
  ])('%j', (raw, parsed) => {
    expect(parseBehavior(raw)).toMatchObject(parsed);
  });

  it.each([
    [{ compact_strategy: 'head' }, 'compact_strategy is "head", not off or tail'],
    [{ compact_strategy: 'tail', compact_threshold: -1 }, 'compact_threshold is -1'],
    [{ elide_stale_reads: 'yes' }, 'elide_stale_reads is "yes", not true or false'],
    [{ schema: 'not json' }, 'schema is "not json"'],
    [{ tool_budgets: 3 }, 'tool_budgets is 3, not a map by tool'],
    [{ tool_budgets: { a: {} } }, 'tool_budgets.a is {}, not a number of calls'],
    [{ tool_budgets: { a: -1 } }, 'tool_budgets.a.max is -1'],
    [{ tool_budgets: { a: { max: 1, on_exceed: 'warn' } } }, 'on_exceed is "warn"'],
    [{ dedup_tools: [1] }, 'dedup_tools is [1], not a list of tools'],
    [{ tool_aliases: { a: 'B C' } }, 'tool_aliases.a is "B C", not up to 64 of'],
    [{ thinking: 'deep' }, 'thinking is "deep"'],
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
    expect(
      thinkingOfRun(base, run, { afterRuns: 1, afterTurns: undefined, floor: 'minimal' }),
    ).toBe(level);
  });
});
