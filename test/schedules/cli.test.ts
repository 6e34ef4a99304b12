import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

// the build may take most of the time of a test on a busy machine
beforeAll(async () => {
  await cliPackage();
}, 300_000);

const POLL = { timeout: 60_000, interval: 20 };

/** Starts `rye schedule serve` in a workspace. */
async function serving(here: Workspace, options: readonly string[] = []) {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, 'schedule', 'serve', ...options], {
    cwd: here.project,
    env: { PATH: process.env['PATH'], HOME: here.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  const exit = once(child, 'close');
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text;
  });
  return { child, output, exit };
}

it('serves until SIGTERM; its threads complete; a second one is refused by name', async () => {
  const here = await workspace();
  const add = ['schedule', 'add', 'tick', '--cron', '* * * * * *', '--overlap'];
  const added = await here.rye([...add, 'directive', 'hello', '--input', 'who=Ada']);
  expect([added.code, added.stderr]).toEqual([0, '']);
  const { child, output, exit } = await serving(here);
  const fired = /^tick \S+ fired (schedule\/tick\/\w+)$/m;
  await vi.waitFor(() => expect(output.stdout).toMatch(fired), POLL);
  const second = await here.rye(['schedule', 'serve']);
  expect(second.code).toBe(1);
  expect(second.stderr).toContain(`process ${child.pid} on `);
  expect(second.stderr).toContain('[schedules_locked]');
  child.kill('SIGTERM');
  expect(await exit).toEqual([0, null]);
  expect(output.stdout).toMatch(/^serving 1 schedule\n/);
  const id = fired.exec(output.stdout)?.[1] ?? '';
  await vi.waitFor(async () => {
    const { thread } = await here.json(['threads', 'show', id]);
    expect(thread).toMatchObject({ status: 'completed', directive: 'hello' });
  }, POLL);
  // every thread of the loop ends before the folder is removed
  await vi.waitFor(async () => {
    const { threads } = await here.json(['threads', 'list', '--active']);
    expect(threads).toEqual([]);
  }, POLL);
  expect((await here.rye(['schedule', 'list'])).stdout).toMatch(
    /tick\s+\* \* \* \* \* \*\s+\S+ \S+ UTC\s+hello\s+schedule\/tick\/\w+ \(completed\)/,
  );
});

it('serve --json prints one document at its end, and reports loudly what does not fire', async () => {
  const here = await workspace();
  await here.rye(['schedule', 'add', 'rare', '--cron', '0 0 29 2 *', 'hello']);
  const file = path.join(here.project, '.ai/config/schedules.yaml');
  const { child, output, exit } = await serving(here, ['--json']);
  await vi.waitFor(() => expect(output.stderr).toContain('serving 1 schedule'), POLL);
  child.kill('SIGINT');
  expect(await exit).toEqual([0, null]);
  expect(JSON.parse(output.stdout)).toEqual({
    success: true,
    fired: 0,
    skipped: 0,
    missed: 0,
    failed: 0,
    warnings: [],
  });
  writeFileSync(file, readFileSync(file, 'utf8').replace('29 2', '28 2'));
  const quiet = await serving(here, ['--quiet']);
  await vi.waitFor(
    () => expect(quiet.output.stderr).toMatch(/no schedule fires: .*\[content_modified\]/),
    POLL,
  );
  quiet.child.kill('SIGINT');
  expect(await quiet.exit).toEqual([0, null]);
  expect((await here.rye(['schedule', 'list'])).code).toBe(3);
  expect((await here.rye(['schedule', 'run', 'rare'])).code).toBe(3);
});

it('takes a directive with and without the word, and options of a run', async () => {
  const here = await workspace();
  const words = ['schedule', 'add', 'nightly', '--cron', '0 3 * * *', '--tz', 'UTC'];
  expect(await here.json([...words, '--missed', 'all', 'directive', 'hello'])).toMatchObject({
    success: true,
    schedule: { name: 'nightly', timezone: 'UTC', missed: 'all', directive: 'hello' },
  });
  const options = ['--limit', 'turns=1', '--label', 'Morning', '--input', 'who=Ada'];
  await here.json(['schedule', 'add', 'other', 'hello', '--cron', '0 9 * * 1-5', ...options]);
  expect(readFileSync(path.join(here.project, '.ai/config/schedules.yaml'), 'utf8')).toMatch(
    /limits:\n\s+turns: 1\n\s+label: Morning/,
  );
  for (const [args, text] of [
    [['schedule', 'add', 'a', 'hello'], 'missing option --cron'],
    [['schedule', 'add', 'a', '--cron', '0 3 * * *', 'directive'], 'missing argument <id>'],
    [['schedule', 'add', 'a', '--cron', '0 3 * * *', 'tool', 'x'], 'not a tool'],
    [
      ['schedule', 'add', 'a', '--cron', '0 3 * * *', '--isolation-result', 'merge', 'hello'],
      'needs',
    ],
  ] as const) {
    const { code, stderr } = await here.rye(args);
    expect([code, stderr.includes(text)], stderr).toEqual([2, true]);
  }
  const print = await here.rye([...words, '--print', 'cron', 'hello']);
  expect(print.stdout).toContain(
    `0 3 * * * cd ${here.project} && mkdir -p .ai/state && flock -n -o .ai/state/schedule-nightly.lock rye run hello\n`,
  );
  expect(existsSync(path.join(here.project, '.ai/state/schedules/nightly'))).toBe(false);
});
