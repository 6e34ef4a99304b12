import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject, JsonValue } from '../../src/kernel/core/json.ts';
import { coerceInput, coerceValue, hasType } from '../../src/kernel/tools/coerce.ts';

const TYPES = ['string', 'integer', 'number', 'boolean', 'array', 'object', 'null'];

function coerceOne(type: JsonValue, value: JsonValue): JsonValue | undefined {
  return coerceInput({ properties: { x: { type } }, required: ['x'] }, { x: value }).input['x'];
}

describe('coercion table', () => {
  it.each<[JsonValue, JsonValue, JsonValue]>([
    ['boolean', 'true', true],
    ['boolean', 'Yes', true],
    ['boolean', '1', true],
    ['boolean', 'false', false],
    ['boolean', 'no', false],
    ['boolean', '0', false],
    ['integer', '42', 42],
    ['integer', ' -7 ', -7],
    ['number', '1.5', 1.5],
    ['number', '1e3', 1000],
    ['array', '[1,2]', [1, 2]],
    ['object', '{"a":1}', { a: 1 }],
    ['string', 5, '5'],
    ['string', false, 'false'],
    [['integer', 'null'], '5', 5],
    // Requirement: coerce-boolean, coerce-number, coerce-json, coerce-text
  ])('%j: %j becomes %j', (type, value, expected) => {
    expect(coerceOne(type, value)).toEqual(expected);
  });

  it.each<[JsonValue, JsonValue]>([
    ['boolean', 'maybe'],
    ['boolean', 1],
    ['integer', '1.5'],
    ['integer', ''],
    ['integer', '0x10'],
    ['integer', '9007199254740993'],
    ['number', 'NaN'],
    ['number', 'Infinity'],
    ['number', '1e999'],
    ['array', '{"a":1}'],
    ['object', '[1]'],
    ['object', 'not json'],
    ['string', null],
    ['string', [1]],
    [['string', 'integer'], '5'],
  ])('%j: %j stays as it is', (type, value) => {
    expect(coerceOne(type, value)).toEqual(value);
  });

  it('reads null of an optional property as absent, and keeps null where it is a type or required', () => {
    const schema = {
      properties: { a: { type: 'string' }, b: { type: 'string' }, c: { type: ['string', 'null'] } },
      required: ['b'],
    };
    expect(coerceInput(schema, { a: null, b: null, c: null })).toEqual({
      input: { b: null, c: null },
      coerced: ['a: null → absent'],
    });
  });

  // Requirement: coerce-top-level
  it('coerces top-level properties only', () => {
    const schema = {
      properties: { o: { type: 'object', properties: { n: { type: 'integer' } } } },
    };
    expect(coerceInput(schema, { o: { n: '5' } })).toEqual({
      input: { o: { n: '5' } },
      coerced: [],
    });
  });

  it('keeps a member named __proto__ as data', () => {
    const input = JSON.parse('{"__proto__": {"polluted": "5"}}') as JsonObject;
    const { input: out } = coerceInput({ properties: {} }, input);
    expect(Object.keys(out)).toEqual(['__proto__']);
    expect(Object.hasOwn({}, 'polluted')).toBe(false);
  });

  it('never touches what already has the type, and gives the type when it changes something', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(...TYPES), (raw, type) => {
        const value = raw as JsonValue;
        const better = coerceValue(value, type);
        const allowed = hasType(value, type)
          ? better === value
          : better === undefined || hasType(better, type);
        expect(allowed).toBe(true);
      }),
      { numRuns: 300, seed: 7 },
    );
  });
});
