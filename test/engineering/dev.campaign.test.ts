import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';

describe('npm run dev', () => {
  it('runs directives from the sources when nothing is built', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'rye-dev-'));
    onTestFinished(() => removeFolder(folder));
    const clone = path.join(folder, 'clone');
    for (const part of [
      '.ai',
      'bin',
      'src',
      'scripts',
      'startup',
      'package.json',
      'tsconfig.json',
    ]) {
      cpSync(part, path.join(clone, part), { recursive: true });
    }
    symlinkSync(path.resolve('node_modules'), path.join(clone, 'node_modules'));
    const project = path.join(folder, 'project');
    mkdirSync(project);
    const rye = (...args: readonly string[]): string =>
      execFileSync(process.execPath, [path.join(clone, 'scripts', 'dev.mjs'), ...args], {
        cwd: project,
        env: { PATH: process.env['PATH'], HOME: path.join(folder, 'home') },
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      });
    rye('init');
    expect(rye('run', 'hello', '--input', 'who=Ada')).toBe('greeting: Hello, Ada!\n');
    rye('run', 'hello', '--async', '--thread-id', 'detached');
    expect(rye('threads', 'wait', 'detached', '--json')).toContain('"status":"completed"');
    expect(existsSync(path.join(clone, 'dist'))).toBe(false);
  });
});
