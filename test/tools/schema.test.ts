import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { compileSchema, validateInput } from '../../src/kernel/tools/schema.ts';
import { markForeign } from '../../src/kernel/tools/schema-dialect.ts';

const schema: JsonObject = {
  type: 'object',
  properties: {
    path: { type: 'string' },
    limit: { type: 'integer', minimum: 1 },
    mode: { type: 'string', enum: ['a', 'b'] },
  },
  required: ['path'],
  additionalProperties: false,
};

async function problemsOf(input: JsonObject): Promise<string> {
  const result = await validateInput(schema, input);
  return result.ok ? '' : result.problems;
}

describe('validateInput', () => {
  // Requirement: validation-not-failure
  it('returns coerced input with what was coerced', async () => {
    expect(await validateInput(schema, { path: 'x', limit: '5' })).toEqual({
      ok: true,
      input: { path: 'x', limit: 5 },
      coerced: ['limit: "5" → 5'],
    });
  });

  it('names every problem, near names and the parameters', async () => {
    const problems = await problemsOf({ pth: 'x', limit: 'many', mode: 'c' });
    expect(problems).toContain('path: is required');
    expect(problems).toContain('pth: is not a parameter. Did you mean path?');
    expect(problems).toContain('limit: must be integer, got string "many"');
    expect(problems).toContain('mode: must be one of ["a","b"], got string "c"');
    expect(problems).toContain(
      'Parameters: path (string, required), limit (integer), mode (string).',
    );
  });

  it.each([[{}], [{ path: null }]])(
    // Requirement: required-members
    'refuses a missing or null required property: %j',
    async (input) => {
      expect(await problemsOf(input)).toContain('path');
    },
  );

  it('keeps patterns apart and matches them in linear time', async () => {
    const patterns = {
      type: 'object',
      properties: {
        a: { type: 'string', pattern: '^x$' },
        b: { type: 'string', pattern: '^(a+)+$' },
      },
    };
    expect((await validateInput(patterns, { a: 'x', b: 'aaa' })).ok).toBe(true);
    expect((await validateInput(patterns, { a: 'a', b: 'aaa' })).ok).toBe(false);
    const hostile = await validateInput(patterns, { b: `${'a'.repeat(50_000)}!` });
    expect(hostile.ok).toBe(false);
  });

  it('bounds the arguments', async () => {
    let deep: JsonObject = {};
    for (let level = 0; level < 100_000; level += 1) deep = { deep };
    expect(await validateInput({ type: 'object' }, deep)).toEqual({
      ok: false,
      problems: 'The arguments are nested deeper than 64 levels.',
    });
    const wide = { items: Array.from({ length: 30_000 }, () => 0) };
    expect((await validateInput({ type: 'object' }, wide)).ok).toBe(false);
  });

  it('bounds the list of problems', async () => {
    const strict = { type: 'object', additionalProperties: false };
    const input = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`p${index}`, 1]));
    const result = await validateInput(strict, input);
    expect(result.ok ? '' : result.problems).toContain('and 92 more');
  });

  it('compiles each schema once', () => {
    expect(compileSchema(schema)).toBe(compileSchema(schema));
  });

  it('takes two tools with the same $id, and other dialects', async () => {
    const one = { $id: 'same', type: 'object', properties: { a: { type: 'string' } } };
    const two = { $id: 'same', type: 'object', properties: { a: { type: 'boolean' } } };
    expect((await validateInput(one, { a: 'x' })).ok).toBe(true);
    expect((await validateInput(two, { a: true })).ok).toBe(true);
    const old = { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object' };
    expect((await validateInput(old, {})).ok).toBe(true);
  });

  it.each<[string, JsonObject]>([
    ['unknown type', { type: 'object', properties: { a: { type: 'strng' } } }],
    ['not an object', { type: 'string' }],
    ['remote reference', { type: 'object', $ref: 'http://127.0.0.1:9/x' }],
    ['look-around', { type: 'object', properties: { a: { type: 'string', pattern: '(?=a)b' } } }],
    ['asynchronous', { $async: true, type: 'object' }],
    ['huge', { type: 'object', description: 'x'.repeat(300_000) }],
    ['wide', { type: 'object', enum: Array.from({ length: 20_000 }, () => 1) }],
  ])('refuses a schema: %s', async (_name, hostile) => {
    await expect(validateInput(hostile, {})).rejects.toMatchObject({ code: 'tool_malformed' });
  });
});

describe('a schema of another dialect', () => {
  const DRAFT_7 = { $schema: 'http://json-schema.org/draft-07/schema#' };
  const DRAFT_4 = { $schema: 'http://json-schema.org/draft-04/schema#' };
  const point = {
    type: 'array',
    items: [{ type: 'number' }, { type: 'string' }],
    additionalItems: false,
  };
  const of = (property: JsonObject): JsonObject => ({
    type: 'object',
    properties: { a: property },
  });

  it.each<[string, JsonObject, JsonObject, JsonObject | undefined]>([
    ['a tuple', { ...DRAFT_7, ...of(point) }, { a: [1, 'x'] }, { a: ['x', 1, 2] }],
    [
      'exclusive bounds',
      { ...DRAFT_4, ...of({ type: 'number', minimum: 0, exclusiveMinimum: true }) },
      { a: 1 },
      { a: 0 },
    ],
    [
      'required at the property',
      { ...DRAFT_4, ...of({ type: 'string', required: true }) },
      { a: 'x' },
      {},
    ],
    [
      'an id',
      { ...DRAFT_4, id: 'http://x/y', ...of({ id: '#a', type: 'string' }) },
      { a: 'x' },
      undefined,
    ],
    [
      'a reference',
      { ...DRAFT_7, definitions: { p: point }, ...of({ $ref: '#/definitions/p' }) },
      { a: [1, 'x'] },
      { a: [1, 2] },
    ],
  ])('is understood: %s', async (_name, given, good, bad) => {
    expect((await validateInput(given, good)).ok).toBe(true);
    if (bad) expect((await validateInput(given, bad)).ok).toBe(false);
  });

  it.each<[string, JsonObject, JsonObject | undefined]>([
    ['look-ahead', of({ type: 'string', pattern: '^(?=.*a)b' }), { a: {} }],
    ['nullable without a type', of({ nullable: true, enum: ['x'] }), { a: 'y' }],
    ['an unknown type', of({ type: 'any' }), undefined],
    ['several types', of({ type: ['string', 'file'] }), undefined],
    ['an empty enum', of({ type: 'string', enum: [] }), { a: {} }],
    ['a tuple without its dialect', of(point), { a: [1, 2] }],
    ['a broken reference', of({ $ref: '#/nowhere' }), undefined],
    ['properties that are none', { type: 'object', properties: { a: 7 } }, undefined],
  ])('of a server is called in spite of %s', async (_name, given, bad) => {
    const own = structuredClone(given);
    markForeign(given);
    const good = bad?.['a'] === 'y' ? 'x' : Array.isArray(bad?.['a']) ? [1, 'x'] : 'text';
    expect((await validateInput(given, { a: good })).ok).toBe(true);
    if (bad) expect((await validateInput(given, bad)).ok).toBe(false);
    expect(own).toEqual(given);
  });

  it('patterns have the syntax of JavaScript', async () => {
    const foreign = of({ type: 'string', pattern: '^\\u4e00\\/$' });
    expect((await validateInput(foreign, { a: '\u4e00/' })).ok).toBe(true);
    expect((await validateInput(foreign, { a: 'x' })).ok).toBe(false);
  });

  it('the reason of a refusal is given once', async () => {
    const wrong = of({ type: 'array', items: [{ type: 'strng' }] });
    await expect(validateInput(wrong, {})).rejects.toThrow(/^(?!.*(must be[^,]*),.*\1).*$/);
  });
});
