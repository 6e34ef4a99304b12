import * as z from 'zod/v4';
import { RyeError, toRyeError } from '../../core/errors.ts';
import { isRecord } from '../../core/json.ts';
import { didYouMean } from '../../core/text.ts';

/** One configured MCP server. */
export type McpServerConfig = StdioServerConfig | HttpServerConfig;

interface ServerSettings {
  readonly name: string;
  /** `lazy`: its tools are listed by name only, and found with `tool_search`. */
  readonly disclosure: 'eager' | 'lazy';
  /** Time limit of one request. */
  readonly timeoutSeconds: number;
  /** Time limit of starting and initializing it. */
  readonly connectSeconds: number;
  /** True to trust `readOnlyHint`, `idempotentHint` and `openWorldHint` of its tools. */
  readonly trustAnnotations: boolean;
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

export interface McpConfigSource {
  /** Servers by name, from `servers` of mcp.yaml or `mcpServers` of .mcp.json. */
  readonly servers: unknown;
  /** The default for servers that do not set it. */
  readonly disclosure: unknown;
  /** The location, for messages. */
  readonly origin: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

const NAME = /^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$/;
const BAD_NAME = 'its name is not made of at most 32 letters, digits, hyphens and underscores';
const EXAMPLE = 'docs/mcp.md shows an example.';
const TRANSPORTS = ['stdio', 'http', 'streamable-http'] as const;
const VARIABLE = /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g;
const NO_COMMAND = 'it has neither a command nor a url';
const NO_TEXTS = 'args is not a list of texts';
const NO_ADDRESS = 'its url is not an http or https address';

const ADDRESS = z
  .string(NO_ADDRESS)
  .refine((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol), {
    error: NO_ADDRESS,
    abort: true,
  })
  .transform((text) => new URL(text))
  .refine(({ username, password }) => username === '' && password === '', {
    error: 'its url holds a user name or password',
    params: { hint: 'Put credentials into headers.' },
  })
  .transform(({ href }) => href);

/** Declares a server of each transport. Issues come in the order of the members, which is the order of the messages. */
function serverSchemas(env: McpConfigSource['env']) {
  const expand = (text: string, context: z.RefinementCtx<string>): string =>
    text.replaceAll(VARIABLE, (_, name: string, fallback: string | undefined) => {
      const value = env[name] ?? fallback;
      if (value !== undefined) return value;
      context.addIssue(`needs the environment variable ${name}, which is not set`);
      return '';
    });
  const texts = (member: string) =>
    z
      .record(
        z.string(),
        z.string('is not text').transform(expand),
        `${member} is not a mapping of texts`,
      )
      .nullish()
      .transform((value) => value ?? {});
  const settings = {
    enabled: flag('enabled', true),
    disclosure: z.enum(['eager', 'lazy'], {
      error: ({ input }) => `disclosure is ${JSON.stringify(input)}, neither eager nor lazy`,
    }),
    timeout_seconds: seconds('timeout_seconds', 60),
    connect_timeout_seconds: seconds('connect_timeout_seconds', 30),
    trust_annotations: flag('trust_annotations', false),
    type: z.enum(TRANSPORTS, {
      error: ({ input }) =>
        `its type is ${JSON.stringify(input)}, not one of ${TRANSPORTS.join(', ')}`,
    }),
    command: z.unknown().optional(),
    args: z.unknown().optional(),
    env: z.unknown().optional(),
    url: z.unknown().optional(),
    headers: z.unknown().optional(),
  };
  const stdio = z.strictObject({
    ...settings,
    command: z.string(NO_COMMAND).min(1, NO_COMMAND),
    args: z.array(z.string(NO_TEXTS), NO_TEXTS).default([]),
    env: texts('env'),
  });
  const http = z.strictObject({ ...settings, url: ADDRESS, headers: texts('headers') });
  return {
    members: Object.keys(settings),
    stdio: stdio.transform(
      ({ command, args, env: variables, ...rest }): Unnamed<StdioServerConfig> => ({
        ...settingsOf(rest),
        transport: 'stdio',
        command,
        args,
        env: variables,
      }),
    ),
    http: http.transform(
      ({ url, headers, ...rest }): Unnamed<HttpServerConfig> => ({
        ...settingsOf(rest),
        transport: 'http',
        url,
        headers,
      }),
    ),
  };
}

type ServerSchemas = ReturnType<typeof serverSchemas>;
type Unnamed<Config> = Omit<Config, 'name'>;

function settingsOf(server: {
  readonly disclosure: 'eager' | 'lazy';
  readonly timeout_seconds: number;
  readonly connect_timeout_seconds: number;
  readonly trust_annotations: boolean;
}) {
  return {
    disclosure: server.disclosure,
    timeoutSeconds: server.timeout_seconds,
    connectSeconds: server.connect_timeout_seconds,
    trustAnnotations: server.trust_annotations,
  };
}

function flag(member: string, fallback: boolean) {
  return z
    .boolean(`${member} is neither true nor false`)
    .nullish()
    .transform((value) => value ?? fallback);
}

function seconds(member: string, fallback: number) {
  const problem = `${member} is not a number of seconds above 0 and up to 86400`;
  return z
    .number(problem)
    .positive(problem)
    .max(86_400, problem)
    .nullish()
    .transform((value) => value ?? fallback);
}

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
  const schemas = serverSchemas(env);
  for (const [name, value] of Object.entries(servers)) {
    const where = `${origin}: the MCP server "${name}"`;
    try {
      const server = parseServer(name, value, { disclosure, schemas });
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
  { disclosure, schemas }: { readonly disclosure: unknown; readonly schemas: ServerSchemas },
): McpServerConfig | undefined {
  if (!isRecord(value)) return refuse('it is not a mapping');
  const { type = value['url'] === undefined ? 'stdio' : 'http' } = value;
  const { data, error } = schemas[type === 'stdio' ? 'stdio' : 'http'].safeParse({
    ...value,
    type,
    disclosure: value['disclosure'] ?? disclosure ?? 'eager',
  });
  const issues = error?.issues ?? [];
  const [first] = issues;
  for (const issue of issues) {
    if (issue.code === 'unrecognized_keys') refuseMember(issue.keys[0], schemas.members);
  }
  if (!NAME.test(name)) refuse(BAD_NAME);
  if (value['enabled'] === false) return undefined;
  return data === undefined ? refuseIssue(first) : { name, ...data };
}

function refuseMember(member = '', members: readonly string[]): never {
  const hint = didYouMean(member, members) ?? `Members are ${members.join(', ')}.`;
  return refuse(`"${member}" is not a member of a server`, hint);
}

function refuseIssue(issue: z.core.$ZodIssue | undefined): never {
  const { path = [], message = '' } = issue ?? {};
  const hint: unknown = issue?.code === 'custom' ? issue.params?.['hint'] : undefined;
  const [member, name] = path;
  const isText = typeof name === 'string';
  return refuse(
    isText ? `${String(member)}.${name} ${message}` : message,
    typeof hint === 'string' ? hint : EXAMPLE,
  );
}

function refuse(problem: string, hint: string = EXAMPLE): never {
  throw new RyeError('config_invalid', problem, { hint });
}
