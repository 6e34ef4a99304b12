import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

/** Counts the syncs of files and folders in a process, and writes their number to a file when it exits. */
const METER = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
let count = 0;
for (const name of ['fsyncSync', 'fdatasyncSync', 'fsync', 'fdatasync']) {
  const real = fs[name];
  fs[name] = (...args) => { count += 1; return real(...args); };
}
syncBuiltinESMExports();
process.on('exit', () => fs.writeFileSync(process.env.SYNC_COUNT, String(count)));
`;

/** A new project, and `rye` in it, whose syncs are counted. */
async function counting() {
  const { project, home } = await workspace({ init: false });
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const counted = path.join(home, 'count');
  const rye = (...args: readonly string[]) =>
    spawnSync(
      process.execPath,
      ['--import', `data:text/javascript,${encodeURIComponent(METER)}`, program, ...args],
      {
        cwd: project,
        env: { PATH: process.env['PATH'], HOME: home, SYNC_COUNT: counted },
        encoding: 'utf8',
      },
    );
  expect(rye('init').status).toBe(0);
  expect(rye('run', 'hello').status).toBe(0);
  return { project, rye, count: () => Number(readFileSync(counted, 'utf8')) };
}

it('a thread with one tool call syncs the disk ten times, and its databases never', async () => {
  const { project, rye, count } = await counting();
  const { status, stderr } = rye('run', 'hello', '--thread-id', 'second');
  expect(stderr).not.toContain('rye:');
  expect(status).toBe(0);
  // eight for a thread of one turn, one before the call and one after its turn
  expect(count()).toBeLessThanOrEqual(10);
  // SQLite syncs when it makes a write-ahead log and when it folds one
  for (const name of ['threads/registry.db-wal', 'threads/budget_ledger.db-wal', 'index.db-wal'])
    expect(existsSync(path.join(project, '.ai/state', name)), name).toBe(true);
});

it('a start in the background syncs the disk five times', async () => {
  const { rye, count } = await counting();
  expect(rye('run', 'hello', '--async', '--thread-id', 'second').status).toBe(0);
  // the new folder, the three files in it, and their names together
  expect(count()).toBe(5);
  expect(rye('threads', 'wait', 'second').status).toBe(0);
});
