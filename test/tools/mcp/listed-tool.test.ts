import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, it } from 'vitest';
import { readListedTool } from '../../../src/features/mcp/listed-tool.ts';

const meta = new Ajv2020({ strict: false, logger: false });

function schemaOf(inputSchema: unknown): unknown {
  const tool = readListedTool({ name: 'a', inputSchema });
  return 'inputSchema' in tool ? tool.inputSchema : tool.reason;
}

const COIN = { coin: { type: 'string' } };
const obj = (properties: object, more = {}) => ({ type: 'object', properties, ...more });

// what servers list, each in a public report: APIs refuse the whole request for one such schema
it.each<readonly [string, unknown, object]>([
  ['mastra#21859: no schema', undefined, { type: 'object' }],
  ['null', null, { type: 'object' }],
  ['no type', { properties: COIN }, obj(COIN)],
  ['a type that is null', { type: null, properties: COIN }, obj(COIN)],
  ['two types', { type: ['object', 'null'], properties: COIN }, obj(COIN)],
  ['PHP: a list for no properties', { type: 'object', properties: [] }, { type: 'object' }],
  ['properties that are null', obj(COIN, { properties: null }), { type: 'object' }],
  ['required that is null', obj(COIN, { required: null }), obj(COIN)],
  ['required that is true', obj(COIN, { required: true }), obj(COIN)],
  ['required that is a text', obj(COIN, { required: 'coin' }), obj(COIN)],
  ['mastra#23731: required in properties', obj({ ...COIN, required: ['coin'] }), obj(COIN)],
  ['mcp-gateway#689: int', obj({ n: { type: 'int' } }), obj({ n: {} })],
  ['any', obj({ n: { type: 'any' } }), obj({ n: {} })],
  ['float in a union', obj({ n: { type: ['string', 'float'] } }), obj({ n: {} })],
  ['a property that is true', obj({ n: true }), obj({ n: {} })],
  ['a property that is a text', obj({ n: 'string', ...COIN }), obj(COIN)],
  ['a property that is null', obj({ n: null, ...COIN }), obj(COIN)],
  [
    'draft 3: required at the property',
    obj({ n: { type: 'string', required: true } }),
    obj({ n: { type: 'string' } }, { required: ['n'] }),
  ],
  [
    'draft 4: exclusive bounds',
    obj({ n: { type: 'number', minimum: 0, exclusiveMinimum: true } }),
    obj({ n: { type: 'number', exclusiveMinimum: 0 } }),
  ],
  [
    'draft 7: a tuple',
    obj({ n: { type: 'array', items: [{ type: 'string' }, { type: 'number' }] } }),
    obj({ n: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'number' }] } }),
  ],
  [
    'an empty list of items',
    obj({ n: { type: 'array', items: [] } }),
    obj({ n: { type: 'array' } }),
  ],
  [
    'items that are null',
    obj({ n: { type: 'array', items: null } }),
    obj({ n: { type: 'array' } }),
  ],
  ['enum that is null', obj({ n: { type: 'string', enum: null } }), obj({ n: { type: 'string' } })],
  ['an empty enum', obj({ n: { enum: [] } }), obj({ n: {} })],
  ['a description that is null', obj({ n: { description: null } }), obj({ n: {} })],
  ['a title that is a number', obj({ n: { title: 7 } }), obj({ n: {} })],
  ['bounds as texts', obj({ n: { minLength: '1', maximum: '9' } }), obj({ n: {} })],
  ['a negative length', obj({ n: { minLength: -1 } }), obj({ n: {} })],
  ['a step of zero', obj({ n: { multipleOf: 0 } }), obj({ n: {} })],
  ['uniqueItems as a text', obj({ n: { uniqueItems: 'true' } }), obj({ n: {} })],
  ['additionalProperties as a text', obj(COIN, { additionalProperties: 'false' }), obj(COIN)],
  ['an empty anyOf', obj({ n: { anyOf: [] } }), obj({ n: {} })],
  ['anyOf with null', obj({ n: { anyOf: [null, COIN] } }), obj({ n: { anyOf: [COIN] } })],
  ['a $ref that is no text', obj({ n: { $ref: {} } }), obj({ n: {} })],
  ['a pattern that is no text', obj({ n: { pattern: null } }), obj({ n: {} })],
  ['$defs as a list', obj(COIN, { $defs: [] }), obj(COIN)],
])('%s is read as it is meant', (_, given, made) => {
  const schema = schemaOf(given);
  expect(schema).toEqual(made);
  expect(meta.validateSchema(schema as object)).toBe(true);
});

it('a sound schema stays as it is, also the order of its members', () => {
  const given = {
    required: ['a'],
    properties: {
      a: { pattern: '^(?=x)', type: 'string', enum: ['x'], default: null, nullable: true },
      b: { anyOf: [{ type: 'array', items: { $ref: '#/$defs/c' } }, { type: 'null' }] },
    },
    $defs: { c: { const: 1 } },
    additionalProperties: false,
    type: 'object',
    $schema: 'http://json-schema.org/draft-07/schema#',
  };
  expect(JSON.stringify(schemaOf(given))).toBe(JSON.stringify(given));
});

it.each([
  ['a text', 'x'],
  ['a list', []],
  ['atlas-ui-3#727: another type', { type: 'string', description: 'the title' }],
  ['a list at the top', { type: 'array', items: {} }],
])('%s is no schema of an object', (_, given) => {
  expect(schemaOf(given)).toBe('has an inputSchema that describes no object');
});

it('a schema of a stranger does not use up the stack', () => {
  let deep: object = { type: 'string' };
  for (let level = 0; level < 20_000; level += 1)
    deep = { type: 'object', properties: { a: deep } };
  expect(schemaOf(deep)).toMatchObject({ type: 'object', properties: { a: { type: 'object' } } });
});
