import { type ChildProcess, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock } from '../../src/kernel/app/system.ts';
import { runInTurn, settingsState } from '../../src/kernel/app/thread-process.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { offerProcess, takeIdle } from '../../src/kernel/threads/family/idle-fs.ts';
import type { RunnerCommand } from '../../src/kernel/threads/ports.ts';
import { directive, lab, processesOf } from './lab.ts';

function folder(): string {
  const made = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-idle-')));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

async function until(predicate: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!predicate()) {
    if (performance.now() > deadline) throw new Error('it did not happen');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const idleFolder = (project: string): string => path.join(project, '.ai/state/idle');

describe('an idle process', () => {
  const signal = new AbortController().signal;
  const offer = { clock: systemClock, pid: process.pid, waitMs: 60_000, signal };
  const files = (project: string): readonly string[] => readdirSync(idleFolder(project));

  test('runs the thread that it is given after its offer was taken', async () => {
    const projectPath = folder();
    const given = offerProcess({ ...offer, projectPath });
    const offered = path.join(idleFolder(projectPath), `${process.pid}.idle`);
    await until(() => existsSync(offered));
    unlinkSync(offered);
    writeFileSync(path.join(idleFolder(projectPath), `${process.pid}.next`), 'team/next');
    expect(await given).toBe('team/next');
    expect(files(projectPath)).toEqual([]);
  });

  test('ends its offer when no process takes it in time, and when it is interrupted', async () => {
    const projectPath = folder();
    expect(await offerProcess({ ...offer, projectPath, waitMs: 1 })).toBeUndefined();
    const interrupted = new AbortController();
    const given = offerProcess({ ...offer, projectPath, signal: interrupted.signal });
    await until(() => files(projectPath).length === 1);
    interrupted.abort();
    expect(await given).toBeUndefined();
    expect(files(projectPath)).toEqual([]);
  });

  test('is offered again when its thread was cancelled before it got it', async () => {
    const projectPath = folder();
    const given = offerProcess({ ...offer, projectPath });
    const [idle, next] = ['idle', 'next'].map((name) =>
      path.join(idleFolder(projectPath), `${process.pid}.${name}`),
    ) as [string, string];
    await until(() => existsSync(idle));
    unlinkSync(idle);
    writeFileSync(next, '');
    await until(() => existsSync(idle));
    unlinkSync(idle);
    writeFileSync(next, 'other');
    expect(await given).toBe('other');
  });

  test('that was taken by a process that died waits no longer than five seconds', async () => {
    const projectPath = folder();
    let ms = 0;
    // each look takes a second of this clock
    const clock = { ...systemClock, monotonic: () => (ms += 1000) };
    const given = offerProcess({ ...offer, projectPath, clock, waitMs: 3000 });
    await until(() => existsSync(idleFolder(projectPath)) && files(projectPath).length === 1);
    unlinkSync(path.join(idleFolder(projectPath), `${process.pid}.idle`));
    expect(await given).toBeUndefined();
  });

  test('makes no offer through a symbolic link', async () => {
    const projectPath = folder();
    mkdirSync(path.join(projectPath, '.ai/state'), { recursive: true });
    symlinkSync(folder(), idleFolder(projectPath));
    await expect(offerProcess({ ...offer, projectPath })).rejects.toMatchObject({
      code: 'path_denied',
    });
  });
});

describe('a start takes an idle process', () => {
  /** A process as a start with the command makes it, with its offer. */
  async function idle(projectPath: string, runner: RunnerCommand, threadId: string) {
    const child: ChildProcess = spawn(runner.command, [...runner.args, threadId], {
      cwd: projectPath,
      env: runner.environment,
      stdio: 'ignore',
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    await until(() => readFileSync(`/proc/${child.pid}/cmdline`, 'utf8').includes(threadId));
    mkdirSync(idleFolder(projectPath), { recursive: true });
    writeFileSync(path.join(idleFolder(projectPath), `${child.pid}.idle`), '');
    return child;
  }

  const runner: RunnerCommand = {
    command: process.execPath,
    args: ['-e', 'setInterval(() => {}, 1000)', '--'],
    environment: { PATH: '/usr/bin', KEY: 'one' },
  };

  test('that it would start in the same way, once', async () => {
    const projectPath = folder();
    const { pid } = await idle(projectPath, runner, 'first');
    const taken = takeIdle(projectPath, runner, projectPath);
    expect(taken).toMatchObject({ pid, startedFor: 'first' });
    expect(takeIdle(projectPath, runner, projectPath)).toBeUndefined();
    taken?.give('second');
    expect(readFileSync(path.join(idleFolder(projectPath), `${pid}.next`), 'utf8')).toBe('second');
  });

  const others: readonly (readonly [string, Partial<RunnerCommand>])[] = [
    ['another value of a variable', { environment: { PATH: '/usr/bin', KEY: 'two' } }],
    ['a missing variable', { environment: { PATH: '/usr/bin' } }],
    ['one more variable', { environment: { ...runner.environment, RYE_DEV_MODE: '1' } }],
    ['another option', { args: [...runner.args.slice(0, -1), '--config', '--'] }],
    ['another program', { command: '/bin/sh' }],
  ];

  test.each(others)('but not with %s', async (_name, other) => {
    const projectPath = folder();
    await idle(projectPath, runner, 'first');
    expect(takeIdle(projectPath, { ...runner, ...other }, projectPath)).toBeUndefined();
    expect(takeIdle(projectPath, runner, tmpdir())).toBeUndefined();
    expect(readdirSync(idleFolder(projectPath))).toHaveLength(1);
  });

  test('but not one that has ended, whose offer is removed', () => {
    const projectPath = folder();
    mkdirSync(idleFolder(projectPath), { recursive: true });
    writeFileSync(path.join(idleFolder(projectPath), `${2 ** 22 + 1}.idle`), '');
    expect(takeIdle(projectPath, runner, projectPath)).toBeUndefined();
    expect(readdirSync(idleFolder(projectPath))).toEqual([]);
  });
});

describe('threads in turn', () => {
  type Run = (threadId: string, onNext: (next: string) => boolean) => ThreadResult;

  /** Opens a rye whose threads do what `run` does, and counts how often it is opened. */
  function opener(projectPath: string, run: Run) {
    const counts = { opened: 0, closed: 0 };
    const open = (): Rye => {
      counts.opened += 1;
      const children = {
        runLaunched: async (id: string, { onNext }: { onNext: (next: string) => boolean }) =>
          run(id, onNext),
      };
      const close = (): void => {
        counts.closed += 1;
      };
      return { projectPath, userSpacePath: projectPath, children, close } as unknown as Rye;
    };
    return { open, counts };
  }

  const ended = (threadId: string) => ({ thread_id: threadId }) as ThreadResult;
  const signal = new AbortController().signal;

  /** Writes a settings file that is older than what could change again unnoticed. */
  async function settle(file: string, text: string): Promise<void> {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    const project = path.dirname(path.dirname(path.dirname(file)));
    await until(() => settingsState(placesOf(project), Date.now()) !== undefined);
  }

  const placesOf = (project: string) => ({ projectPath: project, userSpacePath: project });

  test('share an opened rye until its settings change', async () => {
    const projectPath = folder();
    const file = path.join(projectPath, '.ai/config/agent.yaml');
    await settle(file, 'a: 1\n');
    const ran: string[] = [];
    const { open, counts } = opener(projectPath, (id, onNext) => {
      ran.push(`${id} ${counts.opened}`);
      if (id === 'one') onNext('two');
      if (id === 'two') {
        utimesSync(file, 1, 1);
        onNext('three');
      }
      return ended(id);
    });
    expect(await runInTurn('one', { open, signal })).toEqual(ended('one'));
    expect(ran).toEqual(['one 1', 'two 1', 'three 2']);
    expect(counts).toEqual({ opened: 2, closed: 2 });
  });

  test('run after one that failed, whose failure is reported', async () => {
    const projectPath = folder();
    const ran: string[] = [];
    const { open } = opener(projectPath, (id, onNext) => {
      ran.push(id);
      if (id !== 'bad') return ended(id);
      onNext('good');
      throw new Error('its end could not be recorded');
    });
    await expect(runInTurn('bad', { open, signal })).rejects.toThrow('could not be recorded');
    expect(ran).toEqual(['bad', 'good']);
  });

  test('end with one that changed the environment of the process', async () => {
    const { open } = opener(folder(), (id, onNext) => {
      process.env['RYE_LEAKED'] = '1';
      const taken = onNext('next');
      delete process.env['RYE_LEAKED'];
      return { ...ended(id), result: String(taken) };
    });
    expect(await runInTurn('one', { open, signal })).toMatchObject({ result: 'false' });
  });

  test('end with an interrupt', async () => {
    const interrupted = new AbortController();
    const { open } = opener(folder(), (id, onNext) => {
      interrupted.abort();
      return { ...ended(id), result: String(onNext('next')) };
    });
    const { signal: stopped } = interrupted;
    expect(await runInTurn('one', { open, signal: stopped })).toMatchObject({ result: 'false' });
  });
});

const LOOK = `import { readdirSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Tell what the process of a tool was started with, then change it.';
export const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 60, risk: 'safe' };
export const CONFIG_SCHEMA = { type: 'object', properties: {}, additionalProperties: false };
const { RYE_THREAD_ID, RYE_PARENT_THREAD_ID, RYE_CALL_ID, ...rest } = process.env;
const seen = JSON.stringify([process.cwd(), rest, process.umask(), readdirSync('/proc/self/fd').length]);
process.stdout.write(JSON.stringify({ passed: seen }));
process.chdir('/');
process.env.LEAKED = '1';
process.umask(0);
`;

test('threads that are started one after the other share a process, and nothing of one reaches the next', async () => {
  const here = await lab();
  here.write('.ai/tools/team/look.mjs', LOOK);
  here.write(
    '.ai/directives/team/look.md',
    directive('team/look', {
      tools: ['team/look'],
      outputs:
        '<output name="passed" type="string" required="true" from="${steps.look.data.passed}">Seen.</output>',
      steps: '<step name="look"><execute item_type="tool" item_id="team/look"></execute></step>',
    }),
  );
  await here.sign();
  const seen = new Map<number, { readonly id: string; readonly passed: unknown }>();
  let shared: readonly [string, string] | undefined;
  // a busy machine may need longer for a start than a process is idle
  for (let tries = 0; tries < 50 && shared === undefined; tries += 1) {
    const launched = await here.rye.children.launch({ directiveId: 'team/look' });
    const id = launched.thread_id;
    const report = await here.rye.children.wait([id]);
    expect(report.threads).toMatchObject([{ status: 'completed' }]);
    const { pid } = await here.record(id);
    // each call has its own temporary folder
    const passed = JSON.stringify(report.threads[0]?.outputs).replace(/rye-sandbox-\w+/, '');
    const before = seen.get(pid ?? 0);
    seen.set(pid ?? 0, { id, passed });
    if (!before) continue;
    expect(passed).toBe(before.passed);
    shared = [before.id, id];
  }
  const log = path.join(here.project, '.ai/state/threads', shared?.[1] ?? '', 'spawn.log');
  expect(readFileSync(log, 'utf8')).toMatch(/^runs in process \d+, whose output is in the spawn/);
  for (const id of shared ?? []) expect((await here.rye.threads.verify(id)).ok).toBe(true);
  // an idle process ends by itself
  await here.until('its end', () => processesOf(here.project, [...seen.keys()]).length === 0);
  await here.until(
    'the end of its offer',
    () => readdirSync(idleFolder(here.project)).length === 0,
  );
});
