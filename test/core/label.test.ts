import { expect, it } from 'vitest';
import { inputsLabel, threadLabel } from '../../src/kernel/core/label.ts';

it.each([
  ['  two\n  words ', 'two words'],
  ['\u001b[31mred\u001b[0m \u202etxt\u0007', 'red txt'],
  ['😀'.repeat(100), `${'😀'.repeat(79)}…`],
  ['x'.repeat(80), 'x'.repeat(80)],
  ['\u0000 \n', ''],
])('makes one short line of %j', (text, label) => {
  expect(threadLabel(text)).toBe(label);
});

it('names a child by its directive and its inputs', () => {
  const inputs = { file: 'docs/f01.txt', deep: { a: 1 }, none: undefined, long: 'y'.repeat(99) };
  expect(inputsLabel('team/summarize', inputs)).toBe(
    `summarize docs/f01.txt {"a":1} ${'y'.repeat(39)}…`,
  );
});
