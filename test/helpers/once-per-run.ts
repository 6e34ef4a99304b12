import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 50;

/**
 * Makes something once per test run: `make` fills an empty folder, whichever worker asks first, and the others wait for it.
 * Returns the folder, which no caller changes afterwards. A failure is the failure of all who ask. `parent` is a folder of
 * the run: below node_modules, or `RYE_TEST_OPEN_DIR`, which other users can read.
 */
export async function oncePerRun(
  name: string,
  make: (folder: string) => void | Promise<void>,
  parent = process.env['RYE_TEST_CLI_DIR'],
): Promise<string> {
  if (parent === undefined) throw new Error(`${name} can be made only under Vitest`);
  const folder = path.join(parent, name);
  const isReady = path.join(parent, `${name}.ready`);
  const hasFailed = path.join(parent, `${name}.failed`);
  try {
    mkdirSync(folder);
  } catch {
    // another worker makes it
    while (!existsSync(isReady)) {
      if (existsSync(hasFailed)) throw new Error(readFileSync(hasFailed, 'utf8'));
      await delay(POLL_MS);
    }
    return folder;
  }
  try {
    await make(folder);
  } catch (error) {
    writeFileSync(hasFailed, `${name} was not made: ${String(error)}`);
    throw error;
  }
  writeFileSync(isReady, '');
  return folder;
}
