import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonStrings } from '../../../src/features/rules/stream/call-watch.ts';

/** String values with their keys, and objects as braces, in the order in which they are reported. */
function read(pieces: readonly string[]): string[] {
  const seen: string[] = [];
  let value = '';
  let key = '';
  const reader = new JsonStrings({
    openObject: () => seen.push('{'),
    closeObject: () => seen.push('}'),
    beginString: (name) => {
      key = name;
      value = '';
    },
    text: (piece) => {
      value += piece;
    },
    endString: () => seen.push(`${key}=${value}`),
  });
  for (const piece of pieces) reader.write(piece);
  reader.finish();
  return seen;
}

/** The string values alone. */
function values(pieces: readonly string[]): string[] {
  const seen: string[] = [];
  const reader = new JsonStrings({
    openObject: () => {},
    closeObject: () => {},
    beginString: () => seen.push(''),
    text: (piece) => seen.push(`${seen.pop() ?? ''}${piece}`),
    endString: () => {},
  });
  for (const piece of pieces) reader.write(piece);
  reader.finish();
  return seen;
}

describe('string values of a JSON text in pieces', () => {
  it('come with the key of their member or list', () => {
    expect(read(['{"a": "x", "b": ["y", {"c": "z"}, "w"], "d": 1, "e": "v"}'])).toEqual([
      '{',
      'a=x',
      'b=y',
      '{',
      'c=z',
      '}',
      'b=w',
      'e=v',
      '}',
    ]);
  });

  it.each([
    ['"\\n\\t\\"\\\\\\/"', '=\n\t"\\/'],
    ['"\\u0041\\ud83d\\ude00"', '=A😀'],
    ['"\\uzzzz"', '=\ufffd'],
    ['"\\q"', '=q'],
  ])('decodes %s', (json, expected) => {
    expect(read([json])).toEqual([expected]);
    expect(read(json.split(''))).toEqual([expected]);
  });

  it('ends what a torn text leaves open', () => {
    expect(read(['{"a": {"b": "x'])).toEqual(['{', '{', 'b=x', '}', '}']);
    expect(read(['}}]"a": "b"', ']'])).toEqual(['=a', '=b']);
  });

  it('match the parsed text, wherever it is cut', () => {
    const strings = (value: unknown): string[] => {
      if (typeof value === 'string') return [value];
      return value !== null && typeof value === 'object'
        ? Object.values(value).flatMap((one) => strings(one))
        : [];
    };
    fc.assert(
      fc.property(fc.jsonValue(), fc.integer({ min: 1, max: 7 }), (value, size) => {
        const json = JSON.stringify(value);
        const pieces = Array.from({ length: Math.ceil(json.length / size) }, (_, at) =>
          json.slice(at * size, (at + 1) * size),
        );
        expect(values(pieces)).toEqual(strings(value));
      }),
      { seed: 3, numRuns: 300 },
    );
  });
});
