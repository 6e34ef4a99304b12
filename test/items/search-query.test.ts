import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished, test } from 'vitest';
import { parseQuery, parseTime } from '../../src/features/search/query.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import type { SearchNode } from '../../src/kernel/core/search.ts';
import { errorOf } from './helpers.ts';

const NOW = Date.parse('2026-03-10T15:30:00Z');

/** A query tree as an expression: `(a & "b c" & !d*)`. */
function show(node: SearchNode | undefined): string {
  if (node === undefined) return '';
  if (node.kind === 'not') return `!${show(node.node)}`;
  if (node.kind === 'and') return `(${node.nodes.map(show).join(' & ')})`;
  if (node.kind === 'or') return `(${node.nodes.map(show).join(' | ')})`;
  const field = node.field === undefined ? '' : `${node.field}:`;
  return node.kind === 'phrase'
    ? `${field}"${node.text}"`
    : `${field}${node.text}${node.prefix ? '*' : ''}`;
}

/** The code of the error that parsing ends with, if it ends with one. */
function codeOf(text: string): string | undefined {
  try {
    parseQuery(text, NOW);
    return undefined;
  } catch (error) {
    return error instanceof RyeError ? error.code : String(error);
  }
}

describe('parseQuery', () => {
  test.each([
    ['', ''],
    ['  ', ''],
    ['a', 'a'],
    ['a b', '(a & b)'],
    ['a AND b c', '(a & b & c)'],
    ['a OR b c', '(a | (b & c))'],
    ['a b OR c', '((a & b) | c)'],
    ['a NOT b', '(a & !b)'],
    ['a AND NOT b', '(a & !b)'],
    ['NOT b a', '(!b & a)'],
    ['a NOT (b OR c)', '(a & !(b | c))'],
    // Requirement: group-ends-query
    ['file (xml OR zip)', '(file & (xml | zip))'],
    ['(xml OR zip) file', '((xml | zip) & file)'],
    ['((a))', 'a'],
    ['(a b) c', '(a & b & c)'],
    ['"a b" c', '("a b" & c)'],
    ['pre*', 'pre*'],
    ['a*b', 'a*b'],
    ['title:x tag:y* body:"a b" id:rye/core', '(title:x & tag:y* & body:"a b" & id:rye/core)'],
    ['TITLE:x', 'title:x'],
    ['and or not', '(and & or & not)'],
    ['https://a.b/c a:b', '(https://a.b/c & a:b)'],
    ['"AND"', '"AND"'],
    ['a"b"c', '(a & "b" & c)'],
    ['naïve 日本語 c++ -x', '(naïve & 日本語 & c++ & -x)'],
  ])('%s', (text, expected) => {
    expect(show(parseQuery(text, NOW).text)).toBe(expected);
  });

  it('refuses a day that no month has', () => {
    for (const day of ['2026-02-31', '2026-02-29', '2026-04-31T10:00Z', '2026-13-01']) {
      expect(() => parseQuery(`a after:${day}`, NOW)).toThrow('is not a date');
    }
    expect(parseQuery('a after:2028-02-29', NOW).filters.after).toBe('2028-02-29T00:00:00.000Z');
  });

  it('takes filters out of the text', () => {
    expect(
      parseQuery(
        'a directive:demo/* status:error (model:opus b) type:knowledge type:tools after:2026-01-02 before:7d',
        NOW,
      ),
    ).toEqual({
      text: {
        kind: 'and',
        nodes: [
          { kind: 'term', text: 'a', prefix: false },
          { kind: 'term', text: 'b', prefix: false },
        ],
      },
      filters: {
        directive: 'demo/*',
        status: 'error',
        model: 'opus',
        types: ['knowledge', 'tool'],
        after: '2026-01-02T00:00:00.000Z',
        before: '2026-03-03T15:30:00.000Z',
      },
    });
  });

  it('may be filters only', () => {
    expect(parseQuery('status:error', NOW)).toEqual({ filters: { status: 'error' } });
    expect(parseQuery('(status:"in error")', NOW)).toEqual({ filters: { status: 'in error' } });
  });

  test.each([
    ['a OR', 5],
    ['OR a', 1],
    ['a AND', 6],
    ['a AND OR b', 7],
    ['a AND AND b', 7],
    ['a NOT', 6],
    ['(a', 1],
    ['a)', 2],
    ['a ()', 3],
    ['a "b', 3],
    ['a ""', 3],
    ['a *', 3],
    ['title:', 1],
    ['a title: b', 3],
    ['a titel:"b c"', 3],
    ['NOT a', 1],
    ['a NOT NOT b', 1],
    ['a OR NOT b', 1],
    ['(NOT a) b OR NOT c', 1],
    ['a OR status:x', 6],
    ['NOT status:x a', 5],
    ['(a OR (status:x b))', 8],
    ['status:a status:b', 10],
    ['type:thing', 1],
    ['a after:soon', 3],
    ['after:2026-13-01', 1],
    ['('.repeat(40) + 'a' + ')'.repeat(40), 33],
    ['x'.repeat(5000), 1],
  ])('refuses %j at its column', (text, column) => {
    const error = errorOf(() => parseQuery(text, NOW));
    expect(error.code).toBe('query_malformed');
    expect(error.details).toEqual({ column });
    expect(error.hint).toBeTruthy();
  });

  it('never throws anything but query_malformed', () => {
    const piece = fc.constantFrom(
      'a',
      'b*',
      '"c d"',
      'AND',
      'OR',
      'NOT',
      '(',
      ')',
      'title:x',
      'status:y',
      'after:1d',
      '"',
      '*',
      ':',
      ' ',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 14 }), (pieces) => {
        expect([undefined, 'query_malformed']).toContain(codeOf(pieces.join(' ')));
      }),
      { numRuns: 1000, seed: 1 },
    );
  });
});

test.each([
  ['2026', undefined],
  ['2026-01', '2026-01-01T00:00:00.000Z'],
  ['2026-01-31', '2026-01-31T00:00:00.000Z'],
  ['2026-01-31T10:00', '2026-01-31T10:00:00.000Z'],
  ['2026-01-31T10:00:00.5Z', '2026-01-31T10:00:00.500Z'],
  ['2026-01-31T10:00:00+02:00', '2026-01-31T08:00:00.000Z'],
  ['today', '2026-03-10T00:00:00.000Z'],
  ['yesterday', '2026-03-09T00:00:00.000Z'],
  ['30m', '2026-03-10T15:00:00.000Z'],
  ['12h', '2026-03-10T03:30:00.000Z'],
  ['2w', '2026-02-24T15:30:00.000Z'],
  ['999999w', undefined],
  ['', undefined],
])('parseTime %j', (text, expected) => {
  expect(parseTime(text, NOW)).toBe(expected);
});

it('a day begins at midnight where the process runs', () => {
  const before = process.env['TZ'];
  onTestFinished(() => {
    if (before === undefined) delete process.env['TZ'];
    else process.env['TZ'] = before;
  });
  process.env['TZ'] = 'America/Los_Angeles';
  const now = Date.parse('2026-11-28T01:30:00Z'); // 17:30 of the day before
  expect(parseTime('today', now)).toBe('2026-11-27T08:00:00.000Z');
  expect(parseTime('yesterday', now)).toBe('2026-11-26T08:00:00.000Z');
  // the clock was put back in that night
  expect(parseTime('yesterday', Date.parse('2026-11-02T20:00:00Z'))).toBe(
    '2026-11-01T07:00:00.000Z',
  );
});
