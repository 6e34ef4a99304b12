import { expect, it } from 'vitest';
import { markdownLines } from '../../src/faces/ui/browser/entry-lines.ts';
import { wrapText } from '../../src/faces/ui/terminal-text.ts';

const COLUMNS = 20;
const shown = (text: string): readonly string[] =>
  markdownLines(text, COLUMNS).map((line) => line.map((span) => span.text).join(''));

it.each(['', 'see ', '- ', '- see ', '  - ', '12. ', '> '])(
  'a word that fits the pane is whole after "%s", and a longer one breaks',
  (before) => {
    for (let length = 1; length <= COLUMNS; length += 1) {
      const word = 'x'.repeat(length);
      expect(shown(`${before}${word} and more`).join('\n')).toContain(word);
    }
    const lines = shown(`${before}${'x'.repeat(COLUMNS + 1)}`);
    expect(lines.filter((line) => line.includes('x'))).toHaveLength(2);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(COLUMNS);
  },
);

it('a space at the edge of the pane takes no column and begins no line', () => {
  expect(wrapText('hello world again', 11)).toEqual(['hello world', 'again']);
  expect(wrapText('abcdefgh ij', 8)).toEqual(['abcdefgh', 'ij']);
  expect(wrapText('abcdefgh   ', 8)).toEqual(['abcdefgh']);
  expect(wrapText('    abcdefgh', 8)).toEqual(['abcdefgh']);
  expect(wrapText('  ab cd ef gh', 8)).toEqual(['  ab cd', 'ef gh']);
});
