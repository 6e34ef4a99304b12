import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { literalOf } from '../../../src/kernel/tools/builtin/grep.ts';
import { runs } from '../../helpers/runs.ts';
import { Project } from '../helpers.ts';

const FILES = {
  'crlf.ts': 'foo;\r\nbar();\r\nfoo.\r\n',
  'a.go': 'func main() {\n\tfmt.Println(42)\n}\n',
  'ar.txt': 'price ٣٤\nprice 34\n',
  'u16.txt': Buffer.from('\u{FEFF}needle\n', 'utf16le'),
  'de.txt': 'Straße\nSTRASSE\nKelvin \u{212A}m\nlong ſ\n',
  'arr.js': 'arr[0] = 1;\nx{,3}\nfoo foo\nxaaay\n',
  'bin.dat': Buffer.from('needle\nfoo\0bar\nneedle\n'),
  'bad.txt': Buffer.from([0x66, 0x6f, 0x6f, 0xff, 0x0a]),
  'deep/node_modules/p/x.js': 'needle foo\n',
  'deep/.git/x': 'needle foo\n',
  'deep/odd name é.txt': 'needle foo\nneedle\n',
  '.ai/config/keys/k': 'needle foo\n',
  '.ai/state/s': 'needle foo\n',
  'sub/.ai/state/s': 'needle foo\n',
};

let project: Project;
beforeAll(async () => {
  project = await Project.create(FILES);
});
afterAll(async () => await project[Symbol.asyncDispose]());

/** Returns both results; they come from one engine where ripgrep is absent. */
async function both(input: { pattern: string; case_insensitive?: boolean; path?: string }) {
  return [
    await project.run('grep', input, { ripgrep: true }),
    await project.run('grep', input, { ripgrep: false }),
  ];
}

const PATTERNS = [
  ';$',
  'foo.$',
  String.raw`func main\(\) {`,
  String.raw`\d+`,
  String.raw`^price \w+$`,
  'needle',
  String.raw`\bStra\b`,
  String.raw`\Qarr[0]\E`,
  '(?<n>foo)',
  'x{,3}',
  'xa{2,3}y',
  '[[:alpha:]&&x]',
  'foo|needle',
  '(?i)NEEDLE',
  'kelvin km',
  'strasse',
  'needle\\n',
  'fo{0}o',
  'needles?',
];

describe('grep finds the same with ripgrep and without', () => {
  it.each(PATTERNS)('%s', async (pattern) => {
    for (const case_insensitive of [false, true]) {
      const [fast, plain] = await both({ pattern, case_insensitive });
      expect(fast).toEqual(plain);
    }
  });

  it('random patterns', async () => {
    const word = fc.constantFrom('foo', 'needle', 'price ', 'arr', 'x', 'main', 'ß', 'K');
    const piece = fc.oneof(
      word,
      fc.constantFrom('.', '^', '$', '\\d', '\\w+', '\\.', '\\(', '[a-z]', '[^x]*', '(?:fo)+', ';'),
      fc.constantFrom('(foo|bar)', '(x)?', 'o*', 'e?', 'a{2}', 'n{0,1}', '|', '[]x]', '\\b', '{'),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(piece, { minLength: 1, maxLength: 5 }).map((pieces) => pieces.join('')),
        fc.boolean(),
        async (pattern, case_insensitive) => {
          const [fast, plain] = await both({ pattern, case_insensitive });
          expect(fast).toEqual(plain);
        },
      ),
      runs(60),
    );
  });
});

it('a pattern on a file with Windows line ends finds its lines', async () => {
  const found = await project.run('grep', { pattern: ';$' });
  expect(found.text).toBe('arr.js:1:arr[0] = 1;\ncrlf.ts:1:foo;\ncrlf.ts:2:bar();');
});

it.each([
  ['needle', 'needle'],
  ['needles?', 'needle'],
  ['needle+x', 'needle'],
  ['fo{0,2}bar', 'bar'],
  ['(foo)? price', ' price'],
  [String.raw`a\.b\(`, 'a.b('],
  [String.raw`\d\d: x`, ': x'],
  ['[abc]def[^]]ghij', 'ghij'],
  ['foo|bar', undefined],
  ['(?i)foo', undefined],
  [String.raw`\Qfoo\E`, undefined],
  ['.*', undefined],
  ['(foo', undefined],
  ['(?:foo|x) bar', ' bar'],
])('%s contains %s', (pattern, literal) => {
  expect(literalOf(pattern)).toBe(literal);
});
