import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { oncePerRun } from './once-per-run.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * The program as a user has it installed: `.ai`, `bin`, `dist` and package.json in one folder, built from the
 * sources as they are, once per test run. Returns the folder.
 */
export async function cliPackage(): Promise<string> {
  return await oncePerRun('program', build);
}

/** The same program with another version, as an upgrade brings it. Returns the folder. */
export async function cliPackageOf(version: string): Promise<string> {
  return await oncePerRun(`program-${version}`, (folder) => {
    const script = pathToFileURL(path.join(ROOT, 'scripts', 'build.mjs')).href;
    const define = { __RYE_VERSION__: JSON.stringify(version) };
    const without = ['listing', 'program', 'help'];
    const call = `await bundle(${JSON.stringify(path.join(folder, 'dist'))}, ${JSON.stringify({ define, without })})`;
    execFileSync(process.execPath, [
      '--input-type=module',
      '--eval',
      `import { bundle } from ${JSON.stringify(script)};\n${call};`,
    ]);
    copyParts(folder);
  });
}

function build(folder: string): void {
  const script = path.join(ROOT, 'scripts', 'build.mjs');
  execFileSync(process.execPath, [script, '--no-types', '--outdir', path.join(folder, 'dist')]);
  copyParts(folder);
}

function copyParts(folder: string): void {
  for (const part of ['.ai', 'bin', 'package.json']) {
    cpSync(path.join(ROOT, part), path.join(folder, part), { recursive: true });
  }
}

export interface CliResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly cwd: string;
  /** Added to a minimal environment; nothing of the caller's own is passed on but PATH. */
  readonly env?: Readonly<Record<string, string>>;
  /** Text for standard input, which is empty otherwise. */
  readonly stdin?: string;
}

/** Runs `rye` with these arguments in a separate process, with `cwd` as its home too. */
export async function runCli(args: readonly string[], options: CliOptions): Promise<CliResult> {
  const folder = await cliPackage();
  const { cwd, env = {}, stdin = '' } = options;
  const child = spawn(process.execPath, [path.join(folder, 'bin', 'rye.js'), ...args], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: path.join(cwd, '.home'), ...env },
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // a program that does not read its input may be gone before all of it is written
  child.stdin.on('error', () => {});
  child.stdin.end(stdin);
  await once(child, 'close');
  return { code: child.exitCode, signal: child.signalCode, stdout, stderr };
}
