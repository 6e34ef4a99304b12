import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { violations } from './oracle.ts';
import { Owner } from './owner.ts';
import { Chance, SimLog, THREAD, World } from './world.ts';

const CHILD = path.resolve(import.meta.dirname, 'chaos-child.ts');
const SEEDS = Number(process.env['RYE_SEEDS'] ?? 1);
const PROCESSES = 3;

function start(folder: string, seed: number): ChildProcess {
  return spawn(process.execPath, ['--import', 'tsx', CHILD, folder, String(seed)], {
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

it(`several processes on one thread, killed at random, keep the promises (${SEEDS} seeds)`, async () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const folder = mkdtempSync(path.join(tmpdir(), 'rye-chaos-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const world = new World(folder);
    onTestFinished(() => world.store.close());
    await world.register(THREAD, null);
    const chance = new Chance(seed);
    const errors: string[] = [];
    let kills = 0;
    const lane = async (number: number): Promise<void> => {
      for (let life = 0; life < 3; life += 1) {
        const child = start(folder, seed * 100 + number * 10 + life);
        child.stderr?.on('data', (chunk: Buffer) => errors.push(chunk.toString()));
        const ended = once(child, 'exit');
        // the last of each lane ends in order
        if (life < 2) {
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
    expect(errors.join('')).toBe('');
    expect(kills).toBeGreaterThan(0);
    world.now = Date.now();
    const last = new Owner(world, chance, () => Promise.resolve());
    await last.start();
    await last.run(() => false);
    const deliveries = await world.deliveries();
    const found = violations(new SimLog(folder).read(), deliveries, [], completedRuns(folder));
    expect({ seed, found }).toEqual({ seed, found: [] });
    const unresolved = deliveries
      .flatMap(({ tries }) => tries)
      .filter(({ state }) => state === 'accept_pending' || state === 'tracking');
    expect(unresolved).toEqual([]);
    expect(deliveries.some(({ close_reason }) => close_reason === 'delivered')).toBe(true);
  }
}, 3_600_000);
