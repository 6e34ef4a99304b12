// The checks by hand that src/features/mcp/config.ts is compared with.

import type { McpConfigSource, McpServerConfig } from '../../../src/features/mcp/config.ts';
import { RyeError, toRyeError } from '../../../src/kernel/core/errors.ts';
import { isRecord } from '../../../src/kernel/core/json.ts';
import { didYouMean } from '../../../src/kernel/core/text.ts';

const MEMBERS = [
  'type',
  'command',
  'args',
  'env',
  'url',
  'headers',
  'disclosure',
  'timeout_seconds',
  'connect_timeout_seconds',
  'trust_annotations',
  'parallel',
  'enabled',
];
const NAME = /^[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$/;
const EXAMPLE = 'docs/tools.md shows an example.';
const TRANSPORTS = ['stdio', 'http', 'streamable-http'];

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
    try {
      const reader = new ServerReader(`${origin}: the MCP server "${name}"`, value, env);
      if (!NAME.test(name)) {
        reader.refuse('its name is not 1 to 32 letters, digits, hyphens and underscores');
      }
      if (reader.flag('enabled', true)) read.push(reader.read(name, disclosure));
    } catch (error) {
      problems.push(toRyeError(error));
    }
  }
  return { servers: read, problems };
}

class ServerReader {
  readonly #where: string;
  readonly #value: Record<string, unknown>;
  readonly #env: McpConfigSource['env'];

  constructor(where: string, value: unknown, env: McpConfigSource['env']) {
    this.#where = where;
    this.#env = env;
    this.#value = isRecord(value) ? value : this.refuse('it is not a mapping');
    const unknown = Object.keys(this.#value).find((key) => !MEMBERS.includes(key));
    if (unknown !== undefined) {
      const near = didYouMean(unknown, MEMBERS) ?? `Members are ${MEMBERS.join(', ')}.`;
      this.refuse(`"${unknown}" is not a member of a server`, near);
    }
  }

  read(name: string, defaultDisclosure: unknown): McpServerConfig {
    const common = {
      name,
      disclosure: this.#disclosure(this.#value['disclosure'] ?? defaultDisclosure ?? 'eager'),
      timeoutSeconds: this.#seconds('timeout_seconds', 60),
      connectSeconds: this.#seconds('connect_timeout_seconds', 30),
      trustAnnotations: this.flag('trust_annotations', false),
      parallel: this.flag('parallel', false),
    };
    const { command, url, type = url === undefined ? 'stdio' : 'http' } = this.#value;
    if (typeof type !== 'string' || !TRANSPORTS.includes(type)) {
      this.refuse(`its type is ${JSON.stringify(type)}, not one of ${TRANSPORTS.join(', ')}`);
    }
    if (type !== 'stdio') {
      return { ...common, transport: 'http', url: this.#url(url), headers: this.#texts('headers') };
    }
    if (typeof command !== 'string' || command === '') {
      return this.refuse('it has neither a command nor a url');
    }
    const { args = [] } = this.#value;
    if (!Array.isArray(args) || !args.every((arg) => typeof arg === 'string')) {
      return this.refuse('args is not a list of texts');
    }
    return { ...common, transport: 'stdio', command, args, env: this.#texts('env') };
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.#value[key] ?? fallback;
    return typeof value === 'boolean' ? value : this.refuse(`${key} is neither true nor false`);
  }

  refuse(problem: string, hint = EXAMPLE): never {
    throw new RyeError('config_invalid', `${this.#where}: ${problem}`, { hint });
  }

  #disclosure(value: unknown): 'eager' | 'lazy' {
    return value === 'eager' || value === 'lazy'
      ? value
      : this.refuse(`disclosure is ${JSON.stringify(value)}, neither eager nor lazy`);
  }

  #seconds(key: string, fallback: number): number {
    const value = this.#value[key] ?? fallback;
    return typeof value === 'number' && value > 0 && value <= 86_400
      ? value
      : this.refuse(`${key} is not a number of seconds above 0 and up to 86400`);
  }

  #url(value: unknown): string {
    const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
    if (url === undefined || !/^https?:$/.test(url.protocol)) {
      return this.refuse('its url is not an http or https address');
    }
    if (url.username !== '' || url.password !== '') {
      this.refuse('its url holds a user name or password', 'Put credentials into headers.');
    }
    return url.href;
  }

  #texts(key: 'env' | 'headers'): Readonly<Record<string, string>> {
    const value = this.#value[key] ?? {};
    if (!isRecord(value)) return this.refuse(`${key} is not a mapping of texts`);
    const entries = Object.entries(value).map(([name, text]): [string, string] =>
      typeof text === 'string'
        ? [name, this.#expand(`${key}.${name}`, text)]
        : this.refuse(`${key}.${name} is not text`),
    );
    return Object.fromEntries(entries);
  }

  #expand(where: string, text: string): string {
    return text.replaceAll(
      /\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g,
      (_, name: string, fallback: string | undefined) =>
        this.#env[name] ??
        fallback ??
        this.refuse(`${where} needs the environment variable ${name}, which is not set`),
    );
  }
}
