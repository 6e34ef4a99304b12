import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';

/**
 * Gives each test run an empty folder that `cliPackage()` builds the program into on first use. It lies below
 * node_modules so that the program finds its packages; workers inherit its name through the environment.
 */
export function setup(): () => void {
  const parent = path.resolve('node_modules', '.cache');
  mkdirSync(parent, { recursive: true });
  const directory = mkdtempSync(path.join(parent, 'rye-test-'));
  process.env['RYE_TEST_CLI_DIR'] = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
