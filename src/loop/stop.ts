import type { Clock } from '../core/clock.ts';

type StopCause = 'cancelled' | 'duration' | 'closed';

/**
 * What ends a running call: somebody's cancellation, or the duration limit. The signal is replaced when a hook
 * extends the duration, so read it anew for each call.
 */
export class Stop {
  readonly #clock: Clock;
  readonly #outer: AbortSignal;
  readonly #onCancel = (): void => this.#end('cancelled');
  #controller = new AbortController();
  readonly #cancel = new AbortController();
  #timer = new AbortController();
  #cause: StopCause | undefined;

  constructor(clock: Clock, outer: AbortSignal) {
    this.#clock = clock;
    this.#outer = outer;
    if (outer.aborted) this.#end('cancelled');
    else outer.addEventListener('abort', this.#onCancel, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Aborts with a cancellation only: hooks that decide about a used-up duration still run. */
  get cancelSignal(): AbortSignal {
    return this.#cancel.signal;
  }

  get cause(): StopCause | undefined {
    return this.#cause;
  }

  /** What the caller gave as the reason of its abort. */
  get cancelReason(): string {
    const { reason } = this.#outer as { readonly reason: unknown };
    return typeof reason === 'string' ? reason : 'the thread was cancelled';
  }

  /** Aborts what runs after `ms`, counted from now; a duration stop before it is forgotten. */
  arm(ms: number): void {
    this.#timer.abort();
    const timer = new AbortController();
    this.#timer = timer;
    if (this.#cause === 'duration') {
      this.#cause = undefined;
      this.#controller = new AbortController();
    }
    if (!Number.isFinite(ms)) return;
    void later(this.#clock, { ms, unless: timer.signal }, () => this.#end('duration'));
  }

  /** Lets go of the timer and of the caller's signal, and ends whatever still runs. */
  close(): void {
    this.#timer.abort();
    this.#outer.removeEventListener('abort', this.#onCancel);
    this.#end('closed');
  }

  #end(cause: StopCause): void {
    if (this.#cause === undefined || this.#cause === 'duration') this.#cause = cause;
    this.#controller.abort();
    if (cause !== 'duration') this.#cancel.abort();
  }
}

/** Does `act` after `ms`, unless the signal aborts before. Never rejects. */
export async function later(
  clock: Clock,
  { ms, unless }: { readonly ms: number; readonly unless: AbortSignal },
  act: () => void,
): Promise<void> {
  await clock.sleep(ms, unless);
  if (!unless.aborted) act();
}

const STOPPED = Symbol('stopped');
export type Stopped = typeof STOPPED;

/**
 * Waits for `work`, or for `signal`, whichever is first; what `work` comes to afterwards is ignored. Rejects when
 * `work` does.
 */
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

export function isStopped(value: unknown): value is Stopped {
  return value === STOPPED;
}
