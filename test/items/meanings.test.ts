import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { anything, array, assert, constantFrom, oneof, property, tuple } from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type ConfigMeaning,
  configMeaning,
  flattenConfig,
  thawConfig,
} from '../../src/kernel/items/config.ts';
import { readConfigText } from '../../src/kernel/items/config-yaml.ts';
import { knownMeaning, meaningOf, shippedMeaning } from '../../src/kernel/items/meanings.ts';
import { parseRule } from '../../src/kernel/items/rule.ts';
import { runs } from '../helpers/runs.ts';

function filesBelow(folder: string): readonly (readonly [string, string])[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(?:md|yaml)$/.test(name))
    .map((name) => [name, readFileSync(path.join(folder, name), 'utf8')]);
}

describe('the meanings in the program', () => {
  it.each(filesBelow('.ai/rules'))('equal the parsed rule %s', (name, text) => {
    const parsed = parseRule(text, name);
    const { path: _path, name: _name, metadata: _metadata, mapping: _mapping, ...rest } = parsed;
    const { warnings, ...content } = rest;
    expect(shippedMeaning('rule', text)).toEqual(content);
    expect(warnings).toEqual([]);
  });

  it.each(filesBelow('.ai/config'))('equal the parsed configuration %s', (name, text) => {
    const node = readConfigText(text, name);
    const shipped = shippedMeaning('config', text) as ConfigMeaning | undefined;
    expect(shipped?.value).toEqual(flattenConfig(node).value);
    expect(shipped && thawConfig(shipped.node, name)).toEqual(node);
  });

  it('are of no other text, and of no other kind', () => {
    const [[, text] = ['', '']] = filesBelow('.ai/rules');
    expect(shippedMeaning('rule', `${text}\n`)).toBeUndefined();
    expect(shippedMeaning('mapping', text)).toBeUndefined();
  });
});

const line = tuple(
  constantFrom('', '', '  ', '    ', '\t'),
  oneof(
    constantFrom('a:', 'b: 1', 'c: [x, {y: 2}]', 'd: .inf', 'e: -0', '- f', 'g: &g [1]', 'h: *g'),
    constantFrom(
      'i: "\\u2028"',
      'j: ~',
      '# note',
      'k: 2026-11-23',
      '__proto__: 1',
      'l: |',
      'm: 1e400',
    ),
  ),
).map(([indent, text]) => indent + text);

describe('a kept configuration', () => {
  it('has the values and the lines of the parsed one, below any path', () => {
    let read = 0;
    const lines = array(line, { maxLength: 6 });
    assert(
      property(lines, constantFrom('x.yaml', '/a b/c:3.yaml'), (text, file) => {
        const parse = () => readConfigText(text.join('\n'), file);
        try {
          parse();
        } catch {
          return;
        }
        read += 1;
        const other = 'z.yaml';
        const key = `${file} ${text.join('\n')}`;
        meaningOf('config', key, () => configMeaning(parse(), file));
        const kept = knownMeaning('config', key) as ConfigMeaning | undefined;
        if (kept === undefined) return;
        expect(thawConfig(kept.node, file)).toEqual(parse());
        expect(thawConfig(kept.node, other)).toEqual(readConfigText(text.join('\n'), other));
      }),
      runs(2000),
    );
    expect(read).toBeGreaterThan(100);
  });
});

describe('meaningOf', () => {
  it('reads a text once, and what throws each time', () => {
    let reads = 0;
    const read = () => {
      reads += 1;
      return { read: reads };
    };
    expect(meaningOf('mapping', 'once', read)).toEqual({ read: 1 });
    expect(meaningOf('mapping', 'once', read)).toEqual({ read: 1 });
    expect(meaningOf('config', 'once', read)).toEqual({ read: 2 });
    const fail = () => {
      reads += 1;
      throw new Error('no YAML');
    };
    expect(() => meaningOf('mapping', 'wrong', fail)).toThrow('no YAML');
    expect(() => meaningOf('mapping', 'wrong', fail)).toThrow('no YAML');
    expect(reads).toBe(4);
  });

  it('keeps only what JSON holds', () => {
    let at = 0;
    assert(
      property(anything({ withBigInt: false, withNullPrototype: true }), (value) => {
        const text = `value ${(at += 1)}`;
        const first = meaningOf('mapping', text, () => value);
        expect(Object.is(first, value)).toBe(true);
        const kept = knownMeaning('mapping', text);
        if (kept !== undefined) expect(kept).toStrictEqual(value);
      }),
      runs(500),
    );
    expect(meaningOf('mapping', 'endless', () => ({ depth: Number.POSITIVE_INFINITY }))).toEqual({
      depth: Number.POSITIVE_INFINITY,
    });
    expect(knownMeaning('mapping', 'endless')).toBeUndefined();
  });
});
