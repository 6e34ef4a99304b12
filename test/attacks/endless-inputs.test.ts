// Requirement: bounded-work
import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { runCli } from '../helpers/run-cli.ts';
import { inLab } from './lab.ts';

it('input that never ends, or nests without end, is refused by name', async () => {
  await inLab(async (lab) => {
    const nested = (open: string, close: string): string =>
      `{"who": ${open.repeat(60_000)}1${close.repeat(60_000)}}`;
    const rye = async (...args: readonly string[]) =>
      await runCli(args, { cwd: lab.project, env: lab.env });
    for (const json of [nested('[', ']'), nested('{"a":', '}')]) {
      for (const args of [
        ['run', 'hello', '--inputs', json],
        ['answer', 'apr-1', json],
        ['approve', 'apr-1', '--input', json],
      ]) {
        const { code, stderr } = await rye(...args);
        expect(stderr, args[0]).toContain('[invalid_input]');
        expect(code).toBe(2);
      }
    }
    execFileSync('mkfifo', [lab.path('lock.json')]);
    const { stderr } = await rye('run', 'hello');
    expect(stderr).toContain('[guard_changed]');
    expect((await rye('doctor')).stdout).toContain('lock.json');
  });
});
