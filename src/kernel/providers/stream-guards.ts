import { type Clock, overReason } from '../core/clock.ts';
import type { AnswerBody } from '../startup/http-fetch.ts';

/** Watches one connection, and carries the one signal that ends it. */
export interface StallWatch {
  /** Aborts when the caller's signal does, when the connection stalls and when the watch ends. */
  readonly signal: AbortSignal;
  /** The wait that was too long. */
  stalled(): Stall | undefined;
  /** Waits for a response of the server, or for a read of its body. */
  wait<T>(promise: Promise<T>): Promise<T>;
  /** The answer has begun: from now on silence is a break, and no thinking. */
  begin(): void;
  /** The answer was read as far as it matters: the watch leaves its connection open. */
  settle(body: AnswerBody): void;
  /** Stops the timer, and closes the connection unless the answer was read. */
  end(): void;
}

/** A wait without a byte. */
export interface Stall {
  readonly seconds: number;
  /** The setting that bounds it. */
  readonly setting: 'retry.first_byte_seconds' | 'retry.idle_seconds';
}

export interface StallOptions {
  readonly clock: Clock;
  /** The wait for the first byte of an answer; 0: without end. */
  readonly firstByteSeconds: number;
  /** The wait for each further byte; 0: without end. */
  readonly idleSeconds: number;
  /** The caller's signal. */
  readonly signal: AbortSignal;
}

/**
 * A connection stalls when no byte came for as long as a read may wait. Time that the reader spends elsewhere does not
 * count, so that a slow consumer is not taken for a dead server. One timer in all, not one per read.
 */
export function stallWatch(options: StallOptions): StallWatch {
  const { clock, firstByteSeconds, idleSeconds, signal } = options;
  const connection = new AbortController();
  const finished = new AbortController();
  let waitingSince: number | undefined;
  let limit: Stall = { seconds: firstByteSeconds, setting: 'retry.first_byte_seconds' };
  let stalled: Stall | undefined;
  let isSettled = false;
  const abort = (): void => connection.abort(overReason());
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });

  // the limit may change while it sleeps
  const shortest = Math.min(firstByteSeconds || Infinity, idleSeconds || Infinity) * 1000;
  const watch = async (): Promise<void> => {
    while (!finished.signal.aborted) {
      const waited = waitingSince === undefined ? 0 : clock.monotonic() - waitingSince;
      const allowed = limit.seconds === 0 ? Infinity : limit.seconds * 1000;
      if (waited >= allowed) {
        stalled = limit;
        abort();
        return;
      }
      await clock.sleep(Math.min(allowed - waited, shortest), finished.signal);
    }
  };
  if (Number.isFinite(shortest)) void watch();

  const wait = async <T>(promise: Promise<T>): Promise<T> => {
    waitingSince = clock.monotonic();
    try {
      return await promise;
    } finally {
      waitingSince = undefined;
    }
  };

  return {
    signal: connection.signal,
    stalled: () => stalled,
    wait,
    begin: () => {
      limit = { seconds: idleSeconds, setting: 'retry.idle_seconds' };
    },
    settle: (body) => {
      isSettled = true;
      signal.removeEventListener('abort', abort);
      body.letGo();
    },
    end: () => {
      signal.removeEventListener('abort', abort);
      finished.abort(overReason());
      if (!isSettled) connection.abort(overReason());
    },
  };
}
