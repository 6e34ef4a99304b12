import type { JsonObject } from '../core/json.ts';
import type { Transaction } from './sql-work.ts';

/**
 * One leg of a thread: from its start or resume until it ends, parks or is drained. A leg may be dispatched more than once;
 * the epoch of its thread decides which dispatch writes.
 */
export interface LegSpec {
  /** Names the leg in the whole fleet, at most 200 characters: `THREAD_ID#N`. */
  readonly legId: string;
  /** The thread. All legs of a thread name the same queue. */
  readonly threadId: string;
  readonly queue: string;
  /** 0 starts first, 9 last. Legs of one priority start in the order in which they were queued. */
  readonly priority: number;
  /** The leg does not start before this time (ISO 8601, UTC); null: as soon as there is room. */
  readonly notBefore: string | null;
  /** The tenant or account that limits per partition count; null: the common one. */
  readonly partition: string | null;
  /** Facts that the worker needs, at most 64 KiB as JSON. It is stored readably: no secrets. */
  readonly payload: JsonObject;
  /** Set in a leg that a schedule made: no thread exists yet. */
  readonly firing?: Firing;
}

export interface Firing {
  /** The name of the schedule. */
  readonly schedule: string;
  /** The time for which it fired (ISO 8601, UTC). A missed one fires later than this time. */
  readonly at: string;
}

/** Reason of the signal of a running leg. Both ask it to stop at the next safe point. */
export type LegStop = 'cancel' | 'drain';

/**
 * Runs a leg until it ended or parked. The reason of `signal` is a `LegStop`. A throw means that the leg did no lasting work:
 * it is tried again after a pause.
 */
export type RunLeg = (leg: LegSpec, signal: AbortSignal) => Promise<void>;

export interface WorkOptions {
  /** Names the worker in the fleet: the same after a restart, and never that of two living processes. */
  readonly workerId: string;
  /** Queues whose legs it runs. A queue that does not exist is made, without limits. */
  readonly queues: readonly string[];
  /** Legs that run at once, of all its queues together. */
  readonly slots: number;
  /** The pause between two looks for legs, in milliseconds (200). */
  readonly pollMs?: number;
  /** Tries of a leg whose run throws (3). Then it has failed. */
  readonly tries?: number;
  /** The pause before the second try, in milliseconds (1000). Each further pause is twice as long, at most a minute. */
  readonly pauseMs?: number;
  /** Receives what a person should know and no caller can be told: a refused row, a failed leg, a lost connection. */
  readonly report?: (notice: QueueNotice) => void;
}

export interface QueueNotice {
  readonly code: 'leg_refused' | 'leg_failed' | 'engine';
  /** The leg; null for a notice of the queue itself. */
  readonly legId: string | null;
  readonly message: string;
}

/** A process that runs legs. */
export interface Worker {
  readonly workerId: string;
  /** Returns the IDs of the legs that run here. */
  running(): readonly string[];
  /**
   * Starts no further leg, aborts the signal of each running one with `drain`, and waits at most `graceMs`. Legs that still
   * run then return to their queue. The worker has stopped when it returns; a second call waits for the first.
   */
  drain(graceMs: number): Promise<void>;
}

/** Limits of a queue in the whole fleet; null: no limit. */
export interface QueueLimits {
  /** Legs that run at once, at least as many as a partition may run. 0 pauses a queue without a limit per partition. */
  readonly global: number | null;
  /** Legs of one partition that run at once, at least 1. */
  readonly partition: number | null;
  /** Legs that start within a period. */
  readonly rate: { readonly legs: number; readonly seconds: number } | null;
}

export interface QueueState {
  readonly name: string;
  /** Legs that may start now. */
  readonly queued: number;
  /** Legs whose time has not come. */
  readonly delayed: number;
  readonly running: number;
  /** Legs that were refused or whose last try threw, until they are pruned. */
  readonly failed: number;
  /** When the oldest queued leg was queued (ISO 8601, UTC); null if none is. */
  readonly oldestAt: string | null;
  readonly limits: QueueLimits;
}

/** A schedule: each firing is a leg with the ID `NAME@TIME` and the thread `schedule/NAME`. */
export interface ScheduleSpec {
  /** Replaces a schedule of this name. */
  readonly name: string;
  /** Five fields, or six with seconds before them. */
  readonly cron: string;
  /** An IANA time zone, such as `Europe/Berlin`. */
  readonly timezone: string;
  readonly queue: string;
  /** The payload of each firing. */
  readonly payload: JsonObject;
  /** Firings that no worker was there for: `skip` drops them, `all` makes each up. */
  readonly missed: 'skip' | 'all';
}

/** A schedule as it is stored. */
export interface ScheduleState {
  readonly name: string;
  readonly paused: boolean;
  /** Null if another program stored what is no valid schedule. */
  readonly spec: ScheduleSpec | null;
}

/**
 * The queue of a fleet. It dispatches each leg at least once and orders, delays and limits; that one process writes a thread
 * is up to the thread's epoch. Methods throw `invalid_input` for a value that breaks the rules of its type, and
 * `storage_failed` if the server fails.
 */
export interface FleetQueue {
  /**
   * Queues a leg when the transaction commits, and never if it rolls back. Returns false if there is nothing to add: the
   * leg ID was used before, or a leg of the thread is queued and has not started. That leg then takes the earlier time and
   * the more urgent priority of both, and does not start before the commit, so that it sees what the transaction wrote.
   */
  enqueueLeg(tx: Transaction, leg: LegSpec): Promise<boolean>;
  /** Removes a queued leg; the signal of a running one is aborted with `cancel`. A leg that ended stays as it is. */
  cancelLeg(legId: string): Promise<void>;
  /** Runs legs in this process until the worker is drained. A process has at most one worker. */
  work(options: WorkOptions, run: RunLeg): Promise<Worker>;
  /**
   * Returns the running legs of a dead worker to their queues, and their number. A leg whose thread has a queued leg ends
   * instead. The caller knows that the worker is dead, or that it may write no more.
   */
  redispatch(workerId: string): Promise<number>;
  /** Returns the workers that run legs, in any order, also those that are dead. */
  owners(): Promise<readonly string[]>;
  /**
   * Returns the given threads that have no queued leg, and none that one of these workers runs. Something other than
   * the queue has then removed or damaged their leg.
   */
  withoutLeg(
    threads: readonly Pick<LegSpec, 'threadId' | 'queue'>[],
    workers: readonly string[],
  ): Promise<readonly string[]>;
  /** Adds a schedule, or replaces the one of this name, which stays paused if it is. */
  schedule(spec: ScheduleSpec): Promise<void>;
  /** Removes a schedule. Returns false if there is none of this name. */
  unschedule(name: string): Promise<boolean>;
  /** Keeps a schedule from firing at its times, or lets it fire again. Returns false if there is none of this name. */
  pause(name: string, isPaused: boolean): Promise<boolean>;
  /** Returns all schedules, by name. */
  schedules(): Promise<readonly ScheduleState[]>;
  /** Fires a schedule now, apart from its times, also if it is paused. Throws `item_not_found` if there is none of this name. */
  fire(name: string): Promise<void>;
  /** Sets the limits of a queue, which is made if it does not exist. Workers follow within seconds. */
  limit(queue: string, limits: QueueLimits): Promise<void>;
  /** Returns all queues, by name. */
  queues(): Promise<readonly QueueState[]>;
  /** Forgets legs that ended before this time (ISO 8601, UTC), and returns their number. Their IDs may be used again. */
  prune(olderThan: string): Promise<number>;
  /** Releases connections. A worker is drained before. */
  close(): Promise<void>;
}
