import type { AskedPermission } from './approval.ts';
import type { Acknowledgement, Risk } from './capability.ts';
import type { Condition, HookDeclaration } from './hook.ts';
import type { ItemType, Space } from './ids.ts';
import type { PlannedWorktree } from './isolation.ts';
import type { JsonObject, JsonValue } from './json.ts';
import type { Limits, PartialLimits } from './limits.ts';
import type { Integrity } from './thread.ts';
import type { Pricing } from './usage.ts';

/** One file that the plan was made from. */
export interface PlanSource {
  readonly type: ItemType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  readonly sha256: string;
  readonly integrity: Integrity;
  /** The key that signed it; absent for a file of rye itself, one without a valid signature, and in older plans. */
  readonly key_id?: string;
}

export const VALUE_TYPES = [
  'string',
  'integer',
  'number',
  'boolean',
  'array',
  'object',
  'file',
  'enum',
] as const;
/** Types of declared inputs and outputs. */
export type ValueType = (typeof VALUE_TYPES)[number];

export interface OutputDeclaration {
  readonly name: string;
  readonly type: ValueType;
  readonly required: boolean;
  readonly description: string;
  /** For `literal`: the expression that the value comes from, such as `${steps.write.path}`. */
  readonly from?: string;
  /** JSON Schema that the value must match, without references; absent: the type alone counts. */
  readonly schema?: JsonObject;
  /** Id of the knowledge entry that contains the schema. */
  readonly schema_id?: string;
}

/** One explicit step of a `<process>`, which the literal provider executes itself. */
export interface ProcessStep {
  readonly name: string;
  readonly description: string;
  readonly calls: readonly ProcessCall[];
  /** Position of the step as `file:line`. */
  readonly origin: string;
  /** The `<foreach>` and `<if>` elements around the step, outermost first; absent: none. */
  readonly within?: readonly ProcessBlock[];
}

/** An element around steps. Steps with the same `id` at the same depth are in one element. */
export type ProcessBlock =
  | {
      readonly kind: 'foreach';
      readonly id: number;
      /** Name of the item in references. */
      readonly item: string;
      /** The list, or a reference to one. */
      readonly in: JsonValue;
      /** Maximum number of items that run at once. */
      readonly parallel: number;
      /** `fail`: a failed item fails the process once the running items have ended. */
      readonly on_error: 'fail' | 'continue';
      readonly origin: string;
    }
  | {
      readonly kind: 'if';
      readonly id: number;
      readonly condition: Condition;
      /** The condition as written. */
      readonly text: string;
      readonly origin: string;
    };

export interface ProcessCall {
  readonly primary: 'execute' | 'fetch' | 'sign';
  readonly item_type: ItemType;
  /** Empty for a fetch that is a query. */
  readonly item_id: string;
  readonly params: JsonObject;
  /** Other arguments of `rye_execute`, such as `async` or `limit_overrides`. */
  readonly options?: JsonObject;
}

/** A piece of text for the first message or the system prompt, with its source. */
export interface ContextBlock {
  readonly position: 'system' | 'before' | 'after';
  readonly id: string;
  readonly source: string;
  readonly content: string;
}

/** A tool that the thread may use. */
export interface PlannedTool {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonObject;
  /** `false`: listed by name only, its schema comes through `tool_search`. */
  readonly preloaded: boolean;
  readonly risk: Risk;
}

/** A model that a thread may talk to, with what is needed to call and price it. */
export interface PlannedModel {
  readonly provider: string;
  /** The kind of the provider, which decides how it is called. */
  readonly kind: string;
  readonly id: string;
  readonly tier: string | null;
  readonly context_window: number;
  readonly max_output_tokens: number;
  /** null: no price is known. */
  readonly pricing: Pricing | null;
}

/** Parts of the embedding program that a thread depends on: no other program has them. */
export interface ProgramParts {
  /** Names of the handlers that decide. */
  readonly handlers: readonly string[];
  /** Ids. */
  readonly tools: readonly string[];
  /** Ids; absent: none. */
  readonly directives?: readonly string[];
  /** Names; absent: none. */
  readonly mcp_servers?: readonly string[];
  /** Ids; absent: none. */
  readonly skills?: readonly string[];
}

/**
 * Everything that decides how a thread runs: immutable and serialisable, made by prepare without any effect.
 * Secret inputs are not in it: their values travel beside the plan, in memory or in a private file.
 */
export interface ThreadPlan {
  readonly format: 1;
  readonly directive: PlanSource & {
    readonly name: string;
    readonly version: string;
    readonly description: string;
    readonly category: string;
  };
  /** Ancestors, root first, the directive itself last. */
  readonly chain: readonly PlanSource[];
  /** Knowledge that the context is made of. */
  readonly context_sources: readonly PlanSource[];
  readonly parent_thread_id: string | null;
  readonly inputs: JsonObject;
  readonly secret_inputs: readonly string[];
  readonly outputs: readonly OutputDeclaration[];
  /** The `<directive …>` text: the core of the first user message. */
  readonly prompt: string;
  /** Interpolated body, for hooks. */
  readonly body: string;
  readonly context: readonly ContextBlock[];
  readonly suppress: readonly string[];
  /** The steps as written: a run replaces all of their references in one pass, so that no value is expanded. */
  readonly process: readonly ProcessStep[];
  /**
   * Values of the references in `process` to inputs and variables, by reference as written, such as `{input:name}`. Absent:
   * none, or the steps contain the values, as in plans of older versions.
   */
  readonly process_values?: JsonObject;
  readonly limits: Limits;
  /** The limits without those from outside; absent: `limits` of the first run. */
  readonly granted_limits?: Limits;
  /** The grant of each limit that the caller raised above it with `--raise-limits`; absent: none. */
  readonly raised_limits?: PartialLimits;
  readonly capabilities: readonly string[];
  /** Demands for a person's decision, including the demands of the threads above it; absent: none. */
  readonly asks?: readonly AskedPermission[];
  readonly acknowledged: readonly Acknowledgement[];
  readonly risks: readonly { readonly capability: string; readonly risk: Risk }[];
  readonly hooks: readonly HookDeclaration[];
  readonly tools: readonly PlannedTool[];
  readonly model: PlannedModel;
  readonly fallbacks: readonly PlannedModel[];
  readonly thinking: 'off' | 'minimal' | 'low' | 'medium' | 'high';
  readonly integrity: Integrity;
  readonly allow_unpriced: boolean;
  readonly continuation_directive: string | null;
  readonly behavior: JsonObject;
  /** Origin of each value: dotted path in this plan → `file:line`, a layer name, or an option. */
  readonly origins: Readonly<Record<string, string>>;
  /** Warnings for people before the run; never fatal. */
  readonly warnings: readonly string[];
  readonly settings: ThreadSettings;
  /** Absent where no model speaks. */
  readonly rules?: PlannedRules;
  /** Settings of the start beyond the directive, which a refresh applies again; absent: none. */
  readonly requested?: RequestedSettings;
  /** Parts that a program needs to resume the thread in another process; absent: none. */
  readonly program?: ProgramParts;
  /** The thread's own git worktree; absent: it works where its parent does, or in the project. */
  readonly worktree?: PlannedWorktree;
  /** The folder that its tools take for the project, relative to the project; absent: the project. */
  readonly work_path?: string;
  /** The name of the thread in lists; absent: none. */
  readonly label?: string;
  /** Its legs run on the workers of a fleet; absent: it runs here. */
  readonly fleet?: PlannedFleet;
}

/** The place of a thread in a fleet, and its bundle. */
export interface PlannedFleet {
  readonly queue: string;
  /** 0 starts first, 9 last. */
  readonly priority: number;
  /** The tenant or account that limits per partition count; null: the common one. */
  readonly partition: string | null;
  /** SHA-256 hex of the signed bundle with the items that the thread may load. */
  readonly bundle: string;
  /** SHA-256 hex of the plan for which the bundle was made: that of the root, without this member. */
  readonly bundle_plan: string;
  /** ID of the key of the person who owns the thread: the key of a worker signs its records, and decides nothing. */
  readonly submitter: string;
  /** IDs of the roots whose workers may run its legs; absent in older plans: those that trust the submitter. */
  readonly roots?: readonly string[];
  /** The files that the thread works on; absent: a new folder. */
  readonly source?: PlannedSource;
  /** Names of the secret inputs whose values are sealed in the store; absent: none. */
  readonly secrets?: readonly string[];
}

export const SOURCE_KINDS = ['git', 'bundle'] as const;
export type SourceKind = (typeof SOURCE_KINDS)[number];

/** Ways to fetch a source tree. */
export const SOURCE_PROTOCOLS = ['https', 'ssh', 'http', 'file'] as const;
export type SourceProtocol = (typeof SOURCE_PROTOCOLS)[number];

export const SOURCE_RESULTS = ['push', 'patch'] as const;
export type SourceResults = (typeof SOURCE_RESULTS)[number];

/** One commit as the files that threads of a fleet work on, each in a worktree. */
export interface PlannedSource {
  /** `git`: workers fetch it. `bundle`: the store has it. */
  readonly kind: SourceKind;
  /** Its full ID. */
  readonly commit: string;
  /** The project's folder within the repository, with a slash at the end; empty: the repository is the project. */
  readonly prefix: string;
  /** The repository from which workers fetch it, without credentials; absent in a bundle. */
  readonly url?: string;
  /** SHA-256 hex of the packed commit; only in a bundle. */
  readonly pack?: string;
  /** `push`: the changes are also pushed to `refs/rye/THREAD` at the URL. */
  readonly results: SourceResults;
}

/** Settings of the request that started a thread, without its inputs and acknowledgements. */
export interface RequestedSettings {
  readonly model?: string;
  readonly provider?: string;
  /** Text of the program at the end of the system text. */
  readonly system?: string;
  readonly limits?: PartialLimits;
  readonly raise_limits?: boolean;
  readonly behavior?: JsonObject;
  /** Ids of the only tools of the directive that the thread may execute. */
  readonly only_tools?: readonly string[];
  /** Capabilities that the hook starting a child adds to the capabilities of the child's parent. */
  readonly hook_capabilities?: readonly string[];
}

/** Resolved configuration that the loop needs; shipped defaults in the system space. */
export interface ThreadSettings {
  readonly tools_parallel: number;
  readonly durability: 'turn' | 'always' | 'off';
  readonly token_deltas: 'every' | 'coalesced' | 'off';
  /** The most retries of a model call in one turn; absent: as many as `retry_seconds` has room for. */
  readonly max_retries?: number;
  /** Seconds after the first failure in which a model call is retried; absent in plans of older versions. */
  readonly retry_seconds?: number;
  /** Seconds of silence that break an answer which has begun; 0: none do. */
  readonly stall_seconds: number;
  /** The same before its first byte; absent in plans of older versions. */
  readonly first_byte_seconds?: number;
  /** Seconds in which a connection must be made; absent in plans of older versions. */
  readonly connect_seconds?: number;
  /** Tool results above this many bytes go to `artifacts/`. */
  readonly result_max_bytes: number;
  readonly error_classification: readonly JsonObject[];
  readonly cache: boolean;
  /** The part of the context window that makes a context full, and what then happens. */
  readonly context_limit: {
    readonly threshold: number;
    readonly mode: 'compact' | 'handoff';
    /** Tokens of the window that stay free for an answer. */
    readonly reserve_tokens?: number;
    /** Tokens of the newest conversation that a compaction keeps in full. */
    readonly keep_recent_tokens?: number;
  };
  /** Folders outside the project that file tools may touch. */
  readonly allow_paths: readonly string[];
  /** Patterns of files that no tool reads, after the built-in ones; absent: none. */
  readonly deny_read?: readonly string[];
  /** Confinement of commands and the hosts that they may reach; absent: none. */
  readonly sandbox?: {
    readonly mode: 'off' | 'auto' | 'required';
    readonly allow_domains: readonly string[];
    /** Folders of a home that confined commands may read; absent in plans of older versions. */
    readonly allow_caches?: readonly string[];
  };
}

export const INTERRUPT_MODES = ['never', 'prose-only', 'tool-only', 'always'] as const;
/** In which streams a match cuts the answer; in the others it leads to a reminder. */
export type InterruptMode = (typeof INTERRUPT_MODES)[number];

export const REPEAT_MODES = ['once', 'after-gap'] as const;
export type RepeatMode = (typeof REPEAT_MODES)[number];

export const RULE_ENGINES = ['re2', 'js'] as const;
export type RuleEngine = (typeof RULE_ENGINES)[number];

/** The group `agent/rules` of the configuration. */
export interface RuleSettings {
  readonly enabled: boolean;
  /** `keep` leaves a cut answer in the model's view, `discard` omits it. */
  readonly context_mode: 'discard' | 'keep';
  readonly interrupt_mode: InterruptMode;
  readonly repeat_mode: RepeatMode;
  /** Completed turns between two injections of a rule. */
  readonly repeat_gap: number;
  readonly builtin_rules: boolean;
  readonly disabled_rules: readonly string[];
  /** After this many interrupts and reminders, matches of a run are only recorded. */
  readonly max_interrupts_per_run: number;
  /** Characters of one stream that rules with `engine: js` are given at once. */
  readonly buffer_limit: number;
}

/** One rule that applies to a thread, as its file declares it. */
export interface PlannedRule {
  /** File name without extension. */
  readonly name: string;
  readonly space: Space;
  readonly path: string;
  /** SHA-256 hex of the rule's text, conditions and scope, which identifies it in the record of injections. */
  readonly sha256: string;
  readonly conditions: readonly string[];
  /** A condition of the matching language, beside the others; absent: none. */
  readonly match?: JsonObject;
  readonly scope: readonly string[];
  readonly globs: readonly string[];
  readonly interrupt?: InterruptMode;
  readonly repeat?: RepeatMode;
  readonly gap?: number;
  readonly engine: RuleEngine;
  /** Text for the model. */
  readonly body: string;
}

/** A rule that the model can fetch. */
export interface ListedRule {
  readonly id: string;
  readonly name: string;
  readonly description: string;
}

/** The rules of one thread, by what they are for. */
export interface PlannedRules {
  readonly settings: RuleSettings;
  /** Watched while the model speaks. */
  readonly stream: readonly PlannedRule[];
  /** Part of the system text. */
  readonly always: readonly PlannedRule[];
  /** Listed in the system text, and fetched when the model wants them. */
  readonly rulebook: readonly ListedRule[];
}
