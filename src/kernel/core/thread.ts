import { type ErrorInfo, RyeError } from './errors.ts';
import type { WorktreeChanges } from './isolation.ts';
import type { JsonObject } from './json.ts';
import type { Cost, FamilyCost } from './usage.ts';

export const THREAD_STATUSES = [
  'created',
  'running',
  'suspended',
  'completed',
  'error',
  'cancelled',
  'continued',
] as const;
export type ThreadStatus = (typeof THREAD_STATUSES)[number];

/** Statuses that a thread does not leave by itself: only a resume runs it again. */
export type FinalStatus = Extract<ThreadStatus, 'completed' | 'error' | 'cancelled' | 'continued'>;

const NEXT: Record<ThreadStatus, readonly ThreadStatus[]> = {
  // created → cancelled and error: a start that fails or is cancelled before the loop runs
  created: ['running', 'error', 'cancelled'],
  running: ['completed', 'error', 'cancelled', 'continued', 'suspended'],
  suspended: ['running', 'error', 'cancelled', 'continued'],
  // a resume runs a finished thread again; one whose log is archived gains a successor
  completed: ['running', 'continued'],
  error: ['running', 'continued'],
  cancelled: ['running', 'continued'],
  continued: [],
};

function canTransition(from: ThreadStatus, to: ThreadStatus): boolean {
  return NEXT[from].includes(to);
}

/** Refuses a status change that the state machine does not have. */
export function assertTransition(threadId: string, from: ThreadStatus, to: ThreadStatus): void {
  if (canTransition(from, to)) return;
  throw new RyeError('illegal_transition', `thread ${threadId} cannot go from ${from} to ${to}`, {
    details: { thread_id: threadId, from, to },
  });
}

/** True while a process is expected to own the thread. */
export function isActive(status: ThreadStatus): boolean {
  return status === 'created' || status === 'running';
}

export function isFinal(status: ThreadStatus): status is FinalStatus {
  return status !== 'created' && status !== 'running' && status !== 'suspended';
}

/** Verification of a thread's items: `unverified` when a developer allowed unsigned project items. */
export type Integrity = 'verified' | 'unverified';

/** One row of the registry. Times are ISO 8601 UTC, money USD. */
export interface ThreadRecord {
  readonly thread_id: string;
  readonly directive: string;
  readonly parent_id: string | null;
  readonly status: ThreadStatus;
  readonly created_at: string;
  readonly updated_at: string;
  readonly completed_at: string | null;
  readonly pid: number | null;
  /** Kernel start time of `pid`, so that a reused pid is not taken for the owner. */
  readonly process_start: string | null;
  readonly host: string | null;
  /** Fencing token: raised whenever another process takes the thread over. */
  readonly epoch: number;
  readonly heartbeat_at: string | null;
  readonly model: string | null;
  readonly cost: Cost;
  readonly spawn_count: number;
  readonly result: string | null;
  readonly outputs: JsonObject | null;
  readonly error: ErrorInfo | null;
  readonly continuation_of: string | null;
  readonly continuation_thread_id: string | null;
  readonly chain_root_id: string | null;
  /** Set by a canceller in any process; the owner watches it. */
  readonly cancel_requested: string | null;
  /** The worker of a fleet that runs it, or ran it last; null: a process that a person or a program started. */
  readonly worker: string | null;
}

/** A row of the registry with what the thread's descendants have cost. */
export interface CostedThread extends ThreadRecord {
  readonly cost: FamilyCost;
  /**
   * The label that it was started with. Without one: the question of a person, or the directive and the inputs of a child,
   * shortened; secrets are `***`.
   */
  readonly label?: string;
  /** It should be running, and its process has ended without finishing it. */
  readonly process_gone?: true;
  /**
   * The time (ISO 8601, UTC) from which the working time of a running thread counts: the start of its run less the time of
   * the runs before. Absent: its creation.
   */
  readonly working_since?: string;
}

/** Why a thread runs again: by a person or program, for a message, from another entry, after a crash or after an error. */
export type RunReason = 'resumed' | 'answered' | 'branched' | 'recovered' | 'retried';

/** One run of a thread, as thread.json lists it. */
export interface ThreadRun {
  /** Counts from 1. */
  readonly run: number;
  readonly reason: RunReason | 'started';
  readonly started_at: string;
  /** Absent while it runs. */
  readonly finished_at?: string;
  /** The head that it continued from; null: none. */
  readonly from_entry: string | null;
  readonly provider: string;
  readonly model: string;
  /** The thread's limits while it ran, as totals over all runs. */
  readonly limits: JsonObject;
  /** Usage since the end of the run before. */
  readonly cost: Cost;
  readonly status: ThreadStatus;
  /** The beginning of the result; the log has all of it. */
  readonly result?: string;
  readonly error?: ErrorInfo;
}

/** Result of `rye execute directive`; field names are public interface. */
export interface ThreadResult {
  readonly success: boolean;
  readonly thread_id: string;
  readonly directive: string;
  readonly status: ThreadStatus;
  readonly result: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
  readonly cost: FamilyCost;
  readonly model: string;
  /** Set for a suspended thread that continues once people have decided. */
  readonly waiting_for?: 'approval';
  /** Ids of the requests that it waits for. */
  readonly approvals?: readonly string[];
  readonly parent_thread_id?: string;
  readonly continuation_thread_id?: string;
  readonly children: readonly string[];
  /** Changes in its worktree; absent: it was not isolated. */
  readonly changes?: WorktreeChanges;
  /** Warnings about this run for people; absent: none. */
  readonly warnings?: readonly string[];
  readonly paths: {
    readonly thread: string;
    readonly transcript: string;
    readonly knowledge: string;
  };
}

/** Formats of `rye threads export`. */
export const EXPORT_FORMATS = ['md', 'html', 'jsonl', 'pi'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];
