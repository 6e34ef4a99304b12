import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  displayInputs,
  type InterpolationScope,
  interpolateText,
  processValues,
  referredInputs,
} from '../../src/kernel/items/prompt.ts';

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

it('finds the values of the references in steps, by reference', () => {
  const { value, missing } = processValues(
    [
      {
        name: 'a',
        description: 'For {input:who}',
        origin: 'd.md:1',
        calls: [
          {
            primary: 'execute',
            item_type: 'tool',
            item_id: 't/{input:gone:x}',
            params: {
              n: ['{input:n}', 1],
              s: '${steps.x.text}',
              m: '{input:gone}',
              k: '{input:key}',
            },
            options: { async: '{input:no}' },
          },
        ],
        within: [
          {
            kind: 'foreach',
            id: 0,
            item: 'f',
            in: '${inputs.list}',
            parallel: 1,
            on_error: 'fail',
            origin: 'd.md:1',
          },
        ],
      },
    ],
    scope,
  );
  expect(value).toEqual({
    '{input:who}': 'Ada',
    '{input:gone:x}': 'x',
    '{input:n}': 3,
    '{input:key}': '{secret:key}',
    '{input:no}': false,
    '${inputs.list}': [1, { a: 2 }],
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
