import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import {
  StreamableHTTPClientTransport,
  StreamableHTTPError,
} from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  type CallToolResult,
  CallToolResultSchema,
  ContentBlockSchema,
  type ContentBlock as McpBlock,
  McpError,
  PromptListChangedNotificationSchema,
  type ReadResourceResult,
  ResourceListChangedNotificationSchema,
  ResultSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import { compact, isJsonObject, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import type { ContentBlock } from '../../kernel/core/message.ts';
import type { Confine } from '../../kernel/tools/process.ts';
import type { CallContext, ToolContext, ToolOutput } from '../../kernel/tools/tool.ts';
import { type McpServerConfig, maxCallSeconds } from './config.ts';
import { Elicitations } from './elicitation.ts';
import { ForgottenSession } from './forgotten-session.ts';
import { type ListedTool, readListedTool, type UnusableTool } from './listed-tool.ts';
import { boundedFetch, StdioTransport } from './stdio.ts';

/** Types of images that every provider takes. */
const IMAGE = /^image\/(?:png|jpeg|gif|webp)$/;

/** Converts the answer of a server's tool to a tool's output. Names sounds and other binary data instead of passing them on. */
function outputOf({ content, isError, structuredContent }: CallToolResult): ToolOutput {
  const blocks = content.map(blockOf);
  const data = isJsonObject(structuredContent) ? structuredContent : undefined;
  if (blocks.length === 0 && data) blocks.push({ type: 'text', text: JSON.stringify(data) });
  return { content: blocks, is_error: isError === true, ...(data ? { data } : {}) };
}

/** The contents of a resource. */
function resourceOutput({ contents }: ReadResourceResult): ToolOutput {
  return { content: contents.map(resourceBlock), is_error: false };
}

/** One block of a result or of a prompt's message. */
function blockOf(block: McpBlock): ContentBlock {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
      return binary(block.mimeType, block.data);
    case 'audio':
      return binary(block.mimeType, block.data);
    case 'resource':
      return resourceBlock(block.resource);
    case 'resource_link':
      return { type: 'text', text: `[resource ${block.uri}: ${block.title ?? block.name}]` };
  }
}

function resourceBlock(resource: ReadResourceResult['contents'][number]): ContentBlock {
  return 'text' in resource
    ? { type: 'text', text: resource.text }
    : binary(resource.mimeType ?? 'application/octet-stream', resource.blob);
}

function binary(type: string, data: string): ContentBlock {
  if (IMAGE.test(type)) return { type: 'image', media_type: type, data };
  return { type: 'text', text: `[${type}, ${Buffer.byteLength(data, 'base64')} bytes, not shown]` };
}

/** Maximum pages of a list; rye ignores further ones. */
const MAX_PAGES = 50;
const MAX_TOOLS = 1000;

export interface ConnectOptions {
  readonly server: McpServerConfig;
  readonly projectPath: string;
  /** The reduced environment of a server that is started; its own variables are added. */
  readonly env: Readonly<Record<string, string>>;
  readonly confine: Confine | undefined;
  readonly version: string;
  /** Ends the attempt. */
  readonly signal?: AbortSignal;
}

/** A list whose changes a server may announce. */
export type McpList = 'tools' | 'resources' | 'prompts';

/** The tools of a server. */
interface ToolList {
  readonly usable: readonly ListedTool[];
  readonly unusable: readonly UnusableTool[];
}

/** A greeted server and what it offers. */
export interface Connection {
  /** As of the last fetch. */
  readonly tools: readonly ListedTool[];
  /** The tools of the last fetch that can't be used. */
  readonly unusable: readonly UnusableTool[];
  /** True if the server offers more tools than `tools` holds. */
  readonly isCut: boolean;
  readonly hasResources: boolean;
  readonly hasPrompts: boolean;
  readonly isClosed: () => boolean;
  /** Number of announced changes of a list; resources and prompts are fetched at each use. */
  readonly changes: Readonly<Record<McpList, number>>;
  /** True if the server announced a change of its tools since the last fetch. */
  readonly isStale: () => boolean;
  /** Fetches the tools again if they are stale; rejects if the server does not answer. */
  refresh(): Promise<void>;
  call(name: string, input: JsonObject, context: CallContext): Promise<ToolOutput>;
  listResources(context: ToolContext): Promise<ToolOutput>;
  readResource(uri: string, context: ToolContext): Promise<ToolOutput>;
  listPrompts(context: ToolContext): Promise<ToolOutput>;
  getPrompt(
    name: string,
    values: Readonly<Record<string, string>>,
    context: ToolContext,
  ): Promise<ToolOutput>;
  /** Closes the session and ends the process. */
  close(): Promise<void>;
  /** Takes no more calls, and closes once those under way have ended. */
  retire(): void;
  /** Ends what was started without waiting. */
  kill(): void;
}

/**
 * Connects to a server by the Model Context Protocol and asks for its tools. `tool_failed` that names the server where
 * that does not work in time; nothing is left running then.
 */
export async function connect(options: ConnectOptions): Promise<Connection> {
  const { server, signal } = options;
  signal?.throwIfAborted();
  const stdio = server.transport === 'stdio' ? startOf(server, options) : undefined;
  const transport = stdio ?? remoteOf(server, options);
  // a server may ask the person during a call, but neither for the model nor for the project's folders
  const capabilities = { elicitation: { form: {} } };
  const client = new Client({ name: 'rye', version: options.version }, { capabilities });
  const elicitations = new Elicitations(client, server.name);
  try {
    const limits = limitsOf(server, signal);
    const changes = countChanges(client);
    await client.connect(transport, limits());
    const tools = await listTools(client, limits);
    return new LiveConnection({ client, server, stdio, tools, changes, elicitations });
  } catch (error) {
    await client.close().catch(() => undefined);
    await stdio?.close();
    const stderr =
      stdio === undefined || stdio.lastWords === '' ? '' : `; it wrote: ${stdio.lastWords}`;
    const why = stdio?.failure ?? causeOf(error);
    throw new RyeError(
      'tool_failed',
      `the MCP server ${server.name} can't be used: ${why}${stderr}`,
      {
        hint: 'Correct its entry in .ai/config/mcp.yaml. To test it, run its command or open its URL.',
      },
    );
  }
}

/** Returns the reason of a failure; a failed `fetch` has it in its cause. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  const reason = cause instanceof Error ? cause.message : '';
  return reason === '' ? messageOf(error) : `${messageOf(error)} (${reason})`;
}

function startOf(
  server: Extract<McpServerConfig, { transport: 'stdio' }>,
  { projectPath, env, confine }: ConnectOptions,
): StdioTransport {
  const { command, args, env: own } = server;
  return new StdioTransport({ command, args, cwd: projectPath, env: { ...env, ...own }, confine });
}

function remoteOf(server: McpServerConfig, { env }: ConnectOptions): Transport {
  if (server.transport === 'stdio') throw new TypeError('a stdio server has no address');
  const { url, headers } = server;
  // the SDK follows redirects within the origin only, so that no other host gets the headers
  return new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { ...headers } },
    fetch: boundedFetch(env),
  });
}

/** The time that the requests of a connection have left, at least a millisecond. */
function limitsOf(
  { connectSeconds }: Pick<McpServerConfig, 'connectSeconds'>,
  signal?: AbortSignal,
): () => RequestOptions {
  const deadline = performance.now() + connectSeconds * 1000;
  return () => compact({ timeout: Math.max(1, deadline - performance.now()), signal });
}

/** Counts the changes that the server announces; fetches nothing until a caller needs a list. */
function countChanges(client: Client): Readonly<Record<McpList, number>> {
  const changes = { tools: 0, resources: 0, prompts: 0 };
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
    changes.tools += 1;
  });
  client.setNotificationHandler(ResourceListChangedNotificationSchema, () => {
    changes.resources += 1;
  });
  client.setNotificationHandler(PromptListChangedNotificationSchema, () => {
    changes.prompts += 1;
  });
  return changes;
}

/** Reads each tool by itself: the schema of the SDK would refuse a whole list for one of them. */
async function listTools(client: Client, limits: () => RequestOptions): Promise<ToolList> {
  if (client.getServerCapabilities()?.tools === undefined) return { usable: [], unusable: [] };
  const listed = await allPages(async (cursor) => {
    const request = { method: 'tools/list' as const, params: cursor };
    const page = await client.request(request, ResultSchema, limits());
    const { tools, nextCursor } = page;
    if (!Array.isArray(tools)) throw new Error('its answer to tools/list has no list of tools');
    return {
      items: tools as readonly unknown[],
      next: typeof nextCursor === 'string' ? nextCursor : undefined,
    };
  });
  const usable: ListedTool[] = [];
  const unusable: UnusableTool[] = [];
  for (const tool of listed.map(readListedTool)) {
    if ('reason' in tool) unusable.push(tool);
    else usable.push(tool);
  }
  return { usable, unusable };
}

/**
 * Reads the answer of a tool. Servers send structured content that is no object, and blocks of no known type: what is
 * usable beside it is kept, and the model is told.
 */
function toolResult(raw: Readonly<Record<string, unknown>>): Parameters<typeof outputOf>[0] {
  const read = CallToolResultSchema.safeParse(raw);
  if (read.success) return read.data;
  const { content: given, structuredContent: data } = raw;
  const blocks: readonly unknown[] = Array.isArray(given) ? given : [];
  const content = blocks.flatMap((block) => {
    const one = ContentBlockSchema.safeParse(block);
    return one.success ? [one.data] : [];
  });
  const isUsable = isRecord(data);
  if (content.length === 0 && !isUsable) throw new TypeError('its answer is no result of a tool');
  const notice = '(parts of the answer are malformed; they are omitted)';
  return {
    content: [...content, { type: 'text', text: notice }],
    isError: raw['isError'] === true,
    ...(isUsable ? { structuredContent: data } : {}),
  };
}

type Page<T> = (cursor: { cursor: string } | undefined) => Promise<{
  readonly items: readonly T[];
  readonly next: string | undefined;
}>;

async function allPages<T>(load: Page<T>): Promise<readonly T[]> {
  const all: T[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES && all.length < MAX_TOOLS; page += 1) {
    const { items, next } = await load(cursor === undefined ? undefined : { cursor });
    all.push(...items);
    if (next === undefined) break;
    cursor = next;
  }
  return all.slice(0, MAX_TOOLS);
}

interface ConnectionParts {
  readonly client: Client;
  readonly server: McpServerConfig;
  readonly stdio: StdioTransport | undefined;
  readonly tools: ToolList;
  readonly changes: Readonly<Record<McpList, number>>;
  readonly elicitations: Elicitations;
}

class LiveConnection implements Connection {
  readonly hasResources: boolean;
  readonly hasPrompts: boolean;
  readonly changes: Readonly<Record<McpList, number>>;
  readonly #parts: ConnectionParts;
  #tools: ToolList;
  /** The number of changes that `#tools` holds. */
  #taken = 0;
  #refreshing: Promise<void> | undefined;
  #closed = false;
  /** Requests under way. */
  #open = 0;
  #isRetired = false;

  constructor(parts: ConnectionParts) {
    const { client, tools, changes } = parts;
    this.#parts = parts;
    this.#tools = tools;
    this.changes = changes;
    const offers = client.getServerCapabilities();
    this.hasResources = offers?.resources !== undefined;
    this.hasPrompts = offers?.prompts !== undefined;
  }

  get tools(): readonly ListedTool[] {
    return this.#tools.usable;
  }

  get unusable(): readonly UnusableTool[] {
    return this.#tools.unusable;
  }

  get isCut(): boolean {
    return this.tools.length + this.unusable.length >= MAX_TOOLS;
  }

  isClosed = (): boolean => this.#closed || this.#parts.stdio?.isClosed === true;

  isStale = (): boolean => this.#taken !== this.changes.tools;

  async refresh(): Promise<void> {
    if (!this.isStale()) return;
    this.#refreshing ??= this.#listAgain().finally(() => {
      this.#refreshing = undefined;
    });
    await this.#refreshing;
  }

  /**
   * A change during the answer counts at the next refresh. If the server does not answer, its tools stay as they were until
   * it announces another change.
   */
  async #listAgain(): Promise<void> {
    const { client, server } = this.#parts;
    this.#taken = this.changes.tools;
    this.#tools = await this.#noticing(listTools(client, limitsOf(server)));
  }

  async call(name: string, input: JsonObject, context: CallContext): Promise<ToolOutput> {
    const { client, elicitations } = this.#parts;
    const onprogress = ({ message }: { message?: string | undefined }): void => {
      if (message !== undefined) context.progress(message);
    };
    const maxTotalTimeout = maxCallSeconds(this.#parts.server) * 1000;
    const options = {
      ...this.#options(context),
      onprogress,
      resetTimeoutOnProgress: true,
      maxTotalTimeout,
    };
    const params = { name, arguments: { ...input } };
    const result = await elicitations.during(context, async () => {
      const request = client.request({ method: 'tools/call', params }, ResultSchema, options);
      return await this.#noticing(request);
    });
    return outputOf(toolResult(result));
  }

  async listResources(context: ToolContext): Promise<ToolOutput> {
    const { client } = this.#parts;
    const options = this.#options(context);
    const resources = await allPages(async (cursor) => {
      const page = await this.#noticing(client.listResources(cursor, options));
      return { items: page.resources, next: page.nextCursor };
    });
    const { resourceTemplates } = await client
      .listResourceTemplates(undefined, options)
      .catch(() => ({ resourceTemplates: [] }));
    return lines([
      ...resources.map(({ uri, name, description }) => line(uri, description ?? name)),
      ...resourceTemplates.map(({ uriTemplate, name, description }) =>
        line(uriTemplate, description ?? name),
      ),
    ]);
  }

  async readResource(uri: string, context: ToolContext): Promise<ToolOutput> {
    const { client } = this.#parts;
    return resourceOutput(
      await this.#noticing(client.readResource({ uri }, this.#options(context))),
    );
  }

  async listPrompts(context: ToolContext): Promise<ToolOutput> {
    const { client } = this.#parts;
    const prompts = await allPages(async (cursor) => {
      const page = await this.#noticing(client.listPrompts(cursor, this.#options(context)));
      return { items: page.prompts, next: page.nextCursor };
    });
    return lines(
      prompts.map(({ name, description, arguments: given = [] }) => {
        const names = given.map((one) => (one.required === true ? one.name : `${one.name}?`));
        return line(`${name}(${names.join(', ')})`, description ?? '');
      }),
    );
  }

  async getPrompt(
    name: string,
    values: Readonly<Record<string, string>>,
    context: ToolContext,
  ): Promise<ToolOutput> {
    const { client } = this.#parts;
    const { messages } = await this.#noticing(
      client.getPrompt({ name, arguments: { ...values } }, this.#options(context)),
    );
    return { content: messages.map(({ content }) => blockOf(content)), is_error: false };
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#parts.client.close().catch(() => undefined);
    await this.#parts.stdio?.close();
  }

  retire(): void {
    this.#isRetired = true;
    this.#closed = true;
    if (this.#open === 0) void this.close().catch(() => undefined);
  }

  kill(): void {
    this.#closed = true;
    this.#parts.stdio?.kill();
  }

  /**
   * Takes a failure that the server did not answer itself, such as a refused connection or a session that it has forgotten,
   * for the end of the connection: the next call makes another. An answer that is malformed is the failure of one call.
   */
  async #noticing<T>(request: Promise<T>): Promise<T> {
    this.#open += 1;
    try {
      return await request;
    } catch (error) {
      const failure = this.#parts.stdio?.failure;
      const problem = shapeProblem(error);
      const isAnswer = error instanceof McpError || problem !== undefined;
      if (!isAnswer || failure !== undefined) this.#closed = true;
      if (this.#isForgotten(error)) {
        throw new ForgottenSession('it forgot the session', { cause: error });
      }
      const reason = failure ?? problem;
      throw reason === undefined ? error : new Error(reason);
    } finally {
      this.#open -= 1;
      if (this.#isRetired) this.retire();
    }
  }

  /** The protocol asks for 404; servers also answer 400 and name the session. */
  #isForgotten(error: unknown): boolean {
    const { transport } = this.#parts.client;
    if (transport?.sessionId === undefined || !(error instanceof StreamableHTTPError)) return false;
    return error.code === 404 || (error.code === 400 && /session/i.test(error.message));
  }

  #options({ signal }: ToolContext): { signal: AbortSignal; timeout: number } {
    return { signal, timeout: this.#parts.server.timeoutSeconds * 1000 };
  }
}

/** Describes an answer that the protocol does not know; undefined for another failure. */
function shapeProblem(error: unknown): string | undefined {
  const issues = isRecord(error) ? error['issues'] : undefined;
  if (!Array.isArray(issues)) return undefined;
  const [first] = issues as readonly unknown[];
  const { path = [], message = 'unknown' } = isRecord(first) ? first : {};
  return `its answer is malformed: ${Array.isArray(path) ? path.join('.') : ''}: ${String(message)}`;
}

function line(name: string, description: string): string {
  return `${name}: ${description.split('\n', 1)[0] ?? ''}`;
}

function lines(all: readonly string[]): ToolOutput {
  const text = all.length === 0 ? 'There are none.' : all.join('\n');
  return { content: [{ type: 'text', text }], is_error: false };
}
