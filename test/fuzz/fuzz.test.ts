import { performance } from 'node:perf_hooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { mutate, randomFrom } from './mutate.ts';
import { type FuzzTarget, TARGETS } from './targets.ts';

/** Seconds for all targets together; 0: a fixed number of inputs, which is what the suite runs. */
const SECONDS = Number(process.env['RYE_FUZZ_SECONDS'] ?? 0);
const SEED = Number(process.env['RYE_FUZZ_SEED'] ?? 1);
const INPUTS = 150;
const LOG_INPUTS = 40;
/** One input may not take longer: far above what any takes on a busy machine, far below a hang. */
const MAX_MS = 30_000;
const MAX_GROWTH = 512 * 1024 * 1024;
const TIMEOUT = (SECONDS + 120) * 1000;

const budget = (SECONDS * 1000) / (TARGETS.length + 1);

/** Rounds of one target: by time when there is some, else by number. */
function* rounds(inputs: number): Generator<number> {
  const end = performance.now() + budget;
  for (let round = 0; SECONDS > 0 ? performance.now() < end : round < inputs; round += 1)
    yield round;
}

function problemOf({ accept }: FuzzTarget, text: string): string | undefined {
  const start = performance.now();
  try {
    const wrong = accept(text);
    if (wrong !== undefined) return wrong;
  } catch (error) {
    if (!(error instanceof RyeError) || error.code === 'internal')
      return `it crashes: ${String(error)}`;
  }
  const ms = performance.now() - start;
  return ms > MAX_MS ? `it takes ${Math.round(ms)} ms` : undefined;
}

describe('hostile input', () => {
  it.each(TARGETS)(
    '$name: no crash, no hang, nothing accepted that is wrong',
    (target) => {
      const below = randomFrom(SEED);
      const before = process.memoryUsage().rss;
      const problems: string[] = [];
      for (const round of rounds(INPUTS)) {
        const seed = target.seeds[round % target.seeds.length] ?? '';
        const text = mutate(seed, target.seeds, below);
        const problem = problemOf(target, text);
        if (problem === undefined) continue;
        problems.push(
          `seed ${SEED}, round ${round}: ${problem}: ${JSON.stringify(text.slice(0, 2000))}`,
        );
        if (problems.length === 5) break;
      }
      expect(problems).toEqual([]);
      expect(process.memoryUsage().rss - before).toBeLessThan(MAX_GROWTH);
    },
    TIMEOUT,
  );
});

/** Reads to the end; what is no refusal is a crash. */
async function crashOf(
  events: AsyncIterable<{ readonly event_type: string }>,
): Promise<string | undefined> {
  try {
    for await (const { event_type: type } of events) {
      if (typeof type !== 'string') return 'an event has no type';
    }
  } catch (error) {
    if (!(error instanceof RyeError)) return String(error);
  }
  return undefined;
}

describe('hostile logs', () => {
  let lab: Lab;
  beforeAll(async () => {
    lab = await openLab();
    await lab.run('hello', { threadId: 'one' });
  });
  afterAll(async () => {
    await lab.remove();
  });

  it(
    'are read or refused, and never verify once they were changed',
    async () => {
      const path = 'state/threads/one/transcript.jsonl';
      const original = lab.read(path);
      const below = randomFrom(SEED);
      const rye = lab.rye();
      const problems: string[] = [];
      for (const round of rounds(LOG_INPUTS)) {
        const written = Buffer.from(mutate(original, [original], below));
        if (written.equals(Buffer.from(original))) continue;
        lab.write(path, written);
        const { checks } = await rye.threads.verify('one');
        const isAccepted = checks.find(({ name }) => name === 'transcript')?.ok !== false;
        if (isAccepted) problems.push(`round ${round}: a changed log verifies`);
        const crash = await crashOf(rye.threads.logs('one'));
        if (crash !== undefined) problems.push(`round ${round}: ${crash}`);
      }
      expect(problems).toEqual([]);
    },
    TIMEOUT,
  );
});
