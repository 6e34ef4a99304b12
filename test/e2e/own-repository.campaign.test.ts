import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type CliResult, cliPackage, runCli, runProgram } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const EXAMPLE = '.ai/directives/example.md';

/** A git repository with the parts of a clone of rye that it runs with: the built program, its sources and its `.ai`. */
async function clone(folder: string): Promise<(...args: string[]) => string> {
  const installed = await cliPackage();
  for (const name of ['.ai', 'bin', 'package.json', '.gitignore'])
    cpSync(path.join(name === '.gitignore' ? ROOT : installed, name), path.join(folder, name), {
      recursive: true,
    });
  symlinkSync(path.join(installed, 'dist'), path.join(folder, 'dist'));
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
  mkdirSync(path.join(folder, 'src'));
  writeFileSync(path.join(folder, 'src', 'index.ts'), 'export {};\n');
  const git = (...args: string[]): string =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b.c', ...args], {
      cwd: folder,
      encoding: 'utf8',
    });
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'all');
  return git;
}

test('rye runs in its own clone: shipped items stay shipped, others are the project’s, and state is ignored', async () => {
  const { project, home } = await workspace({ init: false });
  const git = await clone(project);
  const rye = async (...args: string[]): Promise<CliResult> =>
    await runProgram(path.join(project, 'bin', 'rye.js'), args, {
      cwd: project,
      env: { HOME: home },
    });
  const report = await rye('run', 'rye/core/project_report', '--input', 'path=src');
  expect([report.code, report.stderr]).toEqual([0, expect.stringContaining('completed')]);
  expect(git('status', '--porcelain', '-uall')).toBe('');
  const limits = readFileSync(path.join(project, '.ai/config/agent/resilience.yaml'), 'utf8');
  expect((await rye('init', '--force')).stdout).toContain(`created ${EXAMPLE}`);
  expect(readFileSync(path.join(project, '.ai/config/agent/resilience.yaml'), 'utf8')).toBe(limits);
  expect((await rye('run', 'example', '--quiet')).stdout).toMatch(/^entries: \d/);
  writeFileSync(path.join(project, '.ai/directives/hello.md'), 'changed');
  expect((await rye('run', 'hello')).stderr).toMatch(/system_item_modified[\s\S]*npm run build/);
  expect((await rye('sign', 'directive', 'hello')).stderr).toMatch(/npm run build/);
  expect(git('status', '--porcelain', '-uall').trimEnd().split('\n')).toEqual([
    ' M .ai/directives/hello.md',
    `?? ${EXAMPLE}`,
  ]);
});

test('a project that looks like rye is a project like any other', async () => {
  const { project, home } = await workspace({ init: false });
  mkdirSync(path.join(project, 'bin'));
  for (const name of ['bin/rye.js', 'package.json'])
    cpSync(path.join(ROOT, name), path.join(project, name));
  const options = { cwd: project, env: { HOME: home } };
  for (const args of [['run', 'hello'], ['run', 'hello'], ['init'], ['threads']])
    expect((await runCli(args, options)).code).toBe(0);
});
