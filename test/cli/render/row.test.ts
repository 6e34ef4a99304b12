import { expect, it } from 'vitest';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { layRow } from '../../../src/faces/ui/render/row.ts';
import { displayWidth } from '../../../src/faces/ui/terminal-text.ts';

const same = (text: string): string => text;

function row(label: string, words: string, facts: readonly string[], columns: number): string {
  return layRow(
    { mark: '‖', label, words, facts, paintMark: same, paintWords: same },
    columns,
    createColors(false),
  );
}

it.each([30, 44, 60, 100, 200])(
  'a row at %i columns is never cut, however long its label is',
  (columns) => {
    for (let length = 1; length < 220; length += 1) {
      for (const facts of [[], ['1.2s'], ['1.2s', '$0.0012']]) {
        const laid = row('x'.repeat(length), 'waits for you', facts, columns);
        expect(displayWidth(laid)).toBeLessThan(columns);
        expect(laid).toContain('  waits for you');
      }
    }
  },
);

it('a label wider than its column is two spaces from the outcome, like every other', () => {
  expect(row('read a-file-name-of-thirty-columns', '3 lines', [], 60)).toMatch(
    /columns {2}3 lines$/,
  );
});
