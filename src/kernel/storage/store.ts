import type { ErrorInfo } from '../core/errors.ts';
import type {
  EventDraft,
  EventPayloads,
  LogEvent,
  LogHeader,
  UnknownEvent,
} from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import type { ThreadRecord, ThreadStatus } from '../core/thread.ts';
import type { Cost } from '../core/usage.ts';
import type { Checkpoint, LogHead } from '../log/checkpoint.ts';
import type { OpenedLog, VerifiedLog, VerifyOptions } from '../log/reader.ts';
import type { TreeEntry } from '../log/tree.ts';
import type { LogExtent, LogVerification } from '../log/verifier.ts';
import type { Appends } from './appends.ts';
import type { Approvals } from './approvals.ts';
import type { Bundles } from './bundles.ts';
import type { Deliveries } from './deliveries.ts';
import type { Ledger } from './ledger.ts';
import type { StoreMaintenance } from './maintenance.ts';
import type { SearchIndex } from './search-index.ts';
import type { ThreadDocuments } from './thread-documents.ts';

/**
 * Everything that a project keeps about its threads, and its search index. `describeStore` in `testing/conformance`
 * tests an implementation.
 */
export interface Store {
  readonly registry: Registry;
  readonly ledger: Ledger;
  readonly deliveries: Deliveries;
  readonly heads: LogHeads;
  readonly approvals: Approvals;
  /** Absent for a store whose running threads take no entries of programs. */
  readonly appends?: Appends;
  readonly logs: LogStore;
  readonly index: SearchIndex;
  readonly owners: Owners;
  /** The files of threads; absent for a store of one machine, where they are in the project's folder alone. */
  readonly documents?: ThreadDocuments;
  /** The items of threads that other machines run; absent for a store of one machine. */
  readonly bundles?: Bundles;
  /** Absent for a store whose databases rye can't inspect or replace. */
  readonly maintenance?: StoreMaintenance;
  /** Releases what the store holds open; the callers have closed its writers. Work may continue after the return. */
  close(options?: CloseOptions): void;
}

export interface CloseOptions {
  /**
   * True if the process ends right after: then a database file keeps its short write-ahead log, which spares two or three
   * syncs and which the next opening reads. Default: false.
   */
  readonly exiting?: boolean;
}

export interface RegisterParams {
  readonly threadId: string;
  readonly directive: string;
  readonly parentId: string | null;
  readonly model: string;
  readonly now: string;
  readonly owner: Owner | null;
  /** Refuse with `limit_spawns` when the parent already has this many children; counted in the same transaction. */
  readonly maxSpawns?: number;
  readonly continuationOf?: string;
  /** The owner runs the thread at once, as after {@link Registry.claim}. Default: false, the thread waits for a claim. */
  readonly isClaimed?: boolean;
}

/** Identity of the owner of a thread: opaque outside of the store. Equal ids name the same owner. */
export interface Owner {
  readonly id: string;
}

/** Progress of a thread at the end of a turn. */
export interface TurnProgress {
  readonly cost?: Cost;
  /** Given only once it is durable. */
  readonly head?: LogHead;
}

/** Maximum threads that may have a process at once: children of one parent, and threads of the project. */
export interface LaunchLimits {
  readonly maxChildren: number;
  readonly maxTotal: number;
}

export interface ThreadFilter {
  readonly active?: boolean;
  readonly status?: ThreadStatus;
  /** Exact id or a glob with `*`. */
  readonly directive?: string;
  readonly parentId?: string;
  /** `none`: threads without a parent. `unlisted`: threads whose parent is not in the table. */
  readonly parent?: 'none' | 'unlisted';
  /** Threads that no other one continues: the last ones of chains. */
  readonly isLast?: true;
  /** Threads that were started to continue this one, linked or not. */
  readonly continuationOf?: string;
  readonly limit?: number;
  /** Default: newest first. */
  readonly order?: 'oldest first';
}

export interface FinishParams {
  readonly status: ThreadStatus;
  readonly now: string;
  readonly cost: Cost;
  readonly result: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
  /** Refused with `thread_locked` if the row's epoch is higher: another owner took the thread over. */
  readonly epoch: number;
  /**
   * The run whose end this is; absent: the thread's current run. Given by a recovery that knows the run from the
   * log: a run that was claimed but wrote nothing leaves the end of the one before as it was.
   */
  readonly run?: number;
}

/**
 * The table of all threads of a project. Each method is one transaction; status changes go through the state
 * machine of `core/thread.ts` and are refused with `illegal_transition` otherwise.
 */
export interface Registry {
  /** Inserts a row, `created` or claimed. Refuses a taken id with `thread_id_taken`. */
  register(params: RegisterParams): Promise<ThreadRecord>;
  /** Inserts a row as it is, rebuilt from signed records; false if the registry lists the thread already. */
  restore(record: ThreadRecord): Promise<boolean>;
  /**
   * Replaces what a row has of the last run by a newer state, which is in run number `run`; false if the row is no longer
   * as `before`. What only the registry knows stays.
   */
  renew(before: ThreadRecord, record: ThreadRecord, run: number): Promise<boolean>;
  get(threadId: string): Promise<ThreadRecord | undefined>;
  /** Ids that start or end with `part`; at most `limit`, all if it is negative. */
  findIds(part: string, limit: number): Promise<readonly string[]>;
  list(filter: ThreadFilter): Promise<readonly ThreadRecord[]>;
  /** The number of threads that fit the filter, whose limit does not count. */
  count(filter: ThreadFilter): Promise<number>;
  /**
   * Takes the thread over: `created|suspended → running`, or running with a dead owner; raises the epoch. An owner
   * whose last sign of life is still `silentSince` counts as dead.
   */
  claim(
    threadId: string,
    owner: Owner,
    now: string,
    silentSince?: string | null,
  ): Promise<ThreadRecord>;
  /**
   * Takes an ended or suspended thread over for another run: `→ running`, the epoch raised, the end of the run before and
   * a request to cancel it cleared. Refused with `thread_locked` if it is no longer as `before`.
   */
  resume(before: ThreadRecord, owner: Owner, now: string): Promise<ThreadRecord>;
  /** Undoes {@link resume} for a run that could not begin: the thread has its earlier end again. */
  revert(before: ThreadRecord, epoch: number): Promise<void>;
  /** The number of the current or last run, from 1: each {@link resume} begins the next one. 0 for an unknown thread. */
  runOf(threadId: string): Promise<number>;
  /**
   * The thread as it was when one of its runs ended, also if it has been resumed since; undefined while that run goes
   * on. The ends of the last runs are kept; without the one asked for, the thread is returned as it is.
   */
  endOf(threadId: string, run: number): Promise<ThreadRecord | undefined>;
  /** A sign of life, and how far the thread has come if given. Refused with `thread_locked` to an owner that lost. */
  heartbeat(threadId: string, epoch: number, now: string, progress?: TurnProgress): Promise<void>;
  /** The end of the signed log when its owner last reported it: a log that ends before it was cut. */
  signedHead(threadId: string): Promise<LogHead | undefined>;
  /** Sets or clears the owner of a `created` thread: without one it is queued. False when it is not `created`. */
  assign(threadId: string, owner: Owner | null, now: string): Promise<boolean>;
  /** Takes a queued thread for a start, if it is still queued and the limits leave a slot. */
  takeLaunch(threadId: string, owner: Owner, limits: LaunchLimits, now: string): Promise<boolean>;
  /** Any status change with its result columns. */
  finish(threadId: string, params: FinishParams): Promise<ThreadRecord>;
  /** Asks a thread, or the end of its chain, to stop; keeps the first reason. Throws `thread_not_found`. */
  requestCancel(threadId: string, reason: string, now: string): Promise<void>;
  /**
   * Links both directions and marks the old thread `continued`, in one transaction; the successor must exist. With an
   * epoch it is refused with `thread_locked` to an owner that lost.
   */
  linkContinuation(
    threadId: string,
    successorId: string,
    now: string,
    epoch?: number,
  ): Promise<void>;
  /** From the root of the chain to its end. */
  chain(threadId: string): Promise<readonly ThreadRecord[]>;
}

/** The last signed end of a thread's log, as the registry's database keeps it. */
export interface StoredHead extends LogExtent {
  readonly thread_id: string;
  readonly status: ThreadStatus;
  readonly epoch: number;
  /** `updated_at` of the thread.json that names this end. */
  readonly updated_at: string;
  /** SHA-256 hex of the export that was written last, without its signature; null if none was. */
  readonly knowledge_sha256: string | null;
}

export interface LogHeads {
  find(threadId: string): Promise<StoredHead | undefined>;
  note(head: StoredHead): Promise<void>;
  /** Makes a head the newest one, also before what owners of the thread have reported. */
  accept(head: StoredHead): Promise<void>;
}

/** When appended bytes are made durable: at effects and turn ends, at every append, or never. */
export type Durability = 'turn' | 'always' | 'off';

/**
 * The one writer of a thread's log. It never rewrites what it appended. After a failed write every further call fails
 * with `log_write_failed`.
 */
export interface LogWriter {
  readonly threadId: string;
  /**
   * Appends all drafts or none, in order, and returns the events as they are in the log. A checkpoint over them is part
   * of the same write, unless all of them can wait for the next one. The events may be lost in a crash until `sync`
   * has finished. An owner that lost the log is refused with `thread_locked` here or, at the latest, by `sync`.
   */
  append(drafts: readonly EventDraft[]): readonly LogEvent[];
  /**
   * True if something that was appended must be durable before anyone sees it: a `durable` draft, or anything under the
   * durability `always`. The caller then awaits `sync`. Always false for a writer that syncs inside `append`.
   */
  readonly isSyncDue: boolean;
  /**
   * Signs what is not signed, then makes everything appended so far durable, unless durability is `off`. Signing is
   * done when the call returns; durability when the promise resolves, or at once if there is none.
   */
  sync(): void | Promise<void>;
  /** Signs what is not signed: appends a checkpoint over everything since the last one. */
  checkpoint(): void;
  /** True if the last checkpoint covers everything that was appended. */
  readonly isSigned: boolean;
  /** The last checkpoint that this writer wrote; undefined before the first. */
  readonly lastCheckpoint: Checkpoint | undefined;
  /** The end of the signed part. A log that ends earlier was truncated. */
  readonly head: LogHead;
  /** Id of the last entry, from which the next one hangs. */
  readonly leafId: string | null;
  /** Length, running hash and number of events of the log, as thread.json names them at the end. */
  state(): LogExtent;
  /** Syncs what is not yet synced, then gives the lease back. Idempotent. */
  close(): void | Promise<void>;
}

/** An entry as the tree holds it, or what {@link LogStore.readEntries} gives. */
export type EntryLookup = { readonly entry: TreeEntry } | { readonly opened: OpenedLog };

export interface LogStore {
  /** Creates the thread's log, takes the lease, writes the header. It is durable with the first `sync`. */
  create(header: LogHeader, options: LogWriterOptions): Promise<LogWriter>;
  /**
   * Opens an existing log for appending: takes the lease, and moves what no signature covers out of the log, with a
   * signed `log_quarantined` event that records it. Refused if the signed part does not verify.
   */
  reopen(threadId: string, options: LogReopenOptions): Promise<LogWriter>;
  /**
   * Reads a log, or its first `end` bytes. Never writes. Refused with `thread_not_found` or, when its bytes are no log,
   * `log_malformed`.
   */
  read(threadId: string, part?: LogPart): Promise<OpenedLog>;
  /**
   * Reads what the session tree, its context and the export are made of: entries, starts of tool calls, and where a
   * continuation begins. Of a sound log all else is counted and not parsed; a log with a defect is read whole.
   */
  readEntries(threadId: string, part?: LogPart): Promise<OpenedLog>;
  /**
   * Reads the part of a log that signatures cover, whole or as `readEntries` does, in the pass that verifies it. No events
   * if the signed part was changed.
   */
  readVerified(
    threadId: string,
    options: Omit<VerifyOptions, 'listener'> & { readonly entriesOnly?: boolean },
  ): Promise<VerifiedLog>;
  /**
   * Finds one entry by its full id. A large log has an index of offsets, which is rebuilt if it doesn't fit the log;
   * the index is not part of the log, and its answers are checked. Without an answer, all entries are returned.
   */
  lookUp(threadId: string, id: string): Promise<EntryLookup>;
  /** Checks header, sequence, hash chain and signatures in one sequential pass of constant memory. */
  verify(threadId: string, options: VerifyOptions): Promise<LogVerification>;
  /** The last `count` events, in order. Costs O(what it gives). */
  tail(threadId: string, count: number): Promise<readonly (LogEvent | UnknownEvent)[]>;
  /** Events with a seq above `seq`, in order. Costs O(what it gives), and some looks into the log to find its start. */
  since(threadId: string, seq: number): AsyncIterable<LogEvent | UnknownEvent>;
  /**
   * Events with a seq above `since` (default 0: all), then new ones as they are written, until `signal` aborts. Waits
   * for a log that does not exist yet. Costs O(new bytes).
   */
  follow(threadId: string, options: FollowOptions): AsyncIterable<LogEvent | UnknownEvent>;
  /** Compresses the log of a thread that is over; it can be read and verified as before, but not written. */
  archive(threadId: string): Promise<{ readonly before: number; readonly after: number }>;
  isArchived(threadId: string): Promise<boolean>;
  /** The parts that recoveries took off the log because no signature covered them, oldest first. */
  quarantined(threadId: string): Promise<readonly QuarantinedPart[]>;
  /** Bytes of the log; undefined if there is none, or if it is archived. */
  size(threadId: string): Promise<number | undefined>;
  /**
   * The bytes of the log, archived or not, or of a quarantined part. A log that does not exist has none. A chunk may be
   * reused once the next one is asked for.
   */
  bytes(threadId: string, range?: LogRange): AsyncIterable<Buffer>;
  /** Keeps writers away from a log that is not open; refused with `thread_locked` if it is open. */
  hold(threadId: string, owner: Owner, epoch: number, options?: HoldOptions): Promise<LogHold>;
  /** Describes for people where the log is, such as its path. No code opens it. */
  location(threadId: string): string;
  /** Returns the owner that holds the log open for writing, unless it is known to be gone. */
  holder(threadId: string): Promise<Owner | undefined>;
  /** Epoch of the last owner that took the log and did not give it back; 0 if there is none. */
  heldEpoch(threadId: string): Promise<number>;
}

export interface HoldOptions {
  /** Milliseconds of silence after which a holder that can't be seen from here has lost the log. */
  readonly staleMs?: number;
}

/** A range of the bytes of a log. */
export interface LogRange {
  /** Name of a quarantined part; absent: the log itself. */
  readonly file?: string;
  /** Offset of the first byte. Default 0. */
  readonly from?: number;
  /** Offset after the last byte. Default: the end. */
  readonly end?: number;
}

/** A log that no other owner can open for writing until it is released. */
export interface LogHold {
  /** Opens the log for appending, as `reopen` does, without giving the lease back first. Closing the writer ends the hold. */
  open(options: LogReopenOptions): Promise<LogWriter>;
  release(): void | Promise<void>;
}

/** A part of a log: its first `end` bytes, which end with a line. */
export interface LogPart {
  readonly end: number;
}

/** Bytes that were taken off a log. Nothing in them is verified. */
export type { VerifyOptions };

export type QuarantinedPart = EventPayloads['log_quarantined'];

export interface FollowOptions {
  readonly since?: number;
  readonly signal: AbortSignal;
}

export interface LogWriterOptions {
  readonly signer: PayloadSigner;
  readonly durability: Durability;
  readonly owner: Owner;
  readonly epoch: number;
}

export interface LogReopenOptions extends LogWriterOptions {
  readonly verifier: PayloadVerifier;
  /** Header with which a log begins again if none of it is signed. */
  readonly header?: LogHeader;
}

/** `unknown`: an owner that can't be checked from here, such as a process on another host. */
export type OwnerState = 'alive' | 'gone' | 'unknown';

/** The columns of a thread's record that name its owner. */
export type OwnerColumns = Pick<ThreadRecord, 'pid' | 'process_start' | 'host'>;

/**
 * Knows who may own threads, for leases and recovery. Answers from what this host knows, without a network: an owner
 * elsewhere is `unknown`, and loses its thread only by its silence, see {@link Registry.claim}.
 */
export interface Owners {
  /** Returns the owner that this process is. */
  self(): Owner;
  /** Returns the owner that a process of this host is; undefined if the process is gone. */
  ofProcess(pid: number): Owner | undefined;
  /** Returns the owner that a record names; undefined if it names none. */
  ofRecord(record: OwnerColumns): Owner | undefined;
  /** Returns the columns from which {@link ofRecord} makes the same owner. */
  columns(owner: Owner): OwnerColumns;
  state(owner: Owner): OwnerState;
  /** Returns the pid of an owner that is a process of this host, so that it can be signaled. */
  pidOf(owner: Owner): number | undefined;
  /** Names an owner for people, such as `process 12 on host`. */
  describe(owner: Owner): string;
}

export type { OpenedLog, VerifiedLog } from '../log/reader.ts';
export type { LogExtent, LogVerification } from '../log/verifier.ts';
export type { BudgetRow } from '../policy/budget.ts';
export type { QueuedEntry } from './appends.ts';
export type { StoredApproval } from './approvals.ts';
export type { Bundles, StoredBundle } from './bundles.ts';
export type {
  ResolveParams,
  RunKey,
  SteerParams,
  SteerPoint,
} from './deliveries.ts';
export type { ListedFile, StoredFile, ThreadDocuments } from './thread-documents.ts';
