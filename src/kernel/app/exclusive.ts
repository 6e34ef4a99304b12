import { rmdirSync } from 'node:fs';
import type { Clock } from '../core/clock.ts';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { makeFolders } from '../disk/folders.ts';
import { type Lease, takeLease, UNSEEN_HINT } from '../storage/files/lease.ts';
import { processOwners } from '../storage/owners.ts';

const PATIENCE_MS = 20_000;
const LOOK_MS = 10;

/**
 * Reads and writes files that others read and write too, one after the other, so that no change is lost. The right to it
 * is a lease in this folder. Throws `state_unwritable` while another process holds it for long.
 */
export async function exclusively<T>(
  { folder, clock }: { readonly folder: string; readonly clock: Clock },
  act: () => Promise<T> | T,
): Promise<T> {
  const lease = await taken(folder, clock);
  try {
    return await act();
  } finally {
    lease.release();
    removeEmpty(folder);
  }
}

async function taken(folder: string, clock: Clock): Promise<Lease> {
  const owners = processOwners();
  const request = { folder, threadId: 'files', owner: owners.self(), epoch: 1, owners };
  const deadline = clock.monotonic() + PATIENCE_MS;
  for (;;) {
    try {
      makeFolders(folder, 0o700);
      return takeLease(request);
    } catch (error) {
      // the one before removed the folder again
      const isGone = systemCodeOf(error) === 'ENOENT';
      const isHeld = error instanceof RyeError && error.code === 'thread_locked';
      if (!isGone && !isHeld) throw error;
      if (clock.monotonic() >= deadline) throw busy(folder, error);
    }
    await clock.sleep(LOOK_MS);
  }
}

function busy(folder: string, cause: unknown): RyeError {
  const hint = cause instanceof RyeError && cause.hint === UNSEEN_HINT ? UNSEEN_HINT : 'Try again.';
  return new RyeError('state_unwritable', `another process changes the files of ${folder}`, {
    hint,
    cause,
  });
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // it has files, or another process takes the lease
  }
}
