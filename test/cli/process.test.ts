import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage, runCli } from '../helpers/run-cli.ts';

const BUILD_MS = 300_000;
const folder = mkdtempSync(path.join(tmpdir(), 'rye-process-'));

beforeAll(async () => {
  await cliPackage();
  const { code, stderr } = await runCli(['init'], { cwd: folder });
  if (code !== 0) throw new Error(stderr);
  return () => {
    removeFolder(folder);
  };
}, BUILD_MS);

interface Line {
  readonly event_type: string;
  readonly success?: boolean;
}

function linesOf(stdout: string): readonly Line[] {
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

describe('a new folder without any key', () => {
  it('runs hello', async () => {
    const { code, stdout } = await runCli(['execute', 'directive', 'hello', '--json'], {
      cwd: folder,
    });
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      success: true,
      directive: 'hello',
      status: 'completed',
    });
  });

  it('prints the declared outputs on stdout and everything else on stderr', async () => {
    const { stdout, stderr } = await runCli(['run', 'hello', '--input', 'who=Ada'], {
      cwd: folder,
    });
    expect(stdout).toBe('greeting: Hello, Ada!\n');
    expect(stderr).toContain('completed hello-');
  });

  it('ends stream-json with exactly one result line', async () => {
    const { stdout } = await runCli(['run', 'hello', '--output-format', 'stream-json'], {
      cwd: folder,
    });
    const lines = linesOf(stdout);
    expect(lines.filter(({ event_type }) => event_type === 'result')).toHaveLength(1);
    expect(lines.at(-1)).toMatchObject({ event_type: 'result', success: true });
  });

  it('names the missing item and exits with 6', async () => {
    const { code, stdout } = await runCli(['run', 'helo', '--json'], { cwd: folder });
    expect(JSON.parse(stdout)).toMatchObject({
      success: false,
      error: { code: 'item_not_found', hint: expect.stringContaining('hello') },
    });
    expect(code).toBe(6);
  });
});

/** Resolves when the file is there. */
async function appears(file: string): Promise<void> {
  await expect.poll(() => existsSync(file), { timeout: 60_000 }).toBe(true);
}

/** A test that is tried again has another file, because the earlier one is there already. */
let attempts = 0;

describe('signals', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)(
    '%s cancels cleanly, with a document and exit 130',
    async (signal) => {
      attempts += 1;
      const program = path.join(await cliPackage(), 'bin', 'rye.js');
      const started = path.join(folder, `started-${attempts}`);
      const command = `touch ${path.basename(started)}; sleep 60`;
      const args = [
        'execute',
        'tool',
        'rye/bash',
        '--param',
        `command=${command}`,
        '--json',
        '--acknowledge',
        'elevated',
      ];
      const child = spawn(process.execPath, [program, ...args], {
        cwd: folder,
        env: { PATH: process.env['PATH'], HOME: path.join(folder, '.home') },
      });
      let stdout = '';
      child.stdout.on('data', (data: Buffer) => {
        stdout += data.toString();
      });
      await appears(started);
      child.kill(signal);
      await once(child, 'close');
      expect(JSON.parse(stdout)).toMatchObject({ success: false });
      expect(child.exitCode).toBe(130);
    },
  );
});

describe('standard input of a run', () => {
  it('refuses text that no input uses', async () => {
    const { code, stderr } = await runCli(['run', 'hello'], { cwd: folder, stdin: 'Ada' });
    expect([code, stderr.includes('--input NAME=-')]).toEqual([2, true]);
    const args = ['run', 'hello', '--input', 'who=-'];
    const used = await runCli(args, { cwd: folder, stdin: 'Ada' });
    expect(used).toMatchObject({ code: 0, stdout: expect.stringContaining('Hello, Ada!') });
  });

  it('does not wait for an open pipe that stays silent', async () => {
    const program = path.join(await cliPackage(), 'bin', 'rye.js');
    const child = spawn(process.execPath, [program, 'run', 'hello'], {
      cwd: folder,
      env: { PATH: process.env['PATH'], HOME: path.join(folder, '.home') },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    await once(child, 'exit');
    expect(child.exitCode).toBe(0);
  });
});
