import { toUSVString } from 'node:util';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import {
  imageTypeOf,
  objectSchema,
  ownInput,
  wellFormedJson,
  wireId,
  wireImage,
  wireName,
  wireSchema,
  withItems,
} from '../../src/kernel/providers/acceptable.ts';
import { wireRules } from '../../src/kernel/providers/wire-rules.ts';

const MESSAGES_RULES = wireRules('messages');
const CHAT_RULES = wireRules('chat');

/** Any code units, half pairs among them. */
const anyText = fc
  .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 40 })
  .map((units) => String.fromCharCode(...units));

it('no text of a request has half of a pair, and all others stay as they are', () => {
  fc.assert(
    fc.property(fc.dictionary(anyText, fc.array(anyText)), (value) => {
      const text = wellFormedJson(JSON.stringify(value));
      const wanted = Object.fromEntries(
        Object.entries(value).map(([key, texts]) => [
          toUSVString(key),
          texts.map((one) => toUSVString(one)),
        ]),
      );
      expect(JSON.parse(text)).toEqual(wanted);
    }),
  );
});

it.each(['\\ud83d', '\\\\ud83d', 'a\\ud83d\\', '😀\ud83d😀'])(
  '%j is written as its text',
  (text) => {
    expect(JSON.parse(wellFormedJson(JSON.stringify(text)))).toBe(toUSVString(text));
  },
);

it.each([
  ['messages', MESSAGES_RULES, /^[a-zA-Z0-9_-]{1,128}$/, /^[a-zA-Z0-9_-]{1,64}$/],
  ['chat', CHAT_RULES, /^[a-zA-Z0-9_-]{1,64}$/, /^[\x21-\x7e]{1,40}$/],
] as const)('%s: names and ids have the form of the API', (_wire, rules, name, id) => {
  fc.assert(
    fc.property(fc.oneof(anyText, fc.string({ maxLength: 600 })), (text) => {
      expect(wireName(text, rules)).toMatch(name);
      expect(wireId(text, rules)).toMatch(id);
    }),
  );
});

it.each([MESSAGES_RULES, CHAT_RULES])('different ids stay different', (rules) => {
  const similar = fc
    .array(fc.constantFrom('a', '_', '|', '.', ':', 'é'), { minLength: 1, maxLength: 80 })
    .map((letters) => letters.join(''));
  fc.assert(
    fc.property(similar, similar, (one, other) => {
      expect(wireId(one, rules) === wireId(other, rules)).toBe(one === other);
    }),
  );
});

const base64 = (...bytes: readonly number[]): string =>
  Buffer.from([...bytes, ...Array.from({ length: 20 }, () => 0)]).toString('base64');

it.each([
  ['image/png', base64(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)],
  ['image/jpeg', base64(0xff, 0xd8, 0xff, 0xe0)],
  ['image/gif', Buffer.from('GIF89a______').toString('base64')],
  ['image/gif', Buffer.from('GIF87a______').toString('base64')],
  ['image/webp', Buffer.from('RIFF____WEBPVP8 ').toString('base64')],
  [undefined, ''],
  [undefined, Buffer.from('<!doctype html>').toString('base64')],
  [undefined, Buffer.from('<svg xmlns="x"/>').toString('base64')],
  [undefined, Buffer.from('RIFF____WAVEfmt ').toString('base64')],
  [undefined, Buffer.from('BM__________').toString('base64')],
  [undefined, 'not base64 at all!'],
])('an image is %s by its bytes', (type, data) => {
  expect(imageTypeOf({ data })).toBe(type);
});

const A = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };
const B = { type: 'object', properties: { b: { type: 'string' } }, required: ['b'] };
const ID = { type: 'object', properties: { id: {}, slug: {} } };

/** A schema with a condition. An object literal with `then` would be taken for a promise. */
function branching(schema: JsonObject, then: JsonObject): JsonObject {
  return { ...schema, ...(JSON.parse(`{"if":{},"then":${JSON.stringify(then)}}`) as JsonObject) };
}

it.each<readonly [JsonObject, readonly string[], readonly string[] | undefined]>([
  [{ oneOf: [A, B] }, ['a', 'b'], undefined],
  [{ anyOf: [A, { ...A, properties: { ...A.properties, c: {} } }] }, ['a', 'c'], ['a']],
  [{ allOf: [A, B] }, ['a', 'b'], ['a', 'b']],
  [{ ...ID, anyOf: [{ required: ['id'] }, { required: ['slug'] }] }, ['id', 'slug'], undefined],
  [branching({ ...ID }, { required: ['id'] }), ['id', 'slug'], undefined],
  [{ $ref: '#/$defs/a', $defs: { a: A } }, ['a'], ['a']],
  [{ $ref: '#/definitions/x~1y', definitions: { 'x/y': B } }, ['b'], ['b']],
  [{ $ref: '#/$defs/loop', $defs: { loop: { $ref: '#/$defs/loop' } } }, [], undefined],
  [{ ...A, not: { required: ['z'] } }, ['a'], ['a']],
  [{ $ref: 'https://example.com/x.json' }, [], undefined],
  [branching({ else: { properties: { c: {} } } }, B), ['b', 'c'], undefined],
])('%j is an object at its top', (schema, properties, required) => {
  const made = objectSchema(schema, CHAT_RULES);
  expect(Object.keys(made['properties'] as object).toSorted()).toEqual(properties);
  expect(made['required']).toEqual(required);
  expect(made.type).toBe('object');
  for (const name of ['oneOf', 'anyOf', 'allOf', 'not', 'if', 'then', 'else', '$ref']) {
    expect(made).not.toHaveProperty([name]);
  }
});

it('leaves a schema without alternatives at its top as it is', () => {
  const schema = { ...A, additionalProperties: false, $defs: { b: { anyOf: [B] } } };
  expect(objectSchema(schema, CHAT_RULES)).toEqual(schema);
});

it('reads a part of a schema once, however often a server refers to it', () => {
  const many = Array.from({ length: 200 }, () => ({ $ref: '#/$defs/a' }));
  const schema = { anyOf: many, $defs: { a: { anyOf: many, properties: { x: {} } } } };
  expect(objectSchema(schema, CHAT_RULES)['properties']).toEqual({ x: {} });
});

it('properties whose names the Messages API refuses have others on the wire, and their own in calls', () => {
  const schema: JsonObject = {
    type: 'object',
    properties: { $top: {}, 'a[]': {}, 'a{}': {}, plain: {}, ['x'.repeat(70)]: {}, 项目: {} },
    required: ['a[]', 'plain'],
  };
  const sent = wireSchema(schema, MESSAGES_RULES);
  const names = Object.keys(sent['properties'] as object);
  expect(new Set(names).size).toBe(6);
  for (const name of names) expect(name).toMatch(/^[a-zA-Z0-9_.-]{1,64}$/);
  expect(sent['required']).toEqual([names[1], 'plain']);
  const input = Object.fromEntries(names.map((name, index) => [name, index]));
  const own = ownInput({ ...input, other: 1 }, schema, MESSAGES_RULES);
  expect(Object.keys(own)).toEqual([...Object.keys(schema['properties'] as object), 'other']);
  expect(wireSchema(schema, CHAT_RULES)).toEqual(schema);
});

it.each([
  [{ type: 'array' }, { type: 'array', items: {} }],
  [{ type: ['array', 'null'] }, { type: ['array', 'null'], items: {} }],
  [
    { type: 'array', prefixItems: [{}] },
    { type: 'array', prefixItems: [{}] },
  ],
  [
    { properties: { a: { anyOf: [{ type: 'array' }] } } },
    { properties: { a: { anyOf: [{ type: 'array', items: {} }] } } },
  ],
  [{ enum: [{ type: 'array' }] }, { enum: [{ type: 'array' }] }],
])('%j has items in each list', (schema, made) => {
  expect(withItems(schema as JsonObject)).toEqual(made);
});

const DATA = base64(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

it.each([
  [DATA, DATA],
  [`data:image/png;base64,${DATA}`, DATA],
  [`${DATA.slice(0, 8)}\r\n${DATA.slice(8)}\n`, DATA],
  [`${DATA.slice(0, 8)}-${DATA.slice(9)}`, undefined],
  ['', undefined],
])('the image %j is sent as %j', (data, sent) => {
  expect(wireImage({ data }, CHAT_RULES)?.data).toBe(sent);
});
