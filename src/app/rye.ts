import type { Risk } from '../core/capability.ts';
import type { ActiveTurn, Delivery } from '../core/delivery.ts';
import type { LogEvent, McpServerStart, UnknownEvent } from '../core/events.ts';
import type { HookDeclaration, HookEvent } from '../core/hook.ts';
import type { ItemType, SignableType, Space } from '../core/ids.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { SearchAnswer } from '../core/search.ts';
import type { ThreadRecord, ThreadResult, ThreadStatus } from '../core/thread.ts';
import type { Problem, SignOutcome, VerifyOutcome } from '../items/signing-fs.ts';
import type { KilledThread } from '../threads/family/cancel.ts';
import type { WaitReport } from '../threads/family/wait.ts';
import type { LaunchedThread } from '../threads/ports.ts';
import type { KeyInfo as KeySummary } from '../trust/keys.ts';
import type { DeliveriesService } from './deliveries-types.ts';
import type { ExportsService } from './exports-types.ts';
import type { AcceptedLock, LockReport } from './lock-types.ts';
import type { Preset } from './presets.ts';
import type { RecoveryService } from './recovery-types.ts';
import type { ExecuteDirectiveRequest } from './requests.ts';
import type { RulesService } from './rules-api.ts';
import type { RunHandle, RunOutcome, RunRequest } from './run-types.ts';
import type { SessionTrees } from './session-trees.ts';
import type { LogMark, ThreadVerification } from './verification-types.ts';

export type { GuardChange } from '../trust/lock.ts';
export type { AcceptedLock, LockReport } from './lock-types.ts';

/** State of an item's signature as lists show it. */
export type SignatureState =
  | 'signed'
  | 'unsigned'
  | 'modified'
  | 'untrusted'
  | 'revoked'
  | 'invalid'
  | 'partial'
  | 'outdated'
  | 'moved'
  | 'system'
  | 'builtin';

export interface ItemSummary {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Null for tools that are a part of rye. */
  readonly path: string | null;
  readonly version: string | null;
  readonly description: string;
  readonly signature: SignatureState;
  /** 1 for a good signature of the older form; absent where no key signed. */
  readonly signature_version?: 1 | 2;
  /** The space whose item of the same id is used instead of this one. */
  readonly shadowed_by: Space | null;
}

export interface FetchedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  /** Null for tools that are a part of rye; their content is the schema of their input. */
  readonly path: string | null;
  readonly signature: SignatureState;
  readonly metadata: JsonObject;
  readonly content: string;
  readonly copied_to?: string;
}

export interface ItemsService {
  list(type: ItemType, options?: { space?: Space }): Promise<readonly ItemSummary[]>;
  fetch(
    type: ItemType,
    id: string,
    options?: { copyTo?: 'project' | 'user' },
  ): Promise<FetchedItem>;
  search(
    type: ItemType | 'all',
    query: string,
    options?: { limit?: number; space?: Space; since?: string; contextLines?: number },
  ): Promise<SearchAnswer>;
  /** Without a selector: everything in the project space. */
  validate(selector?: {
    type: ItemType;
    pattern: string;
  }): Promise<{ readonly problems: readonly Problem[]; readonly checked: number }>;
  sign(
    type: SignableType,
    pattern: string,
    options?: { dryRun?: boolean },
  ): Promise<readonly SignOutcome[]>;
  verify(type: SignableType, pattern: string): Promise<readonly VerifyOutcome[]>;
}

/** A key that somebody offers. */
export interface KeyOffer {
  readonly key_id: string;
  readonly owner: string;
  /** Absent: everywhere. */
  readonly projects?: readonly string[];
}

export interface KeysService {
  /** Creates the signing key; refuses with `already_exists` when there is one. */
  init(): Promise<KeySummary>;
  list(): Promise<readonly KeySummary[]>;
  /** The public key as PEM text. */
  export(): Promise<{ readonly key_id: string; readonly pem: string }>;
  /** What {@link trust} would trust, and in which projects alone; refuses what it would refuse. */
  inspect(text: string, options?: { owner?: string }): Promise<KeyOffer>;
  /** Trusts a PEM or a trusted-key TOML. */
  trust(text: string, options?: { owner?: string }): Promise<KeySummary>;
  revoke(keyId: string, options?: { reason?: string }): Promise<KeySummary>;
  rotate(): Promise<{ readonly old_key_id: string; readonly key_id: string }>;
}

export type { Problem, SignOutcome, VerifyOutcome } from '../items/signing-fs.ts';
export type { KeyInfo as KeySummary } from '../trust/keys.ts';
export type { ExecuteDirectiveRequest } from './requests.ts';

export interface ExecuteToolRequest {
  readonly toolId: string;
  readonly params?: JsonObject;
  readonly allowUnsigned?: boolean;
  readonly acknowledge?: readonly Risk[];
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
export interface ListedThread extends ThreadRecord {
  /** It should be running, and its process has ended without finishing it. */
  readonly process_gone?: true;
}

export interface ThreadListFilter {
  readonly active?: boolean;
  readonly status?: ThreadStatus;
  readonly directive?: string;
  readonly parent?: string;
  readonly limit?: number;
}

export interface ThreadDetails {
  readonly thread: ThreadRecord;
  readonly document: JsonObject | null;
  readonly children: readonly ThreadRecord[];
  /** Messages that wait for it, or that a person has to judge. */
  readonly deliveries: readonly Delivery[];
  /** The run that is under way, as its owner last published it: what an active-turn steer is judged by. */
  readonly active_turn: ActiveTurn | null;
  readonly chain: readonly ThreadRecord[];
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
  /** Where in the log the bytes were, or are. */
  readonly offset: number;
  readonly bytes: number;
  /** Where in `file` they begin. */
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
  /** Resolves everything and changes nothing. */
  plan(request: ExecuteDirectiveRequest): Promise<ThreadPlan>;
  /** Runs to the end. A thread that failed is a result; only a thread that could not be started throws. */
  execute(request: ExecuteDirectiveRequest): Promise<ThreadResult>;
  executeTool(request: ExecuteToolRequest): Promise<ToolRunResult>;
  list(filter?: ThreadListFilter): Promise<readonly ListedThread[]>;
  /** Folders of threads that the registry does not list, as after it was lost. */
  unlisted(): Promise<readonly string[]>;
  /** Resolves a unique prefix or suffix to a full id; refuses with `ambiguous` or `thread_not_found`. */
  resolveId(part: string): Promise<string>;
  show(threadId: string): Promise<ThreadDetails>;
  /** Events in order; with `follow` it goes on until the thread is finished or `signal` aborts. */
  logs(
    threadId: string,
    options?: { tail?: number; since?: number; follow?: boolean; signal?: AbortSignal },
  ): AsyncIterable<LogEvent | UnknownEvent>;
  /** The lines of a log that no signature covers, as they are on the disk. They may be forged. */
  unverified(threadId: string): AsyncIterable<UnverifiedLine>;
  verify(threadId: string): Promise<ThreadVerification>;
  /** Whether a thread's log is what was signed, for those who show it. */
  mark(threadId: string): Promise<LogMark>;
  /**
   * Verifies, then makes what is on disk the newest known state, as after a restore on purpose. Refused if anything but
   * the head and the export fails; the export is written again from the signed log.
   */
  acceptHead(threadId: string): Promise<ThreadVerification>;
}

export type { KilledThread } from '../threads/family/cancel.ts';
export type { WaitReport } from '../threads/family/wait.ts';
export type { LaunchedThread } from '../threads/ports.ts';
export type { LogMark, ThreadVerification } from './verification-types.ts';

export interface WaitOptions {
  /** The first end is enough. */
  readonly any?: boolean;
  /** Undefined: for ever. 0: only looks. */
  readonly timeoutSeconds?: number | undefined;
  readonly signal?: AbortSignal;
  /** Called with each thread once, when it has ended. */
  readonly onEnd?: (thread: ThreadRecord) => void;
  /** Called whenever the registry may have changed. */
  readonly onLook?: () => Promise<void> | void;
}

export interface ThreadTreeNode {
  readonly thread: ThreadRecord;
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

/** Threads in processes of their own, and what can be done to a thread from any process. */
export interface ChildrenService {
  /** Starts a directive in a process of its own, or queues it. Refuses what can't be started. */
  launch(request: ExecuteDirectiveRequest, options?: LaunchOptions): Promise<LaunchedThread>;
  /** Starts one tool in a process of its own, under the same checks as a thread's call. */
  launchTool(request: ExecuteToolRequest): Promise<LaunchedThread>;
  /** Runs a launched thread in this process, which was started for it. */
  runLaunched(threadId: string, options: { signal: AbortSignal }): Promise<ThreadResult>;
  /** Waits for threads and the chains that continue them, whatever process runs them. */
  wait(threadIds: readonly string[], options?: WaitOptions): Promise<WaitReport>;
  /** Asks a thread to stop; resolves to the threads that were asked. */
  cancel(
    threadId: string,
    options?: { tree?: boolean; reason?: string },
  ): Promise<readonly string[]>;
  /** Ends a thread's process, then the thread. */
  kill(
    threadId: string,
    options?: { tree?: boolean; reason?: string },
  ): Promise<readonly KilledThread[]>;
  /** The threads below one, or below every root. */
  tree(threadId?: string): Promise<readonly ThreadTreeNode[]>;
  stats(by?: StatsKey): Promise<readonly ThreadStats[]>;
}

export type { DeliveriesService } from './deliveries-types.ts';

export interface HookExplanation {
  readonly hook: HookDeclaration;
  /** True if it fires for certain. */
  readonly would_fire: boolean;
  /** Paths of the event's context that decide whether it fires and that are known during a run only. */
  readonly depends_on: readonly string[];
  /** What decided, such as the condition node that was false with the values compared. */
  readonly because: string;
}

export interface ConfigValue {
  readonly path: string;
  readonly value: JsonValue;
  /** `file:line` or the layer that set it. */
  readonly origin: string;
}

export interface DoctorLine {
  readonly check: string;
  readonly status: 'ok' | 'warn' | 'fail';
  readonly detail: string;
  readonly hint?: string;
}

/** What `rye init` did: paths that were written, and what was there before. */
export interface InitOutcome {
  readonly project: string;
  readonly created: readonly string[];
  readonly kept: readonly string[];
  readonly key_id: string;
  readonly key_created: boolean;
}

/** The lock of a project: which power files its user accepted. */
export interface LockService {
  /** What is pinned and what differs from it; changes nothing. */
  status(): Promise<LockReport>;
  /** Pins what is there now, under the user's key. Throws `guard_changed` for files that nothing could obey. */
  accept(): Promise<AcceptedLock>;
}

/** The library and the composition root: everything that the faces do goes through it. */
export interface Rye {
  /** Folder that contains the project's `.ai`. */
  readonly projectPath: string;
  /** Folder that contains the user's `.ai`. */
  readonly userSpacePath: string;
  readonly items: ItemsService;
  readonly keys: KeysService;
  readonly lock: LockService;
  readonly threads: ThreadsService;
  /** Stream rules, outside of threads. */
  readonly rules: RulesService;
  readonly children: ChildrenService;
  readonly recovery: RecoveryService;
  readonly deliveries: DeliveriesService;
  readonly trees: SessionTrees;
  readonly exports: ExportsService;
  /** Runs a directive in this process and resolves with how it ended, whatever that was. */
  run(request: RunRequest): Promise<RunOutcome>;
  /** The same, with a hand on the run while it is under way. */
  start(request: RunRequest): RunHandle;
  init(options?: { force?: boolean }): Promise<InitOutcome>;
  hooks(directiveId?: string): Promise<readonly HookDeclaration[]>;
  explainHooks(
    directiveId: string,
    event?: HookEvent,
    inputs?: JsonObject,
  ): Promise<readonly HookExplanation[]>;
  /** JSON Schema of what the hooks of an event can read; of every event without one. Throws `usage`. */
  hookSchemas(event?: string): Promise<Readonly<Record<string, JsonObject>>>;
  config(path?: string): Promise<readonly ConfigValue[]>;
  models(): Promise<readonly JsonObject[]>;
  doctor(): Promise<readonly DoctorLine[]>;
  close(): void;
}

export type { McpServerStart } from '../core/events.ts';

export interface OpenRyeOptions {
  readonly projectPath: string;
  readonly userSpacePath: string;
  /** Environment to read keys and settings from; never passed on to tools as it is. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** One-line notices for people, such as an ignored configuration file. */
  readonly onNotice?: (notice: string) => void;
  /** Told of each MCP server that was started, and of each that could not be. */
  readonly onMcpServer?: (start: McpServerStart) => void;
  /** What every run begins with. */
  readonly preset?: Preset;
  /** `key=value` configuration overrides of this call. */
  readonly configOverrides?: readonly string[];
  /** Arguments for Node that run the command line, for threads in processes of their own. Default: bin/rye.js. */
  readonly program?: readonly string[];
}
