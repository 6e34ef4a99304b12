import { expect, it } from 'vitest';
import { EarlierResults } from '../../src/kernel/loop/call-history.ts';
import { toolOf } from './scripted.ts';

const READER = toolOf('rye/look');
const WRITER = toolOf('rye/write', { traits: { reads_only: false } });
const SEEN = [{ type: 'text', text: 'seen' }] as const;

type Step = (earlier: EarlierResults) => void;
const reads: Step = (earlier) => earlier.note(READER, { q: 1 }, SEEN);
const fails: Step = (earlier) => earlier.note(READER, { q: 1 }, undefined);
const readsOther: Step = (earlier) => earlier.note(READER, { q: 2 }, SEEN);
const begins: Step = (earlier) => earlier.noteStart(WRITER);
const ends: Step = (earlier) => earlier.note(WRITER, {}, SEEN);
const begins2: Step = (earlier) => earlier.noteStart(READER);

it.each<[string, readonly Step[], boolean]>([
  ['was never made', [], false],
  ['was made', [reads], true],
  ['was made, and another look begins', [reads, begins2], true],
  ['failed', [fails], false],
  ['was made and then failed', [reads, fails], true],
  ['was followed by one with another input', [reads, readsOther], false],
  ['was followed by the start of a write', [reads, begins], false],
  ['was made while a write ran, which has ended', [begins, reads, ends], false],
  ['was made after a write', [begins, ends, reads], true],
])('a call that %s has its earlier result: %#', (_, steps, isKnown) => {
  const earlier = new EarlierResults(new Set(['rye_look']));
  for (const step of steps) step(earlier);
  expect(earlier.find(READER, { q: 1 })).toEqual(isKnown ? SEEN : undefined);
});

it('a tool that is not listed, or that changes something, has no earlier result', () => {
  const earlier = new EarlierResults(new Set(['rye_write']));
  earlier.note(READER, {}, SEEN);
  expect(earlier.find(READER, {})).toBeUndefined();
  earlier.note(WRITER, {}, SEEN);
  expect(earlier.find(WRITER, {})).toBeUndefined();
});
