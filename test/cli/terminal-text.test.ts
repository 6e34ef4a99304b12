import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { displayWidth, neutralize, truncate } from '../../src/faces/ui/terminal-text.ts';

describe('neutralize', () => {
  test.each([
    ['color', '\u001b[31mred\u001b[0m', 'red'],
    ['title', '\u001b]0;owned\u0007after', 'after'],
    ['link', '\u001b]8;;http://x\u001b\\here\u001b]8;;\u001b\\', 'here'],
    ['unfinished title', '\u001b]0;owned', ''],
    ['carriage return', 'safe\rrm -rf', 'saferm -rf'],
    ['backspaces', 'a\u0008\u0008b', 'ab'],
    ['C1', '\u009b31mx', 'x'],
    ['bidirectional override', 'a\u202eb\u2066c', 'abc'],
    ['tabs and newlines stay', 'a\tb\r\nc\n', 'a\tb\nc\n'],
  ])('%s', (_, text, expected) => {
    expect(neutralize(text)).toBe(expected);
  });

  it('leaves nothing that a terminal obeys', () => {
    const hostile = fc.array(
      fc.constantFrom('\u001b', '[', ']', '3', 'm', '\u0007', '\u009b', '\\', 'a'),
    );
    fc.assert(
      fc.property(hostile, (pieces) => {
        expect(neutralize(pieces.join(''))).not.toMatch(/[^\P{Cc}\t\n]/u);
      }),
      { seed: 1, numRuns: 300 },
    );
  });
});

describe('width', () => {
  test.each([
    ['abc', 3],
    ['日本', 4],
    ['e\u0301', 1],
    ['🙂', 2],
  ])('%s takes %i columns', (text, width) => {
    expect(displayWidth(text)).toBe(width);
  });

  it('cuts to the width, wide characters too', () => {
    expect(truncate('日本語です', 5)).toBe('日本…');
    expect(truncate('short', 5)).toBe('short');
  });
});
