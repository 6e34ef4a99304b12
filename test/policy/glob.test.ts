import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { globIntersection, globMatches } from '../../src/kernel/policy/glob.ts';

/** Obviously right and exponential: for short inputs only. */
function naiveMatches(pattern: string, text: string): boolean {
  if (pattern === '') return text === '';
  if (pattern.startsWith('*')) {
    return (
      naiveMatches(pattern.slice(1), text) || (text !== '' && naiveMatches(pattern, text.slice(1)))
    );
  }
  return text !== '' && pattern[0] === text[0] && naiveMatches(pattern.slice(1), text.slice(1));
}

const texts = (alphabet: string, length: number): string[] =>
  length === 0
    ? ['']
    : texts(alphabet, length - 1).flatMap((text) =>
        text.length === length - 1
          ? [text, ...alphabet.split('').map((letter) => text + letter)]
          : [text],
      );

const UNIVERSE = [...new Set(texts('ab', 6))];
const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '*'), maxLength: 6 });

describe('globMatches', () => {
  it.each([
    ['', '', true],
    ['', 'a', false],
    ['*', '', true],
    ['*', 'a.b', true],
    ['a*', 'a', true],
    ['a*b', 'ab', true],
    ['a*a', 'a', false],
    ['a*b*c', 'a.b.b.c', true],
    ['a*b*c', 'acb', false],
    ['*ab', 'aab', true],
    ['a?b', 'axb', false],
  ])('%s on %s is %s', (glob, text, expected) => {
    expect(globMatches(glob, text)).toBe(expected);
  });

  it('agrees with a naive matcher', () => {
    fc.assert(
      fc.property(pattern, fc.constantFrom(...UNIVERSE), (glob, text) => {
        expect(globMatches(glob, text)).toBe(naiveMatches(glob, text));
      }),
      { numRuns: 2000, seed: 1 },
    );
  });

  it('stays fast on a pattern made to make matchers backtrack', () => {
    const hostile = `${'*a'.repeat(5000)}*b`;
    expect(globMatches(hostile, 'a'.repeat(100_000))).toBe(false);
  });
});

describe('globIntersection', () => {
  it('is exactly the intersection on a finite universe', () => {
    fc.assert(
      fc.property(pattern, pattern, (left, right) => {
        const overlaps = globIntersection(left, right);
        const wrong: string[] = [];
        for (const text of UNIVERSE) {
          const inBoth = naiveMatches(left, text) && naiveMatches(right, text);
          if (overlaps.some((overlap) => globMatches(overlap, text)) !== inBoth) wrong.push(text);
        }
        expect(wrong).toEqual([]);
      }),
      { numRuns: 200, seed: 2 },
    );
  });

  it('refuses patterns that overlap in too many ways instead of running for ever', () => {
    expect(() => globIntersection(`${'*a'.repeat(14)}*`, `${'*b'.repeat(14)}*`)).toThrow(
      /overlap in too many ways/,
    );
  });
});
