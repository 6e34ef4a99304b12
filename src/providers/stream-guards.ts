import { type Clock, overReason } from '../core/clock.ts';
import type { AnswerBody } from '../startup/http-fetch.ts';

/** Watches one connection, and carries the one signal that ends it. */
export interface StallWatch {
  /** Aborts when the caller's signal does, when the connection stalls and when the watch ends. */
  readonly signal: AbortSignal;
  stalled(): boolean;
  /** Waits for a response of the server, or for a read of its body. */
  wait<T>(promise: Promise<T>): Promise<T>;
  /** The answer was read as far as it matters: the watch leaves its connection open. */
  settle(body: AnswerBody): void;
  /** Stops the timer, and closes the connection unless the answer was read. */
  end(): void;
}

export interface StallOptions {
  readonly clock: Clock;
  readonly stallMs: number;
  /** The caller's signal. */
  readonly signal: AbortSignal;
}

/**
 * A connection stalls when no byte came for `stallMs` while a read was waiting. Time that the reader spends
 * elsewhere does not count, so that a slow consumer is not taken for a dead server. One timer in all, not one per
 * read.
 */
export function stallWatch({ clock, stallMs, signal }: StallOptions): StallWatch {
  const connection = new AbortController();
  const finished = new AbortController();
  let waitingSince: number | undefined;
  let stalled = false;
  let isSettled = false;
  const abort = (): void => connection.abort(overReason());
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });

  const watch = async (): Promise<void> => {
    while (!finished.signal.aborted) {
      const waited = waitingSince === undefined ? 0 : clock.monotonic() - waitingSince;
      if (waited >= stallMs) {
        stalled = true;
        abort();
        return;
      }
      await clock.sleep(stallMs - waited, finished.signal);
    }
  };
  void watch();

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
