import {
  array,
  assert,
  constantFrom,
  oneof,
  property,
  string,
  stringMatching,
  tuple,
} from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseFlatYaml } from '../../src/features/search/flat-yaml.ts';
import { runs } from '../helpers/runs.ts';

const HEAD = [
  'name: t1',
  'title: "turn: One \\"turn\\"."',
  'version: 1.0.0',
  'created_at: 2026-11-23T03:52:52.806Z',
  'duration_seconds: 0.124',
  'cost:',
  '  input_tokens: 10',
  '  spend: 0.00004',
  'capabilities_ref: .ai/state/threads/t1/capabilities.md',
  'tags:',
  '  - thread',
  '  - completed',
].join('\n');

const scalar = oneof(
  constantFrom(
    'true',
    'Null',
    '~',
    'yes',
    '.inf',
    'Hello, world! (a)',
    '[a, b]',
    '[a,b]',
    '[a b, 1.50, true]',
    '[a, ]',
    '[a: b]',
    '[a] # b',
    '[a\tb]',
    '["a, b"]',
    '[.inf, ~]',
    '.NaN',
    '-1',
    '0x1f',
    '1e3',
    '007',
    '1_000',
    '- a',
  ),
  constantFrom(
    'a: b',
    'a #b',
    'a:b',
    '"q"',
    "'q'",
    '|',
    '>',
    '&a',
    '*a',
    '!t',
    '%d',
    '@a',
    '`a',
    '[a]',
    '{a}',
  ),
  constantFrom(
    '2026-11-23',
    '12:30:45',
    '1.5',
    '10',
    '.5',
    '1.',
    '+1',
    '0.10',
    'a/b-c_d',
    'two words',
    'end ',
  ),
  stringMatching(/^[\w .:#"'\\/+,!?()-]{0,12}$/),
  stringMatching(/^\[[\w .:#"'\\/+,!?()-]{0,8}(?:, [\w .:#-]{0,4})?\]$/),
  string({ maxLength: 8 }).map((text) => JSON.stringify(text)),
);
const oddKey = constantFrom('__proto__', 'null', 'constructor', '1a', 'a b', '"k"');
const key = oneof({ weight: 20, arbitrary: stringMatching(/^[A-Za-z_]\w{0,3}$/) }, oddKey);
const line = oneof(
  {
    weight: 12,
    arbitrary: tuple(key, scalar).map(([name, value]) => `${name}: ${value}`),
  },
  { weight: 2, arbitrary: key.map((name) => `${name}:`) },
  {
    weight: 2,
    arbitrary: tuple(key, scalar).map(([name, value]) => `  ${name}: ${value}`),
  },
  { weight: 2, arbitrary: scalar.map((value) => `  - ${value}`) },
  constantFrom('', '# note', '---', '...', '    deep: 1', '\t', '  - - a', '  -'),
);

describe('parseFlatYaml', () => {
  it('reads the head of an export as a YAML parser does', () => {
    expect(parseFlatYaml(HEAD)).toEqual(parse(HEAD));
  });

  it('leaves every other text to a YAML parser', () => {
    for (const text of [
      '',
      'a',
      'a:',
      '- a',
      'a: [b',
      'a: [b, [c]]',
      'a: []',
      'a: b # c',
      'a: b\na: c',
      'a:\n  b:\n    c: 1',
    ])
      expect(parseFlatYaml(text), text).toBeUndefined();
  });

  it('agrees with a YAML parser on all that it reads', () => {
    let read = 0;
    assert(
      property(array(line, { minLength: 1, maxLength: 4 }), (lines) => {
        const text = lines.join('\n');
        const flat = parseFlatYaml(text);
        if (flat === undefined) return;
        read += 1;
        expect(flat).toEqual(parse(text));
      }),
      runs(10_000),
    );
    expect(read).toBeGreaterThan(300);
  });
});
