import type { Transaction } from './sql-work.ts';
import type { OwnerColumns } from './store.ts';

/** The place in which the legs of a thread run. */
export interface FleetPlace {
  readonly queue: string;
  /** 0 starts first, 9 last. */
  readonly priority: number;
  /** The tenant or account that limits per partition count; null: the common one. */
  readonly partition: string | null;
  /** SHA-256 hex of the bundle with its items. */
  readonly bundle: string;
  /** IDs of the roots whose workers may run its legs; absent: any. Not proven: the signed plan names them too. */
  readonly roots?: readonly string[];
}

/** A thread that is running by its row, and the process that runs it. */
export interface RunningThread extends OwnerColumns {
  readonly thread_id: string;
}

/** Queues a leg in a transaction. */
export type EnqueueLeg = (transaction: Transaction, place: FleetPlace) => Promise<unknown>;

/** The threads of a fleet, in its store. */
export interface FleetThreads {
  /** Makes a registered thread one of the fleet, without an owner, and queues its first leg, or does neither. */
  start(threadId: string, place: FleetPlace, now: string, enqueue: EnqueueLeg): Promise<void>;
  /** Queues a leg of a thread of the fleet; false for a thread that is none. */
  resume(threadId: string, enqueue: EnqueueLeg): Promise<boolean>;
  /** Returns where the legs of a thread run; undefined for a thread that is not of the fleet. */
  placeOf(threadId: string): Promise<FleetPlace | undefined>;
  /** Returns the worker that runs a thread, or ran it last, and if that worker is in the fleet; undefined: none has. */
  workerOf(
    threadId: string,
  ): Promise<{ readonly workerId: string; readonly isLiving: boolean } | undefined>;
  /** Returns threads that no worker runs and that may continue, the oldest first. */
  resting(limit: number): Promise<readonly string[]>;
  /** Returns the threads that a worker runs by their rows, with the processes that do. */
  runningOn(workerId: string): Promise<readonly RunningThread[]>;
  /** Returns threads that have not started, with their queues, the oldest first. */
  unstarted(
    limit: number,
  ): Promise<readonly { readonly threadId: string; readonly queue: string }[]>;
  /** Counts that a thread was taken over from a worker that is gone, and returns the number. */
  noteTakeover(threadId: string): Promise<number>;
  /** Forgets the take-overs of a thread whose leg has ended. */
  forgetTakeovers(threadId: string): Promise<void>;
  /** Keeps the certificate of a worker. */
  addCertificate(keyId: string, certificate: string): Promise<void>;
  /** Returns the certificates of workers by key ID. They prove themselves. */
  certificates(): Promise<ReadonlyMap<string, string>>;
  /** Keeps the statement of a root about the key that secret inputs are sealed to. */
  addPool(poolId: string, statement: string): Promise<void>;
  /** Returns these statements. They prove themselves. */
  pools(): Promise<readonly string[]>;
  /** Keeps the sealed secret inputs of a thread until it has ended. */
  putSealed(threadId: string, sealed: string): Promise<void>;
  sealedOf(threadId: string): Promise<string | undefined>;
  /** Deletes the sealed secret inputs of all threads that have ended, with those that continue them. */
  dropSealed(): Promise<void>;
  close(): void;
}
