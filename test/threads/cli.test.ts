import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type CliResult, runCli } from '../helpers/run-cli.ts';
import { type Lab, lab } from './lab.ts';

const rye = async (here: Lab, ...args: readonly string[]): Promise<CliResult> =>
  await runCli(args, { cwd: here.project, env: { HOME: here.home } });

test('--async prints id, status and pid and returns; wait, tree and stats tell the rest', async () => {
  const here = await lab();
  const started = await rye(here, 'run', 'team/job', '--async', '--input', 'name=one');
  expect(started.code).toBe(0);
  const launched = JSON.parse(started.stdout);
  expect(launched).toMatchObject({ success: true, status: 'running', pid: expect.any(Number) });
  // its log may not be there yet
  const following = rye(here, 'threads', 'logs', launched.thread_id, '--follow');
  // its starter is gone, and it continues
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-one')));

  const early = await rye(
    here,
    'threads',
    'wait',
    launched.thread_id,
    '--timeout',
    '0.1',
    '--json',
  );
  expect(early.code).toBe(5);
  expect(JSON.parse(early.stdout)).toMatchObject({
    success: false,
    timed_out: true,
    error: { code: 'wait_timeout' },
    threads: [{ status: 'running', done: false }],
    total: 1,
  });
  here.openGate('one');
  const end = await rye(here, 'threads', 'wait', launched.thread_id);
  expect(end.code).toBe(0);
  expect(end.stdout).toMatch(/^THREAD +STATUS +SPEND +RESULT\nteam\/job-\w+ +completed /);

  const followed = await following;
  expect(followed).toMatchObject({ code: 0, stderr: '' });
  expect(followed.stdout).toMatch(/thread_started[^]*thread_finished/);

  const tree = await rye(here, 'threads', 'tree', '--watch');
  expect(tree.code).toBe(0);
  expect(tree.stdout).toMatch(
    /^✓ team\/job-\w+ {2}.+s {2}\$0\.00 {2}completed\n1\/1 done · \$0\.00\n$/,
  );
  const stats = await rye(here, 'threads', 'stats', '--by', 'model', '--json');
  expect(JSON.parse(stats.stdout)).toMatchObject({
    success: true,
    by: 'model',
    stats: [{ key: 'literal', threads: 1, completed: 1 }],
    total: 1,
  });
});

test('wait exits with 1 when a thread did not complete, and with 6 for one that is not there', async () => {
  const here = await lab();
  const { thread_id } = await here.job('one');
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-one')));
  const cancelled = await rye(here, 'threads', 'cancel', thread_id, '--reason', 'enough', '--json');
  expect(JSON.parse(cancelled.stdout)).toEqual({
    success: true,
    warnings: [],
    thread_id,
    threads: [thread_id],
    total: 1,
  });
  expect((await rye(here, 'threads', 'wait', thread_id)).code).toBe(1);
  expect((await rye(here, 'threads', 'wait', 'no-such-thread')).code).toBe(6);
  expect((await rye(here, 'threads', 'kill', thread_id)).stdout).toContain('has already ended');
});
