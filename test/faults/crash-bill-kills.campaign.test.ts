import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';
import { isTight, killOnce, writeStory } from './crash-bill.ts';

const STORY = { rate: 150, tokens: 5000 };

it('a killed run books what its provider can have written, shows it as an estimate, and resumes without options', async () => {
  const here = await workspace();
  await writeStory(here);
  const bill = await killOnce(here, 'a', { answer: STORY, after: 120 });
  expect(bill.booked).toBeGreaterThanOrEqual(bill.sent + bill.input);
  // the provider had counted the input before its first word
  expect(bill.estimated).toBeCloseTo(bill.booked - bill.input, 5);
  expect(isTight(bill)).toBe(true);
  const shown = await here.rye(['threads', 'show', 'a']);
  expect(shown.stdout).toMatch(/^cost +1 turn, .*≤ \$0\.0/m);
  expect(shown.stdout).toMatch(/^estimated +≤ \$0\.0\d+ for a model call .* \$0\.0\d+ measured$/m);
  expect((await here.rye(['threads', 'list'])).stdout).toMatch(/completed .*≤ \$0\.0/);
  expect((await here.rye(['threads', 'tree'])).stdout).toMatch(/≤ \$0\.0/);
  expect((await here.rye(['verify', 'thread', 'a'])).code).toBe(0);
});

it('a run that is stopped first and then killed books the time in which it was stopped', async () => {
  const here = await workspace();
  await writeStory(here);
  const bill = await killOnce(here, 'a', { answer: STORY, after: 60, stopFor: 150 });
  expect(bill.booked).toBeGreaterThanOrEqual(bill.sent + bill.input);
});

it('a run that is killed while its model thinks out of sight books the thinking', async () => {
  const here = await workspace();
  await writeStory(here);
  const answer = { rate: 150, hidden: 5000, tokens: 10 };
  const bill = await killOnce(here, 'a', { answer, after: 150 });
  expect(bill.booked).toBeGreaterThanOrEqual(bill.sent + bill.input);
});
