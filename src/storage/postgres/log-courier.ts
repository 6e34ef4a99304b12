export interface LogCourierOptions {
  /** Offset of the first byte that is added. */
  readonly start: number;
  /** Done before anything is sent. */
  readonly before?: (() => Promise<void>) | undefined;
  /** Commits bytes at an offset. Sending the same bytes again changes nothing. */
  readonly send: (start: number, bytes: Buffer) => Promise<void>;
}

/** Sends what is added to a log, in order: one piece is under way at a time, and the next one has all that came since. */
export class LogCourier {
  readonly #options: LogCourierOptions;
  #start: number;
  #waiting: Buffer[] = [];
  #tasks: (() => Promise<void>)[];
  #running: Promise<void> | undefined;
  #failure: Error | undefined;

  constructor(options: LogCourierOptions) {
    this.#options = options;
    this.#start = options.start;
    this.#tasks = options.before ? [options.before] : [];
    if (options.before) this.#go();
  }

  add(bytes: Buffer): void {
    this.#waiting.push(bytes);
    this.#go();
  }

  /** Adds a task that is done before the next piece is sent. */
  first(task: () => Promise<void>): void {
    this.#tasks.push(task);
    this.#go();
  }

  assertUsable(): void {
    if (this.#failure) throw this.#failure;
  }

  /** Resolves once everything that was added is committed. */
  async flush(): Promise<void> {
    await this.settled();
    this.assertUsable();
  }

  /** Like {@link flush}, also if something could not be committed. */
  async settled(): Promise<void> {
    while (this.#running) await this.#running;
  }

  #go(): void {
    if (this.#running || this.#failure !== undefined) return;
    this.#running = this.#send().finally(() => {
      this.#running = undefined;
    });
  }

  async #send(): Promise<void> {
    try {
      // what is added in the same turn of the event loop is one piece
      await Promise.resolve();
      for (;;) {
        const task = this.#tasks.shift();
        if (task) {
          await task();
          continue;
        }
        const bytes = Buffer.concat(this.#waiting.splice(0));
        if (bytes.length === 0) return;
        await this.#options.send(this.#start, bytes);
        this.#start += bytes.length;
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
    }
  }
}
