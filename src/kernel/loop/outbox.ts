import type { EventDraft, EventType, LogEvent } from '../core/events.ts';

const DELTAS: ReadonlySet<EventType> = new Set<EventType>([
  'token_delta',
  'thinking_delta',
  'toolcall_delta',
]);
/** Events that may wait for the writer before a stream is held back. */
const HIGH_WATER = 128;

interface Waiter {
  /** Its drafts are `[start, end)` of the batch. */
  readonly start: number;
  readonly end: number;
  resolve(written: readonly LogEvent[]): void;
  reject(error: unknown): void;
}

/**
 * The way from the loop's concurrent phases to the one consumer: drafts leave in the order in which they came, in
 * as large batches as have gathered. A caller that needs an event to be durable waits for {@link write}.
 */
export class Outbox {
  #drafts: EventDraft[] = [];
  #waiters: Waiter[] = [];
  #inFlight: readonly Waiter[] = [];
  readonly #onFailure: () => void;
  #wake: (() => void) | undefined;
  #isWaking = false;
  #room: (() => void) | undefined;
  #closed = false;
  #failure: { readonly error: unknown } | undefined;

  constructor(onFailure: () => void) {
    this.#onFailure = onFailure;
  }

  /** Queues an event without waiting for it. */
  post(draft: EventDraft): void {
    if (this.#closed || this.#failure) return;
    this.#drafts.push(draft);
    this.#signalSoon();
  }

  /** Resolves to the written events, without deltas, once they are in the log. Rejects if the writer failed. */
  write(drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    if (drafts.length === 0) return Promise.resolve([]);
    return new Promise((resolve, reject) => {
      if (this.#failure) {
        reject(this.#failure.error);
        return;
      }
      const start = this.#drafts.length;
      this.#drafts.push(...drafts);
      this.#waiters.push({ start, end: this.#drafts.length, resolve, reject });
      this.#signal();
    });
  }

  /** True when a stream should wait for {@link room} before it posts more. */
  get isFull(): boolean {
    return this.#drafts.length >= HIGH_WATER;
  }

  /** Resolves once the consumer has taken what waits. One stream at a time. */
  room(): Promise<void> {
    if (this.#drafts.length === 0 || this.#failure) return Promise.resolve();
    return new Promise((resolve) => {
      this.#room = resolve;
      this.#signal();
    });
  }

  /** Ends {@link pump} after what is queued. */
  close(): void {
    this.#closed = true;
    this.#signal();
  }

  /** Nothing can be written any more: everyone who waits, now or later, gets `error`. */
  fail(error: unknown): void {
    if (this.#failure) return;
    this.#failure = { error };
    this.#drafts = [];
    for (const waiter of [...this.#inFlight, ...this.#waiters.splice(0)]) waiter.reject(error);
    this.#room?.();
    this.#onFailure();
    this.#signal();
  }

  /** Yields batches until closed. An error thrown in by the consumer fails the outbox instead of ending it. */
  async *pump(): AsyncGenerator<readonly EventDraft[], void, readonly LogEvent[] | undefined> {
    while (true) {
      while (this.#drafts.length > 0) {
        const drafts = this.#drafts;
        this.#inFlight = this.#waiters;
        this.#drafts = [];
        this.#waiters = [];
        this.#room?.();
        this.#room = undefined;
        try {
          settle(drafts, this.#inFlight, yield drafts);
        } catch (error) {
          this.fail(error);
        }
      }
      if (this.#closed) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Keeps the events of one network read in one batch: a batch costs far more than a delta in it. */
  #signalSoon(): void {
    if (!this.#wake || this.#isWaking) return;
    this.#isWaking = true;
    setImmediate(() => {
      this.#isWaking = false;
      this.#signal();
    });
  }

  #signal(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}

/** Hands each waiter its own events: deltas may have been merged, the others keep their order. */
function settle(
  drafts: readonly EventDraft[],
  waiters: readonly Waiter[],
  written: readonly LogEvent[] = [],
): void {
  if (waiters.length === 0) return;
  const kept = written.filter((event) => !DELTAS.has(event.event_type));
  const countKept = (from: number, to: number): number =>
    drafts.slice(from, to).filter((draft) => !DELTAS.has(draft.event_type)).length;
  let seen = 0;
  let next = 0;
  for (const waiter of waiters) {
    next += countKept(seen, waiter.start);
    const count = countKept(waiter.start, waiter.end);
    waiter.resolve(kept.slice(next, next + count));
    next += count;
    seen = waiter.end;
  }
}
