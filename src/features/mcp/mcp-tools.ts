import { messageOf } from '../../kernel/core/errors.ts';
import { itemIdProblem, wireName } from '../../kernel/core/ids.ts';
import {
  isRecord,
  type JsonObject,
  type JsonValue,
  jsonEquals,
  toText,
} from '../../kernel/core/json.ts';
import type { DisclosableTool } from '../../kernel/tools/disclosure.ts';
import { markForeign } from '../../kernel/tools/schema-dialect.ts';
import {
  CAUTIOUS_TRAITS,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolOutput,
  type ToolTraits,
} from '../../kernel/tools/tool.ts';
import { type McpServerConfig, maxCallSeconds } from './config.ts';
import type { Connection } from './connection.ts';
import { ForgottenSession } from './forgotten-session.ts';
import type { ListedTool } from './listed-tool.ts';

/** Returns the connection to the server; reconnects if it was lost. */
export type Connected = () => Promise<Connection>;

/** Canonical id of a server's tool: what an id may not hold becomes `_`. */
function mcpToolId(server: string, tool: string): string {
  return `mcp/${server}/${tool.replaceAll(/[^A-Za-z0-9_-]/g, '_')}`;
}

/** The tools of a server, and one sentence for each that is dropped. */
export interface ServerTools {
  readonly tools: readonly Tool[];
  readonly warnings: readonly string[];
}

/** Model APIs refuse longer names. */
const MAX_NAME_LENGTH = 128;
/** Sentences about dropped tools; a server may offer thousands of them. */
const MAX_DROPPED_NAMED = 10;

/**
 * Everything that a server offers, as tools: its own, and readers of its resources and prompts if it has some. A tool
 * without a usable name is dropped, and so is one whose name a model could not tell from an earlier tool's.
 */
export function toolsOf(
  server: McpServerConfig,
  connection: Connection,
  connected: Connected,
): ServerTools {
  const byName = new Map<string, Tool>();
  const dropped = connection.unusable.map(({ name, reason }) =>
    name === '' ? `it ${reason}` : `${shown(name)} ${reason}`,
  );
  const all = [
    ...connection.tools.map((tool) => [tool.name, serverTool(server, tool, connected)] as const),
    ...(connection.hasResources ? resourceTools(server, connected) : []).map(withoutName),
    ...(connection.hasPrompts ? promptTools(server, connected) : []).map(withoutName),
  ];
  for (const [name, tool] of all) {
    const wire = wireName(tool.id);
    const other = byName.get(wire);
    if (wire.length > MAX_NAME_LENGTH) dropped.push(`its name ${shown(name)} is too long`);
    else if (/\/_*$/.test(tool.id) || itemIdProblem(tool.id) !== undefined)
      dropped.push(`its name ${shown(name)} is not usable`);
    else if (other !== undefined)
      dropped.push(`its name ${shown(name)} would be ${wire}, as that of ${other.id}`);
    else byName.set(wire, tool);
  }
  return { tools: [...byName.values()], warnings: droppedWarnings(server, connection, dropped) };
}

function shown(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

function withoutName(tool: Tool): readonly [string, Tool] {
  return [tool.id, tool];
}

function droppedWarnings(
  { name }: McpServerConfig,
  connection: Connection,
  dropped: readonly string[],
): readonly string[] {
  const named = dropped
    .slice(0, MAX_DROPPED_NAMED)
    .map((why) => `a tool of the MCP server ${name} is dropped: ${why}`);
  const more = dropped.length - named.length;
  return [
    ...named,
    ...(more > 0 ? [`${more} more tools of the MCP server ${name} are dropped`] : []),
    ...(connection.isCut
      ? [
          `the MCP server ${name} offers more tools than ${connection.tools.length}; the rest is ignored`,
        ]
      : []),
  ];
}

function serverTool(server: McpServerConfig, tool: ListedTool, connected: Connected): Tool {
  const { name, description, annotations, inputSchema } = tool;
  const { parallel } = server;
  // the connection ends a call that is silent for the time limit of the server
  const traits: ToolTraits = {
    ...CAUTIOUS_TRAITS,
    parallel,
    timeout_seconds: maxCallSeconds(server),
  };
  const believed = server.trustAnnotations ? annotations : undefined;
  return {
    id: mcpToolId(server.name, name),
    description: description ?? name,
    inputSchema: markForeign(inputSchema),
    traits: {
      ...traits,
      reads_only: believed?.readOnlyHint ?? traits.reads_only,
      idempotent: believed?.readOnlyHint ?? believed?.idempotentHint ?? traits.idempotent,
      network: believed?.openWorldHint ?? traits.network,
    },
    execute: async (input, context) =>
      await attempt(server, connected, async (live) => await live.call(name, input, context)),
  };
}

function resourceTools(server: McpServerConfig, connected: Connected): readonly Tool[] {
  return [
    reader(server, connected, {
      name: 'list_resources',
      description: `Lists the resources of the MCP server ${server.name}.`,
      properties: {},
      run: async (live, _, context) => await live.listResources(context),
    }),
    reader(server, connected, {
      name: 'read_resource',
      description: `Reads one resource of the MCP server ${server.name}.`,
      properties: { uri: { type: 'string', description: 'As listed by list_resources.' } },
      required: ['uri'],
      run: async (live, { uri }, context) => await live.readResource(textOf(uri), context),
    }),
  ];
}

function promptTools(server: McpServerConfig, connected: Connected): readonly Tool[] {
  return [
    reader(server, connected, {
      name: 'list_prompts',
      description: `Lists the prompts of the MCP server ${server.name} with their arguments.`,
      properties: {},
      run: async (live, _, context) => await live.listPrompts(context),
    }),
    reader(server, connected, {
      name: 'get_prompt',
      description: `Renders one prompt of the MCP server ${server.name}.`,
      properties: {
        name: { type: 'string', description: 'As listed by list_prompts.' },
        arguments: { type: 'object', additionalProperties: { type: 'string' } },
      },
      required: ['name'],
      run: async (live, { name, arguments: values }, context) =>
        await live.getPrompt(textOf(name), textsOf(values), context),
    }),
  ];
}

interface Reader {
  readonly name: string;
  readonly description: string;
  readonly properties: JsonObject;
  readonly required?: readonly string[];
  readonly run: (
    connection: Connection,
    ...call: Parameters<Tool['execute']>
  ) => Promise<ToolOutput>;
}

/** By the protocol, reading resources and prompts changes nothing. The server may use the network for it. */
function reader(
  server: McpServerConfig,
  connected: Connected,
  { name, description, properties, required = [], run }: Reader,
): Tool {
  return {
    id: mcpToolId(server.name, name),
    description,
    inputSchema: { type: 'object', properties, required, additionalProperties: false },
    traits: { ...READING_TRAITS, network: true, timeout_seconds: server.timeoutSeconds },
    execute: async (input, context) =>
      await attempt(server, connected, async (live) => await run(live, input, context)),
  };
}

/** Returns a member that the schema requires to be text. */
function textOf(value: JsonValue | undefined): string {
  return toText(value ?? '');
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  if (!isRecord(value)) return {};
  return Object.fromEntries(Object.entries(value).map(([key, text]) => [key, String(text)]));
}

/**
 * Turns failures between rye and a server into the call's result: the model can try something else. A call that was not run
 * because the server forgot the session is sent once more in a new one.
 */
async function attempt(
  { name }: McpServerConfig,
  connected: Connected,
  run: (connection: Connection) => Promise<ToolOutput>,
): Promise<ToolOutput> {
  const call = async (): Promise<ToolOutput> => await run(await connected());
  try {
    return await call().catch(async (error: unknown) => {
      if (error instanceof ForgottenSession) return await call();
      throw error;
    });
  } catch (error) {
    return errorOutput(`The MCP server ${name} failed: ${messageOf(error)}`, {
      code: 'tool_failed',
    });
  }
}

/** A tool as it was when the thread was approved with it. */
export type ApprovedTool = Pick<DisclosableTool, 'id' | 'description' | 'input_schema'>;

/** Why an approved tool can't be called now. */
export type Withdrawal = 'removed' | 'changed';

export interface ToolChanges {
  readonly withdrawn: ReadonlyMap<string, Withdrawal>;
  /** Offered now and never approved. */
  readonly added: readonly Tool[];
}

/**
 * Compares what a server offers with what was approved. A tool whose description or schema is another one is not the tool
 * that was approved; it is again, once it is as it was.
 */
export function compareTools(
  approved: readonly ApprovedTool[],
  offered: readonly Tool[],
): ToolChanges {
  const now = new Map(offered.map((tool) => [tool.id, tool]));
  const known = new Set(approved.map(({ id }) => id));
  const withdrawn = new Map<string, Withdrawal>();
  for (const tool of approved) {
    const current = now.get(tool.id);
    if (current === undefined) withdrawn.set(tool.id, 'removed');
    else if (!isSame(tool, current)) withdrawn.set(tool.id, 'changed');
  }
  return { withdrawn, added: offered.filter(({ id }) => !known.has(id)) };
}

function isSame(approved: ApprovedTool, { description, inputSchema }: Tool): boolean {
  return description === approved.description && jsonEquals(inputSchema, approved.input_schema);
}
