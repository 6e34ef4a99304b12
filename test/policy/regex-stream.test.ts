import * as fc from 'fast-check';
import { RE2JS } from 're2js';
import { describe, expect, it } from 'vitest';
import { isPlain, streamRegexProblem } from '../../src/kernel/policy/regex.ts';
import { compileStreamRegex } from '../../src/kernel/policy/regex-stream.ts';

/** Returns the end of the first match when the text comes in these pieces; `end` if only its end decides. */
function matchedAt(patterns: readonly string[], pieces: readonly string[]): number | 'end' | 'no' {
  const matcher = compileStreamRegex([patterns]).open([0]);
  let offset = 0;
  for (const piece of pieces) {
    const [hit] = matcher.feed(piece);
    if (hit) return offset + hit.at;
    offset += piece.length;
  }
  return matcher.end().length > 0 ? 'end' : 'no';
}

function matches(pattern: string, pieces: readonly string[]): boolean {
  return matchedAt([pattern], pieces) !== 'no';
}

describe('a stream regex', () => {
  it.each([
    ['FORBIDDEN', ['FORB', 'IDDEN'], 9],
    ['FORBIDDEN', ['FORB', 'ID', 'DE'], 'no'],
    ['^a', ['a'], 1],
    ['^a', ['ba'], 'no'],
    ['(?m)^a', ['b\n', 'a'], 3],
    ['a$', ['a'], 'end'],
    ['a$', ['a', 'b'], 'no'],
    ['(?m)a$', ['a', '\nb'], 2],
    ['\\bas any\\b', ['x as any'], 'end'],
    ['\\bas any\\b', ['x as any;'], 9],
    ['\\bas any\\b', ['x as anything;'], 'no'],
    ['\\Bx', ['ax'], 2],
    ['(?i)HELLO', ['heL', 'Lo'], 5],
    ['(?s)a.*b', ['a\n', 'x'.repeat(100_000), '\nb'], 100_004],
    ['a.*b', ['a\nb'], 'no'],
    ['\\p{Greek}', ['π'], 1],
    ['^.$', ['\ud83d', '\ude00'], 'end'],
    ['\\x{1F600}', ['\ud83d', '\ude00'], 2],
    ['\\u00e9', ['é'], 1],
    ['(?<name>a)', ['a'], 1],
    ['[^\\x00-\\x7F]', ['\ud83d'], 'end'],
    ['', ['a'], 0],
  ] as const)('%j over %j: %j', (pattern, pieces, expected) => {
    expect(matchedAt([pattern], pieces)).toBe(expected);
  });

  it('takes any of its patterns', () => {
    expect(matchedAt(['(?i)abc', 'x+y'], ['ABC'])).toBe(3);
    expect(matchedAt(['(?i)abc', 'x+y'], ['xx', 'y'])).toBe(3);
    expect(matchedAt(['(?i)abc', 'x+y'], ['XXY'])).toBe('no');
  });

  it('tells which rules hit, each once, and looks at those asked for only', () => {
    const regex = compileStreamRegex([['ab'], ['b$', 'zz'], ['a'], ['x.*y']]);
    const matcher = regex.open([0, 1, 3]);
    expect(matcher.feed('xa')).toEqual([]);
    expect(matcher.feed('byab')).toEqual([
      { rule: 0, at: 1 },
      { rule: 3, at: 2 },
    ]);
    expect(matcher.end()).toEqual([1]);
    expect(regex.open([2]).feed('ba')).toEqual([{ rule: 2, at: 2 }]);
  });

  it.each(['(?=a)', '(?!a)', '(?<!a)b', '(a)\\1', '(', 'a{1001}', 'a'.repeat(1001)])(
    'refuses %s with a reason',
    (pattern) => {
      expect(streamRegexProblem(pattern)).toMatch(/\w/);
    },
  );

  it('never matches a pattern that it refuses, nor where no rule watches', () => {
    const regex = compileStreamRegex([['(?=a)', 'b'], ['(']]);
    expect(regex.open([0, 1]).feed('(?=a)b(')).toEqual([{ rule: 0, at: 6 }]);
    const idle = regex.open([]);
    expect([idle.feed('ab('), idle.end()]).toEqual([[], []]);
  });

  it('agrees with RE2 on any text in any pieces', () => {
    const atom = fc.constantFrom(
      'a',
      'b',
      '.',
      '\\w',
      '\\s',
      '[^a]',
      '\\b',
      '\\B',
      '^',
      '$',
      '(?m:^)',
      '(?m:$)',
      '(?i:A)',
      'é',
      '\\d',
    );
    const { pattern } = fc.letrec<{ pattern: string }>((tie) => ({
      pattern: fc.oneof(
        { maxDepth: 4, withCrossShrink: true },
        atom,
        fc.tuple(tie('pattern'), tie('pattern')).map(([left, right]) => `${left}${right}`),
        fc.tuple(tie('pattern'), tie('pattern')).map(([left, right]) => `(?:${left}|${right})`),
        fc
          .tuple(tie('pattern'), fc.constantFrom('*', '+', '?', '{2}', '{1,3}'))
          .map(([one, times]) => `(?:${one})${times}`),
      ),
    }));
    const character = fc.constantFrom('a', 'b', 'A', ' ', '\n', '1', 'é', '😀', '_');
    const pieces = fc.array(fc.string({ unit: character, maxLength: 6 }), { maxLength: 5 });
    fc.assert(
      fc.property(pattern, pieces, (regex, text) => {
        const whole = text.join('');
        expect(matches(regex, text)).toBe(RE2JS.compile(regex).matcher(whole).find());
        expect(matches(regex, whole.split(''))).toBe(matches(regex, [whole]));
      }),
      { seed: 7, numRuns: 400 },
    );
  });

  it('forgets states past its bound and still agrees', () => {
    const pattern = '[ab]*a[ab]{11}c';
    const text = Array.from({ length: 6000 }, (_, index) =>
      (index * index) % 7 < 3 ? 'a' : 'b',
    ).join('');
    expect(matches(pattern, [text])).toBe(false);
    expect(matches(pattern, [`${text}a${'b'.repeat(11)}c`])).toBe(true);
  });

  it('splits rules that need too many states together, in the middle of a text', () => {
    const rules = Array.from({ length: 14 }, (_, index) => {
      const letter = String.fromCodePoint(97 + index);
      return [`${letter}.*!${letter}`];
    });
    const regex = compileStreamRegex(rules);
    const matcher = regex.open(rules.map((_, index) => index));
    const random = Array.from({ length: 6000 }, (_, index) =>
      index % 40 === 39 ? '\n' : String.fromCodePoint(97 + ((index * index * 7 + index) % 14)),
    ).join('');
    expect(matcher.feed(random)).toEqual([]);
    const last = 'abcdefghijklmn';
    expect(matcher.feed(last)).toEqual([]);
    const hits = last
      .split('')
      .flatMap((letter) => matcher.feed(`!${letter}`).map(({ rule }) => rule));
    expect(hits).toEqual(rules.map((_, index) => index));
  });

  it('takes linear time where backtracking takes exponential time', () => {
    expect(matchedAt(['(a+)+$'], [`${'a'.repeat(50_000)}b`])).toBe('no');
  });
});

describe('a plain pattern', () => {
  const atom = fc.oneof(
    fc.constantFrom(
      'a',
      'Z',
      '0',
      ' ',
      '-',
      '/',
      '"',
      '.',
      '^',
      '$',
      '|',
      '(',
      '(?:',
      ')',
      '[ab]',
      '[^\\s-]',
    ),
    fc.constantFrom(
      '\\b',
      '\\W',
      '\\n',
      '[\\t;]',
      '\\.',
      '\\(',
      '\\/',
      '*',
      '+',
      '?',
      '{3}',
      '{2,}',
      '{1,99}',
      '[a-z0-9_]',
      '[^]',
      '[]',
    ),
    fc.constantFrom('(?=', '(?<!', '(?i)', '\\1', '\\k', '\\p{L}', '[[', '{', '}', '{1000}'),
  );
  const pattern = fc.array(atom, { maxLength: 14 }).map((atoms) => atoms.join(''));
  const isJavaScript = (text: string): boolean => {
    try {
      return new RegExp(text, 'u').source !== '';
    } catch {
      return false;
    }
  };

  it('can watch a stream if JavaScript accepts it', () => {
    fc.assert(
      fc.property(pattern, (text) => {
        fc.pre(isJavaScript(text) && isPlain(text));
        expect(streamRegexProblem(text)).toBeUndefined();
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['\\bgit\\s+clean\\s+(?:-\\w+\\s+)*-\\w*f', true],
    ['\\bgh[pousr]_[A-Za-z0-9]{36}', true],
    ['(?<!a)b', false],
    ['(a)\\1', false],
    ['(?:(?:a{99}){99}){99}', false],
    ['a{99}'.repeat(20), false],
    ['a'.repeat(401), false],
  ])('%s: %s', (text, plain) => {
    expect(isPlain(text)).toBe(plain);
  });
});
