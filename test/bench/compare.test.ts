import { expect, it } from 'vitest';
// @ts-expect-error: a script without types
import { best, compared } from '../../bench/compare.mjs';

const KEPT = { 'search / hits / one': 4, 'search / hits / many': 5, 'verify / log / time': 1 };

it('a row that is more than a tenth above the kept ratio is worse, and one that none is kept of is named', () => {
  const recorded = new Map([
    ['search / hits / one', 4.4],
    ['search / hits / many', 5.6],
    ['search / hits / none', 1],
    ['verify / log / time', 9],
  ]);
  expect(compared(recorded, KEPT, 'search')).toEqual({
    worse: [['search / hits / many', 5.6]],
    unknown: ['search / hits / none'],
  });
});

it('a row that is better than the kept ratio passes, and of two measurements the better one counts', () => {
  const recorded = best(
    new Map([['search / hits / one', 9]]),
    new Map([
      ['search / hits / one', 3],
      ['search / hits / many', 5],
    ]),
  );
  expect([...recorded.values()]).toEqual([3, 5]);
  expect(compared(recorded, KEPT, 'search')).toEqual({ worse: [], unknown: [] });
});
