import type { Clock } from '../../kernel/core/clock.ts';
import type { Leases, WorkerRow } from '../../kernel/storage/worker-leases.ts';

export interface ReaperOptions {
  readonly leases: Pick<Leases, 'list' | 'removeSilent'>;
  readonly clock: Pick<Clock, 'monotonic' | 'sleep'>;
  /** False while others of the fleet look. Absent: this process always looks. */
  readonly isWatching?: () => boolean;
}

/** A beat, in milliseconds. It is longer than the interval of renewals: a living worker shows itself in each. */
export const BEAT_MS = 1500;
/** Interval of looks, in milliseconds. */
const LOOK_MS = 500;
/** Beats that a worker has to be silent for after its lease has run out. */
const MISSED_BEATS = 2;
/** A pause between two looks after which the reaper was itself stopped, or its connection away. */
const LONGEST_GAP_MS = 3 * BEAT_MS;

interface Suspect {
  readonly beat: number;
  /** When it was first seen with this beat and a lease that had run out, by this process's monotonic clock. */
  readonly since: number;
}

/**
 * Removes workers that are gone. A lease that has run out is only a suspicion, because an outage of the database makes all
 * leases run out at once. A worker is gone if it stays silent for two beats of this process's own monotonic clock during
 * which this process has reached the database. Any number of processes may do this at once; two are enough.
 */
export class WorkerReaper {
  readonly #options: ReaperOptions;
  #suspects = new Map<string, Suspect>();
  #lookedAt: number | undefined;

  constructor(options: ReaperOptions) {
    this.#options = options;
  }

  /** Looks once, and returns the IDs of the workers that it removed. Throws what the database throws. */
  async look(): Promise<readonly string[]> {
    const { leases, clock } = this.#options;
    const before = clock.monotonic();
    const isLate = this.#lookedAt !== undefined && before - this.#lookedAt > LONGEST_GAP_MS;
    // what was seen before an outage proves nothing about the time since
    if (isLate) this.#suspects.clear();
    let rows: readonly WorkerRow[];
    try {
      rows = await leases.list();
    } catch (error) {
      this.#suspects.clear();
      throw error;
    }
    const now = clock.monotonic();
    // an answer that took this long may be older than the renewals since
    if (now - before > BEAT_MS) this.#suspects.clear();
    this.#lookedAt = now;
    const { kept, gone } = this.#sorted(rows, now);
    this.#suspects = kept;
    const removed: string[] = [];
    for (const row of gone) if (await leases.removeSilent(row)) removed.push(row.worker_id);
    return removed;
  }

  /** Looks until `signal` aborts, and passes on what was removed. An outage is waited out. */
  async watch(signal: AbortSignal, onRemoved: (workerId: string) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      await this.#options.clock.sleep(LOOK_MS, signal);
      if (signal.aborted) return;
      if (this.#options.isWatching?.() === false) continue;
      try {
        for (const workerId of await this.look()) await onRemoved(workerId);
      } catch {
        // the next look tries again
      }
    }
  }

  #sorted(
    rows: readonly WorkerRow[],
    now: number,
  ): { readonly kept: Map<string, Suspect>; readonly gone: readonly WorkerRow[] } {
    const kept = new Map<string, Suspect>();
    const gone: WorkerRow[] = [];
    for (const row of rows) {
      if (!row.is_expired) continue;
      const known = this.#suspects.get(row.worker_id);
      const suspect = known?.beat === row.beat ? known : { beat: row.beat, since: now };
      kept.set(row.worker_id, suspect);
      if (now - suspect.since >= MISSED_BEATS * BEAT_MS) gone.push(row);
    }
    return { kept, gone };
  }
}
