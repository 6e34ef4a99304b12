import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JsonObject, JsonValue } from '../../src/kernel/core/json.ts';
import { readPlainSchema } from '../../src/kernel/startup/plain-schema.ts';
import { compileSchema } from '../../src/kernel/tools/schema.ts';
import { runs } from '../helpers/runs.ts';

const name = fc.constantFrom('a', 'b', 'toString', '__proto__');
const scalar = fc.constantFrom<JsonValue[]>(null, true, false, 0, 1, -1, 1.5, '', 'a', '💡💡', '5');
const type = fc.constantFrom('null', 'boolean', 'integer', 'number', 'string', 'array', 'object');

/** Values and schemas drawn from few names and scalars, so that they meet; some schemas are wrong. */
const { object } = fc.letrec<{ value: JsonValue; object: JsonObject }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    scalar,
    fc.array(tie('value'), { maxLength: 3 }),
    tie('object'),
  ),
  object: fc.dictionary(name, tie('value'), { maxKeys: 3 }),
}));
const { schema } = fc.letrec<{ schema: JsonObject; member: readonly [string, JsonValue] }>(
  (tie) => {
    const member = (keyword: string, operand: fc.Arbitrary<JsonValue>) =>
      fc.tuple(fc.constant(keyword), operand);
    const below = fc.oneof({ depthSize: 'small' }, fc.boolean(), tie('schema'));
    const limits = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];
    const sizes = ['minLength', 'maxLength', 'minItems', 'maxItems'];
    return {
      member: fc.oneof(
        member('type', fc.oneof(type, fc.array(type, { maxLength: 2 }), fc.constant('text'))),
        member('enum', fc.array(scalar, { maxLength: 4 })),
        member('const', scalar),
        ...limits.map((keyword) =>
          member(keyword, fc.constantFrom<JsonValue[]>(0, 1, -1, 1.5, '1')),
        ),
        ...sizes.map((keyword) => member(keyword, fc.constantFrom(0, 1, 2, 2, -1, 0.5))),
        member('items', below),
        member('required', fc.array(name, { maxLength: 2 })),
        member('properties', fc.dictionary(name, below, { maxKeys: 3 })),
        member('additionalProperties', below),
        member('description', fc.constantFrom<JsonValue[]>('text', 'text', 1)),
      ),
      schema: fc
        .array(tie('member'), { maxLength: 3 })
        .map((members) => Object.fromEntries(members)),
    };
  },
);

it('accepts no value that the compiler refuses, and no schema that it refuses', async () => {
  let accepted = 0;
  let left = 0;
  const property = fc.asyncProperty(schema, object, async (drawn, input) => {
    const root: JsonObject = { ...drawn, type: 'object' };
    const check = readPlainSchema(root);
    if (check?.(input) !== true) {
      left += 1;
      return;
    }
    accepted += 1;
    const validate = await compileSchema(root);
    expect(validate(input)).toBe(true);
  });
  await fc.assert(property, runs(700));
  expect(accepted).toBeGreaterThan(80);
  expect(left).toBeGreaterThan(80);
});

it.each<[JsonObject, JsonValue, boolean | undefined]>([
  [{ type: 'object' }, {}, true],
  [{ type: 'object', properties: { a: { type: ['integer', 'null'] } } }, { a: 5 }, true],
  [{ type: 'object', properties: { a: { type: 'integer' } } }, { a: 1.5 }, false],
  [{ properties: { a: { enum: ['x', 1] } }, additionalProperties: false }, { a: 1 }, true],
  [{ properties: { a: {} }, additionalProperties: false }, { b: 1 }, false],
  [{ properties: { a: { items: { minLength: 2 } } } }, { a: ['ab', '💡'] }, false],
  [{ required: ['a'] }, {}, false],
  [{ oneOf: [{ type: 'object' }] }, {}, undefined],
  [{ properties: { a: { pattern: 'x' } } }, {}, undefined],
  [{ properties: { a: { type: 'strng' } } }, {}, undefined],
  [{ required: ['a', 'a'] }, {}, undefined],
  [{ properties: { toString: {} } }, {}, undefined],
])('%j for %j: %s', (plain, input, expected) => {
  expect(readPlainSchema(plain)?.(input)).toBe(expected);
});
