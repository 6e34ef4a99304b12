import { readdirSync, readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { describe, expect, it } from 'vitest';
import {
  childEnvironment,
  type ProcessRequest,
  runProcess,
} from '../../src/kernel/tools/process.ts';
import { Project } from './helpers.ts';

/** Running processes, without zombies, whose environment carries `marker`. */
function running(marker: string): string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      const isZombie = stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z');
      return !isZombie && readFileSync(`/proc/${pid}/environ`, 'latin1').includes(marker);
    } catch {
      return false;
    }
  });
}

let counter = 0;

function shell(command: string, overrides: Partial<ProcessRequest> = {}) {
  counter += 1;
  const marker = `MARKER=${process.pid}-${counter}-end`;
  const output: string[] = [];
  const collect = (chunk: Buffer): undefined => {
    output.push(chunk.toString());
  };
  const result = runProcess({
    command: '/bin/sh',
    args: ['-c', command],
    cwd: '/',
    env: { PATH: process.env['PATH'] ?? '', MARKER: marker.slice('MARKER='.length) },
    timeoutMs: 15_000,
    signal: new AbortController().signal,
    onStdout: collect,
    onStderr: collect,
    ...overrides,
  });
  return { result, output, marker };
}

describe('processes that leave the group of a command', () => {
  it.each([
    ['a session', 'setsid sleep 300 &'],
    ['a double fork', '(setsid sh -c "sleep 300 & sleep 300" &)'],
    ['nohup', 'nohup setsid sleep 300 > /dev/null 2>&1 & disown 2> /dev/null; true'],
    ['a loop that ignores TERM', `setsid sh -c 'trap "" TERM; while :; do sleep 0.05; done' &`],
    [
      'one that starts others when it ends',
      `setsid sh -c 'trap "setsid sleep 300 &" TERM; sleep 9 & wait' &`,
    ],
  ])('end with it: %s', async (_what, command) => {
    const { result, marker } = shell(`${command}\nsleep 0.1`);
    expect(await result).toMatchObject({ exitCode: 0, leftovers: [] });
    expect(running(marker)).toEqual([]);
  });

  it('stay if they belong to another call', async () => {
    const stop = new AbortController();
    const other = shell('exec sleep 300', { signal: stop.signal });
    await shell('setsid true & true').result;
    expect(running(other.marker)).toHaveLength(1);
    stop.abort();
    await other.result;
  });
});

describe('runProcess', () => {
  it('reports exit code, signal and output', async () => {
    const { result, output } = shell('echo out; echo err >&2; exit 3');
    expect(await result).toMatchObject({ exitCode: 3, exitSignal: null, stopped: undefined });
    expect(output.join('')).toContain('out');
    expect(output.join('')).toContain('err');
    expect(await shell('kill -9 $$').result).toMatchObject({
      exitCode: null,
      exitSignal: 'SIGKILL',
    });
  });

  it('feeds stdin, and takes a child that does not read it', async () => {
    const big = 'x'.repeat(4 * 1024 * 1024);
    const reading = shell('wc -c', { stdin: big });
    expect((await reading.result).exitCode).toBe(0);
    expect(reading.output.join('').trim()).toBe(String(big.length));
    expect(await shell('exec 0<&-; exit 0', { stdin: big }).result).toMatchObject({ exitCode: 0 });
    expect(await shell('cat').result).toMatchObject({ exitCode: 0 });
  });

  it('ends a whole group that ignores SIGTERM when the time is up', async () => {
    const { result, marker } = shell('trap "" TERM; (trap "" TERM; sleep 60) & sleep 60', {
      timeoutMs: 200,
    });
    expect(await result).toMatchObject({
      stopped: 'timeout',
      exitCode: null,
      exitSignal: 'SIGKILL',
    });
    expect(running(marker)).toEqual([]);
  });

  it('ends the group on abort, also when it comes before the start', async () => {
    const controller = new AbortController();
    const started = performance.now();
    const { result, marker } = shell('echo up; sleep 60 & sleep 60', {
      signal: controller.signal,
      onStdout: () => {
        controller.abort();
        return true;
      },
    });
    expect(await result).toMatchObject({ stopped: 'aborted' });
    expect(performance.now() - started).toBeLessThan(30_000);
    expect(running(marker)).toEqual([]);
    expect(await shell('exit 0', { signal: AbortSignal.abort() }).result).toMatchObject({
      stopped: 'aborted',
    });
  });

  it('does not wait for grandchildren that hold the output open, and leaves none', async () => {
    const started = performance.now();
    const { result, output, marker } = shell('sleep 60 & (sleep 60; echo late) & echo done');
    expect(await result).toMatchObject({ exitCode: 0, stopped: undefined });
    expect(output.join('')).toBe('done\n');
    expect(performance.now() - started).toBeLessThan(30_000);
    expect(running(marker)).toEqual([]);
  });

  it('lets the reader stop a child with too much output', async () => {
    let bytes = 0;
    const { result } = shell('yes', {
      onStdout: (chunk) => {
        bytes += chunk.length;
        return bytes < 1_000_000;
      },
    });
    expect(await result).toMatchObject({ stopped: 'output' });
  });

  it.each([
    ['/no/such/program', 'not found'],
    ['/etc/passwd', 'not executable'],
  ])('explains that %s cannot be started', async (command, reason) => {
    await expect(shell('', { command }).result).rejects.toMatchObject({
      code: 'spawn_failed',
      message: expect.stringContaining(reason),
    });
    await expect(shell('', { cwd: '/no/such/folder' }).result).rejects.toMatchObject({
      code: 'spawn_failed',
    });
  });
});

describe('childEnvironment', () => {
  it('passes the allow list, named extras and the thread, and no secret', () => {
    const env = {
      PATH: '/bin',
      HOME: '/h',
      LC_ALL: 'C',
      ANTHROPIC_API_KEY: 'k',
      MY_TOKEN: 't',
      EXTRA: 'e',
      OTHER: 'o',
      RYE_THREAD_ID: 'outer',
      TERM: undefined,
    };
    const context = {
      projectPath: '/p',
      threadId: 't/1',
    };
    const pass = ['EXTRA', 'MY_TOKEN', 'ANTHROPIC_API_KEY', 'NONE'];
    expect(childEnvironment(env, context, pass)).toEqual({
      PATH: '/bin',
      HOME: '/h',
      LC_ALL: 'C',
      EXTRA: 'e',
      RYE_PROJECT: '/p',
      RYE_THREAD_ID: 't/1',
      RYE_PARENT_THREAD_ID: 't/1',
    });
  });

  it.each([
    [{ HOME: '' }, {}],
    [{ HOME: '/h' }, { HOME: '/h' }],
    [{ LANG: '' }, { LANG: '' }],
    [{ PATH: 'bin:/bin::./x:/usr/bin' }, { PATH: '/bin:/usr/bin' }],
  ])('passes %j as %j', (env, passed) => {
    const given = childEnvironment(env, { projectPath: '/p', threadId: 't' });
    const { RYE_PROJECT: _p, RYE_THREAD_ID: _t, RYE_PARENT_THREAD_ID: _u, ...rest } = given;
    expect(rest).toEqual(passed);
  });
});

describe('bash', () => {
  // Requirement: shell-footer
  it('shows output with exit code and time; a failure is an error', async () => {
    await using project = await Project.create();
    const ok = await project.run('bash', { command: 'pwd; cat' });
    expect(ok.text).toMatch(new RegExp(`^${project.path}\n\\(exit 0, \\d+ms\\)$`));
    expect(ok.data).toMatchObject({ exit_code: 0, output: `${project.path}\n`, timed_out: false });
    const failed = await project.run('bash', { command: 'echo no >&2; exit 7' });
    expect(failed).toMatchObject({ isError: true, data: { exit_code: 7, output: 'no\n' } });
    expect((await project.run('bash', { command: 'echo x' }, { metadata: false })).text).toBe('x');
    expect((await project.run('bash', { command: ':' }, { metadata: false })).text).toBe(
      '(no output)',
    );
  });

  // Requirement: shell-output-cap
  it('keeps head, tail and exit status of long output', async () => {
    await using project = await Project.create();
    const long = await project.run('bash', { command: 'seq 1 100000' });
    expect(long.text).toMatch(/^1\n2\n[\s\S]*\n…\(\d+ bytes omitted\)…\n/);
    expect(long.text).toContain('\n100000\n(exit 0');
    expect(Buffer.byteLength(long.text)).toBeLessThan(33_000);
    const small = await project.run('bash', { command: 'seq 1 9999' }, { maxResultBytes: 4096 });
    expect(small.text).toMatch(/^1\n[\s\S]*omitted[\s\S]*9999\n\(exit 0, \d+ms\)$/);
    expect(Buffer.byteLength(small.text)).toBeLessThanOrEqual(4096);
    const whole = await project.run('bash', { command: 'seq 1 100000' }, { maxOutputBytes: 0 });
    expect(whole.text.startsWith('1\n2\n')).toBe(true);
  });

  it('stops after timeout_seconds', async () => {
    await using project = await Project.create();
    const late = await project.run('bash', {
      command: 'echo before; sleep 60',
      timeout_seconds: 1,
    });
    expect(late).toMatchObject({ isError: true, data: { timed_out: true, output: 'before\n' } });
    expect(late.text).toContain('timed out');
  });

  it('hides the environment of rye', async () => {
    await using project = await Project.create();
    const result = await project.run(
      'bash',
      { command: 'env' },
      { env: { ...process.env, SOME_API_KEY: 'hunter2' } },
    );
    expect(result.text).not.toContain('hunter2');
    expect(result.text).toContain('RYE_PARENT_THREAD_ID=demo/thread-1');
  });
});
