import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';
import { type Bill, isTight, type Kill, killOnce, writeStory } from './crash-bill.ts';

const KILLS = 100;
/** Runs at once: each waits for its server most of the time. */
const LANES = 2;

/** The same numbers in each run of the test. */
function* numbers(): Generator<number, never> {
  for (let state = 20261127; ; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 2 ** 32;
  }
}

it('of 100 killed runs each books at least what was sent, 95 at most three times that and the input, and all resume', async () => {
  const random = numbers();
  const kills = Array.from({ length: KILLS }, (): Kill => {
    const rate = 60 + 190 * random.next().value;
    const seconds = 0.3 + 2.7 * random.next().value;
    return { answer: { rate, tokens: 5000 }, after: Math.ceil(rate * seconds) };
  });
  const bills: Bill[] = [];
  const left = kills.entries();
  const lane = async (): Promise<void> => {
    // a run recovers the crashed threads of its project, which would take them from their resume
    const here = await workspace();
    await writeStory(here);
    for (const [index, kill] of left) bills.push(await killOnce(here, `run-${index}`, kill));
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  expect(bills).toHaveLength(KILLS);
  for (const bill of bills) {
    expect(bill.booked + 1e-6).toBeGreaterThanOrEqual(bill.sent + bill.input);
  }
  expect(bills.filter(isTight).length).toBeGreaterThanOrEqual(95);
}, 600_000);
