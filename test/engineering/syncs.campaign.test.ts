import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

/** Notes the names of the files and folders that a process syncs, and writes them to a file when it exits. */
const METER = `
import fs from 'node:fs';
import path from 'node:path';
import { syncBuiltinESMExports } from 'node:module';
const names = [];
for (const name of ['fsyncSync', 'fdatasyncSync', 'fsync', 'fdatasync']) {
  const real = fs[name];
  fs[name] = (fd, ...args) => {
    names.push(path.basename(fs.readlinkSync('/proc/self/fd/' + fd)).replace(/[.~-]?[0-9a-f]{8,}.*/, ''));
    return real(fd, ...args);
  };
}
syncBuiltinESMExports();
process.on('exit', () => fs.writeFileSync(process.env.SYNC_COUNT, JSON.stringify(names)));
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
  return {
    project,
    rye,
    synced: () => JSON.parse(readFileSync(counted, 'utf8')) as readonly string[],
  };
}

it('a thread syncs its documents, its log and their folders, and its databases never', async () => {
  const { project, rye, synced } = await counting();
  const { status, stderr } = rye('run', 'hello', '--thread-id', 'second');
  expect(stderr).not.toContain('rye:');
  expect(status).toBe(0);
  // the folder of the threads, thread.json and plan.json and the names of both, the log at its birth with its folder, before
  // the call and at the end, and thread.json of the end
  expect(synced()).toEqual([
    'threads',
    '.rye',
    '.rye',
    'transcript.jsonl',
    'second',
    'transcript.jsonl',
    'transcript.jsonl',
    '.rye',
  ]);
  // SQLite syncs when it makes a write-ahead log and when it folds one
  for (const name of ['threads/registry.db-wal', 'threads/budget_ledger.db-wal', 'index.db-wal'])
    expect(existsSync(path.join(project, '.ai/state', name)), name).toBe(true);
});

it('a start in the background syncs the disk five times', async () => {
  const { rye, synced } = await counting();
  expect(rye('run', 'hello', '--async', '--thread-id', 'second').status).toBe(0);
  // the new folder, the three files in it, and their names together
  expect(synced()).toEqual(['threads', '.rye', '.rye', '.rye', 'second']);
  expect(rye('threads', 'wait', 'second').status).toBe(0);
});
