import { RyeError } from '../../../kernel/core/errors.ts';

export interface LogCourierOptions {
  /** Offset of the first byte that is added. */
  readonly start: number;
  /** Done before anything is sent. */
  readonly before?: (() => Promise<void>) | undefined;
  /**
   * Commits bytes at an offset; false if the log does not end there. Sending the same bytes again changes nothing. Throws
   * if another opening may write.
   */
  readonly send: (start: number, bytes: Buffer) => Promise<boolean>;
  /** Returns the committed length. Throws if another opening may write. */
  readonly committed: () => Promise<number>;
}

interface Piece {
  readonly start: number;
  readonly bytes: Buffer;
}

/** Bytes that were sent and are kept: more than a standby of PostgreSQL lacks in a normal failover. */
const MAX_KEPT_BYTES = 4 * 1024 * 1024;

/**
 * Sends what is added to a log, in order: one piece is under way at a time, and the next one has all that came since. A
 * server that has lost its last commits gets them again.
 */
export class LogCourier {
  readonly #options: LogCourierOptions;
  #start: number;
  #waiting: Buffer[] = [];
  #tasks: (() => Promise<void>)[];
  #kept: Piece[] = [];
  #keptBytes = 0;
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
        await this.#commit({ start: this.#start, bytes });
        this.#start += bytes.length;
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
    }
  }

  async #commit(piece: Piece): Promise<void> {
    const { send } = this.#options;
    if (!(await send(piece.start, piece.bytes))) {
      const again = [...(await this.#lost()), piece];
      for (const { start, bytes } of again) if (!(await send(start, bytes))) throw misplaced(start);
    }
    this.#kept.push(piece);
    this.#keptBytes += piece.bytes.length;
    while (this.#keptBytes > MAX_KEPT_BYTES)
      this.#keptBytes -= this.#kept.shift()?.bytes.length ?? 0;
  }

  /** Returns the pieces that the server had and has no more, such as after a failover to a standby that lacked them. */
  async #lost(): Promise<readonly Piece[]> {
    const end = await this.#options.committed();
    const at = this.#kept.findIndex(({ start }) => start === end);
    if (at < 0) throw misplaced(end);
    return this.#kept.slice(at);
  }
}

function misplaced(offset: number): RyeError {
  return new RyeError(
    'thread_locked',
    `the log ends at byte ${offset}, not where this process left it`,
    {
      hint: 'Another process may have written it, or the server has lost more than this process has kept.',
    },
  );
}
