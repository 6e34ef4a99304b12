import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, lstatSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../core/clock.ts';
import type { IdSource } from '../core/ids.ts';

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
        clearTimeout(timer);
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const timer = setTimeout(finish, ms);
      signal?.addEventListener('abort', finish, { once: true });
    }),
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

/** The folder of the package that contains the shipped `.ai`: found upwards from this file, bundled or not. */
export function systemSpacePath(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const candidate = join(folder, 'system');
    if (existsSync(join(candidate, '.ai'))) return candidate;
    const parent = dirname(folder);
    if (parent === folder)
      throw new Error('the installation is incomplete: its system space is missing');
    folder = parent;
  }
}

/**
 * The project: the nearest ancestor of `cwd` that holds `.ai/`, else `cwd` itself. The user space is never taken
 * for a project, although it holds `.ai/` too; nor is what somebody else put where everybody may put things, as in /tmp.
 */
export function findProject(
  cwd: string,
  userSpacePath: string,
  uid: number | undefined = process.getuid?.(),
): string {
  let folder = cwd;
  for (;;) {
    const holds = folder !== userSpacePath && existsSync(join(folder, '.ai'));
    if (holds && (folder === cwd || !isPlanted(folder, uid))) return folder;
    const parent = dirname(folder);
    if (parent === folder) return cwd;
    folder = parent;
  }
}

const WORLD_WRITABLE = 0o002;

function isPlanted(folder: string, uid: number | undefined): boolean {
  if (uid === undefined || (statSync(folder).mode & WORLD_WRITABLE) === 0) return false;
  return lstatSync(join(folder, '.ai')).uid !== uid;
}
