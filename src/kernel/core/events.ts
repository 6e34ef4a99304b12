import type { ApprovalDecided, ApprovalUse, RequestedApproval } from './approval.ts';
import type { CheckpointPayload, FirstCheckpointPayload } from './checkpoint.ts';
import type { ErrorInfo } from './errors.ts';
import type { FileChange } from './file-change.ts';
import type { SavedWorktree, WorktreeChanges } from './isolation.ts';
import type { JsonObject } from './json.ts';
import type { LimitName } from './limits.ts';
import type { ContentBlock, Message, ToolOutcome } from './message.ts';
import type { FinalStatus, RunReason } from './thread.ts';
import type { Cost, Usage } from './usage.ts';

/**
 * Payload of each event type of `transcript.jsonl`. The keys and members are the file format. Types in
 * {@link ENTRY_TYPES} are entries of the session tree, the others are log only. `appended`: a program gave the entry.
 */
export interface EventPayloads {
  // --- entries
  message: {
    readonly message: Message;
    readonly turn?: number;
    readonly label?: string;
    readonly appended?: true;
  };
  system_prompt: { readonly text: string; readonly tools: readonly JsonObject[] };
  context_injected: {
    readonly position: 'system' | 'before' | 'after';
    readonly blocks: readonly {
      readonly id: string;
      readonly source: string;
      readonly content: string;
    }[];
  };
  model_change: { readonly provider: string; readonly model: string };
  thinking_change: { readonly level: string };
  compaction: {
    readonly summary: string;
    readonly first_kept_entry_id: string | null;
    readonly tokens_before: number;
    /** Earlier entries that stay in full before the summary: the opening, bodies of skills. */
    readonly protected_entry_ids?: readonly string[];
    readonly details?: JsonObject;
    readonly appended?: true;
  };
  branch_summary: {
    readonly from_id: string;
    readonly summary: string;
    readonly details?: JsonObject;
  };
  custom: { readonly custom_type: string; readonly data: JsonObject };
  custom_message: {
    readonly custom_type: string;
    readonly content: string;
    /** Follow the text. An image that is too long for the log is the text that names its file. */
    readonly images?: readonly ContentBlock[];
    readonly display: boolean;
    readonly details?: JsonObject;
    readonly appended?: true;
  };
  label: { readonly target_id: string; readonly label: string | null };
  title: { readonly title: string };
  context_edit: {
    readonly target_id: string;
    readonly action: 'omit' | 'replace';
    readonly content?: string;
    readonly reason?: string;
  };
  rule_injection: {
    readonly rules: readonly { readonly name: string; readonly sha256: string }[];
    readonly turn: number;
  };
  leaf: { readonly target_id: string | null };
  // --- log only
  thread_started: {
    readonly directive: string;
    readonly model: string;
    readonly provider: string;
    readonly limits: JsonObject;
    /** The grant of each limit that `--raise-limits` raised; absent: none. */
    readonly raised_limits?: JsonObject;
    readonly integrity: string;
    readonly inputs: JsonObject;
    /** SHA-256 hex of plan.json, so that a lost thread.json can be rebuilt; absent in older logs. */
    readonly plan_sha256?: string;
  };
  /** Begins a successor's own part, after the entries that it was given. */
  thread_continued: { readonly previous_thread_id: string };
  /** Begins each run of the thread from the second on; `thread_finished` ends it. The header begins the first. */
  run_started: {
    /** Counts from 1, so the first event of this type has 2. */
    readonly run: number;
    readonly reason: RunReason;
    /** The head that the run continues from; null: before the first entry. */
    readonly from_entry: string | null;
    /** The thread's limits from now on, as totals over its runs. */
    readonly limits: JsonObject;
    /** The grant of a new run for each limit that `--raise-limits` raised; absent: none. */
    readonly raised_limits?: JsonObject;
    readonly provider: string;
    readonly model: string;
    /** SHA-256 hex of the plan that this run follows. */
    readonly plan_sha256: string;
  };
  /** Changes since the run before: a policy that became stricter, or a refreshed directive. */
  plan_changed: {
    readonly changes: readonly PlanChange[];
    /** SHA-256 hex of the plan before and after. */
    readonly before_sha256: string;
    readonly after_sha256: string;
  };
  turn_started: { readonly turn: number; readonly request?: RequestEstimate };
  /** Another model call of the turn, after the call that `turn_started` announced. */
  request_started: {
    readonly turn: number;
    readonly purpose: 'retry' | 'summary' | 'judgment';
    readonly request: RequestEstimate;
  };
  /** A model call whose answer has begun and takes its time: what tells its cost if the process dies. */
  answer_started: {
    readonly turn: number;
    /** The count with which the provider began, and the ISO time at which it came. */
    readonly usage?: Usage;
    readonly at?: string;
    /** The id by which the provider can be asked for the count of the whole answer. */
    readonly response_id?: string;
  };
  token_delta: { readonly text: string };
  thinking_delta: { readonly text: string };
  toolcall_delta: { readonly call_id: string; readonly json: string };
  tool_call_start: {
    readonly call_id: string;
    readonly tool: string;
    readonly name: string;
    readonly input: JsonObject;
    readonly turn: number;
    /** The decision that the call uses up. */
    readonly approval?: ApprovalUse;
  };
  tool_call_progress: { readonly call_id: string; readonly text: string };
  tool_settled: {
    readonly call_id: string;
    readonly tool: string;
    readonly outcome: ToolOutcome;
    readonly duration_ms: number;
    readonly output_bytes: number;
    readonly code?: string;
    readonly reason?: string;
    readonly artifact?: string;
    /** SHA-256 hex of the artifact's bytes. */
    readonly artifact_sha256?: string;
    readonly coerced?: readonly string[];
  };
  /** A tool is about to change a file. A copy of the old content is kept. */
  file_change: FileChange & { readonly call_id: string };
  /** An undo is about to restore files. Copies of their content are kept. */
  files_restored: {
    /** The entry whose moment the files go back to; null: before the thread. */
    readonly to_entry: string | null;
    readonly files: readonly FileChange[];
  };
  /** A person has to decide. It is durable before anyone sees it. */
  approval_requested: RequestedApproval;
  approval_decided: ApprovalDecided;
  /** The changes that an isolated thread made in its worktree. */
  changes_collected: WorktreeChanges;
  /** A thread of a fleet, whose worktree another worker may need. */
  worktree_saved: SavedWorktree;
  hook_fired: {
    readonly id: string;
    readonly layer: number;
    readonly event: string;
    readonly matched: boolean;
    readonly duration_ms: number;
    readonly outcome: string;
    readonly error?: string;
    /** Present if the hook needed a person's decision, for which it cannot wait. */
    readonly code?: 'approval_required';
  };
  rule_matched: JsonObject;
  limit_reached: {
    readonly code: string;
    readonly current: number;
    readonly max: number;
    /** USD that the next call may cost, and USD remaining, if a call was not made for lack of money. */
    readonly needed?: number;
    readonly left?: number;
    /** USD that running children hold of the budget. */
    readonly held?: readonly { readonly thread_id: string; readonly usd: number }[];
    /** The limit was passed in the middle of an answer, which was stopped. */
    readonly in_answer?: boolean;
  };
  /** A hook or a person raised a limit, for this run and those after it. */
  limit_raised: { readonly limit: LimitName; readonly to: number };
  mcp_server_started: McpServerStart;
  mcp_list_changed: {
    readonly server: string;
    readonly list: 'tools' | 'resources' | 'prompts';
    /** Ids of tools: new and callable; withdrawn; with another definition than the approved one, and so refused. */
    readonly added?: readonly string[];
    readonly removed?: readonly string[];
    readonly changed?: readonly string[];
    /** New tools that this thread may not call, one sentence each. */
    readonly left_out?: readonly string[];
    /** Why the server could not be asked what changed. */
    readonly error?: string;
  };
  skill_activated: {
    readonly skill: string;
    /** `resume`: an earlier part of the conversation had loaded it. `host`: a person or a program did. */
    readonly via: 'model' | 'resume' | 'host';
    /** Wire names of the tools that it made callable. */
    readonly tools: readonly string[];
  };
  skill_deactivated: { readonly skill: string; readonly reason: 'host' | 'run_end' };
  tool_budget_exceeded: {
    readonly call_id: string;
    readonly tool: string;
    readonly count: number;
    readonly max: number;
    readonly mode: 'block' | 'steer';
  };
  output_budget_exceeded: {
    readonly turn: number;
    readonly bytes: number;
    readonly budget: number;
  };
  error_classified: {
    readonly category: string;
    readonly retryable: boolean;
    readonly message: string;
    readonly status?: number;
    /** Usage of the failed call, if no message records it. */
    readonly usage?: Usage;
  };
  retry_scheduled: {
    readonly attempt: number;
    readonly delay_ms: number;
    readonly policy: string;
    /** Why the provider did not answer, such as `overloaded`; absent in older logs. */
    readonly reason?: string;
    /** Absent: a call for an answer. */
    readonly purpose?: 'summary';
  };
  cost: {
    readonly turn: number;
    readonly usage: Usage;
    readonly total: Cost;
    /** USD in `total` that are an upper bound, for calls that were open when the process died. */
    readonly estimated_usd?: number;
  };
  child_thread_started: {
    readonly child_thread_id: string;
    readonly directive: string;
    /** The child's label, or its directive and inputs, shortened; absent in older logs. */
    readonly label?: string;
  };
  child_thread_finished: {
    readonly child_thread_id: string;
    readonly status: string;
    /** The child's whole cost then, in USD. */
    readonly spend: number;
    /** The run of the child that ended; absent: its first. */
    readonly child_run?: number;
  };
  delivery: JsonObject;
  budget: { readonly max_usd: number; readonly parent_thread_id?: string };
  thread_finished: {
    readonly status: FinalStatus | 'suspended';
    readonly result: string;
    readonly outputs?: JsonObject;
    readonly error?: ErrorInfo;
    readonly cost: Cost;
  };
  checkpoint: CheckpointPayload | FirstCheckpointPayload;
  /** Bytes after the last signature that a recovery took off the log. `file` is beside the log. */
  log_quarantined: {
    readonly offset: number;
    readonly bytes: number;
    readonly sha256: string;
    /** Lines in it, a torn last one included. */
    readonly lines: number;
    readonly file: string;
  };
  note: { readonly text: string; readonly details?: JsonObject };
}

/** Maximum that a model call may use. The estimate is on the disk before the call is made. */
export interface RequestEstimate {
  readonly provider: string;
  readonly model: string;
  /** Tokens of the request, estimated on the high side. */
  readonly input_tokens: number;
  /** Tokens that the answer may have. */
  readonly max_tokens: number;
  /** The price of both; absent for a model without a price. */
  readonly reserved_usd?: number;
  /** Tokens that the model's context holds; absent in older logs. */
  readonly context_window?: number;
  /** The thinking level, if it is lower than the run's. */
  readonly thinking?: string;
}

/** Result and duration of the start of an MCP server. */
export type McpServerStart = { readonly server: string; readonly duration_ms: number } & (
  | { readonly tools: number }
  | { readonly error: string }
);

export type EventType = keyof EventPayloads;

export const ENTRY_TYPES = [
  'message',
  'system_prompt',
  'context_injected',
  'model_change',
  'thinking_change',
  'compaction',
  'branch_summary',
  'custom',
  'custom_message',
  'label',
  'title',
  'context_edit',
  'rule_injection',
  'leaf',
] as const satisfies readonly EventType[];

export type EntryType = (typeof ENTRY_TYPES)[number];

const LOG_ONLY = {
  thread_started: true,
  thread_continued: true,
  run_started: true,
  plan_changed: true,
  turn_started: true,
  request_started: true,
  answer_started: true,
  token_delta: true,
  thinking_delta: true,
  toolcall_delta: true,
  tool_call_start: true,
  tool_call_progress: true,
  tool_settled: true,
  file_change: true,
  files_restored: true,
  approval_requested: true,
  approval_decided: true,
  changes_collected: true,
  worktree_saved: true,
  hook_fired: true,
  rule_matched: true,
  limit_reached: true,
  limit_raised: true,
  mcp_server_started: true,
  mcp_list_changed: true,
  skill_activated: true,
  skill_deactivated: true,
  tool_budget_exceeded: true,
  output_budget_exceeded: true,
  error_classified: true,
  retry_scheduled: true,
  cost: true,
  child_thread_started: true,
  child_thread_finished: true,
  delivery: true,
  budget: true,
  thread_finished: true,
  checkpoint: true,
  log_quarantined: true,
  note: true,
} as const satisfies Record<Exclude<EventType, EntryType>, true>;

/** Types that never are entries. A type of {@link EventPayloads} that is in neither list does not compile. */
export const LOG_ONLY_TYPES = Object.keys(LOG_ONLY) as readonly (keyof typeof LOG_ONLY)[];

const ENTRY_TYPE_SET: ReadonlySet<string> = new Set(ENTRY_TYPES);

export function isEntryType(type: string): type is EntryType {
  return ENTRY_TYPE_SET.has(type);
}

/** An event as a producer passes it to the log: the writer adds seq, time, thread id and the entry's place in the tree. */
export type EventDraft = {
  [T in EventType]: {
    readonly event_type: T;
    readonly payload: EventPayloads[T];
    /** Asks for `fdatasync` before the producer continues: set before an effect that must not be forgotten. */
    readonly durable?: boolean;
    /** True if a crash that loses the event costs nothing but time, as of a call that only reads: its signature may wait. */
    readonly repeatable?: boolean;
    /** Keeps the id of an entry that is copied into another thread; without it the writer makes one. */
    readonly id?: string;
  };
}[EventType];

interface EventEnvelope {
  /** Increases by 1 per event. The header has no `seq`. */
  readonly seq: number;
  readonly timestamp: string;
  readonly thread_id: string;
  /** Present on entries of the session tree. */
  readonly id?: string;
  readonly parent_id?: string | null;
}

/** One event of the log. */
export type LogEvent = {
  [T in EventType]: EventEnvelope & { readonly event_type: T; readonly payload: EventPayloads[T] };
}[EventType];

/** An event of a type that this version does not know: carried through untouched. */
export interface UnknownEvent extends EventEnvelope {
  readonly event_type: string;
  readonly payload: JsonObject;
}

/** Line 1 of a log. */
export interface LogHeader {
  readonly event_type: 'thread';
  readonly version: 1;
  readonly thread_id: string;
  readonly directive: string;
  readonly created_at: string;
  readonly continuation_of?: string;
  readonly branched_from?: { readonly thread_id: string; readonly entry_id: string };
}
/** One part of a plan that changed, such as a rule or a permission. */
export interface PlanChange {
  /** The kind of part, such as `rule`, `hook`, `capability` or `directive`. */
  readonly type: string;
  readonly id: string;
  /** The files that it came from, with their hashes; absent: there was none, or there is none now. */
  readonly before?: ChangedSource;
  readonly after?: ChangedSource;
  /** The effect on the run, as a sentence for people. */
  readonly text?: string;
}

/** A file that a part of a plan came from. */
export interface ChangedSource {
  readonly space?: string;
  readonly path?: string;
  readonly sha256?: string;
}
