import { findProblem, type Problem } from '../../kernel/core/check.ts';
import { RyeError, toRyeError } from '../../kernel/core/errors.ts';
import { isRecord } from '../../kernel/core/json.ts';
import type { HttpServerFile, StdioServerFile } from '../../kernel/schemas/mcp.ts';
import httpSchema from '../../kernel/schemas/mcp-http.json' with { type: 'json' };
import stdioSchema from '../../kernel/schemas/mcp-stdio.json' with { type: 'json' };

/** One configured MCP server. */
export type McpServerConfig = StdioServerConfig | HttpServerConfig;

interface ServerSettings {
  readonly name: string;
  /** `lazy`: its tools are listed by name only, and found with `tool_search`. */
  readonly disclosure: 'eager' | 'lazy';
  /** Time limit of one request, from its start or from the last progress that its call reports. */
  readonly timeoutSeconds: number;
  /** Time limit of starting and initializing it. */
  readonly connectSeconds: number;
  /** True to trust `readOnlyHint`, `idempotentHint` and `openWorldHint` of its tools. */
  readonly trustAnnotations: boolean;
  /** Calls of its tools run beside other calls of an answer, although they may change something. */
  readonly parallel: boolean;
}

export interface StdioServerConfig extends ServerSettings {
  readonly transport: 'stdio';
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the reduced environment that every child gets. */
  readonly env: Readonly<Record<string, string>>;
}

export interface HttpServerConfig extends ServerSettings {
  readonly transport: 'http';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Time limit of a call that reports progress, unless the server may take longer for one step. */
const PROGRESS_SECONDS = 3600;

/** Returns the time limit of a whole call in seconds. */
export function maxCallSeconds({ timeoutSeconds }: ServerSettings): number {
  return Math.max(timeoutSeconds, PROGRESS_SECONDS);
}

export interface McpConfigSource {
  /** Servers by name, from `servers` of mcp.yaml or `mcpServers` of .mcp.json. */
  readonly servers: unknown;
  /** The default for servers that do not set it. */
  readonly disclosure: unknown;
  /** The location, for messages. */
  readonly origin: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Maximum length of the name of a server. */
export const MAX_NAME = 32;
const NAME = /^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$/;
const BAD_NAME = 'its name is not 1 to 32 letters, digits, hyphens and underscores';
const EXAMPLE = 'docs/tools.md shows an example.';
const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;

/**
 * Reads the servers of one source; it skips those with `enabled: false` and each one with a mistake, so that one mistake
 * affects no other server. `${NAME}` and `${NAME:-default}` in `env` and `headers` are replaced by variables of the
 * environment. `problems` are `config_invalid`.
 */
export function parseServers({ servers, disclosure, origin, env }: McpConfigSource): {
  readonly servers: readonly McpServerConfig[];
  readonly problems: readonly RyeError[];
} {
  if (servers === undefined || servers === null) return { servers: [], problems: [] };
  if (!isRecord(servers)) {
    const problem = `${origin}: the servers are not a mapping from name to server`;
    return { servers: [], problems: [new RyeError('config_invalid', problem, { hint: EXAMPLE })] };
  }
  const read: McpServerConfig[] = [];
  const problems: RyeError[] = [];
  for (const [name, value] of Object.entries(servers)) {
    const where = `${origin}: the MCP server "${name}"`;
    try {
      const server = parseServer(name, value, { disclosure, env });
      if (server !== undefined) read.push(server);
    } catch (error) {
      const { message, hint = EXAMPLE } = toRyeError(error);
      problems.push(new RyeError('config_invalid', `${where}: ${message}`, { hint }));
    }
  }
  return { servers: read, problems };
}

/** Returns the server, or undefined if it is not enabled. */
function parseServer(
  name: string,
  value: unknown,
  { disclosure, env }: Pick<McpConfigSource, 'disclosure' | 'env'>,
): McpServerConfig | undefined {
  if (!isRecord(value)) return refuse('it is not a mapping');
  const { type = value['url'] === undefined ? 'stdio' : 'http' } = value;
  const server = { ...value, type, disclosure: value['disclosure'] ?? disclosure ?? 'eager' };
  const problem = findProblem(type === 'stdio' ? stdioSchema : httpSchema, server);
  if (problem?.known) {
    const all = `Members are ${problem.known.join(', ')}.`;
    refuse(`"${problem.path.join('.')}" is not a member of a server`, problem.hint ?? all);
  }
  if (!NAME.test(name)) refuse(BAD_NAME);
  if (value['enabled'] === false) return undefined;
  if (problem) return refuse(problemText(problem));
  return type === 'stdio'
    ? stdioConfig(name, server as unknown as StdioServerFile, env)
    : httpConfig(name, server as unknown as HttpServerFile, env);
}

/** Words the problem of a member of the server itself as a whole sentence, and names a member of a mapping. */
function problemText({ path: [member, name], text }: Problem): string {
  return typeof name === 'string' ? `${member}.${name} ${text}` : text;
}

function stdioConfig(
  name: string,
  server: StdioServerFile,
  variables: McpConfigSource['env'],
): StdioServerConfig {
  const { command, args = [] } = server;
  const env = expanded('env', server.env ?? {}, variables);
  return { ...settingsOf(name, server), transport: 'stdio', command, args, env };
}

function httpConfig(
  name: string,
  server: HttpServerFile,
  variables: McpConfigSource['env'],
): HttpServerConfig {
  const url = URL.canParse(server.url) ? new URL(server.url) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) {
    return refuse('its url is not an http or https address');
  }
  if (url.username !== '' || url.password !== '') {
    refuse('its url holds a user name or password', 'Put credentials into headers.');
  }
  const headers = expanded('headers', server.headers ?? {}, variables);
  return { ...settingsOf(name, server), transport: 'http', url: url.href, headers };
}

function settingsOf(name: string, server: StdioServerFile | HttpServerFile): ServerSettings {
  return {
    name,
    disclosure: server.disclosure ?? 'eager',
    timeoutSeconds: server.timeout_seconds ?? 60,
    connectSeconds: server.connect_timeout_seconds ?? 30,
    trustAnnotations: server.trust_annotations ?? false,
    parallel: server.parallel ?? false,
  };
}

/** Replaces the variables in the values of a mapping. */
function expanded(
  member: string,
  texts: Readonly<Record<string, string>>,
  env: McpConfigSource['env'],
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [key, withVariables(text, env, `${member}.${key}`)]),
  );
}

/** Replaces the variables in the text of a member; throws `config_invalid` for one that is not set. */
export function withVariables(text: string, env: McpConfigSource['env'], member: string): string {
  return text.replaceAll(
    VARIABLE,
    (_, name: string, fallback: string | undefined) =>
      env[name] ??
      fallback ??
      refuse(`${member} needs the environment variable ${name}, which is not set`),
  );
}

function refuse(problem: string, hint: string = EXAMPLE): never {
  throw new RyeError('config_invalid', problem, { hint });
}
