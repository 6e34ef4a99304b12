import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';
import { startTimer } from '../tools/timer.ts';

/** The real clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) {
        resolve();
        return;
      }
      const finish = (): void => {
        timer.stop();
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const timer = startTimer(ms, finish);
      signal?.addEventListener('abort', finish, { once: true });
    }),
};

/** A monotonic clock that all processes of the machine share. */
export const machineClock: Pick<Clock, 'monotonic'> = {
  monotonic: () => Number(process.hrtime.bigint() / 1000n) / 1000,
};

const ENTRY_ID_BYTES = 8;
const POOLED_IDS = 128;
let pool = Buffer.alloc(0);

/** Random ids from the operating system, which is asked for many at a time: it takes as long for one. */
export const systemIds: IdSource = {
  entryId: () => {
    if (pool.length === 0) pool = randomBytes(ENTRY_ID_BYTES * POOLED_IDS);
    const id = pool.toString('hex', 0, ENTRY_ID_BYTES);
    pool = pool.subarray(ENTRY_ID_BYTES);
    return id;
  },
  uuid: () => randomUUID(),
};

/** True for a folder that looks like one of rye. */
function isSystemSpace(folder: string): boolean {
  if (!existsSync(join(folder, '.ai')) || !existsSync(join(folder, 'bin', 'rye.js'))) return false;
  const file = join(folder, 'package.json');
  return existsSync(file) && /^  "name": "rye-threads",$/m.test(readFileSync(file, 'utf8'));
}

/** Returns the folder of the package, which contains the shipped `.ai`: found upwards from this file, bundled or not. */
export function systemSpacePath(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!isSystemSpace(folder)) {
    const parent = dirname(folder);
    if (parent === folder)
      throw new Error('the installation is incomplete: its system space is missing');
    folder = parent;
  }
  return folder;
}
