import type { Work } from './sql-work.ts';

/** The row of a worker: it may own threads for as long as the row exists. */
export interface WorkerRow {
  readonly worker_id: string;
  /** Counts renewals. A row with the same count has had no sign of life. */
  readonly beat: number;
  readonly labels: readonly string[];
  readonly version: string;
  /** True once it was asked to finish its legs and leave. */
  readonly is_draining: boolean;
  /** True if the lease has run out by the clock of the database. That alone does not end it. */
  readonly is_expired: boolean;
  /** Seconds until the lease runs out by the clock of the database; negative once it has. */
  readonly seconds_left: number;
}

export interface WorkerFacts {
  readonly workerId: string;
  readonly labels: readonly string[];
  readonly version: string;
  /** The duration of a lease from its last renewal, in milliseconds. */
  readonly leaseMs: number;
}

/** The answer to a renewal. */
export interface Renewal {
  /** As in {@link WorkerRow}. */
  readonly is_draining: boolean;
  /**
   * True for the first living workers by ID, which watch all: if each did, the reads would grow with the square of their
   * number.
   */
  readonly is_watching: boolean;
}

/** The leases of a fleet's workers, by the clock of the store. */
export interface Leases {
  /** Adds the row of a worker that starts. Refused with `already_exists` for an ID that has a row. */
  add(facts: WorkerFacts): Promise<void>;
  /** Renews a lease; undefined if its row was removed, after which the worker owns nothing. */
  renew(workerId: string, leaseMs: number): Promise<Renewal | undefined>;
  /** Removes a worker that has stopped by itself. */
  remove(workerId: string): Promise<void>;
  /**
   * Removes a worker whose lease has run out and that has not renewed it since the caller saw this beat; false if it has,
   * or if another caller removed it.
   */
  removeSilent(seen: Pick<WorkerRow, 'worker_id' | 'beat'>): Promise<boolean>;
  /** Asks a worker to finish its legs and leave; false if there is none of this ID. */
  askToDrain(workerId: string): Promise<boolean>;
  /** Returns all workers, by ID. */
  list(): Promise<readonly WorkerRow[]>;
}

/** Tells a fleet's registry which worker runs a thread. */
export interface ThreadLeases {
  /**
   * Throws `thread_locked` if another worker that has a row runs the thread. True if that worker's row was removed, false
   * if no worker runs it or this one.
   */
  assertRemoved(threadId: string): Work<boolean>;
  /** Notes which worker runs the thread from now on. */
  note(threadId: string): Work<void>;
}
