// The ten jobs of a person's first hour, through the built program and a scripted model. Counts what the person types and
// writes. A job that does not do its work fails the benchmark.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { JOBS } from './first-hour-jobs.mjs';
import { Person } from './first-hour-person.mjs';
import { measureProcess, median, row, startServer, times } from './harness.mjs';

const FLOOR_ROUNDS = 5;

export async function run() {
  const root = mkdtempSync(path.join(tmpdir(), 'rye-first-hour-'));
  const server = await startServer('./first-hour-model.mjs');
  const env = { PATH: process.env.PATH, HOME: root };
  const floor = median(
    Array.from({ length: FLOOR_ROUNDS }, () => measureProcess(['-e', '0'], { env }).wall / 1000),
  );
  try {
    row('the first hour', 'commands', 'lines', 'seconds', 'over node, wall', 'before');
    const failed = [];
    for (const { name, before, work } of JOBS) {
      const folder = path.join(root, name.replaceAll(/\W+/g, '-'));
      mkdirSync(folder);
      const person = new Person(folder, { url: server.url });
      try {
        await Promise.resolve(work(person));
      } catch (error) {
        failed.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
      }
      const { commands, lines, seconds } = person;
      const works = failed.at(-1)?.startsWith(`${name}: `) ? ' FAILED' : '';
      row(
        `  ${name}${works}`,
        String(commands),
        String(lines),
        seconds.toFixed(2),
        times(seconds / floor),
        `  ${before}`,
      );
    }
    if (failed.length > 0)
      throw new Error(`${failed.length} of ${JOBS.length}\n${failed.join('\n')}`);
  } finally {
    server.close();
    // what a job left running in the background would write again
    spawnSync('sync');
    rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
