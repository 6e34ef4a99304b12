import type { Clock } from '../../core/clock.ts';
import type { ErrorInfo } from '../../core/errors.ts';
import type { McpServerStart } from '../../core/events.ts';
import type { HookDeclaration, HookEvent } from '../../core/hook.ts';
import type { IdSource } from '../../core/ids.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import type { DecidingHandlers, HandlerMap, RunEvent } from '../../hooks/handlers.ts';
import type { CustomWords } from '../../log/account.ts';
import type { ProviderKinds } from '../../providers/provider.ts';
import type { CloseOptions, Store } from '../../storage/store.ts';
import type { LibraryTool, Preset } from '../presets.ts';
import type { RunHandle, RunOutcome, RunRequest } from '../run-types.ts';
import type { ApprovalsService } from './approvals.ts';
import type { Chat, ChatRequest } from './chat.ts';
import type {
  DefinedDirective,
  DirectiveDeclaration,
  DirectiveInputDeclarations,
  DirectiveInputs,
  DirectiveOutputDeclarations,
  DirectiveOutputs,
} from './directives.ts';
import type { FleetService } from './fleet.ts';
import type { ItemsService, KeysService, LockService } from './items.ts';
import type { McpServerOptions } from './mcp.ts';
import type { OutputSchema, OutputsWith } from './output-schema.ts';

import type { RulesService } from './rules.ts';
import type { SchedulesService } from './schedules.ts';
import type { SkillsService } from './skills.ts';
import type {
  ChildrenService,
  DeliveriesService,
  RecoveryService,
  ThreadsService,
} from './threads.ts';
import type { ExportsService, SessionTrees } from './trees.ts';

export type { ExecuteDirectiveRequest } from '../presets.ts';

export interface HookExplanation {
  readonly hook: HookDeclaration;
  /** True if it fires for certain. */
  readonly would_fire: boolean;
  /** Paths of the event's context that decide whether it fires and that are known during a run only. */
  readonly depends_on: readonly string[];
  /** The reason, such as the condition node that was false with the values compared. */
  readonly because: string;
}

export interface ConfigValue {
  readonly path: string;
  readonly value: JsonValue;
  /** `file:line` or the layer that set it. */
  readonly origin: string;
  /** It is a default of rye. */
  readonly is_default?: true;
}

/** A configured MCP server with its tools, or the error of its start. */
export interface McpServerReport {
  readonly name: string;
  readonly ok: boolean;
  readonly error?: ErrorInfo;
  readonly tools: readonly { readonly id: string; readonly description: string }[];
}

export interface DoctorLine {
  readonly check: string;
  readonly status: 'ok' | 'warn' | 'fail';
  readonly detail: string;
  readonly hint?: string;
}

/** The result of `rye init`: paths that it created, and paths that it kept. */
export interface InitOutcome {
  readonly project: string;
  readonly created: readonly string[];
  readonly kept: readonly string[];
  readonly key_id: string;
  readonly key_created: boolean;
}

/** The model for directives that name none, as `rye models use` set it. */
export interface ModelUse {
  readonly space: 'user' | 'project';
  /** Absolute path of the signed file. */
  readonly path: string;
  readonly provider: string;
  /** null: the provider's model of the tier `general`. */
  readonly model: string | null;
  /** False if the provider's key is missing. */
  readonly usable: boolean;
}

/** The library. The command line does everything through it. */
export interface Rye {
  /** Folder that contains the project's `.ai`. */
  readonly projectPath: string;
  /** Folder that contains the user's `.ai`. */
  readonly userSpacePath: string;
  readonly items: ItemsService;
  readonly keys: KeysService;
  readonly lock: LockService;
  readonly threads: ThreadsService;
  /** Requests that wait for a person's decision. */
  readonly approvals: ApprovalsService;
  readonly schedules: SchedulesService;
  /** Begins a conversation, or continues that of a thread. Throws `thread_locked` if another process has it. */
  chat(request?: ChatRequest): Promise<Chat>;
  /** Stream rules, outside of threads. */
  readonly rules: RulesService;
  readonly children: ChildrenService;
  readonly recovery: RecoveryService;
  /** The fleet that shares the store of the project. */
  readonly fleet: FleetService;
  readonly deliveries: DeliveriesService;
  readonly skills: SkillsService;
  readonly trees: SessionTrees;
  readonly exports: ExportsService;
  /** Runs a directive in this process and resolves with its outcome; never rejects. */
  run<I extends object = JsonObject, O = JsonObject | null, const S extends OutputSchema = never>(
    request: RunRequest<I, O> & { readonly outputSchema?: S },
  ): Promise<RunOutcome<OutputsWith<O, S>>>;
  /** Starts a run and returns a handle to control it. */
  start<I extends object = JsonObject, O = JsonObject | null, const S extends OutputSchema = never>(
    request: RunRequest<I, O> & { readonly outputSchema?: S },
  ): RunHandle<OutputsWith<O, S>>;
  /**
   * Checks a directive from code as a file is checked, and keeps it: threads of this rye can start it as a child and be
   * resumed. Throws `usage`, or the code of the parser, for the member that is wrong.
   */
  defineDirective<
    const D extends DirectiveInputDeclarations,
    const O extends DirectiveOutputDeclarations,
  >(
    declaration: DirectiveDeclaration<D, O>,
  ): Promise<DefinedDirective<DirectiveInputs<D>, DirectiveOutputs<O>>>;
  /**
   * Connects the configured MCP servers, reads models and skills and loads the client of the providers, so that the first run
   * need not wait for it. Runs share what is under way; the servers live until rye is closed. Further calls do nothing. Never
   * rejects: a server that fails is told to `onMcpServer`, the rest is a notice, and the first run tries it again.
   */
  warmUp(): Promise<void>;
  /**
   * Adds handlers for the threads that this rye runs, also for those in progress: they are asked and told from the next
   * question and event on, after the handlers of presets. Returns the function that removes them. Throws `hook_invalid`.
   */
  addHandlers(handlers: HandlerMap): () => void;
  init(options?: { force?: boolean }): Promise<InitOutcome>;
  hooks(directiveId?: string): Promise<readonly HookDeclaration[]>;
  explainHooks(
    directiveId: string,
    event?: HookEvent,
    inputs?: JsonObject,
  ): Promise<readonly HookExplanation[]>;
  /** Returns the JSON Schema of the data that hooks of an event can read; without an event, of every event. Throws `usage`. */
  hookSchemas(event?: string): Promise<Readonly<Record<string, JsonObject>>>;
  config(path?: string): Promise<readonly ConfigValue[]>;
  /** Returns the configured models; `chosen` marks the one of directives that name none, `chosen_because` names the reason. */
  models(): Promise<readonly JsonObject[]>;
  /** Returns the prices of the configured models; with `all`, of every model that the shipped table of prices has. */
  prices(options?: { readonly all?: boolean }): Promise<PriceList>;
  /**
   * Sets the model or provider for directives that name none, in the signed `agent/agent.yaml` of the user (default) or of
   * the project. Throws `model_not_found`, or the signature fault of a file that was changed.
   */
  useModel(name: string, options?: { readonly space?: 'user' | 'project' }): Promise<ModelUse>;
  doctor(): Promise<readonly DoctorLine[]>;
  /** Loads the plug-ins of the user and of the project. Throws `plugin_modified`, `plugin_invalid` or the fault of a signature. */
  plugins(): Promise<readonly Plugin[]>;
  /** Starts the configured MCP servers, or one of them, and lists their tools. Throws `item_not_found` for an unknown name. */
  mcpServers(name?: string): Promise<readonly McpServerReport[]>;
  /** Writes an MCP server to the project's `mcp.yaml`, which has to be signed then. Returns the path. Throws `already_exists`. */
  addMcpServer(name: string, server: McpServerOptions): Promise<string>;
  /** Ends what was started and closes the store. */
  close(options?: CloseOptions): void;
}

/** Prices in USD per million tokens, each with its date and source, and one warning for the old ones of each provider. */
export interface PriceList {
  readonly prices: readonly JsonObject[];
  readonly warnings: readonly string[];
}

export type { McpServerStart } from '../../core/events.ts';
export type { CustomWords } from '../../log/account.ts';

export type { McpServerOptions } from './mcp.ts';

/** Observes an event. The events of children have types such as `child.message`. */
export type Subscriber = (event: RunEvent) => void | Promise<void>;

/** Opens a store for a project. */
export type StoreFactory = (setup: {
  readonly projectPath: string;
  readonly clock: Clock;
  readonly ids: IdSource;
}) => Store;

/** A feature as options carry it: rye knows the rest. */
export interface NamedFeature {
  readonly name: string;
}

export interface OpenRyeOptions {
  readonly projectPath: string;
  readonly userSpacePath: string;
  /** Environment to read keys and settings from; never passed on to tools as it is. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** One-line notices for people, such as an ignored configuration file. */
  readonly onNotice?: (notice: string) => void;
  /** Called with each MCP server that was started or failed to start. */
  readonly onMcpServer?: (start: McpServerStart) => void;
  /** True to warm up at once, in the background. Default: when the first run needs it. */
  readonly eager?: boolean;
  /** Defaults of every run. */
  readonly preset?: Preset;
  /** Kinds of providers besides those that rye ships, by the `kind` of provider files. Replaces a shipped kind of the same name. */
  readonly providers?: ProviderKinds;
  /** Tools of this program, by id. The same as `preset.tools`. */
  readonly tools?: Preset['tools'];
  /**
   * Replaces the built-in `tool_search`. It finds deferred tools in `context.deferred`, and names what it found in the
   * `tools` of the object that it returns: by ID or by wire name. Only tools that the thread is granted become callable.
   */
  readonly toolSearch?: LibraryTool;
  /**
   * Functions that get every event of the threads that this rye runs, and of their children, after it is durable. One that
   * fails is reported once as a notice and does not harm the run.
   */
  readonly subscribers?: readonly Subscriber[];
  /** Keeps the state of threads. Default: the project's `.ai/state`. Closing rye closes it. */
  readonly store?: Store | StoreFactory;
  /** MCP servers by name, in the shape of `servers` in mcp.yaml. One replaces a configured server of the same name. */
  readonly mcpServers?: Readonly<Record<string, McpServerOptions>>;
  /** Absolute paths of skill folders that the program vouches for. One replaces a skill of the same id. */
  readonly skills?: readonly string[];
  /** Default: the system clock. */
  readonly clock?: Clock;
  /** Source of ids of entries and threads. Default: random ids. */
  readonly ids?: IdSource;
  /** `key=value` configuration overrides of this call. */
  readonly configOverrides?: readonly string[];
  /** True to create the user's signing key, with a notice, when a thread starts without one. Default: `key_missing`. */
  readonly createKey?: boolean;
  /**
   * True to run without a signing key: a key of this rye alone makes the checkpoints, and each record is marked as not
   * signed until `threads.sign`. Refused if there is a signing key. Background threads are refused.
   */
  readonly unsignedRecords?: boolean;
  /** Features beside the kernel. Default of the package's `openRye`: all that rye ships. */
  readonly features?: readonly NamedFeature[];
  /** Arguments for Node that run the command line, for background threads. Default: bin/rye.js. */
  readonly program?: readonly string[];
}
export type { CloseOptions } from '../../storage/store.ts';

/** The function `plugin` that the module of a plug-in exports. It is called once for each opened rye. */
export type PluginFactory = (host: PluginHost) => Plugin | Promise<Plugin>;

/** A part of rye that configuration adds. `plugins.yaml` has to grant each member that it has. */
export interface Plugin {
  /** Small letters, digits and hyphens. No two plug-ins share one. */
  readonly name: string;
  /** By ID, such as `acme/lookup`. A directive has to grant each like any other tool. */
  readonly tools?: Readonly<Record<string, LibraryTool>>;
  /** Judge each call of a tool: all of them have to let it pass. One that fails refuses the call. */
  readonly gates?: readonly DecidingHandlers['tool_gate'][];
  /** Get every event of the threads that this process runs, after it is durable. */
  readonly subscribers?: readonly Subscriber[];
  /** SQL statements for the plug-in's database in the project's `.ai/state/plugins`; each runs once, in order. Only add to the list. */
  readonly tables?: readonly string[];
  /**
   * Lines for people about custom entries, by their custom type; of a custom message, `data` has its details. People who
   * watch a run are shown such entries too.
   */
  readonly events?: Readonly<Record<string, CustomWords>>;
  /** Commands of `rye`. One does not replace a command that rye has. */
  readonly commands?: readonly PluginCommand[];
}

/** A command of `rye`, by its name. */
export interface PluginCommand {
  readonly name: string;
  readonly summary: string;
  /** Does the work. Returns the exit status; nothing is 0. */
  run(call: PluginCall): Promise<number | undefined | void>;
}

export interface PluginCall {
  /** The words after the command. */
  readonly words: readonly string[];
  /** True with `--json`: print one document. */
  readonly json: boolean;
  readonly rye: Rye;
  /** Prints a text and a line break on stdout. */
  print(text: string): void;
}

/** The parts of rye that a plug-in works with. */
export interface PluginHost {
  readonly projectPath: string;
  readonly rows: PluginRows;
  /** Prints one line for people, once. */
  notice(text: string): void;
}

/** The plug-in's database (SQLite). Opened, with its tables, when it is first used. */
export interface PluginRows {
  all(sql: string, ...parameters: readonly unknown[]): readonly unknown[];
  /** Returns the number of changed rows. */
  run(sql: string, ...parameters: readonly unknown[]): number;
}
