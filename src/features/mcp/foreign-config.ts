import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { RyeError } from '../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../kernel/core/json.ts';
import httpSchema from '../../kernel/schemas/mcp-http.json' with { type: 'json' };
import { MAX_NAME, withVariables } from './config.ts';

export interface ForeignSource {
  /** The file, for messages. */
  readonly origin: string;
  readonly projectPath: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface ForeignServers {
  /** In the form of mcp.yaml. */
  readonly servers: Readonly<Record<string, unknown>>;
  /** The names of all servers here, including servers with a problem. */
  readonly names: readonly string[];
  /** One sentence for what is ignored or has another name here. */
  readonly notes: readonly string[];
  readonly problems: readonly RyeError[];
}

type Members = Record<string, unknown>;

/** Members under which programs keep their servers. */
const WRAPPERS = ['mcpServers', 'mcp_servers', 'servers', 'context_servers', 'mcp'];
/** Names that other programs have for members of rye. */
const ALIASES: Readonly<Record<string, string>> = {
  httpUrl: 'url',
  serverUrl: 'url',
  environment: 'env',
  http_headers: 'headers',
  startup_timeout_sec: 'connect_timeout_seconds',
  tool_timeout_sec: 'timeout_seconds',
};
const TYPES: Readonly<Record<string, string>> = {
  local: 'stdio',
  stdio: 'stdio',
  http: 'http',
  remote: 'http',
  streamablehttp: 'http',
};
const KNOWN: ReadonlySet<string> = new Set(Object.keys(httpSchema.properties));
/** `${input:token}`: a question that only the other program asks. */
const QUESTION = /\$\{input:([^}]*)\}/;

/** A format of files. `parse` throws, or returns undefined, for a text that is none. */
export interface Format {
  readonly name: string;
  readonly parse: (text: string) => unknown;
}

/** JSON as programs allow it: with comments, trailing commas and a byte order mark. */
const LENIENT_JSON: Format = { name: 'JSON', parse: (text) => parseJson(withoutComments(text)) };

/**
 * Reads the servers in a file of another program: Claude Code, Cursor, Cline, VS Code, Codex, Gemini CLI, Amazon Q.
 * What rye does not know costs no server: a note names it.
 */
export function readForeignServers(
  text: string,
  source: ForeignSource,
  format: Format = LENIENT_JSON,
): ForeignServers {
  const { origin } = source;
  const value = parsed(text, format);
  const fault = (problem: string): ForeignServers => ({
    servers: {},
    names: [],
    notes: [],
    problems: [
      new RyeError('config_invalid', `${origin}: ${problem}`, {
        hint: 'docs/tools.md shows an example.',
      }),
    ],
  });
  if (value === undefined) return fault(`it is not ${format.name}`);
  const given = isRecord(value) ? serversIn(value) : undefined;
  if (given === undefined) return fault('it has no mapping mcpServers from name to server');
  const servers: Members = {};
  const names: string[] = [];
  const notes: string[] = [];
  const problems: RyeError[] = [];
  for (const [givenName, one] of Object.entries(given)) {
    const where = `${origin}: the MCP server "${givenName}"`;
    const name = usableName(givenName, { ...given, ...servers });
    names.push(name);
    try {
      const { server, ignored } = isRecord(one)
        ? readServer(one, source)
        : { server: one, ignored: [] };
      if (name !== givenName) notes.push(`${where} has the name ${name} here`);
      if (ignored.length > 0) notes.push(`${where}: ignored: ${ignored.join(', ')}`);
      servers[name] = server;
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      problems.push(
        new RyeError('config_invalid', `${where}: ${error.message}`, { hint: error.hint ?? '' }),
      );
    }
  }
  return { servers, names, notes, problems };
}

function parsed(text: string, { parse }: Format): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Removes comments and trailing commas; texts stay. What is not closed ends with the file, so that no text takes long. */
function withoutComments(text: string): string {
  return text
    .replace(/^\uFEFF/, '')
    .replaceAll(
      /("(?:[^"\\]|\\[^])*(?:"|\\?$))|\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/g,
      (_, kept?: string) => kept ?? ' ',
    )
    .replaceAll(/("(?:[^"\\]|\\[^])*(?:"|\\?$))|,(?=\s*[}\]])/g, (_, kept?: string) => kept ?? '');
}

function serversIn(file: Members): Members | undefined {
  for (const wrapper of WRAPPERS) {
    const inside = file[wrapper];
    // settings of VS Code
    if (wrapper === 'mcp' && isRecord(inside) && isRecord(inside['servers']))
      return inside['servers'];
    if (isRecord(inside)) return inside;
  }
  const all = Object.values(file);
  return all.length > 0 && all.every(isServer) ? file : undefined;
}

function isServer(value: unknown): boolean {
  return isRecord(value) && ['command', ...addresses()].some((member) => member in value);
}

function addresses(): readonly string[] {
  return ['url', ...Object.keys(ALIASES).filter((alias) => ALIASES[alias] === 'url')];
}

/** Returns the server in the form of mcp.yaml, and the members that have no meaning here. */
function readServer(
  given: Members,
  source: ForeignSource,
): { readonly server: Members; readonly ignored: readonly string[] } {
  const server: Members = {};
  const ignored: string[] = [];
  for (const [member, value] of Object.entries(given)) {
    const name = lookup(ALIASES, member) ?? member;
    if (value === null || member === 'disabled') continue;
    if (!KNOWN.has(name)) {
      if (!isSecretMember(member)) ignored.push(member);
    } else if (!(name in given) || name === member) server[name] = value;
  }
  if (given['disabled'] === true) server['enabled'] = false;
  const { type, command } = server;
  if (typeof type === 'string') {
    const plain = type.toLowerCase().replaceAll(/[-_]/g, '');
    server['type'] = lookup(TYPES, plain) ?? type;
  }
  if (Array.isArray(command)) {
    const [program, ...args] = command as readonly unknown[];
    const more: unknown = server['args'];
    server['command'] = program;
    server['args'] = [...args, ...(Array.isArray(more) ? more : [])];
  }
  addSecrets(given, server);
  // one that is not used needs no variables
  if (server['enabled'] === false) return { server, ignored: [] };
  return { server: replaced(server, source), ignored };
}

function lookup(words: Readonly<Record<string, string>>, name: string): string | undefined {
  return Object.hasOwn(words, name) ? words[name] : undefined;
}

function isSecretMember(member: string): boolean {
  return ['bearer_token_env_var', 'env_http_headers', 'env_vars'].includes(member);
}

function from(name: unknown): string {
  return `\${${String(name)}}`;
}

/** Codex names variables of the environment in separate members. */
function addSecrets(given: Members, server: Members): void {
  const { bearer_token_env_var: bearer, env_http_headers: headers, env_vars: passed } = given;
  if (typeof bearer === 'string') {
    server['headers'] = { ...asRecord(server['headers']), Authorization: `Bearer ${from(bearer)}` };
  }
  if (isRecord(headers)) {
    const values = Object.entries(headers).map(([name, variable]) => [name, from(variable)]);
    server['headers'] = { ...asRecord(server['headers']), ...Object.fromEntries(values) };
  }
  if (Array.isArray(passed)) {
    const names = passed.filter((name) => typeof name === 'string');
    const values = names.map((name) => [name, `\${${name}:-}`]);
    server['env'] = { ...Object.fromEntries(values), ...asRecord(server['env']) };
  }
}

function asRecord(value: unknown): Members {
  return isRecord(value) ? value : {};
}

/** Replaces variables in the command, its arguments and the address; `parseServers` replaces them in `env` and `headers`. */
function replaced(server: Members, { env, projectPath }: ForeignSource): Members {
  const place = (text: string): string =>
    text
      .replaceAll(/\$\{env:(\w+)\}/g, '${$1}')
      .replaceAll(/\$\{(?:workspaceFolder|CLAUDE_PROJECT_DIR)(?::-[^}]*)?\}/g, () => projectPath)
      .replaceAll('${workspaceFolderBasename}', () => basename(projectPath))
      .replaceAll('${userHome}', () => env['HOME'] ?? '')
      .replaceAll(/\$\{(?:pathSeparator|\/)\}/g, '/');
  const text = (value: unknown, member: string, isWhole: boolean): unknown => {
    if (typeof value === 'number' || typeof value === 'boolean') return String(value);
    if (typeof value !== 'string') return value;
    const question = QUESTION.exec(value)?.[1];
    if (question !== undefined) {
      throw new RyeError(
        'config_invalid',
        `${member} needs the input ${question}, which rye does not ask for`,
        {
          hint: 'Name a variable of the environment instead, such as ${API_KEY}.',
        },
      );
    }
    return isWhole ? withVariables(place(value), env, member) : place(value);
  };
  const mapping = (value: unknown, member: string): unknown =>
    isRecord(value)
      ? Object.fromEntries(
          Object.entries(value)
            .filter(([, one]) => one !== null)
            .map(([name, one]) => [name, text(one, `${member}.${name}`, false)]),
        )
      : value;
  return Object.fromEntries(
    Object.entries(server).map(([member, value]) => {
      if (member === 'command' || member === 'url') return [member, text(value, member, true)];
      if (member === 'env' || member === 'headers') return [member, mapping(value, member)];
      if (member !== 'args' || !Array.isArray(value)) return [member, value];
      return [member, value.map((one: unknown, index) => text(one, `args.${index}`, true))];
    }),
  );
}

/** Returns the name with `_` for what a name of rye does not have, shortened and different from the others. */
function usableName(name: string, taken: Members): string {
  const plain = name.replaceAll(/[^A-Za-z0-9_-]+/g, '_');
  const short = trimmed(trimmed(plain).slice(0, MAX_NAME));
  if (short === name || (short !== '' && !Object.hasOwn(taken, short))) return short;
  const mark = createHash('sha256').update(name).digest('hex').slice(0, 6);
  return [short.slice(0, MAX_NAME - 7), mark].filter((part) => part !== '').join('_');
}

function trimmed(name: string): string {
  return name.replaceAll(/^[_-]+|[_-]+$/g, '');
}
