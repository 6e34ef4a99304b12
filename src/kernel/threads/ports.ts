import type { Risk } from '../core/capability.ts';
import type { Clock } from '../core/clock.ts';
import type { RyeError } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import type { KeepFile } from '../core/file-change.ts';
import type { IdSource, ItemType, Space } from '../core/ids.ts';
import type { Isolation } from '../core/isolation.ts';
import type { JsonObject } from '../core/json.ts';
import type { PartialLimits } from '../core/limits.ts';
import type { Message } from '../core/message.ts';
import type {
  PlannedModel,
  PlannedRules,
  PlannedTool,
  ProgramParts,
  ThreadPlan,
} from '../core/plan.ts';
import type { PayloadSigner, PayloadVerifier } from '../core/signing.ts';
import type { Integrity, ThreadRecord, ThreadResult } from '../core/thread.ts';
import type { HandlerLists } from '../hooks/handlers.ts';
import type { SessionTree } from '../log/tree.ts';
import type { LoopPorts, PolicyGate, ReturnCheck, Validation } from '../loop/ports.ts';
import type { ProviderFacts } from '../policy/provider-hint.ts';
import type { ModelProvider, ProviderTraits, ToolList } from '../providers/provider.ts';
import type { Owner, Store, StoredHead } from '../storage/store.ts';
import type { Tool, ToolSet } from '../tools/tool.ts';
import type { ApprovalEnv } from './approval-port.ts';
import type { FileCopies } from './file-copies-fs.ts';
import type { Fleet } from './fleet-port.ts';
import type { Restoring } from './project-files.ts';
import type { ThreadRenderer } from './renderer.ts';
import type { ThreadConfig } from './thread-config.ts';
import type { ThreadDocument } from './thread-document.ts';
import type { Isolating } from './worktrees.ts';

/** One item whose bytes were read once and verified; `text` is what runs. */
export interface LoadedItem {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  readonly text: string;
  readonly sha256: string;
  readonly integrity: Integrity;
  /** The key that signed it; absent for a file of rye itself and for one without a valid signature. */
  readonly key_id?: string;
}

/** The rules of the three spaces: what applies to a thread, and how it is watched. */
export interface RuleSource {
  /** Returns the rules of a new thread; undefined if there are none to watch, and nothing that could watch them. */
  plan(directive: string): Promise<RulePlan | undefined>;
  /** Compiles the rules of a plan for one run, which remembers what the path that it continues was told. */
  watch(plan: ThreadPlan, path: ContinuedPath): Pick<LoopPorts, 'watchStream' | 'noteMessage'>;
}

/** The path of a session tree that a run continues; a new thread has none. */
export interface ContinuedPath {
  readonly tree?: SessionTree;
  readonly leafId: string | null;
}

export interface RulePlan {
  readonly rules: PlannedRules;
  /** Rules that are skipped, with the reason. */
  readonly warnings: readonly string[];
}

/** Finds and verifies items. Failures are coded errors that name the file and the next command. */
export interface ItemSource {
  load(type: ItemType, id: string, operation: 'execute' | 'fetch' | 'context'): Promise<LoadedItem>;
}

export interface ModelRequestFacts {
  /** Tier or model id, from the option or the directive. */
  readonly wanted?: string | undefined;
  readonly provider?: string | undefined;
  readonly fallback?: string | undefined;
  /** The directive's tier beside its model id: used, with a warning, if the id is unknown. */
  readonly tier?: string | undefined;
  /** True if a model that no provider file lists may be used, without a price. */
  readonly allowUnpriced?: boolean;
  /** True if the directive has steps that need no model. */
  readonly hasSteps: boolean;
}

/** Resolves models and opens clients for them. */
export interface ModelSource {
  resolve(facts: ModelRequestFacts): Promise<{
    readonly model: PlannedModel;
    readonly fallbacks: readonly PlannedModel[];
    readonly origin: string;
    /** Why the model would have nothing to do for this directive. */
    readonly unfit?: RyeError;
    /** Differences from the request, one sentence each. */
    readonly warnings?: readonly string[];
  }>;
  /** Returns the name of the provider that executes steps without a model. */
  readonly stepProvider: () => string;
  /** Returns the traits of the model's kind of provider. */
  readonly traits: (model: PlannedModel) => ProviderTraits;
  /** Throws `provider_key_missing` if the model's provider lacks its key or address. */
  readonly assertReady?: (model: PlannedModel) => Promise<void>;
  /** Replaces the refused key of a model's provider, by the given one or by the provider's own means; false if there is no other. */
  readonly renewKey?: (
    model: Pick<PlannedModel, 'provider'>,
    key: string | undefined,
  ) => Promise<boolean>;
  /** Returns what is known of a model's provider, for the hint of a failed call. Never rejects. */
  readonly about?: (model: PlannedModel) => Promise<ProviderFacts>;
  /** Returns the most output tokens that one call to the model's provider gets in a second. */
  readonly outputRate: (model: Pick<PlannedModel, 'provider'>) => Promise<number>;
  /** A client for one thread; may throw, e.g. for a missing key. */
  open(model: PlannedModel, plan: ThreadPlan): ModelProvider;
}

/** The tools that a set of capabilities grants, without running anything. */
export interface ToolSource {
  granted(capabilities: readonly string[], facts: ToolPlanFacts): Promise<ToolGrants>;
  /** The live tools of a running thread. */
  open(session: ToolSession): Promise<OpenTools>;
}

export interface ToolGrants {
  readonly tools: readonly GrantedTool[];
  /** Tools, servers and skills that are skipped because of a problem, one sentence each. */
  readonly warnings: readonly string[];
  /** The capabilities whose tool, server or skill can't be used. */
  readonly unavailable: readonly UnavailableGrant[];
}

/** A capability that names something that can't be used. */
export interface UnavailableGrant {
  readonly capability: string;
  /** Why it can't be used. */
  readonly error: RyeError;
}

/** A granted tool before its risk is judged. */
export interface GrantedTool extends Omit<PlannedTool, 'risk'> {
  /** The risk from the tool's own traits; undefined if they declare none. */
  readonly declaredRisk: Risk | undefined;
  /** Built-in tools are judged by the risk table alone, item and MCP tools also by what they declare. */
  readonly builtin: boolean;
  /** True for a tool of the program that rye is a part of: no file and no server can be its author. */
  readonly own?: boolean;
}

export interface ToolPlanFacts {
  /** Tokens of schemas to send up front; the other tools are found with `tool_search`. */
  readonly preloadTokens: number;
  /** True if servers may be started to list their tools; otherwise a warning names them. */
  readonly mayConnect: boolean;
}

export interface ToolSession {
  readonly plan: ThreadPlan;
  /** The traits of the plan's model. */
  readonly traits: ProviderTraits;
  readonly threadId: string;
  /** Values of secret inputs, by name. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly children: SessionChildren;
  /** Writes events that are no entries to the thread's log, as they come; absent where there is no log. */
  readonly record?: ((drafts: readonly EventDraft[]) => void) | undefined;
  /** Keeps what a file has before a tool changes it; absent: changes can't be undone. */
  readonly keep?: KeepFile | undefined;
}

/** The `custom_type` of entries that tell a model that a server has changed its tools. */
export const TOOLS_CHANGED_ENTRY = 'tools_changed';

/** Called when all that a child does is wait for people, and when it works again. */
export type OnIdle = (isIdle: boolean) => void;

export type RunChild = (
  request: SpawnRequest,
  signal: AbortSignal,
  onIdle?: OnIdle,
) => Promise<ThreadResult>;

/** The children of a running thread. */
export interface SessionChildren {
  /** Runs a child to its end in this process. */
  readonly run: RunChild;
  /** Continues to wait for a child that {@link run} left because it waits for people. */
  readonly join: (threadId: string, signal: AbortSignal, onIdle?: OnIdle) => Promise<ThreadResult>;
  /** Starts a child in another process. */
  readonly launch: (request: SpawnRequest) => Promise<LaunchedThread>;
  /** Starts a tool in another process, as a thread whose id is a UUID. */
  readonly launchTool: (toolId: string, params: JsonObject) => Promise<LaunchedThread>;
  /** Records that the end of a run of a child is known; only the first call for a run counts. */
  readonly learned: (child: ThreadRecord, run: number) => Promise<void>;
}

/** A thread that runs, or will run, in another process. */
export interface LaunchedThread {
  readonly thread_id: string;
  readonly directive: string;
  /** `created`: it waits for a slot. */
  readonly status: 'running' | 'created';
  readonly pid: number | null;
  /** Its label; of a child without one: its directive and inputs, shortened. Absent for others. */
  readonly label?: string;
}

export interface SpawnRequest {
  readonly directiveId: string;
  readonly inputs: JsonObject;
  readonly limits?: PartialLimits;
  readonly model?: string;
  /** Capabilities that the hook starting the child adds to its thread's. */
  readonly hookCapabilities?: readonly string[];
  readonly isolation?: Isolation;
  readonly label?: string;
}

/** The skills of a running thread, for people and programs outside of it. */
export interface HostSkills {
  /**
   * Activates a skill and returns the events of it, with its instructions as the entry of this ID; none if it is active.
   * Throws for a skill that the thread does not have, or whose files were changed.
   */
  readonly activate: (id: string, entryId: string) => readonly EventDraft[];
  /** Returns the event of it; none if the skill is not active. */
  readonly deactivate: (id: string) => readonly EventDraft[];
  /** Deactivates all skills at the end of a run, and returns the events of it. */
  readonly end: () => readonly EventDraft[];
}

export interface OpenTools {
  /** Absent: the thread has no skills. */
  readonly skills?: HostSkills;
  readonly set: ToolSet;
  definitions(): ToolList;
  /** The list of deferred tools for the system text; empty when there are none. */
  catalog(): string;
  /** Loads one tool by id, for hooks. */
  tool(id: string): Promise<Tool>;
  validate(schema: JsonObject, input: JsonObject): Promise<Validation>;
  checkReturn(input: JsonObject): ReturnCheck;
  /** Earlier results have left the model's view, so nothing may refer to them any more. */
  readonly forgetReads?: () => void;
  /** Applies the changes that servers made to their tools; returns the drafts to record before the next turn. */
  readonly refresh?: () => Promise<readonly EventDraft[]>;
  /** Wire names of tools that can't be called any more. */
  readonly withdrawn?: () => ReadonlySet<string>;
  /** Restores what the conversation has loaded so far: skills, and tools that were found. */
  readonly restore?: (messages: readonly Message[]) => void;
  readonly gates: readonly PolicyGate[];
  /** Releases the resources that the tools hold for this thread, such as connections. */
  close(): Promise<void>;
}

/** The signed files of a thread's folder. */
export interface ThreadFiles {
  /** Copies of files before tools changed them. */
  readonly copies: FileCopies;
  readonly folder: (threadId: string) => string;
  /** Path of the file that appears when the owner with this epoch dies. */
  readonly deathMark: (threadId: string, epoch: number) => string;
  /** When that owner died, in milliseconds since 1970; undefined if it lives or nothing saw it die. */
  readonly diedAt: (threadId: string, epoch: number) => number | undefined;
  readonly knowledgePath: (directive: string, threadId: string) => string;
  /** Ids of the threads that have files on disk, listed in the registry or not. */
  list(): readonly string[];
  /** Renames a thread.json that can't be used, and keeps it; returns its new path, or undefined if there is none. */
  setAside(threadId: string): string | undefined;
  /** True if the thread's folder holds a document, a plan or a log, listed in the registry or not. */
  exists(threadId: string): boolean;
  /** Signs and writes thread.json; `sync` is `all` by default. */
  writeDocument(document: ThreadDocument, sync?: 'all' | 'content' | 'none'): Promise<void>;
  /**
   * Reads and verifies thread.json: `thread_damaged` if it is cut or empty, `thread_tampered` or a key's code if it is not
   * what was signed.
   */
  readDocument(threadId: string): Promise<ThreadDocument>;
  /** Stores the plan, so that the thread can be resumed. The plan of a later run leaves that of the first one in its place. */
  writePlan(threadId: string, plan: ThreadPlan, run?: number): Promise<void>;
  /** Reads the stored plan; `thread_tampered` if its hash differs from this document. */
  readPlan(document: Pick<ThreadDocument, 'thread_id' | 'plan_sha256'>): Promise<ThreadPlan>;
  writeCapabilities(threadId: string, text: string): Promise<void>;
  /** Signs and writes the export of a thread at its {@link knowledgePath}. */
  writeKnowledge(threadId: string, path: string, text: string): Promise<void>;
  /** Removes an entry that could not be replaced. Never throws. */
  removeKnowledge(path: string): void;
  /** Opens the export of a running thread for appending; undefined if there is one that is not `resumed`. */
  openExport(path: string, isResumed: boolean): Promise<LiveFile | undefined>;
  /** Writes a large tool result; resolves to its path relative to the project. */
  writeArtifact(threadId: string, name: string, bytes: string): Promise<string>;
  /** Writes a patch beside the large tool results; resolves to its path relative to the project. */
  writePatch(threadId: string, name: string, bytes: Uint8Array): Promise<string>;
  /** Writes one of two alternating patches of a thread's worktree; resolves to its path relative to the project. */
  writeSaved(threadId: string, slot: 0 | 1, bytes: Uint8Array): Promise<string>;
  /** Returns the path of such a patch; `thread_tampered` if it has not this hash. */
  savedPatch(
    threadId: string,
    saved: { readonly patch: string; readonly sha256: string },
  ): Promise<string>;
  /**
   * Updates the thread's folder from a store that keeps its files for all machines; does nothing without one.
   * `readDocument` and `readPlan` do that for the file that they read. Refused with `thread_tampered` or a key's code if a
   * file is not what was signed.
   */
  pull(threadId: string): Promise<void>;
}

/** A file that grows while its thread runs. Writes are unsigned and not synced. */
export interface LiveFile {
  append(text: string): void;
  close(): void;
}

/** The last known states of threads, kept apart from their folders. */
export interface HeadsPort {
  /** Why the thread is older than the last state that rye signed here; undefined if it is not. */
  rollbackOf(document: ThreadDocument): Promise<string | undefined>;
  /** Returns the last signed ends that the user space knows, by thread. */
  known(): ReadonlyMap<string, StoredHead>;
}

/** A command that runs `__run-thread <id>` when the id is appended, and its whole environment. */
export interface RunnerCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Holds the keys of the providers: they are never on the command line. */
  readonly environment: Readonly<Record<string, string>>;
}

/** The power files of a project, compared with those that its user accepted. */
export interface Guards {
  /** Throws `guard_changed` if one differs; resolves to a warning for each file that is not obeyed. */
  check(): Promise<readonly string[]>;
  /** Records the current state in the user space, so that a removal is noticed. */
  remember(): Promise<void>;
}

/** The stored state of a project's threads, with the keys and heads that prove it. */
export interface Stored {
  readonly store: Store;
  readonly files: ThreadFiles;
  readonly heads: HeadsPort;
  readonly verifier: PayloadVerifier;
}

/** This process: where it works, its time, ids and randomness, its name as an owner and its signature. */
export interface Process {
  readonly projectPath: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly random: () => number;
  readonly owner: Owner;
  /** Creates a file at the moment in which this process dies, however it goes; absent: nothing can. */
  readonly deathMarks?: { holdMark(path: string): void; releaseMark(path: string): void };
  /** When this machine started, in milliseconds since 1970. */
  readonly bootedMs: () => number;
  /** Throws `key_missing` without a signing key. */
  readonly signer: () => PayloadSigner;
  /**
   * Checks before a start that a signing key exists; creates a missing one if the program wants that. A dry run creates
   * nothing. Throws `key_missing`.
   */
  readonly readySigner: (options?: { readonly isDryRun?: boolean }) => Promise<void>;
  readonly onNotice: (notice: string) => void;
}

/** Configuration, read and validated once. */
export interface Configured {
  readonly config: ThreadConfig;
}

/** The sources of a thread's directive, rules, model and tools. */
export interface Sources {
  readonly items: ItemSource;
  readonly rules: RuleSource;
  readonly models: ModelSource;
  readonly tools: ToolSource;
}

/** The surroundings that only prepare reads. */
export interface Preparation extends Isolating {
  readonly guards: Guards;
  readonly isRevoked: (keyId: string) => boolean;
  /** The environment, for `{env:…}` only. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** `RYE_PARENT_THREAD_ID`, if a thread started this process. */
  readonly parentFromEnvironment: string | undefined;
  /** True if an input of type `file` names a readable file. */
  readonly fileExists: (path: string) => boolean;
  /** True for paths of files that rye ships, to tell shipped hooks from others. */
  readonly isShipped: (origin: string) => boolean;
  /** Rejects a JSON Schema that answers can't be checked against. */
  readonly checkSchema: (schema: JsonObject) => Promise<void>;
}

/** Renders and indexes the readable export of a thread. */
export interface Exporting {
  readonly renderer: ThreadRenderer;
  /** Updates the search index with a new export; best effort. */
  readonly indexExport: (path: string) => Promise<void>;
}

/** Starts threads in separate processes. */
export interface Launching {
  /** Absent: no fleet shares the store. */
  readonly fleet?: Fleet | undefined;
  readonly runner: () => Promise<RunnerCommand>;
  /** Offers a queued thread that this process has taken, once its own thread `ended`; true if this process runs it next. */
  readonly runNext?: ((threadId: string, ended: string) => boolean) | undefined;
}

/** Parts of the program that embeds rye. */
export interface Embedding {
  /** Returns who is asked and notified about the threads of this process. */
  readonly handlers?: (() => HandlerLists) | undefined;
  /** The parts that its threads may depend on; `travels` is true if the processes that it starts have them too. */
  readonly program?: (ProgramParts & { readonly travels: boolean }) | undefined;
}

/** Ends threads whose process died. */
export interface Recovering extends Stored, Process, Configured, Exporting, Isolating {
  readonly models: Sources['models'];
}

/** Starts queued threads and resumes finished ones. */
export type Supervising = Stored & Process & Configured & Launching & Exporting;

/** Plans a thread. */
export type Preparing = Stored & Process & Configured & Sources & Preparation & Embedding;

/** Everything that threads need from outside, except configuration; the composition root builds it. */
export interface ThreadPorts
  extends Stored,
    Process,
    Sources,
    Preparation,
    Exporting,
    Restoring,
    Launching,
    ApprovalEnv,
    Embedding {}

/** Everything that a thread needs to be prepared and run. */
export interface ThreadEnv extends ThreadPorts, Configured {}
