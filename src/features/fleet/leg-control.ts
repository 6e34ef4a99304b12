import type { Clock } from '../../kernel/core/clock.ts';

/** A message of a worker to the process of a leg, one JSON line each. */
export type LegMessage =
  /**
   * The worker's lease was renewed: the leg may begin effects until this time of the machine's monotonic clock. A process
   * that was stopped reads it late, so a duration would grant time in which another worker runs the thread.
   */
  | { readonly kind: 'beat'; readonly until: number }
  /** The leg is to end at the next safe point. */
  | { readonly kind: 'drain' };

/** A message of the process of a leg to its worker, one JSON line each: its leg has ended, and it takes another order. */
export interface LegReply {
  /** The exit status that the process would end with. */
  readonly status: number;
}

/** Everything that the process of a leg is told at its start. It has secrets, so it comes through a pipe. */
export interface LegOrder {
  readonly format: 1;
  readonly url: string;
  readonly workerId: string;
  /** Private key of the worker, in PEM form. */
  readonly key: string;
  /** ID of the root that certified the key; absent: that of a worker of an older version. */
  readonly root?: string;
  /** Private keys that secret inputs are sealed to, in PEM form. */
  readonly pool: readonly string[];
  readonly threadId: string;
  /** The folder in which the project of the thread is made. */
  readonly folder: string;
  readonly waitInlineMs: number;
  /** The weakest sandbox with which commands may run. */
  readonly sandbox: 'off' | 'auto' | 'required';
  /** Protocols by which source trees may be fetched. */
  readonly sources: readonly string[];
  /** As in {@link LegMessage}. */
  readonly until: number;
}

/** The right of a leg to begin effects, as its worker grants it. */
export class LegLease {
  readonly #clock: Pick<Clock, 'monotonic'>;
  #until: number;
  #isDraining = false;
  readonly #waiting = new Set<() => void>();

  /** The clock is the same for all processes of the machine. */
  constructor(clock: Pick<Clock, 'monotonic'>, until: number) {
    this.#clock = clock;
    this.#until = until;
  }

  receive(message: LegMessage): void {
    if (message.kind === 'drain') this.#isDraining = true;
    else this.#until = message.until;
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  /** False once another worker may run the thread. */
  get mayStart(): boolean {
    return this.#clock.monotonic() < this.#until;
  }

  /** Resolves once the leg may begin an effect, or when `signal` aborts. */
  async granted(signal: AbortSignal): Promise<void> {
    while (!this.mayStart && !signal.aborted) {
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }
}
