import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  displayInputs,
  type InterpolationScope,
  interpolateJson,
  interpolateSteps,
  interpolateText,
  referredInputs,
} from '../../src/items/prompt.ts';

const scope: InterpolationScope = {
  inputs: {
    who: 'Ada',
    n: 3,
    list: [1, { a: 2 }],
    no: false,
    empty: '',
    key: 'hunter2',
    loop: '{input:who}${inputs.n}{env:USER}',
  },
  secretNames: ['key'],
  env: { USER: 'me', TOKEN: 'secret' },
  envAllow: ['USER', 'UNSET'],
};

describe('interpolateText', () => {
  test.each([
    ['Hi {input:who}!', 'Hi Ada!'],
    ['${inputs.who}/{input:n}', 'Ada/3'],
    ['{input:list}', '[1,{"a":2}]'],
    ['{input:no}', 'false'],
    ['[{input:empty:x}]', '[]'],
    ['[{input:gone?}]', '[]'],
    ['{input:gone:de: fault}', 'de: fault'],
    ['{input:gone|other}', 'other'],
    ['{input:gone:}', ''],
    ['{input:who?}{input:who:x}', 'AdaAda'],
    ['{env:USER}', 'me'],
    ['{env:UNSET:none}', 'none'],
    ['{env:TOKEN:none}', 'none'],
    ['{input:key} ${inputs.key} {input:key?}', '{secret:key} {secret:key} {secret:key}'],
    [
      '${steps.a.text} ${other} {input} { input:who }',
      '${steps.a.text} ${other} {input} { input:who }',
    ],
    ['${inputs.who.first}', '${inputs.who.first}'],
    ['{input:loop}', '{input:who}${inputs.n}{env:USER}'],
    ['{input:constructor?}{input:toString?}', ''],
  ])('%s', (text, expected) => {
    expect(interpolateText(text, scope)).toEqual({ value: expected, missing: [] });
  });

  it('keeps what is missing and reports it once', () => {
    const text = '{input:a} {input:a} ${inputs.b} {env:TOKEN} {env:UNSET}';
    expect(interpolateText(text, scope)).toEqual({
      value: text,
      missing: ['{input:a}', '${inputs.b}', '{env:TOKEN}', '{env:UNSET}'],
    });
  });

  it('never expands a value again', () => {
    fc.assert(
      fc.property(fc.string(), (value) => {
        const nested = { ...scope, inputs: { a: value, who: 'no' } };
        expect(interpolateText('<{input:a}>', nested).value).toBe(`<${value}>`);
      }),
      { numRuns: 200, seed: 5 },
    );
  });

  it('gets through hostile text', () => {
    for (const piece of ['{input:a', '{input:a:', '{env:A:', '${inputs.']) {
      const text = piece.repeat(20_000);
      expect(interpolateText(text, scope).value).toBe(text);
    }
  });
});

describe('interpolateJson', () => {
  it('keeps the type where a string is exactly one reference', () => {
    const value = {
      a: '{input:n}',
      b: ['${inputs.list}'],
      c: 'n={input:n}',
      d: 1,
      e: null,
      f: '{input:key}',
      g: '{input:n}{input:n}',
    };
    expect(interpolateJson(value, scope).value).toEqual({
      a: 3,
      b: [[1, { a: 2 }]],
      c: 'n=3',
      d: 1,
      e: null,
      f: '{secret:key}',
      g: '33',
    });
  });

  it('reports what is missing', () => {
    expect(interpolateJson({ a: ['{input:x}'] }, scope)).toEqual({
      value: { a: ['{input:x}'] },
      missing: ['{input:x}'],
    });
  });
});

it('interpolates steps and leaves references to other steps', () => {
  const { value, missing } = interpolateSteps(
    [
      {
        name: 'a',
        description: 'For {input:who}',
        origin: 'd.md:1',
        calls: [
          {
            primary: 'execute',
            item_type: 'tool',
            item_id: 't/{input:who}',
            params: { n: '{input:n}', s: '${steps.x.text}', m: '{input:gone}' },
            options: { async: '{input:no}' },
          },
        ],
      },
    ],
    scope,
  );
  expect(value[0]).toMatchObject({
    description: 'For Ada',
    calls: [
      {
        item_id: 't/Ada',
        params: { n: 3, s: '${steps.x.text}', m: '{input:gone}' },
        options: { async: false },
      },
    ],
  });
  expect(missing).toEqual(['{input:gone}']);
});

it('lists inputs that must be there', () => {
  expect(
    referredInputs('{input:a} {input:b?} {input:c:d} ${inputs.e} {env:F}').map(({ name }) => name),
  ).toEqual(['a', 'e']);
});

it('shows secrets as stars', () => {
  expect(displayInputs({ a: 1, key: 'hunter2' }, ['key'])).toEqual({ a: 1, key: '***' });
});
