import type { PlannedFleet } from '../core/plan.ts';

/** The fleet that shares the store. */
export interface Fleet {
  /** Queues the first leg of a registered thread, when its plan names the fleet. */
  start(threadId: string, place: PlannedFleet): Promise<void>;
  /** Queues another leg of a thread; false for one that is not of the fleet. */
  resume(threadId: string): Promise<boolean>;
  /** Set while this process runs a leg. */
  readonly leg?: LegControl | undefined;
}

/** The rules of a leg. */
export interface LegControl {
  /** The thread of the leg. Children that run in the same process have no leg. */
  readonly threadId: string;
  /** The place for children that the thread starts in the background. */
  readonly place: PlannedFleet;
  /** Milliseconds that a call waits for threads before the leg ends. */
  readonly waitInlineMs: number;
  /** Why the leg is to end at the next safe point; undefined: it continues. */
  readonly parkReason: () => string | undefined;
  /** Resolves once an effect may begin: not while another worker may run the thread. */
  readonly mayStart: (signal: AbortSignal) => Promise<void>;
}
