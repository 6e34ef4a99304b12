import { abortText, isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import { isActive, type ThreadRecord } from '../../core/thread.ts';
import type { Registry } from '../../storage/store.ts';
import type { Configured, Process, Stored } from '../ports.ts';
import type { StartedThread } from './start.ts';

/** `gone`: its process has ended. `stale`: it may live, but gave no sign of life for too long. */
export type Death = 'gone' | 'stale';

/** Signs of life come at least this often, and this many times within the time after which an owner counts as dead. */
const BEAT_MS = 5000;
const BEATS = 4;
/** Interval at which an owner polls the registry: a heartbeat is at most this late. */
const POLL_MS = 250;
/** Beats that are waited for before an owner whose process may live is taken for dead. */
const MISSED_BEATS = 2;

/** Milliseconds between two signs of life. */
export function beatMs(staleSeconds: number): number {
  return Math.min(BEAT_MS, (staleSeconds * 1000) / BEATS);
}

/**
 * Reports whether a thread that should have an owner seems to have lost it; undefined while the owner lives, the thread
 * is queued, or it is ours. An owner that can't be seen from here, on another host or in another container, is judged by its heartbeat alone. A heartbeat proves something
 * only while clocks agree: call {@link silentOnes} before acting on `stale`.
 */
export function deathOf(
  { store, owner, clock }: Pick<Stored, 'store'> & Pick<Process, 'owner' | 'clock'>,
  record: ThreadRecord,
  staleSeconds: number,
): Death | undefined {
  const { status, heartbeat_at: beaten, updated_at: updated, worker } = record;
  // its fleet takes it over
  if (worker !== null) return undefined;
  const known = store.owners.ofRecord(record);
  if (!isActive(status) || !known || known.id === owner.id) return undefined;
  const state = store.owners.state(known);
  if (state === 'gone') return 'gone';
  // one that was given a process and has not begun gave no sign yet
  const heartbeat = beaten ?? (state === 'unknown' ? updated : null);
  if (heartbeat === null) return undefined;
  const [oldest, newest] = [-staleSeconds, staleSeconds].map((seconds) =>
    isoTime(clock.now() + seconds * 1000),
  );
  // one from the future was given before the clock was set back
  return heartbeat < (oldest ?? '') || heartbeat > (newest ?? '') ? 'stale' : undefined;
}

/**
 * Filters threads with stale owners to those without a heartbeat during two beats of the monotonic clock: a wall clock
 * that jumps, or another host's clock, can't make a living owner look dead.
 */
export async function silentOnes(
  { store, clock }: Pick<Stored, 'store'> & Pick<Process, 'clock'>,
  suspects: readonly ThreadRecord[],
  staleSeconds: number,
): Promise<readonly ThreadRecord[]> {
  const deadline = clock.monotonic() + MISSED_BEATS * (beatMs(staleSeconds) + POLL_MS);
  let silent = suspects;
  while (silent.length > 0 && clock.monotonic() < deadline) {
    await clock.sleep(POLL_MS);
    const now = await Promise.all(silent.map((one) => store.registry.get(one.thread_id)));
    silent = silent.filter((one, index) => {
      const seen = now[index];
      return seen?.heartbeat_at === one.heartbeat_at && seen.epoch === one.epoch;
    });
  }
  return silent;
}

/** One reason to stop from two sources: the caller's signal and the flag that any process may set in the registry. */
export class Cancellation {
  readonly #controller = new AbortController();
  readonly #done = new AbortController();
  readonly #env: Pick<Stored, 'store'> & Pick<Process, 'clock' | 'deathMarks'> & Configured;
  readonly #threadId: string;
  readonly #epoch: number;
  /** The file that appears when this process dies. */
  readonly #mark: string;

  constructor(
    env: Pick<Stored, 'store' | 'files'> & Pick<Process, 'clock' | 'deathMarks'> & Configured,
    { threadId, record }: StartedThread,
    signal: AbortSignal | undefined,
  ) {
    this.#env = env;
    this.#threadId = threadId;
    this.#epoch = record.epoch;
    this.#mark = env.files.deathMark(threadId, record.epoch);
    if (signal?.aborted) this.#cancel(signal.reason);
    signal?.addEventListener('abort', () => this.#cancel(signal.reason), {
      signal: this.#done.signal,
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The reason to stop, if the thread was asked to. */
  get reason(): string | undefined {
    return this.signal.aborted ? String(this.signal.reason) : undefined;
  }

  /** Watches the registry and gives signs of life until {@link stop}. A registry that can't be read cancels nothing. */
  watch(): void {
    void this.#poll();
  }

  stop(): void {
    this.#done.abort();
    this.#env.deathMarks?.releaseMark(this.#mark);
  }

  async #poll(): Promise<void> {
    const { clock, store, config } = this.#env;
    const everyMs = beatMs(config.recovery.staleSeconds);
    let beaten = clock.monotonic();
    let isMarked = false;
    // heartbeats continue while a cancelled run settles
    while (!this.#done.signal.aborted) {
      await clock.sleep(POLL_MS, this.#done.signal);
      if (this.#done.signal.aborted) return;
      // not sooner: many runs are over by then
      if (!isMarked) this.#env.deathMarks?.holdMark(this.#mark);
      isMarked = true;
      try {
        const reason = await cancelReason(store.registry, this.#threadId);
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

/** Returns the reason of a request to cancel the thread; undefined if there is none. */
export async function cancelReason(
  registry: Registry,
  threadId: string,
): Promise<string | undefined> {
  return (await registry.get(threadId))?.cancel_requested ?? undefined;
}
