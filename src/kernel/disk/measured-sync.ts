import { fdatasync, fdatasyncSync, fsync, fsyncSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Clock } from '../core/clock.ts';

/** A sync as short as this costs less than waking a thread of the pool for it. */
const SHORT_MS = 0.25;
/** So many long syncs in a row are the disk's, and not another process that took the processor. */
const LONG_IN_A_ROW = 2;
/** Syncs that a slow disk makes in the pool before one is tried on the main thread again: at first, and at most. */
const FIRST_PAUSE = 64;
const LONGEST_PAUSE = 4096;

/** A call of the system on the main thread and in the pool. */
interface Call {
  readonly now: (fd: number) => void;
  readonly inPool: (fd: number) => Promise<void>;
}

const CALLS = {
  /** The bytes of a file. */
  data: { now: fdatasyncSync, inPool: promisify(fdatasync) },
  /** A file with its attributes, or a folder. */
  all: { now: fsyncSync, inPool: promisify(fsync) },
} as const satisfies Readonly<Record<string, Call>>;

/** Makes what was written to an open file durable: at once and undefined, or later. Rejects with the system's error. */
export type FileSyncer = (fd: number) => void | Promise<void>;

/**
 * Syncs on the main thread while the disk is fast, such as one in memory or with a write cache that survives a power
 * failure, else in the thread pool: one slow disk must not stop the other threads of the process, and waking a thread of
 * the pool costs the main thread more than a short sync.
 */
export function measuredSync(
  clock: Pick<Clock, 'monotonic'>,
  what: keyof typeof CALLS = 'data',
): FileSyncer {
  const { now, inPool } = CALLS[what];
  let long = 0;
  let left = 0;
  let pause = FIRST_PAUSE;
  return (fd) => {
    if (left > 0) {
      left -= 1;
      return inPool(fd);
    }
    const begun = clock.monotonic();
    now(fd);
    if (clock.monotonic() - begun <= SHORT_MS) {
      long = 0;
      pause = FIRST_PAUSE;
      return undefined;
    }
    long += 1;
    if (long < LONG_IN_A_ROW) return undefined;
    left = pause;
    pause = Math.min(LONGEST_PAUSE, pause * 2);
    // one more long one is enough to try later again
    long = LONG_IN_A_ROW - 1;
    return undefined;
  };
}
