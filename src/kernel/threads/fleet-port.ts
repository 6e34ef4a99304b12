import type { PlannedWorktree, PushedChanges } from '../core/isolation.ts';
import type { PlannedFleet } from '../core/plan.ts';

/** The fleet that shares the store. */
export interface Fleet {
  /** Queues the first leg of a registered thread, when its plan names the fleet. */
  start(threadId: string, place: PlannedFleet): Promise<void>;
  /** Queues another leg of a thread; false for one that is not of the fleet. */
  resume(threadId: string): Promise<boolean>;
  /** Keeps secret inputs for the workers that will run a thread; absent: they cannot be sent. */
  readonly seal?: ((sealed: SecretsToSend) => Promise<void>) | undefined;
  /** Set while this process runs a leg. */
  readonly leg?: LegControl | undefined;
}

/** Values of secret inputs of a thread that a worker will run. */
export interface SecretsToSend {
  readonly threadId: string;
  readonly place: PlannedFleet;
  readonly names: readonly string[];
  readonly secrets: Readonly<Record<string, string>>;
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
  /** The worktrees that this process has made, by path: what is in them is newer than what was saved. */
  readonly worktrees: Map<string, SavingWorktree>;
  /** Pushes the content of a worktree to where the source came from; resolves to the reason if it was refused. */
  readonly push?: ((pushed: WorktreePush) => Promise<PushedChanges | string>) | undefined;
}

/** A worktree whose content other machines may need. */
export interface SavingWorktree {
  /** Keeps its content, if it has changed since the last call. */
  save(): Promise<void>;
}

export interface WorktreePush {
  readonly threadId: string;
  readonly worktree: PlannedWorktree;
  /** The commit that an earlier run has pushed. */
  readonly before: string | undefined;
}
