import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync } from 'node:fs';
import path from 'node:path';
import type { TestProject } from 'vitest/node';

// ends what hangs, and not what is only slow because the machine has other work
const TEST_MS = 300_000;
const POLL = { timeout: 60_000, interval: 50 };

import { removeFolder } from './remove-folder.ts';

/**
 * Gives each test run an empty folder that `cliPackage()` builds the program into on first use. It lies below
 * node_modules so that the program finds its packages; workers inherit the environment.
 */
export function setup(project: TestProject): () => void {
  configure(project);
  // each project of vitest.config.ts calls this
  if (process.env['RYE_TEST_CLI_DIR'] !== undefined) return () => undefined;
  const parent = path.resolve('node_modules', '.cache');
  mkdirSync(parent, { recursive: true });
  const directory = mkdtempSync(path.join(parent, 'rye-test-'));
  process.env['RYE_TEST_CLI_DIR'] = directory;
  preferPython();
  return () => removeFolder(directory);
}

/** Gives the tests of a project their times. Under `RYE_TWICE`, each of them is tried twice. */
function configure({ config }: TestProject): void {
  config.testTimeout = TEST_MS;
  config.hookTimeout = TEST_MS;
  config.expect.poll = POLL;
  if (process.env['RYE_TWICE'] === undefined) return;
  config.retry = 2;
  config.setupFiles.push(path.resolve(import.meta.dirname, 'try-twice.ts'));
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
