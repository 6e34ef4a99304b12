import { expect, it } from 'vitest';
import { type CheckedSchema, findProblem } from '../../src/kernel/core/check.ts';

const text: CheckedSchema = { type: 'string', minLength: 1, problem: 'is {value}, not a text' };
const oneOrList: CheckedSchema = {
  anyOf: [text, { type: 'array', items: text, minItems: 1, problem: 'is an empty list' }],
};

it.each<[unknown, string | undefined, readonly (string | number)[]]>([
  ['a', undefined, []],
  [['a'], undefined, []],
  ['', 'is "", not a text', []],
  [[], 'is an empty list', []],
  [['a', 7], 'is 7, not a text', [1]],
  [{}, 'is {}, not a text', []],
])('the problem of %j is of the alternative with its type', (value, problem, path) => {
  const found = findProblem(oneOrList, value);
  expect(found?.text).toBe(problem);
  expect(found?.path ?? []).toEqual(path);
});

it('an absent member has its own wording', () => {
  const schema: CheckedSchema = {
    properties: { event: { ...text, missing: 'is missing' }, other: text },
    required: ['event'],
  };
  expect(findProblem(schema, {})).toMatchObject({ path: ['event'], text: 'is missing' });
  expect(findProblem(schema, { event: 7 })?.text).toBe('is 7, not a text');
});
