import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { ServerSession, ToolServers } from '../../kernel/app/feature.ts';
import { presetServers } from '../../kernel/app/presets.ts';
import { type SessionTools, strictSandbox } from '../../kernel/app/session-tools.ts';
import { readThreadConfig } from '../../kernel/app/settings.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { capabilityOf } from '../../kernel/core/capability.ts';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, EventPayloads, McpServerStart } from '../../kernel/core/events.ts';
import { serverOfTool, wireName } from '../../kernel/core/ids.ts';
import { compact } from '../../kernel/core/json.ts';
import type { PlannedTool } from '../../kernel/core/plan.ts';
import { verifyFile } from '../../kernel/items/verified-fs.ts';
import { coversTool, meet } from '../../kernel/policy/capability.ts';
import { riskOf } from '../../kernel/policy/risk.ts';
import { type OpenTools, TOOLS_CHANGED_ENTRY } from '../../kernel/threads/ports.ts';
import { definitionTokens } from '../../kernel/tools/disclosure.ts';
import { childEnvironment } from '../../kernel/tools/process.ts';
import { environmentSecrets, withoutSecretsIn } from '../../kernel/tools/secrets.ts';
import type { Tool } from '../../kernel/tools/tool.ts';
import { faultError } from '../../kernel/trust/policy.ts';
import type { McpServerConfig } from './config.ts';
import {
  type ConfiguredServers,
  readServers,
  type ServersByName,
  serverNames,
} from './configured.ts';
import type { Connection } from './connection.ts';
import { compareTools, type Withdrawal } from './mcp-tools.ts';
import { McpServers } from './servers.ts';

interface McpChangesOptions {
  readonly servers: McpServers;
  readonly offered: SessionTools;
  /** True if the thread's capabilities cover a tool. */
  readonly isGranted: (id: string) => boolean;
  /** Plans a tool that came since the thread was approved, beside those that the thread has by then. */
  readonly plan: (tool: Tool, isLazy: boolean, beside: readonly PlannedTool[]) => PlannedTool;
  readonly notice: (text: string) => void;
}

/** The state of a server at the last look. */
interface Seen extends Pick<Connection, 'tools'> {
  readonly connection: Connection;
  readonly resources: number;
  readonly prompts: number;
}

/** Names that a message lists; the log has all of them. */
const MAX_NAMED = 20;

/**
 * Takes up, between turns, what the servers of a thread have changed about their tools. New ones come under the grants
 * of the plan. One that is not what the thread was approved with is refused until it is again: what was judged is not
 * available. The system text does not change; a message after the conversation tells the model.
 */
class McpChanges {
  readonly #options: McpChangesOptions;
  readonly #names: readonly string[];
  readonly #seen = new Map<string, Seen | undefined>();
  readonly #withdrawn = new Map<string, Withdrawal>();
  readonly #leftOut = new Set<string>();

  constructor(options: McpChangesOptions) {
    this.#options = options;
    this.#names = [...new Set(options.offered.planned.flatMap(({ id }) => serverOfTool(id) ?? []))];
  }

  /** Returns the events to append before the next turn. Connects a server that this process has not connected yet. */
  async refresh(): Promise<readonly EventDraft[]> {
    const looks = await Promise.all(this.#names.map(async (name) => await this.#look(name)));
    return looks.flat();
  }

  async #look(server: string): Promise<readonly EventDraft[]> {
    const { servers } = this.#options;
    const live = servers.live(server);
    const seen = this.#seen.get(server);
    // one whose connection broke is connected again by the next call
    if (this.#seen.has(server) && (live === undefined || isSame(seen, live))) return [];
    const isNew = live !== seen?.connection;
    const isStale = live?.isStale() === true;
    try {
      const { connection, tools, warnings, isLazy } = await servers.current(server);
      this.#seen.set(server, seenOf(connection));
      const drafts = isNew ? [] : otherLists(server, seen, connection);
      const dropped = warnings.filter((warning) => !this.#leftOut.has(warning));
      for (const warning of dropped) this.#leftOut.add(warning);
      // what the plan was made from is told by the plan
      const refusals = isNew ? [] : dropped;
      return [...drafts, ...this.#take(server, { tools, isLazy, isStale, refusals })];
    } catch (error) {
      this.#seen.set(server, live && seenOf(live));
      // that it could not be connected is told by its start
      return live ? [changed({ server, list: 'tools', error: messageOf(error) })] : [];
    }
  }

  #take(
    server: string,
    now: {
      readonly tools: readonly Tool[];
      readonly isLazy: boolean;
      readonly isStale: boolean;
      readonly refusals: readonly string[];
    },
  ): readonly EventDraft[] {
    const { offered, isGranted } = this.#options;
    const approved = offered.planned.filter(({ id }) => serverOfTool(id) === server);
    const granted = now.tools.filter(({ id }) => isGranted(id));
    const { withdrawn, added } = compareTools(approved, granted);
    const { tools: planned, refusals: taken } = this.#plan(added, now.isLazy);
    const refusals = [...now.refusals, ...taken];
    const back = approved.filter(({ id }) => this.#withdrawn.has(id) && !withdrawn.has(id));
    const gone = approved.filter(({ id }) => withdrawn.get(id) !== this.#withdrawn.get(id));
    const lost = (how: Withdrawal) => gone.filter(({ id }) => withdrawn.get(id) === how);
    const removed = lost('removed');
    const other = lost('changed');
    for (const { id } of approved) this.#withdrawn.delete(id);
    for (const [id, how] of withdrawn) this.#withdrawn.set(id, how);
    const callable = [...planned, ...back];
    const isNothing = [callable, removed, other, refusals].every(({ length }) => length === 0);
    if (isNothing) return now.isStale ? [changed({ server, list: 'tools' })] : [];
    offered.change(planned, reasons(this.#withdrawn));
    if (other.length > 0) this.#warn(server, other);
    return [
      changed(
        compact({
          server,
          list: 'tools' as const,
          added: idsOf(callable),
          removed: idsOf(removed),
          changed: idsOf(other),
          left_out: refusals.length > 0 ? refusals : undefined,
        }),
      ),
      ...this.#message(server, { callable, removed, other }),
    ];
  }

  /** Returns the new tools. Skips a tool whose name the model already knows, and reports that once. */
  #plan(added: readonly Tool[], isLazy: boolean) {
    const { offered, plan } = this.#options;
    const taken = new Set(offered.planned.flatMap((tool) => [tool.name, offered.shown(tool)]));
    const tools: PlannedTool[] = [];
    const refusals: string[] = [];
    for (const tool of added) {
      const planned = plan(tool, isLazy, [...offered.planned, ...tools]);
      if (!taken.has(planned.name)) {
        taken.add(planned.name);
        tools.push(planned);
      } else if (!this.#leftOut.has(tool.id)) {
        this.#leftOut.add(tool.id);
        refusals.push(`${tool.id}: another tool is offered as ${planned.name}`);
      }
    }
    return { tools, refusals };
  }

  #warn(server: string, tools: readonly PlannedTool[]): void {
    const names = tools.map(({ id }) => id).join(', ');
    this.#options.notice(
      `the MCP server ${server} changed tools that the thread was approved with: ${names}; their calls are refused until they are as they were, or a new thread is started`,
    );
  }

  /** Builds the message for the model; none if nothing changed for it. */
  #message(
    server: string,
    {
      callable,
      removed,
      other,
    }: Readonly<Record<'callable' | 'removed' | 'other', readonly PlannedTool[]>>,
  ): readonly EventDraft[] {
    const { offered } = this.#options;
    const named = (tools: readonly PlannedTool[]): string => {
      const names = tools.slice(0, MAX_NAMED).map((tool) => offered.shown(tool));
      const more = tools.length - names.length;
      return more > 0 ? `${names.join(', ')} and ${more} more` : names.join(', ');
    };
    const isLoaded = ({ id }: PlannedTool): boolean => offered.refusal(id) === undefined;
    const parts = [
      ['You can call now', callable.filter(isLoaded)],
      ['Load with tool_search before calling', callable.filter((tool) => !isLoaded(tool))],
      ['Withdrawn', removed],
      ['Changed, and refused in this thread', other],
    ] as const;
    const sections = parts.flatMap(([what, tools]) =>
      tools.length === 0 ? [] : [` ${what}: ${named(tools)}.`],
    );
    if (sections.length === 0) return [];
    const content = `[The MCP server ${server} changed its tools.${sections.join('')}]`;
    return [
      {
        event_type: 'custom_message',
        payload: { custom_type: TOOLS_CHANGED_ENTRY, content, display: false },
      },
    ];
  }
}

function changed(payload: EventPayloads['mcp_list_changed']): EventDraft {
  return { event_type: 'mcp_list_changed', payload };
}

/** Ids for an event; undefined where there are none. */
function idsOf(tools: readonly PlannedTool[]): readonly string[] | undefined {
  return tools.length === 0 ? undefined : tools.map(({ id }) => id);
}

/** Resources and prompts are asked for at each use, so that they changed is only told. */
function otherLists(
  server: string,
  seen: Seen | undefined,
  { changes }: Connection,
): readonly EventDraft[] {
  const lists = (['resources', 'prompts'] as const).filter(
    (list) => changes[list] !== (seen?.[list] ?? 0),
  );
  return lists.map((list) => changed({ server, list }));
}

function seenOf(connection: Connection): Seen {
  const { tools, changes } = connection;
  return { connection, tools, resources: changes.resources, prompts: changes.prompts };
}

function isSame(seen: Seen | undefined, live: Connection): boolean {
  const { connection, tools, resources, prompts } = seenOf(live);
  return (
    seen?.connection === connection &&
    seen.tools === tools &&
    seen.resources === resources &&
    seen.prompts === prompts &&
    !live.isStale()
  );
}

function reasons(withdrawn: ReadonlyMap<string, Withdrawal>): ReadonlyMap<string, string> {
  const how = {
    removed: 'its server does not offer it any more',
    changed:
      'its server has changed its description or its parameters since this thread was approved with it',
  };
  return new Map(
    [...withdrawn].map(([id, why]) => [id, `${wireName(id)} can't be called: ${how[why]}.`]),
  );
}

declare const __RYE_VERSION__: string;

/** The MCP servers of a workspace: those that work in the project, and others for each worktree of a thread. */
export class PlacedServers {
  /** Those that work in the project. They are asked for their tools when a thread is planned. */
  readonly project: McpServers;
  /** The servers of the program. */
  readonly ofProgram: ServersByName;
  readonly #workspace: Workspace;
  readonly #elsewhere = new Map<string, McpServers>();
  #configured: Promise<ConfiguredServers> | undefined;

  constructor(workspace: Workspace, ofProgram: ServersByName = presetServers(workspace.preset)) {
    this.#workspace = workspace;
    this.ofProgram = ofProgram;
    this.project = this.#open(undefined);
    workspace.onClose(() => {
      for (const servers of [this.project, ...this.#elsewhere.values()]) servers.kill();
    });
  }

  /** Has the configuration read again when it is needed next. */
  readAgain(): void {
    this.#configured = undefined;
  }

  /** Returns the servers that work in this folder, relative to the project; absent: in the project. */
  at(workPath: string | undefined): McpServers {
    if (workPath === undefined) return this.project;
    const servers = this.#elsewhere.get(workPath) ?? this.#open(workPath);
    this.#elsewhere.set(workPath, servers);
    return servers;
  }

  #open(workPath: string | undefined): McpServers {
    const workspace = this.#workspace;
    const { onMcpServer } = workspace.options;
    const servers = new McpServers({
      configured: async () => {
        this.#configured ??= readServers(workspace, this.ofProgram);
        return await this.#configured;
      },
      connect: async (server, signal) => {
        try {
          return await connectIn(workspace, server, { workPath, signal });
        } catch (error) {
          throw withoutSecretsIn(error, [...workspace.secrets(), ...ownSecrets(server)]);
        }
      },
      monotonic: () => workspace.clock.monotonic(),
      ...(workPath === undefined ? {} : { planned: this.project }),
    });
    if (onMcpServer) servers.watch(onMcpServer);
    return servers;
  }
}

/** The servers that the newest thread was planned with, and those that a warm-up keeps for all threads to come. */
const placements = new WeakMap<Workspace, { readonly placed: PlacedServers; isWarm: boolean }>();

function placedIn(
  workspace: Workspace,
  ofProgram = presetServers(workspace.preset),
): PlacedServers {
  const known = placements.get(workspace);
  if (known?.isWarm === true) {
    if (!isDeepStrictEqual(known.placed.ofProgram, ofProgram)) {
      return new PlacedServers(workspace, ofProgram);
    }
    known.placed.readAgain();
    return known.placed;
  }
  const placed = new PlacedServers(workspace, ofProgram);
  placements.set(workspace, { placed, isWarm: false });
  return placed;
}

/** Connects all configured servers for the threads to come, and keeps them until rye is closed; a failed start is told. */
export async function warmServers(workspace: Workspace): Promise<void> {
  // a run may be connecting them now
  const own = presetServers(workspace.preset);
  const latest = placements.get(workspace)?.placed;
  const placed = isDeepStrictEqual(latest?.ofProgram, own) && latest ? latest : placedIn(workspace);
  placements.set(workspace, { placed, isWarm: true });
  // never released: closing rye ends them
  placed.project.hold();
  const { warnings, servers } = await placed.project.offered(() => true);
  const told = new Set([...servers.values()].map((error) => error?.message));
  for (const warning of warnings) if (!told.has(warning)) workspace.notice(warning);
}

/** The MCP servers of an opened rye, as its threads use them. */
export function toolServers(
  workspace: Workspace,
  { mcpServers }: { readonly mcpServers?: ServersByName } = {},
): ToolServers {
  const placed = placedIn(workspace, mcpServers);
  return {
    async granted(capabilities, mayConnect) {
      // the servers that no capability reaches are not even started
      const isReached = (server: string): boolean => reachesServer(capabilities, server);
      const offered = mayConnect
        ? await placed.project.offered(isReached)
        : await placed.project.unresolved(isReached);
      return { ...offered, tools: offered.tools.filter(({ id }) => coversTool(capabilities, id)) };
    },
    ignored: (server) => ignoredServer(workspace, server),
    names: async () => await serverNames(workspace, placed.ofProgram),
    find: async (id) => await placed.project.find(id),
    at: (workPath) => {
      const servers = placed.at(workPath);
      return {
        planned: (tool) => servers.planned(tool),
        attach: (session) => openRemote({ ...session, workspace, servers }),
      };
    },
  };
}

/** Connects a server. One that is started works in the folder, and its program is that of the project. */
async function connectIn(
  workspace: Workspace,
  server: McpServerConfig,
  { workPath, signal }: { readonly workPath: string | undefined; readonly signal: AbortSignal },
): Promise<Connection> {
  const { projectPath: project, env } = workspace.options;
  const projectPath = workPath === undefined ? project : join(project, workPath);
  const { settings } = await readThreadConfig(await workspace.config());
  const { connect } = await import('./connection.ts');
  return await connect({
    server: workPath === undefined ? server : withProgramOf(project, server),
    projectPath,
    // a rye that a server starts belongs to the thread that this process belongs to
    env: childEnvironment(env, { projectPath, threadId: env['RYE_PARENT_THREAD_ID'] ?? '' }),
    confine: strictSandbox(workspace, settings, { workPath })?.(true),
    version: __RYE_VERSION__,
    signal,
  });
}

/**
 * Returns a server whose program is the project's own: a worktree lacks files that git ignores, and its thread may have
 * changed the others. The program is the command, and the first argument that names a file, as of an interpreter.
 */
function withProgramOf(projectPath: string, server: McpServerConfig): McpServerConfig {
  if (server.transport !== 'stdio') return server;
  const { command: given, args } = server;
  const command = given.includes('/') ? resolve(projectPath, given) : given;
  const at = args.findIndex((arg) => !arg.startsWith('-') && isFile(join(projectPath, arg)));
  const own = args.map((arg, index) => (index === at ? resolve(projectPath, arg) : arg));
  return { ...server, command, args: own };
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Secrets that a failing server may repeat in its error. */
function ownSecrets(server: McpServerConfig): readonly string[] {
  if (server.transport === 'stdio') return environmentSecrets(server.env);
  return Object.values(server.headers).filter((value) => value !== '');
}

/** Returns why a server that mcp.yaml of the project names is not used: its signature does not count. */
function ignoredServer({ spaces, verification }: Workspace, server: string): RyeError | undefined {
  const found = spaces.find('config', 'mcp', { space: 'project' });
  if (!found?.text.includes(server)) return undefined;
  const verdict = verifyFile(found, verification);
  if (verdict.ok) return undefined;
  const { code, message, hint } = faultError(found, verdict);
  // another sentence may follow the hint
  return new RyeError(code, `the MCP server ${server} cannot be used: ${message}`, {
    hint: `${hint ?? 'Review it'}.`,
  });
}

interface RemoteSessionOptions extends ServerSession {
  readonly workspace: Workspace;
  readonly servers: McpServers;
}

/** True where the capabilities reach some tool of the server. */
function reachesServer(capabilities: readonly string[], server: string): boolean {
  return capabilities.some((one) => meet(one, `rye.execute.tool.mcp.${server}.*`).length > 0);
}

/** Holds the MCP servers for a thread, writes how each started to its log, and follows what they change about their tools. */
function openRemote(options: RemoteSessionOptions): Pick<OpenTools, 'refresh' | 'close'> {
  const { workspace, servers, offered, plan, record } = options;
  const { capabilities } = plan;
  const release = servers.hold();
  const isReached = ({ server }: McpServerStart): boolean => reachesServer(capabilities, server);
  // what was started before the thread had a log is told with its first turn
  let earlier = servers.starts.filter(isReached).map(started);
  const unwatch = servers.watch((start) => {
    if (isReached(start)) record?.([started(start)]);
  });
  const close = async (): Promise<void> => {
    unwatch();
    await release();
  };
  if (earlier.length === 0 && !offered.planned.some(isRemote)) return { close };
  const changes = new McpChanges({
    servers,
    offered,
    isGranted: (id) => coversTool(capabilities, id),
    // its risk is that of the grant, which the plan has judged: tools of servers declare none
    plan: (tool, isLazy, beside) => plannedLate(tool, { ...options, isLazy, beside }),
    notice: workspace.notice,
  });
  const refresh = async (): Promise<readonly EventDraft[]> => {
    const drafts = [...earlier, ...(await changes.refresh())];
    earlier = [];
    return drafts;
  };
  return { refresh, close };
}

function started(payload: McpServerStart): EventDraft {
  return { event_type: 'mcp_server_started', payload };
}

function isRemote({ id }: PlannedTool): boolean {
  return serverOfTool(id) !== undefined;
}

/** A tool that came since the plan was made: offered with its schema where the budget for that has room. */
function plannedLate(
  { id, description, inputSchema, traits }: Tool,
  {
    traits: { needsTools },
    config,
    isLazy,
    beside,
  }: Pick<RemoteSessionOptions, 'traits' | 'config'> & {
    readonly isLazy: boolean;
    readonly beside: readonly PlannedTool[];
  },
): PlannedTool {
  const tool = { id, name: wireName(id), description, input_schema: inputSchema };
  const loaded = beside.filter(({ preloaded }) => preloaded);
  const used = loaded.reduce((sum, one) => sum + definitionTokens(one), 0);
  const hasRoom = used + definitionTokens(tool) <= config.toolPreloadTokens;
  const need = capabilityOf({ verb: 'execute', item_type: 'tool', item_id: id });
  return {
    ...tool,
    preloaded: needsTools || (!isLazy && hasRoom),
    risk: riskOf(need, config.risks, traits.risk),
  };
}
