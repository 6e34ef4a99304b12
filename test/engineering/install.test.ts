import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'rye-installed-'));
const installed = path.join(folder, 'node_modules', 'rye-threads');

interface Manifest {
  readonly man: readonly string[];
  readonly files: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly private?: boolean;
}
const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;

/** Copies what the tarball contains to a folder that has no package beside it. */
beforeAll(async () => {
  mkdirSync(path.join(folder, 'project'));
  for (const part of ['.ai', 'bin', 'dist', 'package.json']) {
    cpSync(path.join(await cliPackage(), part), path.join(installed, part), { recursive: true });
  }
  return () => removeFolder(folder);
});

function rye(...words: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [path.join(installed, 'bin', 'rye.js'), ...words],
    { cwd: path.join(folder, 'project'), env: { HOME: folder }, encoding: 'utf8' },
  );
  return { status, stdout, stderr };
}

describe('rye with no package beside it', () => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const hasSqlite = major > 22 || (major === 22 && minor >= 13);

  it('runs, or names the Node that it needs in one sentence', () => {
    const { status, stdout, stderr } = rye('run', 'hello', '-q');
    if (hasSqlite) {
      expect([status, stdout, stderr]).toEqual([0, 'greeting: Hello, world!\n', '']);
    } else {
      const sentence = `rye needs Node 22.13 or later; this is ${process.versions.node}`;
      for (const words of [['run', 'hello'], ['init'], ['doctor'], ['keys', 'init']])
        expect(rye(...words)).toEqual({
          status: 2,
          stdout: '',
          stderr: `rye: ${sentence} [usage]\n`,
        });
      expect(JSON.parse(rye('threads', '--json').stdout)).toMatchObject({
        success: false,
        error: { code: 'usage', message: sentence },
      });
      expect(existsSync(path.join(folder, '.ai'))).toBe(false);
      expect(rye('--version').status).toBe(0);
    }
  });

  it('finds its sandbox and the programs that the sandbox starts', () => {
    const sandbox = path.join(installed, 'dist', 'sandbox.js');
    const program = `const { SandboxManager } = await import(${JSON.stringify(sandbox)});
      process.stdout.write(typeof SandboxManager.initialize);`;
    const args = ['--input-type=module', '-e', program];
    expect(execFileSync(process.execPath, args, { encoding: 'utf8' })).toBe('function');
    const seccomp = path.join(installed, 'dist', 'vendor', 'seccomp', 'x64', 'apply-seccomp');
    expect(existsSync(seccomp)).toBe(true);
  });

  it('has the license of each package in it', () => {
    const notices = readFileSync(path.join(installed, 'dist', 'THIRD_PARTY_NOTICES.md'), 'utf8');
    for (const name of ['@anthropic-ai/sdk', 'commander', 'node-forge', 'openai', 'yaml']) {
      expect(notices).toContain(`\n## ${name} `);
    }
    expect(notices).toContain('Apache License');
  });
});

describe('package.json', () => {
  it('can be published, installs nothing beside rye and ships the documentation', () => {
    expect(manifest.private).toBeUndefined();
    expect(manifest.dependencies).toBeUndefined();
    expect(manifest.files).toEqual(expect.arrayContaining(['.ai', 'bin', 'dist', 'docs']));
  });

  it('names a man page for rye and each command', () => {
    const pages = path.join(folder, 'man');
    execFileSync(process.execPath, [
      'node_modules/tsx/dist/cli.mjs',
      'scripts/man-pages.ts',
      pages,
    ]);
    for (const file of manifest.man) {
      const page = readFileSync(path.join(pages, path.basename(file)), 'utf8');
      expect(page).toMatch(/^\.TH RYE/);
    }
    const shipped = manifest.man.map((file) => path.basename(file)).toSorted();
    expect(shipped).toEqual(
      execFileSync('ls', [pages], { encoding: 'utf8' }).trim().split('\n').toSorted(),
    );
  });
});
