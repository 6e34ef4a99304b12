import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { wireName } from '../core/ids.ts';
import { isRecord } from '../core/json.ts';
import { isErrorOutcome, type Message } from '../core/message.ts';
import type { PlannedTool, ThreadPlan, ThreadSettings } from '../core/plan.ts';
import type { ResultShape } from '../core/return-schema.ts';
import type { Behavior } from '../loop/behavior.ts';
import type { ProviderTraits, ToolDefinition, ToolList } from '../providers/provider.ts';
import type { ToolSession } from '../threads/ports.ts';
import { threadsFolder } from '../threads/thread-files-fs.ts';
import type { BuiltinOptions, FileMemory } from '../tools/builtin/options.ts';
import { type DeniesRead, deniesRead } from '../tools/deny-read.ts';
import { directiveReturnDefinition } from '../tools/directive-return.ts';
import {
  createToolSearch,
  deferredCatalog,
  hostToolSearch,
  TOOL_SEARCH_ID,
} from '../tools/disclosure.ts';
import { closeSandbox } from '../tools/proxied-sandbox.ts';
import { sandboxFor } from '../tools/sandbox.ts';
import { SKILLS_USE_ID } from '../tools/skill-needs.ts';
import type { Tool, ToolSet } from '../tools/tool.ts';

import { createToolSet } from '../tools/tool-set.ts';
import { showsSigningKey } from './ancestry.ts';
import { liftsGuard } from './granted-tools.ts';
import type { SandboxMode, Workspace } from './workspace.ts';

export interface SessionToolsOptions {
  readonly plan: Pick<ThreadPlan, 'tools'>;
  /** The result that the model returns. */
  readonly result: ResultShape;
  readonly aliases: Behavior['toolAliases'];
  /** Ids of deferred tools that can be called. */
  readonly unlocked: Set<string>;
  /** The program's `tool_search`; absent: the built-in one. */
  readonly search?: Tool | undefined;
  /** Tools that stay the same as long as the thread runs. */
  readonly own: readonly Tool[];
  /** Makes a tool of a server callable. */
  readonly remote: (tool: PlannedTool) => Tool;
  readonly loadTool: (id: string) => Promise<Tool | undefined>;
}

/** The tools that one running thread may call: the plan's tools, changed by what servers have added and withdrawn since. */
export class SessionTools {
  readonly #options: SessionToolsOptions;
  readonly #remote: Tool[];
  #planned: readonly PlannedTool[];
  /** Why a planned tool can't be called now, by id. */
  #withdrawn: ReadonlyMap<string, string> = new Map();
  #search: readonly Tool[] = [];
  #byId: ReadonlyMap<string, Tool> = new Map();
  #set: ToolSet = { resolve: () => Promise.resolve({ kind: 'unknown', near: [] }) };
  #version = 0;
  /** The list offered now, with the count of unlocked tools that it was made for. */
  #offered: { readonly unlocked: number; readonly list: ToolList } | undefined;

  constructor(options: SessionToolsOptions) {
    const { plan, own, remote } = options;
    const ids = new Set(own.map(({ id }) => id));
    this.#options = options;
    this.#planned = plan.tools;
    this.#remote = plan.tools.filter(({ id }) => !ids.has(id)).map(remote);
    this.#build();
  }

  get planned(): readonly PlannedTool[] {
    return this.#planned;
  }

  /** Wire names of the tools that the thread can make no use of now. */
  withdrawnNames(): ReadonlySet<string> {
    return new Set(
      this.#planned.filter(({ id }) => this.#withdrawn.has(id)).map(({ name }) => name),
    );
  }

  readonly set: ToolSet = {
    resolve: async (name, input) => await this.#set.resolve(name, input),
  };

  tool(id: string): Tool | undefined {
    return this.#byId.get(id);
  }

  /** Adds tools, and returns those that the thread cannot use now. Throws `wire_name_collision`. */
  change(added: readonly PlannedTool[], withdrawn: ReadonlyMap<string, string>): void {
    this.#planned = [...this.#planned, ...added];
    this.#remote.push(...added.map((tool) => this.#options.remote(tool)));
    this.#withdrawn = withdrawn;
    this.#build();
  }

  /** Returns the tools that the model is offered now, as a new version after each change. */
  definitions(): ToolList {
    const unlocked = this.#options.unlocked.size;
    if (this.#offered?.unlocked !== unlocked) {
      this.#version += 1;
      this.#offered = { unlocked, list: { version: this.#version, tools: this.#define() } };
    }
    return this.#offered.list;
  }

  /** The deferred tools as the system text lists them. */
  catalog(): string {
    return deferredCatalog(this.#deferred().map((tool) => ({ ...tool, name: this.shown(tool) })));
  }

  /** Makes the deferred tools callable again that an earlier part of the conversation loaded. */
  restore(messages: readonly Message[]): void {
    const names = new Set(messages.flatMap(unlockedIn));
    for (const { id, name, preloaded } of this.#planned) {
      if (!preloaded && names.has(name)) this.#options.unlocked.add(id);
    }
  }

  /** Why a call of a planned tool is refused now. */
  refusal(id: string): string | undefined {
    const reason = this.#withdrawn.get(id);
    if (reason !== undefined) return reason;
    return this.#isHidden(id)
      ? `${wireName(id)} is not loaded yet: load its schema with tool_search first.`
      : undefined;
  }

  /** The name that the model knows a tool by. */
  shown({ name }: Pick<PlannedTool, 'name'>): string {
    return this.#options.aliases.get(name) ?? name;
  }

  #define(): readonly ToolDefinition[] {
    const returning = directiveReturnDefinition(this.#options.result);
    return [
      ...this.#planned
        .filter(({ id }) => !this.#isHidden(id) && !this.#withdrawn.has(id))
        .map(definitionOf),
      ...this.#search.map(({ id, description, inputSchema }) => ({
        name: id,
        description,
        input_schema: inputSchema,
      })),
      ...(returning ? [returning] : []),
    ];
  }

  #deferred(): readonly PlannedTool[] {
    return this.#planned.filter(({ id, preloaded }) => !preloaded && !this.#withdrawn.has(id));
  }

  #isHidden(id: string): boolean {
    const { unlocked } = this.#options;
    return !unlocked.has(id) && this.#planned.some((tool) => tool.id === id && !tool.preloaded);
  }

  #build(): void {
    const { own, loadTool } = this.#options;
    this.#search = searchFor(this.#deferred(), this.#options);
    const tools = [...own, ...this.#remote, ...this.#search];
    this.#byId = new Map(tools.map((tool) => [tool.id, tool]));
    this.#set = createToolSet({ tools, loadTool });
    this.#offered = undefined;
  }
}

/** `tool_search` where there is something to find; finding a granted tool needs no more than that grant. */
function searchFor(
  deferred: readonly PlannedTool[],
  { unlocked, aliases, search }: Pick<SessionToolsOptions, 'unlocked' | 'aliases' | 'search'>,
): readonly Tool[] {
  const [first] = deferred;
  if (first === undefined) return [];
  const need = { verb: 'execute', item_type: 'tool', item_id: first.id } as const;
  const tool = search
    ? hostToolSearch(search, deferred, unlocked, aliases)
    : createToolSearch(deferred, unlocked, aliases);
  return [{ ...tool, need: () => need }];
}

function definitionOf({ name, description, input_schema }: PlannedTool): ToolDefinition {
  return { name, description, input_schema };
}

/** Derives the settings of the built-in tools from a thread's behavior. */
export function builtinSettings(
  {
    readLineNumbers,
    shellMetadata: metadata,
    shellMaxOutputBytes: maxOutputBytes,
    persistThreshold,
  }: Behavior,
  settings: ThreadPlan['settings'],
  { needsTools }: ProviderTraits,
): NonNullable<ToolScope['builtin']> {
  // explicit steps use results as data, which no context bounds
  const maxResultBytes = needsTools ? 0 : (persistThreshold ?? settings.result_max_bytes);
  return {
    readLineNumbers,
    metadata,
    maxResultBytes,
    ...(needsTools ? { whole: true } : {}),
    ...(maxOutputBytes === undefined ? {} : { maxOutputBytes }),
  };
}

/** The resources that tools may use while they run. Without it they are declarations only. */
export interface ToolScope extends Pick<ToolSession, 'secrets' | 'children' | 'keep'> {
  readonly capabilities: readonly string[];
  readonly allowPaths: readonly string[];
  /** True for what tools must not read. */
  readonly denies: DeniesRead;
  /** Confines commands; absent: they run as they are. */
  readonly sandbox?: ReturnType<typeof sandboxFor>;
  /** Hosts that HTTP tools may reach; absent if commands run without a sandbox. */
  readonly allowDomains?: readonly string[];
  /** Refuses a tool that is loaded while the thread runs and that it may not hold. */
  readonly admit?: (tool: Tool) => void;
  /** The folder of the thread's artifacts if it works in a worktree. */
  readonly artifacts?: string | undefined;
  /** Remembers what the thread has read; absent if each read returns the whole file. */
  readonly memory?: FileMemory;
  /** Settings of the built-in tools from the thread's behavior. */
  readonly builtin?: Pick<
    BuiltinOptions,
    'readLineNumbers' | 'maxOutputBytes' | 'maxResultBytes' | 'metadata' | 'whole'
  >;
}

/** The folder in which a thread works, relative to the project, and what it may do. */
interface ThreadPlace {
  readonly workPath: string | undefined;
  readonly capabilities: readonly string[];
}

/** Returns the test for what the tools of a thread must not read. */
export function readDenier(
  { options: { userSpacePath, env } }: Pick<Workspace, 'options'>,
  { deny_read: patterns = [] }: Pick<ThreadSettings, 'deny_read'>,
): DeniesRead {
  return deniesRead(patterns, [userSpacePath, env['HOME'] ?? '', homedir()].filter(isAbsolute));
}

/** Returns the sandbox for the commands of a thread with these settings; undefined if there is none. */
export function threadSandbox(
  workspace: Workspace,
  {
    sandbox,
    allow_paths: allowPaths,
    ...settings
  }: Pick<ThreadSettings, 'sandbox' | 'allow_paths' | 'deny_read'>,
  { workPath, capabilities = [] }: Partial<ThreadPlace> = {},
): ReturnType<typeof sandboxFor> {
  const { projectPath, userSpacePath, env } = workspace.options;
  const mode = modeOf(workspace, sandbox);
  if (mode === 'off') return unconfined(workspace);
  workspace.onClose(endSandbox);
  return sandboxFor({
    mode,
    allowDomains: sandbox?.allow_domains ?? [],
    allowPaths: absolutePaths(allowPaths, projectPath),
    allowCaches: sandbox?.allow_caches ?? [],
    env,
    denies: readDenier(workspace, settings),
    programPath: workspace.systemPath,
    projectPath: workPath === undefined ? projectPath : join(projectPath, workPath),
    keptIn: projectPath,
    userSpacePath,
    maySetTraps: liftsGuard(capabilities)('traps'),
    onNotice: (notice) => {
      workspace.notice(notice);
      noticeSigningKey(workspace);
    },
  });
}

/** Returns the sandbox of programs that are no commands: `auto` leaves them alone. */
export function strictSandbox(
  ...[workspace, settings, place]: Parameters<typeof threadSandbox>
): ReturnType<typeof sandboxFor> {
  return modeOf(workspace, settings.sandbox) === 'required'
    ? threadSandbox(workspace, settings, place)
    : undefined;
}

/** Reports once, before the first command, that it can read the signing key. */
function unconfined(workspace: Workspace): ReturnType<typeof sandboxFor> {
  if (showsSigningKey(workspace.options.env) === undefined) return undefined;
  return () => async () => {
    noticeSigningKey(workspace);
    return await Promise.resolve(undefined);
  };
}

function noticeSigningKey(workspace: Workspace): void {
  const pid = showsSigningKey(workspace.options.env);
  if (pid === undefined) return;
  workspace.notice(
    `tools can read RYE_SIGNING_KEY in the environment of process ${pid}: set tools.sandbox: required in resilience.yaml and sign it, or run only directives without commands`,
  );
}

const SANDBOXES: readonly SandboxMode[] = ['off', 'auto', 'required'];

function modeOf(
  { weakestSandbox }: Workspace,
  sandbox: ThreadSettings['sandbox'] | undefined,
): SandboxMode {
  return stricter(sandbox?.mode ?? 'off', weakestSandbox);
}

function stricter(one: SandboxMode, other: SandboxMode): SandboxMode {
  return SANDBOXES.indexOf(one) > SANDBOXES.indexOf(other) ? one : other;
}

/** Returns the folder of the artifacts of a thread that works in a worktree; undefined if the project holds them. */
export function artifactsOf(
  { options: { projectPath } }: Workspace,
  { plan, threadId }: Pick<ToolSession, 'plan' | 'threadId'>,
): string | undefined {
  if (plan.work_path === undefined) return undefined;
  return join(threadsFolder(projectPath), threadId, 'artifacts');
}

/** Requests of HTTP tools leave from this process, so the list of hosts is checked for them, if the sandbox has one. */
export function reachableDomains({ sandbox }: Pick<ThreadSettings, 'sandbox'>): {
  readonly allowDomains?: readonly string[];
} {
  const { mode = 'off', allow_domains: allowDomains = [] } = sandbox ?? {};
  const isListed = mode === 'required' || (mode === 'auto' && allowDomains.length > 0);
  return isListed ? { allowDomains } : {};
}

function endSandbox(): void {
  void closeSandbox();
}

/** Configured paths are relative to the project. */
export function absolutePaths(paths: readonly string[], projectPath: string): readonly string[] {
  return paths.map((path) => (isAbsolute(path) ? path : join(projectPath, path)));
}

/** The wire names that a search, or a skill, made callable. */
function unlockedIn(message: Message): readonly unknown[] {
  if (message.role !== 'tool_result' || isErrorOutcome(message.outcome)) return [];
  const isUnlocking = message.name === TOOL_SEARCH_ID || message.name === wireName(SKILLS_USE_ID);
  const names = isUnlocking && isRecord(message.data) ? message.data['tools'] : undefined;
  return Array.isArray(names) ? names : [];
}
