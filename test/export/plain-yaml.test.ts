import { expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { plainYaml } from '../../src/kernel/export/knowledge.ts';

const TEXTS = [
  '',
  ' ',
  'a',
  'completed',
  'true',
  'No',
  'NULL',
  '~',
  'y',
  'on',
  'a b',
  'a  b',
  ' a',
  'a ',
  'a:',
  'a: b',
  'a:b',
  ':a',
  'a #b',
  'a#b',
  '#a',
  '- a',
  '-',
  '-a',
  '? a',
  '[a]',
  '{a}',
  '&a',
  '*a',
  '!a',
  '|',
  '>',
  '%a',
  '@a',
  '`a',
  "it's",
  '"a"',
  'a "b": c',
  "a 'b': c",
  'a\\b: c',
  '1',
  '1.5',
  '1e3',
  '0x10',
  '.inf',
  '-.inf',
  '2026-11-24',
  '2026-11-24T03:38:36.123Z',
  'demo/turn: One turn.',
  'demo/turn: Zwei Sätze – 你好 \u{1f600}',
  'a\nb',
  'a\n',
  'a\tb: c',
  'a: b\u{7}',
  'a: b\u{a0}c',
  'a,b',
  'Zwei Sätze',
  'claude-haiku-4-5-20251001',
  'gpt-4.1:free',
  'file:///x',
  'a: b: c',
  'a: b #c',
  'x: ---',
  '---',
  '...',
  '=',
  '<<',
  'a: ',
  'a: b ',
  'a/b.md',
  '../x',
  '.ai/state/threads/t-1/capabilities.md',
  '.inf',
  '.nan/x',
  '.ai/',
  '.ai/ x',
  '.ai/a: b',
  '_a',
  'É',
  `a: ${'long '.repeat(60)}end`,
  'a\u{feff}b: c',
  'a: \u{85}b',
];
const NUMBERS = [0, -0, 1, -1, 1.5, 1e-7, 1e21, 123456789012, Number.NaN, Number.POSITIVE_INFINITY];

test.each([...TEXTS, ...NUMBERS, true, false, null])('writes %j as the library does', (value) => {
  for (const members of [
    { member: value },
    { member: { inner: value, other: 1 } },
    { member: [value, 'x'] },
  ]) {
    const text = plainYaml(members);
    expect(text).toBe(stringify(members, { lineWidth: 0 }));
    expect(parse(text)).toEqual(parse(stringify(members, { lineWidth: 0 })));
  }
});

test('leaves all other values and names to the library', () => {
  const members = { a: {}, b: [], c: [[1]], d: { e: { f: 1 } }, g: { 'h: i': 1, true: 2 }, j: 1 };
  expect(plainYaml(members)).toBe(stringify(members, { lineWidth: 0 }));
  expect(plainYaml({ a: undefined, b: 1 })).toBe(stringify({ a: undefined, b: 1 }));
});
