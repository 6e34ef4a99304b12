import { type Clock, overReason } from '../core/clock.ts';
import type { ControlAction } from '../core/hook.ts';

type StopCause = 'cancelled' | 'duration' | 'closed';

/**
 * Combines the caller's cancellation and the duration limit into one signal. The signal is replaced when a hook
 * extends the duration, so read it again for each call.
 */
export class Stop {
  readonly #clock: Clock;
  readonly #outer: AbortSignal;
  readonly #onCancel = (): void => this.#end('cancelled');
  #controller = new AbortController();
  readonly #cancel = new AbortController();
  #timer = new AbortController();
  #cause: StopCause | undefined;
  #decision: ControlAction | undefined;
  #ending = new AbortController();

  constructor(clock: Clock, outer: AbortSignal) {
    this.#clock = clock;
    this.#outer = outer;
    if (outer.aborted) this.#end('cancelled');
    else outer.addEventListener('abort', this.#onCancel, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Aborts on a cancellation only: hooks that decide about a passed deadline still run. */
  get cancelSignal(): AbortSignal {
    return this.#cancel.signal;
  }

  get cause(): StopCause | undefined {
    return this.#cause;
  }

  /** The decision of a hook that ends the run after the current batch of calls. */
  get decision(): ControlAction | undefined {
    return this.#decision;
  }

  /** Ends the run after the current batch. The first decision counts. */
  endAfterBatch(decision: ControlAction): void {
    this.#decision ??= decision;
    this.#ending.abort(overReason());
  }

  /** Aborts once the run is to end: no decision is needed any more. */
  get endingSignal(): AbortSignal {
    return this.#ending.signal;
  }

  /** The reason with which the caller cancelled. */
  get cancelReason(): string {
    const { reason } = this.#outer as { readonly reason: unknown };
    return typeof reason === 'string' ? reason : 'the thread was cancelled';
  }

  /** Aborts running calls in `ms` from now, and forgets that an earlier deadline passed. */
  arm(ms: number): void {
    this.#timer.abort(overReason());
    const timer = new AbortController();
    this.#timer = timer;
    if (this.#cause === 'duration') {
      this.#cause = undefined;
      this.#controller = new AbortController();
      if (this.#decision === undefined) this.#ending = new AbortController();
    }
    if (!Number.isFinite(ms)) return;
    void later(this.#clock, ms, timer.signal, () => this.#end('duration'));
  }

  /** Releases the timer and the caller's signal, and aborts every running call. */
  close(): void {
    this.#timer.abort(overReason());
    this.#outer.removeEventListener('abort', this.#onCancel);
    this.#end('closed');
  }

  #end(cause: StopCause): void {
    if (this.#cause === undefined || this.#cause === 'duration') this.#cause = cause;
    this.#controller.abort(overReason());
    this.#ending.abort(overReason());
    if (cause !== 'duration') this.#cancel.abort(overReason());
  }
}

/** Calls `act` in `ms`, unless the signal aborts first. Never rejects. */
export async function later(
  clock: Clock,
  ms: number,
  unless: AbortSignal,
  act: () => void,
): Promise<void> {
  await clock.sleep(ms, unless);
  if (!unless.aborted) act();
}

/**
 * A controller that aborts with `signal`. The caller ends the link: `AbortSignal.any()` would leave a dependant at a signal
 * that lives as long as its thread.
 */
export function linkedTo(signal: AbortSignal): {
  readonly controller: AbortController;
  readonly unlink: () => void;
} {
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return { controller, unlink: () => signal.removeEventListener('abort', onAbort) };
}

const STOPPED = Symbol('stopped');
export type Stopped = typeof STOPPED;

/** Waits for `work` or for `signal`, whichever is first, and ignores a later result. Rejects if `work` rejects first. */
export function orStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T | Stopped> {
  if (signal.aborted) {
    work.catch(() => undefined);
    return Promise.resolve(STOPPED);
  }
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(STOPPED);
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/**
 * Waits for work that may cost something, and that has to be recorded then: also after the signal, at most `graceMs` more.
 * Rejects if `work` rejects first.
 */
export async function orAbandoned<T>(
  work: Promise<T>,
  { signal, clock, graceMs }: { signal: AbortSignal; clock: Clock; graceMs: number },
): Promise<T | Stopped> {
  const done = await orStopped(work, signal);
  if (!isStopped(done)) return done;
  const ended = new AbortController();
  try {
    const late = clock.sleep(graceMs, ended.signal).then((): Stopped => STOPPED);
    return await Promise.race([work, late]);
  } finally {
    ended.abort(overReason());
  }
}

export function isStopped(value: unknown): value is Stopped {
  return value === STOPPED;
}
