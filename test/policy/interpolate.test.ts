import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonValue } from '../../src/kernel/core/json.ts';
import { interpolate, interpolationPaths } from '../../src/kernel/policy/interpolate.ts';

const CONTEXT = {
  name: 'deploy',
  cost: { turns: 3, spend: 0.5 },
  outputs: { list: [1, 'two'], none: null },
  empty: '',
  trick: 'see ${name} and ${cost.turns}',
  'my-key': 'dashed',
};

describe('interpolate', () => {
  it.each<[JsonValue, JsonValue]>([
    ['plain', 'plain'],
    ['${name}', 'deploy'],
    ['run ${name}!', 'run deploy!'],
    ['${cost.turns}', 3],
    ['${ cost.turns }', 3],
    ['turns: ${cost.turns}', 'turns: 3'],
    ['${cost}', { turns: 3, spend: 0.5 }],
    ['${cost} ', '{"turns":3,"spend":0.5} '],
    ['${outputs.list.0}-${outputs.list[1]}', '1-two'],
    ['${outputs.list}', [1, 'two']],
    ['${missing || name}', 'deploy'],
    ['${outputs.none || cost.turns}', 3],
    ['${empty || name}', ''],
    ["${missing || 'none'}", 'none'],
    ['${missing || outputs.none || 7}', 7],
    ['${name || 7}', 'deploy'],
    ['${outputs.none || false}', false],
    ['${missing}', null],
    // a literal only replaces a missing value: by itself it is a path
    ['${7}', null],
    ['${true}', null],
    ['${true || name}', 'deploy'],
    ['${-7}', null],
    ["${'x' || name}", "${'x' || name}"],
    ['a${missing}b', 'ab'],
    ['a${outputs.none}b', 'ab'],
    ['${my-key}', 'dashed'],
    ['${name}${name}', 'deploydeploy'],
    // applied once: what is put in is not expanded
    ['${trick}', 'see ${name} and ${cost.turns}'],
    ['> ${trick}', '> see ${name} and ${cost.turns}'],
    // not expressions: left alone
    ['${VAR:-x}', '${VAR:-x}'],
    ['${a b}', '${a b}'],
    ['${}', '${}'],
    ['${name', '${name'],
    ['$name', '$name'],
    ['${${name}}', '${deploy}'],
    ['{input:name}', '{input:name}'],
    // own members only
    ['${constructor}', null],
    ['${name.length}', null],
    // containers, and what is not text
    [
      { a: ['${cost.turns}', { b: 'x${name}' }], '${name}': 1 },
      { a: [3, { b: 'xdeploy' }], '${name}': 1 },
    ],
    [
      [1, true, null],
      [1, true, null],
    ],
  ])('%j is %j', (value, expected) => {
    expect(interpolate(value, CONTEXT).value).toEqual(expected);
  });

  it('reports what had no value', () => {
    const { unresolved } = interpolate(['${missing}', 'a ${gone.a || gone.b}', '${name}'], CONTEXT);
    expect(unresolved).toEqual(['missing', 'gone.a || gone.b']);
  });

  it('never expands what a context brings in', () => {
    const hostile = fc.string({ unit: fc.constantFrom('$', '{', '}', 'x', '|', ' ') });
    fc.assert(
      fc.property(hostile, (x) => {
        expect(interpolate('${x}', { x }).value).toBe(x);
        expect(interpolate('<${x}>', { x }).value).toBe(`<${x}>`);
      }),
      { numRuns: 200, seed: 10 },
    );
  });

  it('bounds depth and size', () => {
    let deep: JsonValue = 'x';
    for (let level = 0; level < 40; level += 1) deep = [deep];
    expect(() => interpolate(deep, {})).toThrow(expect.objectContaining({ code: 'invalid_input' }));
    const big = 'x'.repeat(300_000);
    expect(() => interpolate('${big}${big}${big}${big}', { big })).toThrow(
      /more than 1000000 characters/,
    );
    expect(() => interpolate(['${big}', '${big}', '${big}', '${big}'], { big })).toThrow(
      /more than/,
    );
  });

  it('takes linear time on hostile text', () => {
    const text = '${'.repeat(200_000);
    expect(interpolate(text, {}).value).toBe(text);
  });

  it('lists the paths that a value names', () => {
    expect(interpolationPaths({ a: ['${x.y}', 'b ${c || d} ${not a path}'], n: 1 })).toEqual([
      'x.y',
      'c',
      'd',
    ]);
  });
});
