import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';

/**
 * Gives each test run an empty folder that `cliPackage()` builds the program into on first use. It lies below
 * node_modules so that the program finds its packages; workers inherit the environment.
 */
export function setup(): () => void {
  // each project of vitest.config.ts calls this
  if (process.env['RYE_TEST_CLI_DIR'] !== undefined) return () => undefined;
  const parent = path.resolve('node_modules', '.cache');
  mkdirSync(parent, { recursive: true });
  const directory = mkdtempSync(path.join(parent, 'rye-test-'));
  process.env['RYE_TEST_CLI_DIR'] = directory;
  preferPython();
  return () => rmSync(directory, { recursive: true, force: true });
}

/** Puts the interpreter itself first in PATH: the shim of a version manager takes several times as long to start. */
function preferPython(): void {
  const python = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], {
    encoding: 'utf8',
  });
  if (python.status !== 0) return;
  const folder = path.dirname(python.stdout.trim());
  process.env['PATH'] = [folder, process.env['PATH']].join(path.delimiter);
}
