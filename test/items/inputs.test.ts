import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { ValueType } from '../../src/kernel/core/plan.ts';
import type { InputDeclaration } from '../../src/kernel/items/directive-ast.ts';
import { resolveInputs } from '../../src/kernel/items/inputs.ts';
import { errorOf } from './helpers.ts';

function input(
  name: string,
  type: ValueType,
  more: Partial<InputDeclaration> = {},
): InputDeclaration {
  return {
    name,
    type,
    required: false,
    values: [],
    secret: false,
    description: '',
    origin: 'd.md:1',
    ...more,
  };
}

describe('resolveInputs coerces', () => {
  test.each<[ValueType, unknown, unknown]>([
    ['string', 'x', 'x'],
    ['string', '', ''],
    ['string', 5, '5'],
    ['string', true, 'true'],
    ['integer', '42', 42],
    ['integer', ' -7 ', -7],
    ['integer', 3, 3],
    ['number', '1.5e3', 1500],
    ['number', '.5', 0.5],
    ['boolean', 'true', true],
    ['boolean', 'YES', true],
    ['boolean', '1', true],
    ['boolean', 'no', false],
    ['boolean', false, false],
    ['array', '[1,"a"]', [1, 'a']],
    ['array', [1], [1]],
    ['object', '{"a":{}}', { a: {} }],
    ['file', 'a.txt', 'a.txt'],
    ['enum', 'b', 'b'],
  ])('%s from %j', (type, raw, value) => {
    const declared = [input('a', type, { values: ['a', 'b'] })];
    expect(resolveInputs(declared, { a: raw as string }).values).toEqual({ a: value });
  });

  test.each<[ValueType, unknown, string]>([
    ['string', ['x'], 'is an array, not text'],
    ['string', { x: 1 }, 'is a value of type object, not text'],
    ['integer', '1.5', 'is not a whole number'],
    ['integer', '12abc', 'is not a number'],
    ['integer', '', 'is not a number'],
    ['integer', true, 'is a value of type boolean, not a number'],
    ['integer', '99999999999999999999', 'is not a whole number'],
    ['number', 'NaN', 'is not a number'],
    ['number', 'Infinity', 'is not a number'],
    ['number', '0x10', 'is not a number'],
    ['boolean', 'maybe', 'is not true or false'],
    ['boolean', 2, 'is not true or false'],
    ['array', '{}', 'is not a JSON array'],
    ['array', '[1,', 'is not a JSON array'],
    ['object', '[]', 'is not a JSON object'],
    ['object', 'null', 'is not a JSON object'],
    ['enum', 'c', 'is not one of a, b'],
  ])('refuses %s from %j', (type, raw, message) => {
    const declared = [input('a', type, { values: ['a', 'b'] })];
    const error = errorOf(() => resolveInputs(declared, { a: raw as string }));
    expect(error.code).toBe('invalid_input');
    expect(error.message).toContain(message);
  });
});

describe('resolveInputs', () => {
  it('accepts anything where nothing is declared', () => {
    expect(resolveInputs([], { a: 1, b: undefined })).toEqual({
      values: { a: 1 },
      secretNames: [],
    });
  });

  it('applies defaults and skips inputs without a value', () => {
    const declared = [
      input('a', 'integer', { default: 3 }),
      input('b', 'string'),
      input('c', 'string', { required: true, default: 'x' }),
    ];
    expect(resolveInputs(declared, {}).values).toEqual({ a: 3, c: 'x' });
    expect(resolveInputs(declared, { a: null }).values).toEqual({ a: 3, c: 'x' });
  });

  test.each([{}, { a: '' }, { a: '  ' }, { a: null }])('refuses %j for a required text', (raw) => {
    expect(
      errorOf(() => resolveInputs([input('a', 'string', { required: true })], raw)).message,
    ).toMatch(/^missing input "a"/);
  });

  it('reports every problem at once with the nearest names', () => {
    const declared = [input('count', 'integer'), input('name', 'string', { required: true })];
    const error = errorOf(() => resolveInputs(declared, { cuont: '1', count: 'x' }));
    expect(error.details?.['problems']).toEqual([
      'unknown input "cuont" (did you mean count?)',
      'input "count": "x" is not a number',
      'missing input "name"',
    ]);
    expect(error.hint).toBe(
      'Pass --input name=VALUE. Valid inputs: count (integer), name (string, required).',
    );
  });

  it('checks that a file is there through the callback', () => {
    const declared = [input('f', 'file')];
    const fileExists = (path: string): boolean => path === 'there';
    expect(resolveInputs(declared, { f: 'there' }, { fileExists }).values).toEqual({ f: 'there' });
    expect(errorOf(() => resolveInputs(declared, { f: 'gone' }, { fileExists })).message).toBe(
      'input "f": "gone" cannot be read',
    );
  });

  it('flags secrets that have a value', () => {
    const declared = [
      input('k', 'string', { secret: true }),
      input('l', 'string', { secret: true }),
    ];
    expect(resolveInputs(declared, { k: 'x' })).toEqual({ values: { k: 'x' }, secretNames: ['k'] });
  });

  it.each<[ValueType]>([['integer'], ['enum'], ['file'], ['object']])(
    'never shows a secret in an error: %s',
    (type) => {
      const declared = [input('k', type, { secret: true, values: ['a'] })];
      const error = errorOf(() =>
        resolveInputs(declared, { k: 'hunter2' }, { fileExists: () => false }),
      );
      expect(JSON.stringify(error) + error.message).not.toContain('hunter2');
    },
  );

  it('cuts long values in messages', () => {
    const error = errorOf(() => resolveInputs([input('a', 'integer')], { a: 'x'.repeat(10_000) }));
    expect(error.message.length).toBeLessThan(200);
  });

  it('takes __proto__ as a name like any other', () => {
    const raw = JSON.parse('{"__proto__": "x"}') as Record<string, string>;
    expect(errorOf(() => resolveInputs([input('a', 'string')], raw)).message).toContain(
      'unknown input "__proto__"',
    );
  });

  it('reads back every number that it is given as text', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (number) => {
        const { values } = resolveInputs([input('n', 'number')], { n: String(number) });
        expect(Number(values['n']) - number).toBe(0);
      }),
      { numRuns: 200, seed: 3 },
    );
  });
});
