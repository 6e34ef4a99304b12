import type { Clock } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { Leases, WorkerFacts } from '../../kernel/storage/worker-leases.ts';

export interface WorkerLeaseOptions extends WorkerFacts {
  readonly leases: Pick<Leases, 'add' | 'renew' | 'remove'>;
  readonly clock: Pick<Clock, 'monotonic' | 'sleep'>;
}

/** Interval of renewals, in milliseconds. */
const RENEW_MS = 1000;

/**
 * The lease of this process. It counts from before a renewal was asked for, by this process's own monotonic clock: that is
 * never later than the database counts, so this worker stops before another one may begin.
 */
export class WorkerLease {
  readonly #options: WorkerLeaseOptions;
  readonly #stopped = new AbortController();
  #renewedAt = 0;
  #isRemoved = false;
  #isWatching = false;
  #isDraining = false;

  constructor(options: WorkerLeaseOptions) {
    this.#options = options;
  }

  /** Adds this worker to the fleet. Call {@link keep} next. */
  async take(): Promise<void> {
    const at = this.#options.clock.monotonic();
    await this.#options.leases.add(this.#options);
    this.#renewedAt = at;
  }

  /** Renews the lease each second until {@link release}, or until it was removed. An outage is waited out. */
  async keep(): Promise<void> {
    while (!this.#stopped.signal.aborted && !this.#isRemoved) {
      await this.#options.clock.sleep(RENEW_MS, this.#stopped.signal);
      if (!this.#stopped.signal.aborted) await this.renew().catch(() => undefined);
    }
  }

  /** Renews the lease once. Throws what the database throws; then the lease runs on as it was. */
  async renew(): Promise<void> {
    const { leases, clock, workerId, leaseMs } = this.#options;
    const at = clock.monotonic();
    const renewal = await leases.renew(workerId, leaseMs);
    if (renewal === undefined) {
      this.#isRemoved = true;
      return;
    }
    this.#renewedAt = at;
    this.#isWatching = renewal.is_watching;
    this.#isDraining = renewal.is_draining;
  }

  /** True while this worker is one of those that watch all. */
  get isWatching(): boolean {
    return this.#isWatching && this.mayStart;
  }

  /** True once a person has asked this worker to leave. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** True while this worker may begin what has an effect outside of it. */
  get mayStart(): boolean {
    const { clock, leaseMs } = this.#options;
    return !this.#isRemoved && clock.monotonic() - this.#renewedAt < leaseMs;
  }

  /** Milliseconds for which this worker may begin effects; 0 if it may not. */
  get leftMs(): number {
    const { clock, leaseMs } = this.#options;
    return this.#isRemoved ? 0 : Math.max(0, this.#renewedAt + leaseMs - clock.monotonic());
  }

  /** True once the fleet has removed this worker: its threads belong to others, and it has to stop. */
  get isRemoved(): boolean {
    return this.#isRemoved;
  }

  /** Throws `thread_locked` unless {@link mayStart}. */
  assertMayStart(): void {
    if (this.mayStart) return;
    const { workerId } = this.#options;
    throw new RyeError('thread_locked', `worker ${workerId} has lost its lease`, {
      hint: 'Another worker continues its threads. Start it again: rye worker',
      details: { worker_id: workerId },
    });
  }

  /** Leaves the fleet. */
  async release(): Promise<void> {
    this.#stopped.abort();
    if (!this.#isRemoved) await this.#options.leases.remove(this.#options.workerId);
  }
}
