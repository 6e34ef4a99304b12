import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, realpathSync, renameSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { main } from '../../src/faces/cli/main.ts';
import { openRye, openThreadList } from '../../src/faces/cli/process-io.ts';
import { createFakeIo } from './fake-io.ts';
import { oncePerRun } from './once-per-run.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * The program as a user has it installed: `.ai`, `bin`, `dist` and package.json in one folder, built from the
 * sources as they are. A later test run of the same sources finds it again. Returns the folder.
 */
export async function cliPackage(): Promise<string> {
  const kept = process.env['RYE_TEST_PROGRAM'];
  if (kept !== undefined && existsSync(kept)) return kept;
  const built = await oncePerRun('program', build);
  if (kept === undefined) return built;
  try {
    if (!existsSync(kept)) renameSync(built, kept);
  } catch {
    // another worker or test run kept it
  }
  return existsSync(kept) ? kept : built;
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
  /** Runs the built program in a separate process: for signals, kills, pipes and what Node itself is told. */
  readonly spawned?: boolean;
}

/**
 * Runs `rye` with these arguments in this process, with `cwd` as its home too. Processes that the command starts run the
 * built program.
 */
export async function runCli(args: readonly string[], options: CliOptions): Promise<CliResult> {
  const script = path.join(await cliPackage(), 'bin', 'rye.js');
  if (options.spawned === true) return await runProgram(script, args, options);
  const { cwd, stdin = '' } = options;
  const io = createFakeIo({ cwd: realpathSync(cwd), stdin, env: environmentOf(options) });
  const program = [script];
  const code = await main(args, {
    ...io,
    program: script,
    monotonic: () => performance.now(),
    now: () => Date.now(),
    repeat: (ms, action) => {
      const timer = setInterval(action, ms).unref();
      return () => clearInterval(timer);
    },
    openRye: (request) => openRye({ ...request, program }),
    openThreadList: (request) => openThreadList({ ...request, program }),
  });
  return { code, signal: null, stdout: io.out(), stderr: io.err() };
}

/** Runs another copy of the program as {@link runCli} runs the built one in a separate process. */
export async function runProgram(
  program: string,
  args: readonly string[],
  options: CliOptions,
): Promise<CliResult> {
  const child = spawn(process.execPath, [program, ...args], {
    cwd: options.cwd,
    env: environmentOf(options),
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
  child.stdin.end(options.stdin ?? '');
  await once(child, 'close');
  return { code: child.exitCode, signal: child.signalCode, stdout, stderr };
}

function environmentOf({ cwd, env }: CliOptions): Readonly<Record<string, string>> {
  return { PATH: process.env['PATH'] ?? '', HOME: path.join(cwd, '.home'), ...env };
}
