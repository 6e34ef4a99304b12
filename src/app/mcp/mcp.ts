import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { capabilityOf } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft, McpServerStart } from '../../core/events.ts';
import { wireName } from '../../core/ids.ts';
import type { PlannedTool, ThreadPlan } from '../../core/plan.ts';
import { verifyFile } from '../../items/verified-fs.ts';
import { coversTool, meet } from '../../policy/capability.ts';
import { riskOf } from '../../policy/risk.ts';
import type { ProviderTraits } from '../../providers/provider.ts';
import type { OpenTools } from '../../threads/ports.ts';
import type { ThreadConfig } from '../../threads/thread-config.ts';
import { definitionTokens } from '../../tools/disclosure.ts';
import type { McpServerConfig } from '../../tools/mcp/config.ts';
import type { Connection } from '../../tools/mcp/connection.ts';
import { serverOfTool } from '../../tools/mcp/mcp-tools.ts';
import { McpServers } from '../../tools/mcp/servers.ts';
import { childEnvironment } from '../../tools/process.ts';
import { environmentSecrets, withoutSecretsIn } from '../../tools/secrets.ts';
import type { Tool } from '../../tools/tool.ts';
import { faultError } from '../../trust/policy.ts';
import { type SessionTools, strictSandbox } from '../session-tools.ts';
import { readThreadConfig } from '../settings.ts';
import type { Workspace } from '../workspace.ts';
import { McpChanges } from './changes.ts';
import { type ConfiguredServers, readServers } from './configured.ts';

declare const __RYE_VERSION__: string;

/** The MCP servers of a workspace: those that work in the project, and others for each worktree of a thread. */
export class PlacedServers {
  /** Those that work in the project. They are asked for their tools when a thread is planned. */
  readonly project: McpServers;
  readonly #workspace: Workspace;
  readonly #elsewhere = new Map<string, McpServers>();
  #configured: Promise<ConfiguredServers> | undefined;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
    this.project = this.#open(undefined);
    workspace.onClose(() => {
      for (const servers of [this.project, ...this.#elsewhere.values()]) servers.kill();
    });
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
        this.#configured ??= readServers(workspace);
        return await this.#configured;
      },
      connect: async (server) => {
        try {
          return await connectIn(workspace, server, workPath);
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

/** Connects a server. One that is started works in the folder, and its program is that of the project. */
async function connectIn(
  workspace: Workspace,
  server: McpServerConfig,
  workPath: string | undefined,
): Promise<Connection> {
  const { projectPath: project, env } = workspace.options;
  const projectPath = workPath === undefined ? project : join(project, workPath);
  const { settings } = await readThreadConfig(await workspace.config());
  const { connect } = await import('../../tools/mcp/connection.ts');
  return await connect({
    server: workPath === undefined ? server : withProgramOf(project, server),
    projectPath,
    // a rye that a server starts belongs to the thread that this process belongs to
    env: childEnvironment(env, { projectPath, threadId: env['RYE_PARENT_THREAD_ID'] ?? '' }),
    confine: strictSandbox(workspace, settings, { workPath })?.(true),
    version: __RYE_VERSION__,
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
export function ignoredServer(
  { spaces, verification }: Workspace,
  server: string,
): RyeError | undefined {
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

export interface RemoteSessionOptions {
  readonly workspace: Workspace;
  readonly servers: McpServers;
  readonly offered: SessionTools;
  readonly plan: ThreadPlan;
  readonly traits: ProviderTraits;
  readonly config: Pick<ThreadConfig, 'risks' | 'toolPreloadTokens'>;
  readonly record: ((drafts: readonly EventDraft[]) => void) | undefined;
}

/** True where the capabilities reach some tool of the server. */
export function reachesServer(capabilities: readonly string[], server: string): boolean {
  return capabilities.some((one) => meet(one, `rye.execute.tool.mcp.${server}.*`).length > 0);
}

/** Holds the MCP servers for a thread, writes how each started to its log, and follows what they change about their tools. */
export function openRemote(options: RemoteSessionOptions): Pick<OpenTools, 'refresh' | 'close'> {
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
