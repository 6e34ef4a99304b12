import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

const EXPORTS = '.ai/knowledge/agent/threads';

test('git ignores the state and the exports of threads after rye init', async () => {
  const here = await workspace({ init: false });
  const git = (...args: readonly string[]): string =>
    execFileSync('git', args, {
      cwd: here.project,
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], HOME: here.home },
    });
  git('init', '-q');
  writeFileSync(path.join(here.project, '.gitignore'), 'dist/\n/.ai/state/');
  expect((await here.rye(['init'])).code).toBe(0);
  expect((await here.rye(['init'])).code).toBe(0);
  expect((await here.rye(['run', 'hello'])).code).toBe(0);
  expect(git('status', '--porcelain', '-uall').trimEnd().split('\n')).toEqual([
    '?? .ai/config/agent/resilience.yaml',
    '?? .ai/directives/example.md',
    '?? .ai/lock.json',
    '?? .gitignore',
  ]);
});

test('glob and grep skip the state and the exports of threads unless path names the exports', async () => {
  const here = await workspace();
  writeFileSync(path.join(here.project, 'notes.txt'), 'Hello, Ada!\n');
  expect((await here.rye(['run', 'hello', '--input', 'who=Ada'])).code).toBe(0);
  const tool = async (name: string, ...params: readonly string[]) => {
    const options = params.flatMap((param) => ['--param', param]);
    const { stdout } = await here.rye(['execute', 'tool', `rye/file-system/${name}`, ...options]);
    return stdout;
  };
  expect(await tool('grep', 'pattern=Hello, Ada')).toBe('notes.txt:1:Hello, Ada!\n');
  const files = await tool('glob', 'pattern=**');
  expect(files).toContain('.ai/directives/example.md');
  expect(files).not.toMatch(/\.ai\/state|agent\/threads/);
  expect(await tool('grep', 'pattern=Hello, Ada', `path=${EXPORTS}`)).toContain(EXPORTS);
  expect(await tool('glob', 'pattern=**/*.md', `path=${EXPORTS}`)).toContain(EXPORTS);
  expect(await tool('grep', 'pattern=Hello', 'path=.ai/state')).not.toContain('transcript');
});
