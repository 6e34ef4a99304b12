import type { LaunchedThread } from '../../threads/ports.ts';
import type { ExecuteDirectiveRequest } from '../presets.ts';

/** The database of a fleet. */
export interface FleetInit {
  readonly database: string;
  /** True to add the root of this user where another one has a fleet; else that is refused with `already_exists`. */
  readonly join?: boolean | undefined;
}

/** A fleet that was made. */
export interface FleetMade {
  /** URL of the store, without its password. */
  readonly database: string;
  readonly root_key_id: string;
  /** The file that names the store. */
  readonly config_path: string;
}

/** The public key that certifies the workers of a fleet. */
export interface FleetRoot {
  readonly key_id: string;
  readonly pem: string;
}

export interface EnrollOptions {
  /** Name of the worker in lists. */
  readonly label: string;
  /** Days for which its certificate counts. */
  readonly days: number;
  /** True to make a new key that secret inputs are sealed to from now on. Workers that were enrolled before cannot open them. */
  readonly newPoolKey?: boolean;
}

/** A worker that may join the fleet. */
export interface EnrolledWorker {
  /** A secret: a process that has it can be the worker. */
  readonly token: string;
  readonly key_id: string;
  readonly label: string;
  /** ISO 8601 UTC. */
  readonly not_after: string;
}

export interface FleetRunOptions {
  /** Default: `default`. */
  readonly queue?: string;
  /** 0 starts first, 9 last. Default: 5. */
  readonly priority?: number;
  /** The tenant or account that limits per partition count. */
  readonly partition?: string;
  /** The thread does not start before this time (ISO 8601). */
  readonly at?: string;
  /** The files that the thread works on; absent: what the configuration names, which is `auto` by default. */
  readonly source?: SourceChoice;
  /** The repository from which workers fetch the commit; absent: a remote that has it. */
  readonly sourceUrl?: string;
  /** True to send the last commit although files differ from it. */
  readonly allowDirty?: boolean;
}

export const SOURCE_CHOICES = ['auto', 'none', 'git', 'bundle'] as const;
/**
 * The files that threads of a fleet work on. `none`: a new folder. `git`: the last commit of the project's repository, which
 * workers fetch from a remote. `bundle`: the commit travels with the thread. `auto`: `git` if the commit is on a remote.
 */
export type SourceChoice = (typeof SOURCE_CHOICES)[number];

/** Limits of a queue in the whole fleet; null: no limit. */
export interface FleetQueueLimits {
  readonly global: number | null;
  readonly partition: number | null;
  readonly rate: { readonly legs: number; readonly seconds: number } | null;
}

export interface FleetQueueState {
  readonly name: string;
  readonly queued: number;
  readonly delayed: number;
  readonly running: number;
  readonly failed: number;
  /** When the oldest queued leg was queued (ISO 8601, UTC); null if none is. */
  readonly oldest_at: string | null;
  readonly paused: boolean;
  readonly limits: FleetQueueLimits;
}

export interface FleetWorker {
  readonly worker_id: string;
  readonly labels: readonly string[];
  /** True if its key has a certificate of a root that is trusted here. */
  readonly certified: boolean;
  readonly version: string;
  readonly draining: boolean;
  /** Seconds until its lease runs out; negative once it has. */
  readonly lease_seconds_left: number;
  /** Threads that it runs. */
  readonly threads: readonly string[];
}

export interface FleetStatus {
  /** URL of the store, without its password. */
  readonly database: string;
  /** Duration of a worker's lease. */
  readonly lease_seconds: number;
  readonly workers: readonly FleetWorker[];
  readonly queues: readonly FleetQueueState[];
}

/** A fleet of this machine for a try. */
export interface FleetTry {
  /** Labels of its workers. */
  readonly workers: readonly string[];
  /** Stops its workers and its server, and gives the project its own threads back. */
  stop(): Promise<void>;
}

/** The fleet that shares the store of the project. Methods throw `fleet_unavailable` if there is none. */
export interface FleetService {
  /** Makes the tables of a fleet and its root key, and writes the store into the configuration. Can be repeated. */
  init(options: FleetInit): Promise<FleetMade>;
  /** Returns the key of the root. Throws `key_missing` where no fleet was made. */
  root(): Promise<FleetRoot>;
  enroll(options: EnrollOptions): Promise<EnrolledWorker>;
  /** Starts a server and two workers on this machine. Throws `already_exists` if the project has a store. */
  try(): Promise<FleetTry>;
  /** Prepares a thread here and queues it for a worker. */
  submit(request: ExecuteDirectiveRequest, options?: FleetRunOptions): Promise<LaunchedThread>;
  status(): Promise<FleetStatus>;
  /** Asks a worker to finish its legs and leave. Throws `item_not_found` if there is none of this ID. */
  drain(workerId: string): Promise<void>;
  /** Sets limits of a queue; those that are not named stay. */
  limit(queue: string, limits: Partial<FleetQueueLimits>): Promise<FleetQueueState>;
  /** Starts no further legs of a queue. */
  pause(queue: string): Promise<FleetQueueState>;
  /** Starts legs of a paused queue again. */
  unpause(queue: string): Promise<FleetQueueState>;
}
