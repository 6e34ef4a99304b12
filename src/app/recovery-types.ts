import type { ErrorInfo } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { PartialLimits } from '../core/limits.ts';
import type { ThreadResult, ThreadStatus } from '../core/thread.ts';

export interface ResumeThreadRequest {
  readonly threadId: string;
  /** What the model is told; absent: the continuation directive says it. */
  readonly message?: string;
  /** Id, or a unique start of it, of the entry to go on from. */
  readonly from?: string;
  /** Limits of the continuation; absent ones are what the thread has left. */
  readonly limits?: PartialLimits;
  /** Values of the directive's secret inputs, which are never stored. */
  readonly secrets?: Readonly<Record<string, string>>;
  readonly allowUnsigned?: boolean;
  readonly signal?: AbortSignal;
  /** Called with each event after it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}

/** What was done about a thread whose process died. */
export interface RecoveredThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  readonly action: 'failed' | 'cancelled' | 'finished' | 'never_ran' | 'released' | 'rebuilt';
  readonly reason: string;
  /** Bytes after the last signature of its log, which were moved to a file beside it. */
  readonly unverified_bytes?: number;
}

export interface RecoveryReport {
  readonly recovered: readonly RecoveredThread[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
  /** Results of the threads that went on, as `recovery.mode: resume` asks. */
  readonly resumed: readonly ThreadResult[];
}

/** What a repair of a project's databases did. */
export interface RepairReport {
  /** Damaged databases, which were moved aside. */
  readonly moved: readonly {
    readonly database: 'registry' | 'ledger' | 'index';
    readonly from: string;
    readonly to: string;
  }[];
  /** Threads that the registry lists again. */
  readonly threads: readonly string[];
  /** Threads whose budget is in the ledger again. */
  readonly budgets: readonly string[];
  /** Threads that were left without a process and have ended now. */
  readonly recovered: readonly RecoveredThread[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
  /** What could not be restored. */
  readonly notes: readonly string[];
}

export interface RetentionReport {
  readonly archived: readonly {
    readonly thread_id: string;
    readonly completed_at: string;
    readonly bytes_before: number | null;
    readonly bytes_after: number | null;
  }[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/** Threads that go on, and what becomes of those that are over. */
export interface RecoveryService {
  /** Goes on with a thread that is over, suspended or crashed, to its end. */
  resume(request: ResumeThreadRequest): Promise<ThreadResult>;
  /** Ends threads in order whose process died: one, or all of the project. */
  recover(options?: {
    readonly threadId?: string;
    /** Replaces the thread's damaged or forged thread.json by what its signed log says. */
    readonly rebuild?: boolean;
    readonly signal?: AbortSignal;
  }): Promise<RecoveryReport>;
  /** Rebuilds registry, ledger and search index from signed files; moves damaged ones aside. */
  repair(): Promise<RepairReport>;
  /** Archives the logs of threads that ended long ago. */
  collect(options: {
    readonly olderThanMs: number;
    readonly dryRun?: boolean;
  }): Promise<RetentionReport>;
}
