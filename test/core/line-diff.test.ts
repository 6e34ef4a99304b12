import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { diffOf } from '../../src/kernel/core/line-diff.ts';

const shown = (before: string, after: string): readonly string[] =>
  diffOf(before, after).map(({ kind, text }) => `${kind} ${text}`);
const numbered = (from: number, to: number): string =>
  Array.from({ length: to - from }, (_, index) => `line ${from + index}\n`).join('');

describe('a diff by lines', () => {
  it('shows three unchanged lines beside a change, and counts the others', () => {
    expect(shown(numbered(0, 12), `${numbered(0, 6)}new\n${numbered(7, 12)}`)).toEqual([
      'gap 3 unchanged lines',
      ...[3, 4, 5].map((line) => `same line ${line}`),
      'remove line 6',
      'add new',
      ...[7, 8, 9].map((line) => `same line ${line}`),
      'gap 2 unchanged lines',
    ]);
  });

  it.each([
    ['nothing to nothing', '', '', []],
    ['a new text', '', 'a\nb', ['add a', 'add b']],
    ['a removed text', 'a\n', '', ['remove a']],
    ['the same text', 'a\n', 'a\n', ['gap 1 unchanged line']],
  ])('shows %s', (_, before, after, lines) => {
    expect(shown(before, after)).toEqual(lines);
  });

  it('shows a change that is too large to align as all old, then all new lines', () => {
    const lines = diffOf(numbered(0, 1500), numbered(2000, 3500));
    expect(lines.map(({ kind }) => kind)).toEqual([
      ...Array.from({ length: 1500 }, () => 'remove'),
      ...Array.from({ length: 1500 }, () => 'add'),
    ]);
  });

  it('has every removed line of the old text and every added line of the new one, in order', () => {
    const text = fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 12 });
    fc.assert(
      fc.property(text, text, (old, now) => {
        const lines = diffOf(old.join('\n'), now.join('\n')).flatMap((line) =>
          line.kind === 'gap'
            ? Array.from({ length: Number.parseInt(line.text) }, () => line)
            : [line],
        );
        const removed = lines.filter(({ kind }) => kind !== 'add');
        const added = lines.filter(({ kind }) => kind !== 'remove');
        const isOf = (part: typeof lines, whole: readonly string[]): boolean =>
          part.length === whole.length &&
          part.every(({ kind, text: line }, index) => kind === 'gap' || line === whole[index]);
        expect([isOf(removed, old), isOf(added, now)]).toEqual([true, true]);
      }),
    );
  });
});
