import { abortText } from '../../core/abort.ts';
import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { ThreadEnv } from '../ports.ts';
import { beatMs, POLL_MS } from '../recovery/owner.ts';
import type { StartedThread } from './start.ts';

/** One reason to stop from two sources: the caller's signal and the flag that any process may set in the registry. */
export class Cancellation {
  readonly #controller = new AbortController();
  readonly #done = new AbortController();
  readonly #env: ThreadEnv;
  readonly #threadId: string;
  readonly #epoch: number;

  constructor(
    env: ThreadEnv,
    { threadId, record }: StartedThread,
    signal: AbortSignal | undefined,
  ) {
    this.#env = env;
    this.#threadId = threadId;
    this.#epoch = record.epoch;
    if (signal?.aborted) this.#cancel(signal.reason);
    signal?.addEventListener('abort', () => this.#cancel(signal.reason), {
      signal: this.#done.signal,
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the thread is to stop, if somebody asked. */
  get reason(): string | undefined {
    return this.signal.aborted ? String(this.signal.reason) : undefined;
  }

  /** Watches the registry and gives signs of life until {@link stop}. A registry that can't be read cancels nothing. */
  watch(): void {
    void this.#poll();
  }

  stop(): void {
    this.#done.abort();
  }

  async #poll(): Promise<void> {
    const { clock, store, config } = this.#env;
    const { staleSeconds } = (await config()).recovery;
    const everyMs = beatMs(staleSeconds);
    let beaten = clock.monotonic();
    // signs of life go on while a cancelled run settles
    while (!this.#done.signal.aborted) {
      await clock.sleep(POLL_MS, this.#done.signal);
      if (this.#done.signal.aborted) return;
      try {
        const reason = await store.registry.cancelRequested(this.#threadId);
        if (reason !== undefined) this.#cancel(reason);
        if (clock.monotonic() - beaten < everyMs) continue;
        beaten = clock.monotonic();
        await store.registry.heartbeat(this.#threadId, this.#epoch, isoTime(clock.now()));
      } catch (error) {
        // busy or gone: the next poll, or the next registry write of the run, will tell
        if (error instanceof RyeError && error.code === 'thread_locked') {
          this.#cancel('another process has taken the thread over');
        }
      }
    }
  }

  #cancel(reason: unknown): void {
    this.#controller.abort(abortText(reason) ?? 'interrupted');
  }
}
