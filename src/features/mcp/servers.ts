import { isDeepStrictEqual } from 'node:util';
import type { OfferedTools } from '../../kernel/app/granted-tools.ts';
import { messageOf, RyeError, toRyeError } from '../../kernel/core/errors.ts';
import type { McpServerStart } from '../../kernel/core/events.ts';
import { serverOfTool } from '../../kernel/core/ids.ts';
import { didYouMean } from '../../kernel/core/text.ts';
import type { DisclosableTool } from '../../kernel/tools/disclosure.ts';
import { CAUTIOUS_TRAITS, errorOutput, type Tool } from '../../kernel/tools/tool.ts';
import type { McpServerConfig } from './config.ts';
import type { Connection } from './connection.ts';
import { toolsOf } from './mcp-tools.ts';

export interface McpServersOptions {
  /** The configured servers, and one sentence for each that can't be read. */
  readonly configured: () => Promise<{
    readonly servers: readonly McpServerConfig[];
    readonly problems: readonly string[];
  }>;
  /** Leaves nothing running if the signal aborts. */
  readonly connect: (server: McpServerConfig, signal: AbortSignal) => Promise<Connection>;
  /** Milliseconds from a fixed point. */
  readonly monotonic: () => number;
  /** The servers that were asked for their tools when threads were planned; held with these. Absent: these. */
  readonly planned?: McpServers;
}

/** The current offer of a server. */
export interface CurrentTools {
  readonly connection: Connection;
  readonly tools: readonly Tool[];
  /** One sentence for each tool that is dropped. */
  readonly warnings: readonly string[];
  /** Listed by name only. */
  readonly isLazy: boolean;
}

/** Tools that a hint lists. */
const MAX_NAMED = 12;

/**
 * The MCP servers of an open rye. Each is connected at most once, when it is first needed, and again after its
 * connection broke; all end when the last of the threads that hold them has ended.
 */
export class McpServers {
  readonly #options: McpServersOptions;
  readonly #live = new Map<string, Connection>();
  /** The configuration of each connection. */
  readonly #configs = new Map<string, McpServerConfig>();
  readonly #killed = new AbortController();
  readonly #connecting = new Map<string, Promise<Connection>>();
  readonly #traits = new Map<string, Tool['traits']>();
  readonly #starts = new Map<string, McpServerStart>();
  readonly #watchers = new Set<(start: McpServerStart) => void>();
  #holders = 0;

  constructor(options: McpServersOptions) {
    this.#options = options;
  }

  /** The last start of each server. */
  get starts(): readonly McpServerStart[] {
    return [...this.#starts.values()];
  }

  /** Calls the listener with each start from now on, until the returned function is called. */
  watch(listener: (start: McpServerStart) => void): () => void {
    this.#watchers.add(listener);
    return () => void this.#watchers.delete(listener);
  }

  /** Returns the open connection to a server, if there is one. */
  live(name: string): Connection | undefined {
    const live = this.#live.get(name);
    return live?.isClosed() === false ? live : undefined;
  }

  /** Returns the current offer of a server. Connects it if needed, and asks again after it announced a change. */
  async current(name: string): Promise<CurrentTools> {
    const server = await this.#server(`mcp/${name}/any`);
    const connection = await this.#connected(server);
    await connection.refresh();
    const { tools, warnings } = toolsOf(server, connection, this.#again(server));
    for (const { id, traits } of tools) this.#traits.set(id, traits);
    return { connection, tools, warnings, isLazy: server.disclosure === 'lazy' };
  }

  /** Connects the servers that `isReached` names, at the same time; one that fails is a warning. */
  async offered(isReached: (server: string) => boolean): Promise<OfferedTools> {
    const { servers, problems } = await this.#options.configured();
    const reached = servers.filter(({ name }) => isReached(name));
    const results = await Promise.all(reached.map(async (server) => await this.#offer(server)));
    return {
      tools: results.flatMap(({ tools }) => tools),
      lazy: new Set(
        results.flatMap(({ server, tools }) =>
          server.disclosure === 'lazy' ? tools.map(({ id }) => id) : [],
        ),
      ),
      warnings: [...problems, ...results.flatMap(({ warnings }) => warnings)],
      servers: new Map(results.map(({ server, error }) => [server.name, error])),
    };
  }

  /** Describes what {@link offered} would do, without starting or reaching a server. */
  async unresolved(isReached: (server: string) => boolean): Promise<OfferedTools> {
    const { servers, problems } = await this.#options.configured();
    const reached = servers.filter(({ name }) => isReached(name));
    return {
      tools: [],
      lazy: new Set(),
      warnings: [...problems, ...reached.map(wouldConnect)],
      servers: new Map(reached.map(({ name }) => [name, undefined])),
    };
  }

  /** Connects a server and returns one of its tools; throws `item_not_found` for an unknown server or tool. */
  async find(id: string): Promise<Tool> {
    const server = await this.#server(id);
    const { tools } = toolsOf(server, await this.#connected(server), this.#again(server));
    const found = tools.find((tool) => tool.id === id);
    if (found) return found;
    throw notFound(
      `the MCP server ${server.name} offers no tool ${id}`,
      didYouMean(
        id,
        tools.map((tool) => tool.id),
      ) ?? offers(tools),
    );
  }

  /** Returns a planned tool without connecting yet. Its traits are known if its server was connected before. */
  planned({ id, description, input_schema: inputSchema }: DisclosableTool): Tool {
    return {
      id,
      description,
      inputSchema,
      traits: this.traitsOf(id),
      execute: async (input, context) => {
        let tool: Tool;
        try {
          tool = await this.find(id);
        } catch (error) {
          return errorOutput(`${id} can't be called: ${messageOf(error)}`, {
            code: error instanceof RyeError ? error.code : 'tool_failed',
          });
        }
        return await tool.execute(input, context);
      },
    };
  }

  /** Returns the traits of a tool as its server stated them; cautious ones if it was not connected yet. */
  traitsOf(id: string): Tool['traits'] {
    return this.#traits.get(id) ?? this.#options.planned?.traitsOf(id) ?? CAUTIOUS_TRAITS;
  }

  /** Keeps the servers until the returned function is called; with the last holder they end. */
  hold(): () => Promise<void> {
    this.#holders += 1;
    const release = this.#options.planned?.hold();
    let isHeld = true;
    return async () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holders -= 1;
      if (this.#holders === 0) await this.#end();
      await release?.();
    };
  }

  /** Ends every server at once, without a goodbye. None is connected any more. */
  kill(): void {
    this.#killed.abort();
    for (const connection of this.#live.values()) connection.kill();
    this.#live.clear();
  }

  async #end(): Promise<void> {
    const connections = [...this.#live.values()];
    this.#live.clear();
    await Promise.all(connections.map(async (connection) => await connection.close()));
  }

  async #offer(server: McpServerConfig): Promise<
    Pick<CurrentTools, 'tools' | 'warnings'> & {
      readonly server: McpServerConfig;
      readonly error?: RyeError;
    }
  > {
    try {
      const { tools, warnings } = await this.current(server.name);
      return { server, tools, warnings };
    } catch (error) {
      const failed = toRyeError(error, 'tool_failed');
      return { server, tools: [], warnings: [failed.message], error: failed };
    }
  }

  async #server(id: string): Promise<McpServerConfig> {
    const name = serverOfTool(id) ?? '';
    const { servers } = await this.#options.configured();
    const found = servers.find((server) => server.name === name);
    if (found) return found;
    throw notFound(
      `unknown MCP server ${name} of the tool ${id}`,
      didYouMean(
        name,
        servers.map((server) => server.name),
      ),
    );
  }

  #again(server: McpServerConfig): () => Promise<Connection> {
    return async () => await this.#connected(server);
  }

  /** Connects and reports the start. */
  async #start(server: McpServerConfig): Promise<Connection> {
    const { connect, monotonic } = this.#options;
    const began = monotonic();
    const tell = (outcome: { readonly tools: number } | { readonly error: string }): void => {
      const start = {
        server: server.name,
        duration_ms: Math.round(monotonic() - began),
        ...outcome,
      };
      this.#starts.set(server.name, start);
      for (const watcher of this.#watchers) watcher(start);
    };
    try {
      const connection = await connect(server, this.#killed.signal);
      tell({ tools: connection.tools.length });
      return connection;
    } catch (error) {
      tell({ error: messageOf(error) });
      throw error;
    }
  }

  async #connected(server: McpServerConfig): Promise<Connection> {
    const { name } = server;
    const live = this.#live.get(name);
    if (live && !live.isClosed() && isDeepStrictEqual(this.#configs.get(name), server)) return live;
    this.#live.delete(name);
    live?.retire(); // its process may be alive in spite of that, with calls under way
    const connecting = this.#connecting.get(name) ?? this.#start(server);
    this.#connecting.set(name, connecting);
    try {
      const connection = await connecting;
      if (this.#killed.signal.aborted) connection.kill();
      this.#live.set(name, connection);
      this.#configs.set(name, server);
      return connection;
    } finally {
      this.#connecting.delete(name);
    }
  }
}

/** Names the program or host only: arguments and addresses may hold secrets. */
function wouldConnect(server: McpServerConfig): string {
  const how =
    server.transport === 'stdio'
      ? `start ${server.command}`
      : `connect to ${new URL(server.url).host}`;
  return `the tools of the MCP server ${server.name} are not known without a connection: a run would ${how} to ask for them`;
}

/** Lists the existing names after a wrong guess. */
function offers(tools: readonly Tool[]): string {
  const names = tools.slice(0, MAX_NAMED).map(({ id }) => id);
  const more = tools.length > names.length ? ` and ${tools.length - names.length} more` : '';
  return names.length === 0 ? 'It offers none.' : `It offers ${names.join(', ')}${more}.`;
}

function notFound(message: string, hint = 'See .ai/config/mcp.yaml.'): RyeError {
  return new RyeError('item_not_found', message, { hint });
}
