import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';
import { untilTrue } from './proof.ts';

interface Try {
  readonly process: ChildProcess;
  readonly output: () => string;
}

async function startTry(here: Workspace): Promise<Try> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, 'fleet', 'try'], {
    cwd: here.project,
    env: { PATH: process.env['PATH'], HOME: here.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  onTestFinished(async () => {
    if (child.exitCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGINT');
    await ended;
  });
  return { process: child, output: () => output };
}

async function interrupted({ process: child }: Try): Promise<number | null> {
  const ended = once(child, 'exit');
  child.kill('SIGINT');
  await ended;
  return child.exitCode;
}

it('two commands show a fleet, and Ctrl-C leaves the project as it was', async () => {
  const here = await workspace();
  const tour = await startTry(here);
  await untilTrue('it runs', () => tour.output().includes('Ctrl-C ends it'));
  expect(tour.output()).toContain('in another terminal: rye run hello --fleet --wait');
  const run = await here.rye(['run', 'hello', '--fleet', '--wait']);
  expect(run).toMatchObject({ code: 0, stdout: expect.stringContaining('Hello, world!') });
  const { workers } = await here.json(['fleet', 'workers']);
  expect(workers).toHaveLength(2);

  const again = await here.rye(['fleet', 'try']);
  expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('another folder') });

  const config = path.join(here.project, '.ai', 'config', 'store.yaml');
  const url = /"(postgres:[^"]+)"/.exec(readFileSync(config, 'utf8'))?.[1] ?? '';
  expect(await interrupted(tour)).toBe(0);
  expect(existsSync(config)).toBe(false);
  await expect(new Client({ connectionString: url }).connect()).rejects.toMatchObject({
    code: 'ECONNREFUSED',
  });
  expect(await here.rye(['run', 'hello'])).toMatchObject({ code: 0 });
  const { threads } = await here.json(['threads', 'list']);
  expect(threads).toHaveLength(1);
});

it('Ctrl-C while it starts removes everything', async () => {
  const here = await workspace();
  const tour = await startTry(here);
  const config = path.join(here.project, '.ai', 'config', 'store.yaml');
  await untilTrue('the store is named', () => existsSync(config));
  const url = /"(postgres:[^"]+)"/.exec(readFileSync(config, 'utf8'))?.[1] ?? '';
  await interrupted(tour);
  expect(existsSync(config)).toBe(false);
  await expect(new Client({ connectionString: url }).connect()).rejects.toMatchObject({
    code: 'ECONNREFUSED',
  });
});
