import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  parseToml,
  parseTrustedKey,
  renderTrustedKey,
  tomlString,
} from '../../src/kernel/trust/key-files.ts';
import { testKey } from './keys.ts';

const parse = (text: string): object => parseToml(text, 'k.toml');

describe('key-file TOML', () => {
  test.each([
    ['# only a comment\r\n\r\n', {}],
    ['a = "x" # why\nb = \'\\n\'', { a: 'x', b: '\\n' }],
    [String.raw`a = "q\"\\\n\té\u00e9\U0001F600"`, { a: 'q"\\\n\téé😀' }],
    ['a = []\nb = ["x", \'y\',]', { a: [], b: ['x', 'y'] }],
    ['[t]\nx = "1"\n[t.u]\ny = "2"', { t: { x: '1', u: { y: '2' } } }],
    ['a = """\none\n  two\n""" # end\nb = "x"', { a: 'one\n  two\n', b: 'x' }],
    ['a = """one"""', { a: 'one' }],
    ['a = """\n\\u0041\n"""', { a: 'A\n' }],
    ['a.b = "x"', { a: { b: 'x' } }],
  ])('reads %j', (text, expected) => {
    expect(parse(text)).toEqual(expected);
  });

  test.each([
    ['a = 1', 1],
    ['\na', 2],
    ['a = "x" y', 1],
    ['a = "x', 1],
    ['a = ["x"', 1],
    ['a = "x"\na = "y"', 2],
    ['\n\na = """\nopen', 3],
    ['a = "\u0001"', 1],
    ['a = 2026-01-01', 1],
    ['\n[t]\nx = true', 3],
    ['a = [1]', 1],
    ['public_key = "x"\n[public_key]\npem = "y"', 2],
    ['[[t]]', 1],
  ])('refuses %j with its line', (text, line) => {
    expect(() => parse(text)).toThrow(
      expect.objectContaining({ code: 'invalid_input', location: { path: 'k.toml', line } }),
    );
  });

  test('reads back every string that it writes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(parse(`a = ${tomlString(text)}`)).toEqual({ a: text });
      }),
      { seed: 5, numRuns: 100 },
    );
  });
});

describe('trusted key files', () => {
  const key = testKey(1);

  test('read back as they were written', () => {
    const file = { key, owner: 'Ada "the" Count', projects: ['/a b', '/c'] };
    const read = parseTrustedKey(renderTrustedKey(file), 'k.toml');
    expect(read).toMatchObject({ owner: file.owner, projects: file.projects });
    expect(read.key.keyId).toBe(key.keyId);
  });

  test('need the fingerprint of the key that they hold', () => {
    const text = renderTrustedKey({ key, owner: 'x' }).replace(key.keyId, testKey(2).keyId);
    expect(() => parseTrustedKey(text, 'k.toml')).toThrow(
      /fingerprint is [0-9a-f]{16}, but the file has/,
    );
    expect(() => parseTrustedKey(text.replace(/^fingerprint.*$/m, ''), 'k.toml')).toThrow(
      /has none/,
    );
  });

  test('cannot be injected into through the owner', () => {
    const owner = 'x"\n[public_key]\npem = "evil';
    expect(parseTrustedKey(renderTrustedKey({ key, owner }), 'k').owner).toBe(owner);
  });
});
