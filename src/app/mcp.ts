import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isRecord, parseJson } from '../core/json.ts';
import type { McpServerConfig } from '../tools/mcp/config.ts';
import { McpServers } from '../tools/mcp/servers.ts';
import { childEnvironment } from '../tools/process.ts';
import { environmentSecrets, withoutSecretsIn } from '../tools/secrets.ts';
import { sha256Hex } from '../trust/keys.ts';
import type { Foundation } from './foundation.ts';
import { threadSandbox } from './sandboxing.ts';
import { readThreadConfig } from './settings.ts';

declare const __RYE_VERSION__: string;

interface ConfiguredServers {
  readonly servers: readonly McpServerConfig[];
  readonly problems: readonly string[];
}

const FILE = '.mcp.json';
const MAX_BYTES = 1024 * 1024;

/** The MCP servers that `.ai/config/mcp.yaml` and a trusted `.mcp.json` configure; nothing is read before it is needed. */
export function mcpServers(base: Foundation): McpServers {
  let configured: Promise<ConfiguredServers> | undefined;
  const servers = new McpServers({
    configured: async () => {
      configured ??= readServers(base);
      return await configured;
    },
    connect: async (server) => {
      const { projectPath, env } = base.options;
      const { settings } = await readThreadConfig(await base.config());
      const { connect } = await import('../tools/mcp/connection.ts');
      try {
        return await connect({
          server,
          projectPath,
          // a rye that a server starts belongs to the thread that this process belongs to
          env: childEnvironment(env, { projectPath, threadId: env['RYE_PARENT_THREAD_ID'] ?? '' }),
          confine: threadSandbox(base, settings)?.(true),
          version: __RYE_VERSION__,
        });
      } catch (error) {
        throw withoutSecretsIn(error, [...environmentSecrets(env), ...ownSecrets(server)]);
      }
    },
    monotonic: () => base.clock.monotonic(),
  });
  const { onMcpServer } = base.options;
  if (onMcpServer) servers.watch(onMcpServer);
  base.onClose(() => servers.kill());
  return servers;
}

/** What a server may repeat in what it says when it fails. */
function ownSecrets(server: McpServerConfig): readonly string[] {
  if (server.transport === 'stdio') return environmentSecrets(server.env);
  return Object.values(server.headers).filter((value) => value !== '');
}

/** Of two servers with one name the one in mcp.yaml counts. */
async function readServers(base: Foundation): Promise<ConfiguredServers> {
  const { value } = await (await base.config()).load('mcp');
  const given = readProjectFile(base, value['mcp_json_sha256']);
  if (value['servers'] === undefined && given === undefined) return { servers: [], problems: [] };
  const { parseServers } = await import('../tools/mcp/config.ts');
  const { env } = base.options;
  const { disclosure } = value;
  const own = parseServers({ servers: value['servers'], disclosure, origin: 'config mcp', env });
  const names = new Set(own.servers.map(({ name }) => name));
  const others = parseServers({ servers: given, disclosure, origin: FILE, env });
  return {
    servers: [...own.servers, ...others.servers.filter(({ name }) => !names.has(name))],
    problems: [...own.problems, ...others.problems].map(
      ({ message }) => `${message}; it is left out`,
    ),
  };
}

/**
 * The `mcpServers` of the project's .mcp.json. The file starts programs and carries no signature of its own, so it counts
 * only where a configuration that is trusted names its SHA-256.
 */
function readProjectFile({ options, notice }: Foundation, trusted: unknown): unknown {
  const path = join(options.projectPath, FILE);
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (!stats.isFile() || stats.size > MAX_BYTES) {
    notice(`ignored: ${path} is not a regular file of at most 1 MiB`);
    return undefined;
  }
  const bytes = readFileSync(path);
  const sha256 = sha256Hex(bytes);
  if (trusted !== sha256) {
    notice(
      `ignored: ${path} is not trusted. To use it, write mcp_json_sha256: ${sha256} into .ai/config/mcp.yaml and sign that.`,
    );
    return undefined;
  }
  const value = parseJson(bytes.toString('utf8'));
  return isRecord(value) ? value['mcpServers'] : 'unreadable';
}
