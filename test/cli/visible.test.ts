import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { formatTable, printLine, printLines } from '../../src/faces/cli/output.ts';
import { createColors } from '../../src/faces/ui/colors.ts';
import { jsonText, oddCharacters, oneLine, shown, visible } from '../../src/faces/ui/visible.ts';
import { createFakeIo } from '../helpers/fake-io.ts';

/** Characters that hide, reorder or imitate text, and those that a drawing is made of. */
const HOSTILE = Array.from(
  [
    '\u001b\u0007\u0000\b\r\n\t\u007f\u0085\u009b\u202e\u2066\u200b\u2060\u3164\u115f\u2800',
    '\u00a0\u00ad\u034f\ufe0f\ufeff\ufffe\ue000\u2028\u2029\u3000\u0301\u0430\u0440\u2011\u2044',
    '\u{e0061}\u{e0100}\u{1d159}\u{1d42b}\uff1b\u241b\u2400\\u{}20aeé👍☁日\u200d\ud800',
  ].join(''),
).concat('\udc00', '\\u{202e}');

/** Joiners and emoji styles, which have a meaning in some places. */
const KEPT = /\u200c|\u200d|\ufe0f/g;

const hostile = fc
  .array(fc.oneof(fc.constantFrom(...HOSTILE), fc.string({ unit: 'binary', maxLength: 3 })))
  .map((parts) => parts.join(''));

/** Reads a drawing back. */
function undrawn(drawing: string): string {
  return drawing
    .replaceAll(/\\u\{([0-9a-f]+)\}/g, (_, code: string) => `\u{fdd0}${code}\u{fdd1}`)
    .replaceAll(/[\u2400-\u2421]/g, (picture) =>
      picture === '\u2421'
        ? '\u007f'
        : String.fromCodePoint((picture.codePointAt(0) ?? 0) - 0x24_00),
    )
    .replaceAll(/\u{fdd0}([0-9a-f]+)\u{fdd1}/gu, (_, code: string) =>
      String.fromCodePoint(Number.parseInt(code, 16)),
    );
}

describe('visible', () => {
  it('is injective: a drawing can be read back, and holds nothing that is obeyed or not seen', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        for (const drawing of [visible(text), visible(text, { isProse: true }), oneLine(text)]) {
          expect(undrawn(drawing)).toBe(text);
          expect(drawing.replaceAll(KEPT, '')).not.toMatch(
            /[^\P{C}\t\n]|\u2028|\u2029|\u3164|\u115f|\u034f/u,
          );
        }
        expect(oneLine(text)).not.toMatch(/[\n\t]/);
        expect(visible(text)).not.toMatch(/[^\P{Zs} ]/u);
      }),
      { seed: 33, numRuns: 2000 },
    );
  });

  it('gives two texts that look the same two drawings', () => {
    fc.assert(
      fc.property(hostile, hostile, (one, other) => {
        fc.pre(one !== other);
        expect(visible(one)).not.toBe(visible(other));
      }),
      { seed: 34, numRuns: 2000 },
    );
  });

  test.each([
    ['a title that hides a command', 'true \u001b]0;\nrm -rf x', 'true ␛]0;\nrm -rf x'],
    ['a link that hides one', '\u001b]8;;$(x)\u0007', '␛]8;;$(x)␇'],
    ['a carriage return', 'safe\rrm', 'safe␍rm'],
    ['C1', '\u009b2Jx', '\\u{9b}2Jx'],
    ['a right-to-left override', 'a\u202eb', 'a\\u{202e}b'],
    ['zero-width space', 'r\u200bm', 'r\\u{200b}m'],
    ['Hangul filler', 'r\u3164m', 'r\\u{3164}m'],
    ['a tag', 'rm\u{e0041}', 'rm\\u{e0041}'],
    ['a space that does not break', 'rm\u00a0-r', 'rm\\u{a0}-r'],
    ['a soft hyphen', 'r\u00adm', 'r\\u{ad}m'],
    ['a selector without an emoji', 'rm\ufe0f 1\ufe0f', 'rm\\u{fe0f} 1\\u{fe0f}'],
    ['a Cyrillic letter in a Latin word', 'p\u0430ypal', 'p\\u{430}ypal'],
    ['a host of look-alikes', 'https://\u0430pi.io/', 'https://\\u{430}pi.io[xn--pi-6kc.io]/'],
    ['a foreign host', 'https://m\u00fcnchen.de', 'https://münchen.de[xn--mnchen-3ya.de]'],
    ['a whole word of look-alikes', '\u0441\u0440 -r a b', '\\u{441}\\u{440} -r a b'],
    ['a Greek question mark', 'ls\u037e rm', 'ls\\u{37e} rm'],
    ['a full-width semicolon', 'ls\uff1brm', 'ls\\u{ff1b}rm'],
    ['a fraction slash', 'a\u2044b', 'a\\u{2044}b'],
    ['styled letters', '\u{1d42b}\u{1d426} x', '\\u{1d42b}\\u{1d426} x'],
    ['a Kelvin sign', '\u212aey', '\\u{212a}ey'],
    ['a mark on a Latin letter', 'e\u0301', 'e\\u{301}'],
    ['a stack of marks', 'ж\u0488\u0489\u0488\u0489', 'ж\u0488\u0489\u0488\\u{489}'],
    ['a drawing in the text', '\u241b \\u{202e}', '\\u{241b} \\u{5c}u{202e}'],
  ])('draws %s', (_, text, drawing) => {
    expect(visible(text)).toBe(drawing);
    expect(oddCharacters(text), 'and counts it').toBeGreaterThan(text.includes('ü') ? -1 : 0);
  });

  test.each([
    'naïve café, Việt Nam, “quotes” – done…',
    'мир, а не ура',
    'これは日本語。全角「テスト」（はい）',
    '한국어 עברית العربية हिन्दी ไทย می‌خواهم',
    '👨‍👩‍👧 ☁️ 1️⃣ 👍🏽 ✓ → │ ▸ Δt ≤ 5 µs',
  ])('leaves %s', (text) => {
    expect(visible(text)).toBe(text);
    expect(oddCharacters(text)).toBe(0);
  });

  it('leaves typographic spaces and hyphens of an answer', () => {
    const text = '10\u202fkm non\u2011breaking';
    expect(visible(text, { isProse: true })).toBe(text);
    expect(visible(text)).not.toBe(text);
  });
});

it('the compiler refuses a text that was not drawn', () => {
  const raw: string = '\u001b';
  const word: 'a' | 'b' = 'a';
  expect(shown`${oneLine(raw)} ${word} ${3}`).toBe('␛ a 3');
  // @ts-expect-error: it may come from elsewhere
  const whole = shown`${raw}`;
  // @ts-expect-error: a part of it may
  const part = shown`${`a ${raw}`}`;
  expect([whole, part]).toHaveLength(2);
});

it('the compiler refuses to print a text that was not drawn', () => {
  const raw: string = 'raw';
  const io = createFakeIo();
  printLine(io, shown`${oneLine(raw)}`);
  // @ts-expect-error: it may come from elsewhere
  printLine(io, raw);
  // @ts-expect-error: a part of it may
  printLines(io, [`a ${raw}`]);
  // @ts-expect-error: rows of a table are drawn, and what joins them is not
  printLine(io, formatTable(['A'], [[raw]], io.stdout).join(raw));
  // @ts-expect-error: every write takes shown text
  io.stdout.write(raw);
  // @ts-expect-error: to stderr too
  io.stderr.write(`rye: ${raw}\n`);
  // @ts-expect-error: colors do not draw
  io.stderr.write(createColors(true).red(raw));
  expect(io.out()).toBe('raw\nraw\na raw\nArawraw\nraw');
});

it('JSON for programs has no character that a terminal obeys, and the same value', () => {
  fc.assert(
    fc.property(hostile, (text) => {
      const json = jsonText({ text });
      expect(json.replaceAll(KEPT, '')).not.toMatch(/[^\P{C}\p{Co}]|[\u2028\u2029]/u);
      expect(JSON.parse(json)).toEqual({ text });
    }),
    { seed: 35, numRuns: 500 },
  );
});
