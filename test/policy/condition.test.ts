import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RyeError } from '../../src/kernel/core/errors.ts';
import type { Condition } from '../../src/kernel/core/hook.ts';
import {
  CONDITION_OPERATORS,
  conditionPaths,
  evaluate,
  explain,
  parseCondition,
} from '../../src/kernel/policy/condition.ts';

const CONTEXT = {
  cost: { turns: 3, spend: 0.5 },
  name: 'deploy',
  tags: ['a', 'b', { deep: true }],
  nothing: null,
  empty: '',
  zero: 0,
  flag: false,
  port: '8080',
  version: '1.10',
  yes: 'true',
  ports: ['80', '443'],
  status: 503,
};

const holds = (raw: unknown, context: unknown = CONTEXT): boolean =>
  evaluate(parseCondition(raw), context);

describe('evaluate', () => {
  it.each<[string, string, unknown, boolean]>([
    ['cost.turns', 'eq', 3, true],
    ['cost.turns', 'eq', '3', true],
    ['cost.turns', 'eq', '3x', false],
    ['cost.turns', 'in', ['2', '3'], true],
    ['cost', 'eq', { spend: 0.5, turns: 3 }, true],
    ['nothing', 'eq', null, true],
    ['missing', 'eq', null, false],
    ['cost.turns', 'ne', 4, true],
    ['cost.turns', 'ne', 3, false],
    ['missing', 'ne', 1, true],
    ['cost.turns', 'gt', 2, true],
    ['cost.turns', 'gt', 3, false],
    ['cost.turns', 'gte', 3, true],
    ['cost.turns', 'lt', 4, true],
    ['cost.turns', 'lte', 2, false],
    ['name', 'gt', 'aaa', true],
    ['name', 'lt', 'aaa', false],
    ['name', 'lte', 'deploy', true],
    ['name', 'gt', 2, false],
    ['name', 'lt', 2, false],
    ['cost.turns', 'gt', '2', true],
    ['cost.turns', 'gt', 'two', false],
    ['port', 'gt', 900, true],
    ['port', 'gt', '900', true],
    ['port', 'eq', 8080, true],
    ['port', 'in', [80, 8080], true],
    ['port', 'contains', 808, true],
    ['port', 'ne', 8080, false],
    ['version', 'eq', 1.1, true],
    ['yes', 'eq', true, true],
    ['yes', 'eq', false, false],
    ['yes', 'contains', true, true],
    ['flag', 'eq', 'false', true],
    ['ports', 'contains', 80, true],
    ['empty', 'eq', 0, false],
    ['empty', 'lt', 1, false],
    ['zero', 'eq', false, false],
    ['flag', 'lt', 1, false],
    ['missing', 'lt', 1, false],
    ['nothing', 'lte', 0, false],
    ['name', 'in', ['build', 'deploy'], true],
    ['name', 'in', [], false],
    ['cost', 'in', [{ turns: 3, spend: 0.5 }], true],
    ['nothing', 'in', [null], true],
    ['missing', 'in', [null], false],
    ['name', 'contains', 'plo', true],
    ['name', 'contains', 'PLO', false],
    ['tags', 'contains', 'b', true],
    ['tags', 'contains', { deep: true }, true],
    ['tags', 'contains', 'deep', false],
    ['cost', 'contains', 'turns', false],
    ['status', 'contains', '5', false],
    ['missing', 'contains', 'x', false],
    ['name', 'regex', '^de.*y$', true],
    ['name', 'regex', 'plo', true],
    ['name', 'regex', '^plo', false],
    ['status', 'regex', '^5..$', true],
    ['flag', 'regex', 'false', true],
    ['tags', 'regex', 'a', false],
    ['missing', 'regex', '', false],
    ['zero', 'exists', undefined, true],
    ['empty', 'exists', undefined, true],
    ['flag', 'exists', true, true],
    ['nothing', 'exists', undefined, false],
    ['missing', 'exists', undefined, false],
    ['cost.missing.deeper', 'exists', undefined, false],
    ['name.length', 'exists', undefined, false],
    ['tags.length', 'exists', undefined, false],
    ['tags.0', 'eq', 'a', true],
    ['tags[1]', 'eq', 'b', true],
    ['tags.-1.deep', 'eq', true, true],
    ['tags[9]', 'exists', undefined, false],
    ['cost.constructor', 'exists', undefined, false],
    ['__proto__', 'exists', undefined, false],
  ])('%s %s %j is %s', (path, op, value, expected) => {
    expect(holds(value === undefined ? { path, op } : { path, op, value })).toBe(expected);
  });

  const yes = { path: 'cost.turns', value: 3 };
  const no = { path: 'cost.turns', value: 4 };

  it.each<[unknown, boolean]>([
    [undefined, true],
    [null, true],
    [{}, true],
    [yes, true],
    [no, false],
    [{ any: [] }, false],
    [{ all: [] }, true],
    [{ not: {} }, false],
    [{ any: [no, yes] }, true],
    [{ any: [no, no] }, false],
    [{ all: [yes, yes] }, true],
    [{ all: [yes, no] }, false],
    [{ not: no }, true],
    [{ all: [{ any: [no, { not: no }] }, { not: { all: [yes, no] } }] }, true],
  ])('%j is %s', (raw, expected) => {
    expect(holds(raw)).toBe(expected);
  });

  it('runs a hostile pattern in linear time', () => {
    expect(
      holds({ path: 'x', op: 'regex', value: '(a+)+$' }, { x: `${'a'.repeat(50_000)}!` }),
    ).toBe(false);
  });

  it('accepts the values that XML attributes can have', () => {
    expect(holds({ path: 'name', op: 'in', value: '["deploy", "build"]' })).toBe(true);
    expect(holds({ path: 'status', op: 'regex', value: 503 })).toBe(true);
  });
});

function hintOf(work: () => unknown): string {
  try {
    work();
    return '';
  } catch (error) {
    return (error as RyeError).hint ?? '';
  }
}

describe('parseCondition', () => {
  it.each<[unknown, string, string]>([
    ['x', 'condition: it is not a mapping', 'Write {path, op, value}, or any, all, not.'],
    [[], 'condition: it is not a mapping', 'Write {path, op, value}, or any, all, not.'],
    [{ path: 'a', op: 'equals', value: 1 }, 'condition: unknown operator "equals"', ''],
    [{ path: 'a', op: 'exist' }, 'condition: unknown operator "exist"', 'Did you mean exists?'],
    [{ pth: 'a', value: 1 }, 'condition: unknown member "pth"', 'Did you mean path?'],
    [{ op: 'eq', value: 1 }, 'condition: nothing is not a path', ''],
    [{ path: '', value: 1 }, 'condition: "" is not a path', ''],
    [{ path: 'a..b', value: 1 }, 'condition: "a..b" is not a path', ''],
    [{ path: 'a b', value: 1 }, 'condition: "a b" is not a path', ''],
    [{ path: 7, value: 1 }, 'condition: 7 is not a path', ''],
    [{ path: 'a' }, 'condition: the value of "eq" is missing', ''],
    [
      { path: 'a', op: 'gt', value: true },
      'the value of "gt" is neither a number nor a string',
      '',
    ],
    [{ path: 'a', op: 'in', value: 'a,b' }, 'the value of "in" is not a list', ''],
    [{ path: 'a', op: 'in', value: '[a' }, 'the value of "in" is not a list', ''],
    [{ path: 'a', op: 'regex', value: 'a(' }, 'the value of "regex" is not a usable pattern: ', ''],
    [
      { path: 'a', op: 'regex', value: '(?=a)' },
      'the value of "regex" is not a usable pattern: ',
      '',
    ],
    [
      { path: 'a', op: 'regex', value: '(a)\\1' },
      'the value of "regex" is not a usable pattern: ',
      '',
    ],
    [{ path: 'a', op: 'regex', value: 'a'.repeat(1001) }, 'longer than 1000 characters', ''],
    [{ path: 'a', op: 'regex', value: [] }, 'the value of "regex" is not a string', ''],
    [{ path: 'a', op: 'exists', value: false }, 'to ask for absence wrap it in not', ''],
    [{ any: {} }, 'condition: "any" is not a list of conditions', ''],
    [
      { any: [], path: 'a' },
      'condition: "any" has other members beside it',
      'Nest them under one all.',
    ],
    [
      { all: [{ path: 'a', value: 1 }, { not: { any: [5] } }] },
      'condition.all[1].not.any[0]: it is not a mapping',
      '',
    ],
  ])('refuses %j', (raw, message, hint) => {
    const parse = () => parseCondition(raw, { path: 'hooks.yaml', line: 12 });
    expect(parse).toThrow(
      expect.objectContaining({
        code: 'condition_invalid',
        message: expect.stringContaining(message),
      }),
    );
    expect(parse).toThrow(/^hooks\.yaml:12: /);
    expect(hintOf(parse)).toContain(hint);
  });

  it('refuses deep, broad and endless conditions', () => {
    let deep: unknown = { path: 'a', value: 1 };
    for (let level = 0; level < 40; level += 1) deep = { not: deep };
    const endless: { all: unknown[] } = { all: [] };
    endless.all.push(endless);
    const broad = { any: Array.from({ length: 600 }, () => ({ path: 'a', value: 1 })) };
    for (const raw of [deep, endless, broad]) {
      expect(() => parseCondition(raw)).toThrow(
        expect.objectContaining({ code: 'condition_invalid' }),
      );
    }
  });

  it('lists the paths that a condition reads', () => {
    const condition = parseCondition({
      all: [{ path: 'a.b', value: 1 }, { not: { any: [{ path: 'c', value: 1 }] } }],
    });
    expect(conditionPaths(condition)).toEqual(['a.b', 'c']);
  });
});

describe('explain', () => {
  it('names the node that was false and the values compared', () => {
    const condition = parseCondition({
      all: [
        { path: 'name', value: 'deploy' },
        { not: { path: 'cost.turns', op: 'lt', value: 5 } },
        { path: 'x', value: 1 },
      ],
    });
    expect(explain(condition, CONTEXT)).toEqual({
      result: false,
      because: [{ node: 'all[1].not', result: true, text: 'cost.turns lt 5 is true: it is 3' }],
    });
  });

  it('names every part of an any that is false', () => {
    const condition = parseCondition({
      any: [
        { path: 'x', op: 'exists' },
        { path: 'name', value: 'build' },
      ],
    });
    expect(explain(condition, CONTEXT)).toEqual({
      result: false,
      because: [
        { node: 'any[0]', result: false, text: 'x exists is false: it is missing' },
        { node: 'any[1]', result: false, text: 'name eq "build" is false: it is "deploy"' },
      ],
    });
  });

  it('shortens long values', () => {
    const { because } = explain(parseCondition({ path: 'x', value: 'short' }), {
      x: 'y'.repeat(500),
    });
    expect(because[0]?.text.length).toBeLessThan(140);
  });
});

const value = fc.constantFrom(0, 1, 'a', 'ab', null, true, [1, 'a'], { k: 1 });
const leaf = fc
  .record({
    path: fc.constantFrom('a', 'b', 'a.k', 'a.0', 'missing'),
    op: fc.constantFrom(...CONDITION_OPERATORS),
    value,
  })
  .map(({ path, op, value: raw }): Condition | undefined => {
    try {
      const parsed = parseCondition(op === 'exists' ? { path, op } : { path, op, value: raw });
      return parsed;
    } catch {
      return undefined;
    }
  })
  .filter((condition) => condition !== undefined);
const { tree } = fc.letrec<{ tree: Condition }>((tie) => ({
  tree: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    leaf,
    fc.array(tie('tree'), { maxLength: 3 }).map((any) => ({ any })),
    fc.array(tie('tree'), { maxLength: 3 }).map((all) => ({ all })),
    tie('tree').map((not) => ({ not })),
  ),
}));
const context = fc.record({ a: value, b: value }, { requiredKeys: [] });

const same = (left: unknown, right: unknown): boolean =>
  JSON.stringify(left) === JSON.stringify(right);
const list = (raw: unknown): readonly unknown[] => (Array.isArray(raw) ? raw : []);
const isScalar = (raw: unknown): boolean => ['string', 'number', 'boolean'].includes(typeof raw);
/** Values of one kind, or a text and a number that are equal as text. */
const alike = (left: unknown, right: unknown): boolean =>
  same(left, right) || (isScalar(left) && isScalar(right) && String(left) === String(right));
const sameOrder = (left: unknown, right: unknown): boolean =>
  typeof left === typeof right && ['number', 'string'].includes(typeof left);

type Relation = (actual: unknown, expected: unknown) => boolean;
const RELATIONS: Record<(typeof CONDITION_OPERATORS)[number], Relation> = {
  eq: (a, b) => a !== undefined && alike(a, b),
  ne: (a, b) => a === undefined || !alike(a, b),
  gt: (a, b) => sameOrder(a, b) && (a as number) > (b as number),
  gte: (a, b) => sameOrder(a, b) && (a as number) >= (b as number),
  lt: (a, b) => sameOrder(a, b) && (a as number) < (b as number),
  lte: (a, b) => sameOrder(a, b) && (a as number) <= (b as number),
  in: (a, b) => a !== undefined && list(b).some((item) => alike(item, a)),
  contains: (a, b) =>
    typeof a === 'string'
      ? isScalar(b) && a.split(String(b)).length > 1
      : list(a).some((item) => alike(item, b)),
  regex: (a, b) => isScalar(a) && new RegExp(b as string).test(a as string),
  exists: (a) => a !== undefined && a !== null,
};

/** A second evaluator, written from the spec's words without sharing code. */
function model(condition: Condition, root: unknown): boolean {
  if ('any' in condition) return condition.any.filter((part) => model(part, root)).length > 0;
  if ('all' in condition) return condition.all.filter((part) => !model(part, root)).length === 0;
  if ('not' in condition) return !model(condition.not, root);
  const actual = condition.path
    .split('.')
    .reduce<unknown>(
      (at, key) => (Object(at) === at ? (at as Record<string, unknown>)[key] : undefined),
      root,
    );
  return RELATIONS[condition.op](actual, condition.value);
}

describe('the evaluator', () => {
  it('agrees with a naive model, and explanations with results', () => {
    fc.assert(
      fc.property(tree, context, (condition, root) => {
        const result = evaluate(condition, root);
        expect(result).toBe(model(condition, root));
        const explained = explain(condition, root);
        expect(explained.result).toBe(result);
        expect(explained.because.length).toBeGreaterThan(0);
        expect(evaluate(parseCondition(condition), root)).toBe(result);
      }),
      { numRuns: 500, seed: 9 },
    );
  });
});
