import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { launchThread } from '../../src/kernel/threads/family/spawn.ts';
import type { RunnerCommand, ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { prepareThread } from '../../src/kernel/threads/prepare/prepare.ts';
import { libraryLab } from '../app/library-lab.ts';

/** A process that waits for a thread, as rye leaves it, and waits on. */
const RUNNER: RunnerCommand = {
  command: process.execPath,
  args: ['-e', 'setInterval(() => {}, 1000)', '--'],
  environment: { PATH: '/usr/bin' },
};

function endLater(pid: number | null | undefined): void {
  onTestFinished(() => {
    if (pid) process.kill(pid, 'SIGKILL');
  });
}

async function offered(project: string): Promise<{ readonly pid: number; readonly file: string }> {
  const { pid = 0 } = spawn(RUNNER.command, [...RUNNER.args, 'first'], {
    cwd: project,
    env: RUNNER.environment,
    stdio: 'ignore',
  });
  endLater(pid);
  const words = (): string => readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  await vi.waitUntil(() => words().includes('first'), { timeout: 20_000, interval: 5 });
  const folder = path.join(project, '.ai/state/idle');
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${pid}.idle`);
  writeFileSync(file, '');
  return { pid, file };
}

it.runIf(process.platform === 'linux')(
  'secret inputs go to a new process, by a pipe, and not to one that waits for a thread',
  async () => {
    const lab = await libraryLab();
    const input = (secret: boolean): string =>
      `<inputs><input name="token" type="string" secret="${secret}">A token.</input></inputs>`;
    await lab.directive('secret', [], { outputs: input(true) });
    await lab.directive('open', [], { outputs: input(false) });
    const home = path.join(lab.project, '..', 'home');
    const given = { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test' };
    const base = new Workspace({
      features: FEATURES,
      projectPath: lab.project,
      userSpacePath: home,
      env: given,
    });
    onTestFinished(() => base.close());
    const made = await threadEnv(base, { allowUnsigned: false });
    const env: ThreadEnv = { ...made, runner: async () => RUNNER };
    const idle = await offered(lab.project);
    const launch = async (directiveId: string) => {
      const prepared = await prepareThread(env, { directiveId, inputs: { token: 'a-value' } });
      return await launchThread(env, { prepared, options: { allow_unsigned: false } });
    };
    const secret = await launch('team/secret');
    endLater(secret.pid);
    expect([secret.status, secret.pid === idle.pid]).toEqual(['running', false]);
    expect(existsSync(idle.file)).toBe(true);
    expect((await launch('team/open')).pid).toBe(idle.pid);
    expect(existsSync(idle.file)).toBe(false);
  },
);
