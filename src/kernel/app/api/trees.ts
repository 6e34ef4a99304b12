import type { ErrorInfo } from '../../core/errors.ts';
import type { LogEvent } from '../../core/events.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import type { ImageBlock, Message } from '../../core/message.ts';
import type { ExportFormat, ThreadRecord, ThreadResult } from '../../core/thread.ts';
import type { LogProblem } from '../../log/codec.ts';
import type { ContextSettings } from '../../log/context.ts';
import type { TreeEntry } from '../../log/tree.ts';
import type { TreeFilter } from '../../log/tree-filter.ts';
import type { TreeDivider, TreeRow } from '../../log/tree-view.ts';
import type { TurnFacts } from '../../log/turn-facts.ts';

export {
  type Account,
  type AccountReader,
  accountOf,
  type DeliveredText,
  deliveryOf,
  lineOf,
  membersOf,
  shortReason,
  type Tone,
  waitText,
} from '../../log/account.ts';
export {
  callLabel,
  childThreadOf,
  type DirectiveTask,
  directiveCall,
  personTextOf,
  shortToolName,
  taskOf,
} from '../../log/entry-text.ts';
export { holds, shortKind, TREE_FILTERS, wordsOf } from '../../log/tree-filter.ts';
export type { ContextSettings, LogProblem, TreeDivider, TreeEntry, TreeFilter, TreeRow, TurnFacts };

/** A thread's session tree, drawn. */
export interface TreeView {
  readonly thread_id: string;
  readonly title: string | null;
  readonly leaf_id: string | null;
  readonly rows: readonly TreeRow[];
  /** Entries in all, shown or not. */
  readonly total: number;
  readonly problems: readonly LogProblem[];
  /** The threads of the session, from the first: more than one if it was handed off. */
  readonly chain: readonly string[];
}

/** The trees of a session as they were when they were read, to be looked at in several ways. */
export interface OpenedTree extends Omit<TreeView, 'rows'> {
  /** The rows with dividers. */
  rows(filter: TreeFilter): readonly TreeRow[];
  /** True if the context of the branch that the entry is on holds the entry. */
  isSent(entry: string): boolean;
  /** The price and the time of an answer of the model, by its entry; undefined for other entries. */
  turnOf(entry: string): TurnFacts | undefined;
}

/** Text and images for the model that are not a person's message. */
export interface CustomMessage {
  readonly customType: string;
  readonly content: string;
  /** PNG, JPEG, GIF or WebP as base64; they follow the text. A model that takes no images is told their types. */
  readonly images?: readonly ImageBlock[];
  /** False hides it from people, never from the model. */
  readonly display: boolean;
  /** Never sent to the model. */
  readonly details?: JsonObject;
}

/** An entry that a program appends to the head of a thread. */
export type ProgramEntry =
  | {
      readonly type: 'message';
      /** An answer has text only, and only a thread that no process runs takes one. */
      readonly role: 'user' | 'assistant';
      readonly content: string;
      readonly images?: readonly ImageBlock[];
    }
  | ({ readonly type: 'custom_message' } & CustomMessage)
  | {
      /** State that is never sent to the model. */
      readonly type: 'custom';
      readonly customType: string;
      readonly data: JsonObject;
    }
  | {
      /** A summary in place of everything before an entry. */
      readonly type: 'compaction';
      readonly summary: string;
      /** An entry id, or a unique start of one: one of the `cut_points` of the refusal. */
      readonly firstKept: string;
      readonly details?: JsonObject;
    };

export interface AppendOptions {
  /** True to resume a thread that does not run, so that its model answers at once. */
  readonly triggerTurn?: boolean;
}

/** An entry that a program has appended. */
export interface AppendedEntry {
  readonly thread_id: string;
  readonly entry_id: string;
  /** `queued`: durable, and written by the process that runs the thread before its next model call. */
  readonly state: 'written' | 'queued';
  /** The result of the run that `triggerTurn` began. */
  readonly result?: ThreadResult;
}

export interface BranchOptions {
  /** Entry id, a unique start of one, or `root` for the place before the first. */
  readonly at: string;
  /** A text summarizes the abandoned branch; `model` has the thread's model write it. */
  readonly summary?: { readonly text: string } | 'model';
  /** Instructions for a summary that the model writes. */
  readonly instructions?: string;
  /** A message that the new branch begins with. */
  readonly message?: string;
  readonly signal?: AbortSignal;
}

/** The next request to the model. */
export interface FoldedContext {
  readonly system: string;
  readonly messages: readonly Message[];
  /** Entry of each message; null for a generated tool result. */
  readonly sources: readonly (string | null)[];
  /** The settings that entries of the path set last; absent if none did. */
  readonly settings: ContextSettings;
}

/** Reads session trees, at any time. Entry ids may be shortened to a unique start. */
export interface SessionTreeReads {
  view(
    threadId: string,
    options?: {
      readonly filter?: TreeFilter;
      readonly search?: string;
      /**
       * Shows the whole session: the threads of a chain of handoffs one after another, without copied entries, and
       * rows for the handoffs and the starts of later runs.
       */
      readonly session?: boolean;
    },
  ): Promise<TreeView>;
  /** Reads the trees of a session once for any number of looks at them. */
  open(threadId: string): Promise<OpenedTree>;
  /** By its id or the start of it. The first look-up by a whole id in a large log leaves an index beside the log. */
  entry(threadId: string, entry: string): Promise<TreeEntry>;
  /**
   * Returns the thread of the session that has an entry: the given one if it does, else the latest; with `newest` the
   * latest in any case.
   */
  locate(threadId: string, entry: string, options?: { readonly newest?: boolean }): Promise<string>;
  /** From the root to an entry, by default to the leaf. */
  path(threadId: string, entry?: string): Promise<readonly TreeEntry[]>;
  children(threadId: string, entry: string): Promise<readonly TreeEntry[]>;
  context(threadId: string, entry?: string): Promise<FoldedContext>;
}

/**
 * Appends to the log of a thread, and never changes what is there. Only the `append` methods take a thread that a process
 * runs. Refuses a log that does not verify. Entry ids may be shortened to a unique start.
 */
export interface SessionTreeEdits {
  /** Moves the head. Returns the events written; none if the head is there already. */
  branch(threadId: string, options: BranchOptions): Promise<readonly LogEvent[]>;
  /**
   * Puts the files that the thread and the threads below it changed back to what they were when an entry was written; by
   * default, before the thread. Errors: `file_changed`, `part_missing`, `path_denied`; then nothing is restored.
   */
  undoFiles(threadId: string, request?: UndoRequest): Promise<FileUndo>;
  /** Copies the path to an entry into a new, suspended thread. */
  extract(
    threadId: string,
    options: { readonly at: string; readonly threadId?: string },
  ): Promise<ThreadRecord>;
  /** Null or an empty text clears. */
  label(threadId: string, entry: string, label: string | null): Promise<readonly LogEvent[]>;
  title(threadId: string, title: string): Promise<readonly LogEvent[]>;
  /**
   * The model that the thread continues with: a tier, an alias or an id. Errors: `model_not_found`, `model_unpriced` and what
   * else would keep a thread from starting on it.
   */
  changeModel(
    threadId: string,
    wanted: { readonly model: string; readonly provider?: string },
  ): Promise<readonly LogEvent[]>;
  /** Sets the thinking level for when the thread resumes: `off`, `minimal`, `low`, `medium` or `high`. */
  changeThinking(threadId: string, level: string): Promise<readonly LogEvent[]>;
  /**
   * Appends an entry, also to a thread that runs: then its process writes it, after the entries that came before. Errors:
   * `invalid_input` for a compaction that would part a call from its result, for an image that no provider reads, and for
   * an answer to a running thread.
   */
  append(threadId: string, entry: ProgramEntry, options?: AppendOptions): Promise<AppendedEntry>;
  /** State that is never sent to the model. Returns no events if the thread runs: its process writes the entry. */
  appendCustom(
    threadId: string,
    customType: string,
    data: JsonObject,
  ): Promise<readonly LogEvent[]>;
  /** Like {@link append}. Returns no events if the thread runs. */
  appendCustomMessage(threadId: string, message: CustomMessage): Promise<readonly LogEvent[]>;
  /** Replaces what a message of the active branch gives to the context, or leaves it out where there is no content. */
  editContext(
    threadId: string,
    edit: { readonly entry: string; readonly content?: string; readonly reason?: string },
  ): Promise<readonly LogEvent[]>;
  compact(
    threadId: string,
    options?: { readonly instructions?: string; readonly signal?: AbortSignal },
  ): Promise<ManualCompaction>;
  /** Runs the recorded answers through today's rules, hooks and gates, with the recorded tool results. */
  replay(threadId: string, options?: ReplayOptions): Promise<ReplayReport>;
  /**
   * Makes a completed thread of a session of pi, version 1, 2 or 3; the file is only read. Errors: `session_malformed`,
   * `item_too_large`, `file_not_found`.
   */
  importSession(options: ImportOptions): Promise<ImportedSession>;
}

/** The session trees of threads. */
export interface SessionTrees extends SessionTreeReads, SessionTreeEdits {}

export interface ExportOptions {
  readonly format: ExportFormat;
  /** Only the path to this entry, by id or a unique start of it; `leaf` for the open path. */
  readonly branch?: string;
  /** Without what tools were given and gave, thinking, hook state, images and what looks like a secret. */
  readonly redact?: boolean;
  /** Returns the address of another thread's page relative to this one, if it exists; html only. */
  readonly pageOf?: (threadId: string) => string | undefined;
}

/** A thread's log in another form. */
export interface ThreadExport {
  readonly thread_id: string;
  readonly format: ExportFormat;
  /** Last entry of the path; null for a log without entries. */
  readonly leaf_id: string | null;
  /** Entries of the log, or of the branch. */
  readonly entries: number;
  /** Values that were taken out, where that was asked for. */
  readonly redactions?: number;
  /** Defects of the log; what is readable is exported. */
  readonly problems: readonly LogProblem[];
  /** The verification error, or null. The text is exported from the log as it is. */
  readonly tampered: ErrorInfo | null;
  /** The text, made as it is taken; once only. */
  readonly chunks: Iterable<string>;
}

/** Threads in forms for people and for other programs. Nothing of the thread is written. */
export interface ExportsService {
  export(threadId: string, options: ExportOptions): Promise<ThreadExport>;
}

/** A defect of a pi session that was readable nevertheless; `line` counts from 1. */
export interface PiProblem {
  readonly kind:
    | 'torn_tail'
    | 'fused'
    | 'malformed'
    | 'encoding'
    | 'before_header'
    | 'orphan'
    | 'duplicate'
    | 'not_understood';
  /** From 1. */
  readonly line: number;
  readonly message: string;
}

export interface ImportOptions {
  /** The session file; it is only read. */
  readonly path: string;
  readonly threadId?: string;
  /** The model that continues it after a resume. */
  readonly model?: string;
}

/** The thread that a session became. */
export interface ImportedSession {
  readonly thread: ThreadRecord;
  /** The program whose session it was. */
  readonly format: 'pi';
  /** Version of the format that the file had. */
  readonly version: number;
  readonly session_id: string;
  readonly entries: number;
  /** Messages on all branches. */
  readonly messages: number;
  /** Damaged or unknown records, by line. */
  readonly problems: readonly PiProblem[];
}

/** A call of a tool that may have changed files without a record. */
export interface UnrecordedCall {
  readonly thread_id: string;
  readonly call_id: string;
  readonly tool: string;
}

export interface UndoRequest {
  /** Entry ID, a unique start of it, or `root`; absent: the moment before the thread. */
  readonly to?: string | undefined;
  /** True to leave the changes of children. */
  readonly own?: boolean | undefined;
  /** True to restore files that were changed outside the thread since, and to leave those that can't be restored. */
  readonly force?: boolean | undefined;
  /** True to report what would be restored and change nothing. */
  readonly dryRun?: boolean | undefined;
}

/** A file that an undo restores, or can't restore. */
export interface UndoneFile {
  readonly path: string;
  /** `kept`: it stays as it is, because of its problem. */
  readonly action: 'restored' | 'recreated' | 'removed' | 'kept';
  readonly problem?: ErrorInfo;
}

/** The result of an undo. */
export interface FileUndo {
  /** The thread whose log records it: the last one of the session. */
  readonly thread_id: string;
  /** The entry whose moment the files are back at; null: before the thread. */
  readonly to_entry: string | null;
  readonly dry_run: boolean;
  /** Files that differed from what they were then. */
  readonly files: readonly UndoneFile[];
  /** Empty folders that were removed, because the thread had made them. */
  readonly folders: readonly string[];
  /** Calls after that moment that may have changed files without a record; their changes stay. */
  readonly unrecorded_calls: readonly UnrecordedCall[];
  readonly warnings: readonly string[];
}

/** The result of a compaction that a person started. */
export type ManualCompaction =
  | {
      readonly compacted: true;
      readonly entry_id: string;
      readonly tokens_before: number;
      readonly summary: string;
    }
  | { readonly compacted: false; readonly reason: string };

/** The first step at which a replay differs from the recording. */
export interface ReplayDifference {
  /** Counts the compared steps from 0. */
  readonly step: number;
  /** Entry of the recorded step; null if the recording has no such step. */
  readonly entry_id: string | null;
  readonly seq: number | null;
  /** Dotted path of the member that differs, or `kind`. */
  readonly path: string;
  readonly recorded: JsonValue;
  readonly replayed: JsonValue;
}

export interface ReplayOptions {
  /** The entry after which the replay starts; entries up to it are taken from the log. */
  readonly from?: string;
  /** The run to replay, from 1; absent: one after the other, each from the conversation that it began with. */
  readonly run?: number;
  readonly signal?: AbortSignal;
  /** Called with each event that the replay would have logged. */
  readonly onEvent?: (event: LogEvent) => void;
}

export interface ReplayReport {
  readonly thread_id: string;
  /** Numbers of the runs that were replayed, in order; a difference is in the last one. */
  readonly runs: readonly number[];
  /** Answers of the model that the recordings have. */
  readonly answers: number;
  /** Recorded steps. */
  readonly steps: number;
  /** Steps that were the same, from the first on. */
  readonly matched: number;
  readonly difference: ReplayDifference | null;
  /** Tools and directives that hooks would have run; a replay has no effects, so it skips them. */
  readonly not_run: readonly string[];
}
