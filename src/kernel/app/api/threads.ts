import type { AcceptedRisk } from '../../core/capability.ts';
import type { ActiveTurn, Delivery, DeliveryMode, DeliveryReport } from '../../core/delivery.ts';
import type { ErrorInfo } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { CostedThread, ThreadRecord, ThreadResult, ThreadStatus } from '../../core/thread.ts';
import type { KilledThread } from '../../threads/family/cancel.ts';
import type { SentDelivery } from '../../threads/family/deliver.ts';
import type { WaitReport } from '../../threads/family/wait.ts';
import type { LaunchedThread } from '../../threads/ports.ts';
import type { ThreadDocument } from '../../threads/thread-document.ts';
import type { ExecuteDirectiveRequest } from '../presets.ts';
import type { ApprovalAttendant } from './approvals.ts';

export interface ExecuteToolRequest {
  readonly toolId: string;
  readonly params?: JsonObject;
  readonly allowUnsigned?: boolean;
  readonly acknowledge?: readonly AcceptedRisk[];
  readonly signal?: AbortSignal;
}

export interface ToolRunResult {
  readonly success: boolean;
  readonly tool: string;
  readonly result: string;
  readonly data?: JsonObject;
  readonly duration_ms: number;
}

/** A thread of a list. */
export interface ListedThread extends CostedThread {
  /** In a list of sessions: the threads of one that was handed off, from the first. */
  readonly chain?: readonly string[];
}

export interface ThreadListFilter {
  readonly active?: boolean;
  readonly status?: ThreadStatus;
  readonly directive?: string;
  readonly parent?: string;
  /** Lists only threads whose parent is not in the registry: threads of people, and copied children. `parent` wins. */
  readonly roots?: boolean;
  readonly limit?: number;
  /** Lists a chain of handoffs as one row: its last thread, with the cost of all. */
  readonly sessions?: boolean;
}

export interface ThreadDetails {
  readonly thread: CostedThread;
  readonly document: ThreadDocument | null;
  readonly children: readonly CostedThread[];
  /** Messages that wait for it, or that a person has to judge. */
  readonly deliveries: readonly Delivery[];
  /** The run that is under way, as its owner last published it: what an active-turn steer is judged by. */
  readonly active_turn: ActiveTurn | null;
  readonly chain: readonly CostedThread[];
  readonly paths: {
    readonly thread: string;
    readonly transcript: string;
    readonly knowledge: string;
  };
  /** One sentence that explains a state a person may wonder about, such as a dead owner. */
  readonly explanation: string | null;
  /** Parts of its log that no signature covers. Nothing in them counts for the thread. */
  readonly unverified: readonly UnverifiedPart[];
}

/** Bytes of a log that no signature covers. */
export interface UnverifiedPart {
  /** In the thread's folder. */
  readonly file: string;
  /** Byte offset in the log. */
  readonly offset: number;
  readonly bytes: number;
  /** Byte offset in `file`. */
  readonly from: number;
}

/** One line of such a part. */
export interface UnverifiedLine {
  readonly verified: false;
  readonly file: string;
  /** From 1, in its part. */
  readonly line: number;
  readonly text: string;
}

export interface ThreadsService {
  /** Resolves everything and changes nothing. With `needsModel`, throws if no model could run it, as without a key. */
  plan(
    request: ExecuteDirectiveRequest,
    options?: { readonly needsModel?: boolean },
  ): Promise<ThreadPlan>;
  /** Throws `provider_key_missing` if the model of a thread could not be called now. */
  assertModel(threadId: string): Promise<void>;
  /** Runs to the end. A thread that failed is a result; only a thread that could not be started throws. */
  execute(request: ExecuteDirectiveRequest): Promise<ThreadResult>;
  /**
   * Opens the databases, loads what calls a model and plans the request, so that its start takes less time. Changes nothing
   * and connects to no model; the start reads and checks everything again. Never fails.
   */
  warmUp(request?: ExecuteDirectiveRequest): Promise<void>;
  executeTool(request: ExecuteToolRequest): Promise<ToolRunResult>;
  /** Newest first. Reads the threads that it lists and their descendants, however many others there are. */
  list(filter?: ThreadListFilter): Promise<readonly ListedThread[]>;
  /** The number of threads that fit a filter, whose limit does not count. */
  count(filter?: ThreadListFilter): Promise<number>;
  /** The threads below these. */
  descendants(threadIds: readonly string[]): Promise<readonly ThreadRecord[]>;
  /** Folders of threads that the registry does not list, as after it was lost. */
  unlisted(): Promise<readonly string[]>;
  /** Resolves `@` (the last session), `@2` (the one before) or a unique prefix or suffix to a full id; one that only threads of one chain share, to the first of them. Refuses with `ambiguous` or `thread_not_found`. */
  resolveId(part: string): Promise<string>;
  /** Returns the IDs of the threads of a session, from its first to its last, by the ID of any of them. */
  session(threadId: string): Promise<readonly string[]>;
  show(threadId: string): Promise<ThreadDetails>;
  /**
   * Streams events in order; with `follow` until the current run has ended or `signal` aborts. Events of a later run are
   * not among them. A thread without a current run ends the stream after the events that it has.
   */
  logs(
    threadId: string,
    options?: { tail?: number; since?: number; follow?: boolean; signal?: AbortSignal },
  ): AsyncIterable<LogEvent | UnknownEvent>;
  /** The lines of a log that no signature covers, as they are on the disk. They may be forged. */
  unverified(threadId: string): AsyncIterable<UnverifiedLine>;
  verify(threadId: string): Promise<ThreadVerification>;
  /** Checks a thread's log against its signatures, for programs that show it. */
  mark(threadId: string): Promise<LogMark>;
  /**
   * Verifies, then makes what is on disk the newest known state, as after a restore on purpose. Refused if anything but
   * the head and the export fails; the export is written again from the signed log.
   */
  acceptHead(threadId: string): Promise<ThreadVerification>;
  /**
   * Checks the records of a run without a signing key, of the thread and its children, and signs them with the
   * user's key. With `dryRun` it signs nothing. Refused if one is not whole, still runs, or was signed before.
   */
  sign(threadId: string, options?: { readonly dryRun?: boolean }): Promise<SignedRecords>;
  /**
   * Copies a verified thread from a store that many machines share into the project, as a store of this machine keeps it.
   * Can be repeated. Refused with `transcript_tampered`, or with the code of another file that does not verify.
   */
  pull(threadId: string): Promise<PulledThread>;
}

/** A record as a person signs it. All that it states was written by the run itself. */
export interface RecordToSign {
  readonly thread_id: string;
  readonly parent_thread_id: string | null;
  readonly directive: string;
  readonly status: ThreadStatus;
  readonly started_at: string;
  readonly provider: string;
  readonly model: string;
  readonly inputs: JsonObject;
  readonly spend_usd: number;
  readonly turns: number;
  readonly calls: number;
  /** Counts the events of the log, as far as it is whole. */
  readonly events: number;
  readonly bytes: number;
  /** SHA-256 hex of the log's last checkpoint; null for a thread without a log. */
  readonly head_sha256: string | null;
}

/** Records of one run, and the key that signs them. */
export interface SignedRecords {
  readonly key_id: string;
  /** The key of the run, which is gone. */
  readonly run_key_id: string;
  /** False for a dry run. */
  readonly signed: boolean;
  readonly threads: readonly RecordToSign[];
}

/** A thread whose files are in the project. */
export interface PulledThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  /** The folder of its log and its other files. */
  readonly folder: string;
  /** Bytes of the log that signatures cover. */
  readonly bytes: number;
}
export type { KilledThread } from '../../threads/family/cancel.ts';
export type { WaitReport } from '../../threads/family/wait.ts';
export type { LaunchedThread } from '../../threads/ports.ts';

export interface WaitOptions {
  /** The first end is enough. */
  readonly any?: boolean;
  /** Undefined: for ever. 0: only looks. */
  readonly timeoutSeconds?: number | undefined;
  /** Also waits while people decide, and resumes threads of your key in other processes when they have. */
  readonly approvals?: boolean;
  readonly signal?: AbortSignal;
  /** Called with each thread once, when it has ended. */
  readonly onEnd?: (thread: ThreadRecord & { readonly label?: string }) => void;
  /** Called whenever the registry may have changed. */
  readonly onLook?: () => Promise<void> | void;
}

export interface ThreadTreeNode {
  readonly thread: CostedThread;
  /** USD, its own and that of all threads below it. */
  readonly subtree_spend: number;
  readonly children: readonly ThreadTreeNode[];
}

export type StatsKey = 'directive' | 'model' | 'day';

/** Sums over threads; each counts its own spend and tokens only, so that nothing is counted twice. */
export interface ThreadStats {
  /** The directive, the model, or the day (UTC). */
  readonly key: string;
  readonly threads: number;
  /** Not at their end: queued, running or suspended. */
  readonly open: number;
  readonly completed: number;
  readonly error: number;
  readonly cancelled: number;
  readonly continued: number;
  readonly spend: number;
  /** The part of `spend` that is an upper bound, for calls that a crash cut. Absent: none. */
  readonly estimated_spend_usd?: number;
  readonly tokens: number;
  readonly turns: number;
  readonly elapsed_seconds: number;
}

export interface LaunchOptions {
  /**
   * True if this process ends soon after. If no slot is free, a thread with secret inputs is then refused with
   * `spawn_failed`: they wait in the memory of this process and nowhere else.
   */
  readonly leaves?: boolean;
}

export interface LaunchedOptions {
  readonly signal: AbortSignal;
  readonly onNext?: ((threadId: string) => boolean) | undefined;
}

export interface StopOptions {
  /** Stops the threads below it too. */
  readonly tree?: boolean;
  readonly reason?: string;
}

/** Starts threads in other processes, and controls threads from any process. */
export interface ChildrenService {
  /** Starts a directive in a new process, or queues it. Refuses what can't be started. */
  launch(request: ExecuteDirectiveRequest, options?: LaunchOptions): Promise<LaunchedThread>;
  /** Starts one tool in a new process, under the same checks as a thread's call. */
  launchTool(request: ExecuteToolRequest): Promise<LaunchedThread>;
  /**
   * Runs a launched thread in this process, which was started for it. When it ends, `onNext` is offered the next queued
   * thread, which this process then has to run: it returns true to take it.
   */
  runLaunched(threadId: string, options: LaunchedOptions): Promise<ThreadResult>;
  /** Waits for threads and the chains that continue them, in any process. */
  wait(threadIds: readonly string[], options?: WaitOptions): Promise<WaitReport>;
  /** Asks a thread to stop; resolves to the threads that were asked. */
  cancel(threadId: string, options?: StopOptions): Promise<readonly string[]>;
  /** Ends a thread's process, then the thread. */
  kill(threadId: string, options?: StopOptions): Promise<readonly KilledThread[]>;
  /** The threads below one, or below every root: the newest `limit` of them. */
  tree(
    threadId?: string,
    options?: { readonly limit?: number },
  ): Promise<readonly ThreadTreeNode[]>;
  stats(by?: StatsKey): Promise<readonly ThreadStats[]>;
}

export interface ThreadVerification {
  readonly thread_id: string;
  readonly ok: boolean;
  /** The conversation comes from another program; absent: rye ran it. */
  readonly imported?: true;
  /** It ran without a signing key: this key signed its record later. */
  readonly signed_after_run?: { readonly key_id: string; readonly signed_at: string };
  readonly checks: readonly {
    readonly name:
      | 'thread.json'
      | 'transcript'
      | 'plan'
      | 'approvals'
      | 'capabilities'
      | 'knowledge'
      | 'artifacts'
      | 'origin'
      | 'head';
    readonly ok: boolean;
    readonly error?: ErrorInfo;
    /** Byte offset in the transcript where verification failed. */
    readonly offset?: number;
    readonly detail?: string;
    /** The thread that was checked; absent: the only one. */
    readonly thread_id?: string;
  }[];
  /** Comparisons that were not possible, and files that do not belong to the thread. */
  readonly warnings: readonly string[];
}

/** The result of checking a log before showing it. */
export interface LogMark {
  /** True if the log is what was signed; null if it was not checked: there is no log yet, or it is larger than 64 MiB. */
  readonly verified: boolean | null;
  /** Byte offset of the first part that no good signature covers. */
  readonly unverified_from?: number;
  readonly error?: ErrorInfo;
}

export type { SentDelivery } from '../../threads/family/deliver.ts';

export interface SendOptions {
  readonly mode?: DeliveryMode;
  /** The thread that sends: its words are data to the addressee. Absent: a person sends. */
  readonly from?: string;
}

/** Messages to threads. */
export interface DeliveriesService {
  /** Queues a message for a thread; it waits while the thread does not run. */
  send(threadId: string, message: string, options?: SendOptions): Promise<SentDelivery>;
  /** Lists the deliveries of a thread with every attempt and decision. */
  list(threadId: string): Promise<readonly DeliveryReport[]>;
  /**
   * Settles a delivery as a person decides, in any state except closed or in an active run. A crashed
   * thread is recovered first. A retry is a new delivery, which is returned.
   */
  resolve(threadId: string, seq: number, as: 'delivered' | 'dropped' | 'retry'): Promise<Delivery>;
}

export interface ResumeThreadRequest {
  readonly threadId: string;
  /** The message for the model. Default: the text of the continuation directive. */
  readonly message?: string;
  /** Id, or a unique prefix of it, of the entry to resume from. */
  readonly from?: string;
  /**
   * What this run is granted of a limit; the thread's new total is what was used and this. Absent ones are what the
   * thread has left. A run gets no more than a new thread would, unless a ceiling or `raiseLimits` allows it.
   */
  readonly limits?: PartialLimits;
  /** True to let `limits` go above what a new thread would be granted where no ceiling is configured; the log records it. */
  readonly raiseLimits?: boolean;
  /** Values of the directive's secret inputs, which are never stored; with `refresh` also of other inputs. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** Plans the thread's directive again, as its files are now; otherwise only stricter policy applies. */
  readonly refresh?: boolean;
  /** Risks that the refreshed plan may take. */
  readonly acknowledge?: readonly AcceptedRisk[];
  /** Runs a fork: a new root thread that begins with the path to `from`, or to the head. This thread is only read. */
  readonly fork?: boolean;
  readonly allowUnsigned?: boolean;
  /** Plays this recording from its start, for a thread that started with one. */
  readonly replayFrom?: string;
  /** The epoch of the run that this one continues: `thread_locked` if the thread has run since. Default: any. */
  readonly epoch?: number;
  /** May decide about calls that ask while the thread runs. */
  readonly attendant?: ApprovalAttendant;
  readonly signal?: AbortSignal;
  /** Called with each event after it is durable. Must not throw. */
  readonly onEvent?: (event: LogEvent | UnknownEvent) => void;
}

/** A crashed thread after recovery. */
export interface RecoveredThread {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  readonly action: 'failed' | 'cancelled' | 'finished' | 'never_ran' | 'released' | 'rebuilt';
  readonly reason: string;
  /** Bytes after the last signature of its log, which were moved to a file beside it. */
  readonly unverified_bytes?: number;
  /** USD that were booked for model calls which the crash cut: an upper bound. Absent: none. */
  readonly estimated_spend_usd?: number;
}

export interface RecoveryReport {
  readonly recovered: readonly RecoveredThread[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
  /** Results of the threads that were resumed because of `recovery.mode: resume`. */
  readonly resumed: readonly ThreadResult[];
}

/** The result of repairing a project's databases. */
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
  /** Crashed threads that are finalized now. */
  readonly recovered: readonly RecoveredThread[];
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
  /** Data that could not be restored. */
  readonly notes: readonly string[];
}

export interface RetentionReport {
  readonly archived: readonly {
    readonly thread_id: string;
    readonly completed_at: string;
    readonly bytes_before: number | null;
    readonly bytes_after: number | null;
  }[];
  /** Copies of files for undos that nothing can need any more. */
  readonly copies: { readonly files: number; readonly bytes: number };
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/** Resumes and recovers threads, and archives their logs. */
export interface RecoveryService {
  /** Resumes a finished, suspended or crashed thread and runs it to its end. */
  resume(request: ResumeThreadRequest): Promise<ThreadResult>;
  /** Finalizes crashed threads: one, or all of the project. */
  recover(options?: {
    readonly threadId?: string;
    /** Rebuilds the thread's damaged or forged thread.json from its signed log. */
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
