import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { bundle } from '../helpers/bundle.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { violations } from './oracle.ts';
import { Owner } from './owner.ts';
import { Chance, SimLog, THREAD, World } from './world.ts';

const CHILD = await bundle(path.resolve(import.meta.dirname, 'chaos-child.ts'));
const FIRST = Number(process.env['RYE_FIRST_SEED'] ?? 1);
const SEEDS = Number(process.env['RYE_SEEDS'] ?? 1);
const PROCESSES = 3;
/** The processes of each lane; the last one ends cleanly. */
const LIVES = 3;

function start(folder: string, seed: number): ChildProcess {
  return spawn(process.execPath, [CHILD, folder, String(seed)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

function completedRuns(folder: string): ReadonlySet<string> {
  const database = new Database(path.join(folder, '.ai/state/threads/registry.db'));
  try {
    const ids = database
      .prepare(`SELECT run_id FROM runs WHERE status = 'completed'`)
      .pluck()
      .all();
    return new Set(ids.map(String));
  } finally {
    database.close();
  }
}

interface Outcome {
  /** The processes' stderr: an error that none of them expected. */
  readonly errors: string;
  readonly found: readonly string[];
  readonly unresolved: number;
  readonly isAnyDelivered: boolean;
  readonly isAnyKilled: boolean;
}

const KEPT: Outcome = {
  errors: '',
  found: [],
  unresolved: 0,
  isAnyDelivered: true,
  isAnyKilled: true,
};

/** Three lanes of processes on one thread, all but the last of each killed, and then one owner that puts it in order. */
async function play(folder: string, seed: number): Promise<Outcome> {
  const world = new World(folder);
  onTestFinished(() => world.store.close());
  await world.register(THREAD, null);
  const chance = new Chance(seed);
  const errors: string[] = [];
  let kills = 0;
  const lane = async (number: number): Promise<void> => {
    for (let life = 0; life < LIVES; life += 1) {
      const child = start(folder, seed * 100 + number * 10 + life);
      child.stderr?.on('data', (chunk: Buffer) => errors.push(chunk.toString()));
      const ended = once(child, 'exit');
      if (life < LIVES - 1) {
        const enough = (await world.deliveries()).length + 3 + chance.below(20);
        while (child.exitCode === null && (await world.deliveries()).length < enough) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        if (child.kill('SIGKILL')) kills += 1;
      }
      await ended;
    }
  };
  await Promise.all(Array.from({ length: PROCESSES }, async (_, number) => await lane(number)));
  world.now = Date.now();
  const last = new Owner(world, chance, () => Promise.resolve());
  await last.start();
  await last.run(() => false);
  const deliveries = await world.deliveries();
  const open = deliveries
    .flatMap(({ tries }) => tries)
    .filter(({ state }) => state === 'accept_pending' || state === 'tracking');
  return {
    errors: errors.join(''),
    found: violations(new SimLog(folder).read(), deliveries, [], completedRuns(folder)),
    unresolved: open.length,
    isAnyDelivered: deliveries.some(({ close_reason }) => close_reason === 'delivered'),
    isAnyKilled: kills > 0,
  };
}

it(`several processes on one thread, killed at random, keep the promises (${SEEDS} seeds)`, async () => {
  for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
    const folder = mkdtempSync(path.join(tmpdir(), 'rye-chaos-'));
    // what a rare failure left is all that tells why: its folder stays, and the message names it
    expect({ seed, folder, ...(await play(folder, seed)) }).toEqual({ seed, folder, ...KEPT });
    removeFolder(folder);
  }
}, 3_600_000);
