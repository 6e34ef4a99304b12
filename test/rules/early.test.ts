import { describe, expect, it } from 'vitest';
import { PastCalls } from '../../src/features/rules/match/calls.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import {
  finish,
  hear,
  RecordedWatch,
  ruleOf,
  sessionOf,
  text,
} from '../loop/stream-rules/helpers.ts';

/** Hears pieces of prose, with a pass of the event loop after each; returns the number of pieces until the cut. */
async function heard(match: JsonObject, pieces: readonly string[]): Promise<number | undefined> {
  const rule = ruleOf('r', '', { conditions: [], match });
  const parts = {
    homePath: '/home/ada',
    calls: new PastCalls(),
    places: async () => await Promise.resolve([]),
    ast: async () => await Promise.resolve(undefined),
  };
  const watcher = new RecordedWatch(sessionOf([rule], { match: parts }), 1);
  for (const [index, event] of text(...pieces).entries()) {
    if (hear(watcher, [event]).interrupt) return index + 1;
    await new Promise(setImmediate);
  }
  hear(watcher, [finish()]);
  return (await watcher.settle()) && Number.POSITIVE_INFINITY;
}

describe('prose under a match', () => {
  it.each<[string, JsonObject]>([
    ['an expression', { regex: 'b.d' }],
    ['in prose', { regex: 'bad', in: 'prose' }],
    ['any', { any: [{ regex: 'never' }, { regex: 'bad' }] }],
    ['what the thread did before', { all: [{ regex: 'bad' }, { any: [{ did: 'x' }, 'bad'] }] }],
  ])('is cut at once: %s', async (_name, match) => {
    expect(await heard(match, ['a b', 'ad ', 'word', 'end'])).toBe(3);
  });

  it.each<[string, JsonObject]>([
    ['a later word excuses it', { all: [{ regex: 'bad' }, { not: { regex: 'sorry' } }] }],
    ['more may be too many', { regex: 'bad', count: { max: 1 } }],
    ['both come late', { all: [{ regex: 'bad' }, { regex: 'end' }] }],
  ])('is cut at its end: %s', async (_name, match) => {
    expect(await heard(match, ['a b', 'ad ', 'word', 'end'])).toBe(Number.POSITIVE_INFINITY);
  });

  it('is not cut if a later word excuses it', async () => {
    const match = { all: [{ regex: 'bad' }, { not: { regex: 'sorry' } }] };
    expect(await heard(match, ['bad ', 'word', ' sorry'])).toBeUndefined();
  });
});
