import type { ModelEvent, ModelStream } from './provider.ts';

/** Yields the events of an answer as they come together. It is told if the reader dropped events of the last batch. */
export type Batches = AsyncGenerator<readonly ModelEvent[], void, boolean>;

/**
 * The events of an answer one by one. Those that came together are handed out without a promise each. After an abort, what
 * remains of a batch is dropped.
 */
export class BatchedEvents implements ModelStream, AsyncIterableIterator<ModelEvent> {
  readonly #batches: Batches;
  readonly #signal: AbortSignal;
  #batch: readonly ModelEvent[] = [];
  #next = 0;

  constructor(batches: Batches, signal: AbortSignal) {
    this.#batches = batches;
    this.#signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  ready(): ModelEvent | undefined {
    if (this.#signal.aborted) return undefined;
    const event = this.#batch[this.#next];
    if (event !== undefined) this.#next += 1;
    return event;
  }

  next(): Promise<IteratorResult<ModelEvent, undefined>> {
    const value = this.ready();
    return value === undefined ? this.#pull() : Promise.resolve({ value, done: false });
  }

  async return(): Promise<IteratorResult<ModelEvent, undefined>> {
    this.#batch = [];
    await this.#batches.return();
    return { value: undefined, done: true };
  }

  async #pull(): Promise<IteratorResult<ModelEvent, undefined>> {
    for (;;) {
      const isDropped = this.#next < this.#batch.length;
      this.#batch = [];
      this.#next = 0;
      const { value, done } = await this.#batches.next(isDropped);
      if (done === true) return { value: undefined, done: true };
      this.#batch = value;
      const event = value[0];
      if (event === undefined) continue;
      this.#next = 1;
      return { value: event, done: false };
    }
  }
}

/** A stream that is opened by its first read. `open` never rejects. */
export class DeferredStream implements ModelStream, AsyncIterableIterator<ModelEvent> {
  readonly #open: () => Promise<ModelStream>;
  #opened: ModelStream | undefined;
  #iterator: AsyncIterator<ModelEvent> | undefined;
  #isClosed = false;

  constructor(open: () => Promise<ModelStream>) {
    this.#open = open;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  ready(): ModelEvent | undefined {
    return this.#opened?.ready?.();
  }

  next(): Promise<IteratorResult<ModelEvent, unknown>> {
    return this.#iterator?.next() ?? this.#first();
  }

  async return(): Promise<IteratorResult<ModelEvent, undefined>> {
    this.#isClosed = true;
    await this.#iterator?.return?.();
    return { value: undefined, done: true };
  }

  async #first(): Promise<IteratorResult<ModelEvent, unknown>> {
    const opened = await this.#open();
    if (this.#isClosed) return { value: undefined, done: true };
    this.#opened = opened;
    this.#iterator = opened[Symbol.asyncIterator]();
    return await this.#iterator.next();
  }
}
