import { describe, expect, it } from 'vitest';
import type { Limits } from '../../src/kernel/core/limits.ts';
import type { ThreadRecord, ThreadResult, ThreadStatus } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { keptThreads } from '../../src/kernel/threads/recovery/gc.ts';
import {
  assertSomethingLeft,
  joinChain,
  overrideLimits,
  remainingLimits,
} from '../../src/kernel/threads/recovery/successor.ts';

const LIMITS: Limits = {
  turns: 10,
  tokens: 1000,
  spend: 1,
  duration_seconds: 60,
  spawns: 3,
  depth: 2,
};

describe('the limits of a continuation', () => {
  it('are the remaining ones: own turns, tokens and time, the spend of the whole subtree, the spawns', () => {
    const cost = {
      ...NO_COST,
      turns: 4,
      input_tokens: 300,
      output_tokens: 50,
      spend: 0.1,
      elapsed_seconds: 12.5,
    };
    expect(remainingLimits(LIMITS, { cost, subtreeSpend: 0.3, spawns: 1 })).toEqual({
      turns: 6,
      tokens: 650,
      spend: 0.7,
      duration_seconds: 47.5,
      spawns: 2,
      depth: 2,
    });
    const used = remainingLimits(LIMITS, {
      cost: { ...cost, turns: 99 },
      subtreeSpend: 9,
      spawns: 9,
    });
    expect([used.turns, used.spend, used.spawns]).toEqual([0, 0, 0]);
  });

  it('can be raised within what the parent has, and not beyond', () => {
    const parent = { limits: { ...LIMITS, turns: 20, depth: 2 } } as Parameters<
      typeof overrideLimits
    >[2];
    expect(overrideLimits(LIMITS, { turns: 50, spend: 0.5 }, parent)).toMatchObject({
      turns: 20,
      spend: 0.5,
      depth: 1,
    });
    expect(overrideLimits(LIMITS, { turns: 50 }, undefined).turns).toBe(50);
  });

  it.each(['turns', 'tokens', 'spend', 'duration_seconds'] as const)(
    'are refused when nothing is left of %s, unless there was none before',
    (name) => {
      const none = { ...LIMITS, [name]: 0 };
      expect(() => assertSomethingLeft('t', none, { limits: LIMITS })).toThrow(
        expect.objectContaining({ code: `limit_${name}` }),
      );
      expect(() => assertSomethingLeft('t', none, { limits: none })).not.toThrow();
    },
  );
});

function result(id: string, rest: Partial<ThreadResult> = {}): ThreadResult {
  return {
    success: true,
    thread_id: id,
    directive: 'd',
    status: 'continued',
    result: id,
    cost: {
      ...NO_COST,
      turns: 1,
      spend: 0.1,
      elapsed_seconds: 1,
      own: { spend: 0.1, tokens: 0, turns: 1 },
      total: { spend: 0.2, tokens: 5, turns: 2 },
    },
    model: 'm',
    children: [`${id}-child`],
    paths: { thread: id, transcript: id, knowledge: id },
    ...rest,
  };
}

describe('the result of a chain', () => {
  it('is named after the first link, ends as the last, and sums the cost', () => {
    const error = { code: 'limit_turns', message: 'no more' } as const;
    const joined = joinChain([
      result('a'),
      result('b'),
      result('c', { success: false, status: 'error', error }),
    ]);
    expect(joined).toMatchObject({
      success: false,
      thread_id: 'a',
      status: 'continued',
      continuation_thread_id: 'c',
      result: 'c',
      error,
      cost: {
        turns: 3,
        spend: 0.3,
        elapsed_seconds: 3,
        own: { spend: 0.3, tokens: 0, turns: 3 },
        total: { spend: 0.6, tokens: 15, turns: 6 },
      },
      children: ['a-child', 'b-child', 'c-child'],
      paths: { thread: 'a' },
    });
  });

  it('of one thread is its own', () => {
    const only = result('a', { status: 'completed' });
    expect(joinChain([only])).toBe(only);
  });
});

describe('retention', () => {
  const OLD = '2026-01-01T00:00:00.000Z';
  const NOW = '2026-02-01T00:00:00.000Z';

  function record(
    id: string,
    status: ThreadStatus,
    rest: Partial<ThreadRecord> = {},
  ): ThreadRecord {
    const completed_at = status === 'running' || status === 'suspended' ? null : OLD;
    return {
      thread_id: id,
      status,
      completed_at,
      parent_id: null,
      chain_root_id: null,
      ...rest,
    } as ThreadRecord;
  }

  it.each<[string, readonly ThreadRecord[], readonly string[]]>([
    ['nothing that is old and finished', [record('a', 'completed'), record('b', 'error')], []],
    ['what is young', [record('a', 'completed', { completed_at: NOW })], ['a']],
    ['threads that may continue', [record('a', 'suspended')], ['a']],
    [
      'every link of a chain that has a young end',
      [
        record('a', 'continued', { chain_root_id: 'a' }),
        record('b', 'continued', { chain_root_id: 'a' }),
        record('c', 'completed', { chain_root_id: 'a', completed_at: NOW }),
      ],
      ['a', 'b', 'c'],
    ],
    [
      'a finished child of a parent that runs',
      [record('a', 'running'), record('b', 'completed', { parent_id: 'a' })],
      ['a', 'b'],
    ],
    [
      'a finished parent of a child that runs',
      [record('a', 'completed'), record('b', 'running', { parent_id: 'a' })],
      ['a', 'b'],
    ],
  ])('keeps %s', (_, all, kept) => {
    expect([...keptThreads(all, NOW)].toSorted()).toEqual(kept);
  });
});
