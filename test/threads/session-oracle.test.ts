import { describe, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { depth } from '../helpers/sample-of.ts';
import type { WireServer } from '../helpers/wire-server.ts';
import { openMortal } from './mortal-store.ts';
import { Desk } from './session-desk.ts';
import { History } from './session-history.ts';
import { Person } from './session-person.ts';

/** As many as a campaign plays; else a few. */
const COUNT = Number(process.env['RYE_HISTORIES'] ?? depth(5, 20));
const FIRST = Number(process.env['RYE_HISTORY_FIRST'] ?? 1);
const ONLY = process.env['RYE_HISTORY_SEED'];
/** Histories that share a project. */
const BATCH = 20;

async function play(seed: number, lab: Lab, server: WireServer, desk: Desk): Promise<void> {
  const history = new History(lab, server, desk, `h${seed}`);
  const person = new Person(history, lab, seed);
  try {
    await person.start();
    const count = 4 + (seed % 5);
    for (let at = 0; at < count; at += 1) {
      await person.act();
      await history.compareRest(person.pick);
      expect(server.violations).toEqual([]);
    }
  } catch (error) {
    throw new Error(
      `history ${seed} (RYE_HISTORY_SEED=${seed}):\n${history.done.join('\n')}\n${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  } finally {
    await history.end();
    // reported above, by the comparison that comes first
    (server.violations as string[]).length = 0;
  }
}

async function playAll(seeds: readonly number[]): Promise<readonly string[]> {
  const lab = await openLab();
  const watcher = openMortal(lab.project);
  const failures: string[] = [];
  try {
    const desk = new Desk(async () => await watcher.store.ledger.rows({ status: 'active' }));
    const server = await lab.model((request) => desk.answer(request));
    lab.signed(
      'directives/work.md',
      directive('work', {
        permissions: '<execute><tool>rye/file-system/*</tool><tool>lab/*</tool></execute>',
        limits: 'turns="40" tokens="90000000" spend="100"',
      }),
    );
    for (const seed of seeds) {
      try {
        await play(seed, lab, server, desk);
      } catch (error) {
        failures.push(reportOf(error));
      }
    }
  } finally {
    await watcher.bury();
    await lab.remove();
  }
  return failures;
}

function reportOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { message, cause } = error;
  return `${message}\n${cause instanceof Error ? cause.stack : ''}`;
}

const SEEDS =
  ONLY === undefined ? Array.from({ length: COUNT }, (_, at) => FIRST + at) : [Number(ONLY)];

describe('a random history of sessions', () => {
  const batches = Array.from({ length: Math.ceil(SEEDS.length / BATCH) }, (_, at) =>
    SEEDS.slice(at * BATCH, (at + 1) * BATCH),
  );
  it.each(batches.map((seeds) => [seeds[0], seeds] as const))(
    'from seed %i on leaves what the naive model says',
    async (_first, seeds) => {
      const failures = await playAll(seeds);
      expect(failures.slice(0, 3).join('\n\n')).toBe('');
      expect(failures).toHaveLength(0);
    },
    600_000,
  );
});
