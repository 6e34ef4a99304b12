import { lstatSync, realpathSync } from 'node:fs';
import { basename, isAbsolute, join, posix } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { McpServerOptions } from '../../kernel/app/api/mcp.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { messageOf, RyeError } from '../../kernel/core/errors.ts';
import { isRecord, type JsonObject } from '../../kernel/core/json.ts';
import { readInside } from '../../kernel/items/read-inside-fs.ts';
import { sha256Hex } from '../../kernel/trust/keys.ts';
import type { McpServerConfig, parseServers } from './config.ts';

/** Servers from code, by name. */
export type ServersByName = Readonly<Record<string, McpServerOptions>>;

export interface ConfiguredServers {
  readonly servers: readonly McpServerConfig[];
  readonly problems: readonly string[];
}

/** Files of other programs with servers of a project. Of servers with one name, that of the first file is used. */
const PLACES: readonly string[] = [
  '.mcp.json',
  '.cursor/mcp.json',
  '.vscode/mcp.json',
  '.codex/config.toml',
  '.gemini/settings.json',
  '.roo/mcp.json',
  '.kiro/settings/mcp.json',
  '.amazonq/mcp.json',
  '.github/copilot/mcp.json',
];

/** Servers of one file, by their names in it. */
interface Source extends Pick<ReturnType<typeof parseServers>, 'servers' | 'problems'> {
  readonly origin: string;
  readonly names: readonly string[];
  readonly notes: readonly string[];
}

/**
 * Reads the servers of the program, of mcp.yaml and of other programs' files; the first of a name is used, also if it is
 * disabled or has a mistake. Throws `config_invalid` for a mistake in one of the program.
 */
export async function readServers(
  workspace: Workspace,
  ofProgram: ServersByName,
): Promise<ConfiguredServers> {
  const { value } = await (await workspace.config()).load('mcp');
  const { hashes, problems } = fileHashes(value);
  const files = readFiles(workspace, hashes);
  const { env } = workspace.options;
  const hasOwn = Object.keys(ofProgram).length > 0;
  if (value['servers'] === undefined && !hasOwn && files.size === 0) {
    return { servers: [], problems: problems.map(skipped) };
  }
  const { parseServers } = await import('./config.ts');
  const { servers, disclosure } = value;
  const coded = parseServers({ servers: ofProgram, disclosure, origin: 'openRye()', env });
  const [wrong] = coded.problems;
  if (wrong) throw wrong;
  const origin = 'config mcp';
  const own = {
    origin,
    names: isRecord(servers) ? Object.keys(servers) : [],
    notes: [],
    ...parseServers({ servers, disclosure, origin, env }),
  };
  const others: Source[] = [];
  for (const [file, text] of files) {
    others.push(await readForeign(file, { text, disclosure, workspace }));
  }
  const found = firstOfName([own, ...others]);
  const isReplaced = ({ name }: McpServerConfig): boolean => Object.hasOwn(ofProgram, name);
  for (const { name } of found.servers.filter(isReplaced)) {
    workspace.notice(`ignored: the configured MCP server ${name}: the program has its own`);
  }
  return {
    servers: [...coded.servers, ...found.servers.filter((server) => !isReplaced(server))],
    problems: [...problems.map(skipped), ...found.problems],
  };
}

/** Returns the names of the configured servers; undefined if they cannot be read. */
export async function serverNames(
  workspace: Workspace,
  ofProgram: ServersByName,
): Promise<readonly string[] | undefined> {
  try {
    return (await readServers(workspace, ofProgram)).servers.map(({ name }) => name);
  } catch {
    return undefined;
  }
}

function skipped({ message }: RyeError): string {
  return `${message}; skipped`;
}

/** Returns the servers that are used, and names those that another file replaces, unless they are the same. */
function firstOfName(sources: readonly Source[]): ConfiguredServers {
  const first = new Map<string, Source>();
  const servers: McpServerConfig[] = [];
  const problems: string[] = [];
  for (const source of sources) {
    problems.push(...source.problems.map(skipped), ...source.notes);
    for (const server of source.servers) {
      const { name } = server;
      const winner = first.get(name);
      if (winner === undefined) {
        servers.push(server);
      } else if (!winner.servers.some((one) => isDeepStrictEqual(one, server))) {
        problems.push(
          `${source.origin}: the MCP server "${name}" is ignored: ${winner.origin} has one of that name`,
        );
      }
    }
    for (const name of source.names) if (!first.has(name)) first.set(name, source);
  }
  return { servers, problems };
}

async function readForeign(
  file: string,
  {
    text,
    disclosure,
    workspace: {
      options: { projectPath, env },
    },
  }: { readonly text: string; readonly disclosure: unknown; readonly workspace: Workspace },
): Promise<Source> {
  const { parseServers } = await import('./config.ts');
  const { readForeignServers } = await import('./foreign-config.ts');
  const format = file.endsWith('.toml')
    ? { name: 'TOML', parse: (await import('smol-toml')).parse }
    : undefined;
  const source = { origin: file, projectPath, env };
  const foreign = readForeignServers(text, source, format);
  const parsed = parseServers({ servers: foreign.servers, disclosure, origin: file, env });
  return {
    origin: file,
    names: foreign.names,
    servers: parsed.servers,
    problems: [...foreign.problems, ...parsed.problems],
    notes: foreign.notes,
  };
}

/** Returns the SHA-256 of each file that mcp.yaml vouches for, by its path from the project. */
export function fileHashes(config: JsonObject): {
  readonly hashes: ReadonlyMap<string, string>;
  readonly problems: readonly RyeError[];
} {
  const { mcp_json_sha256: ofClaude, mcp_files: given } = config;
  const hashes = new Map<string, string>();
  const problems: RyeError[] = [];
  const refuse = (problem: string): void => {
    const hint = 'Write mcp_files as FILE: SHA-256, such as ".cursor/mcp.json": 64 hex digits.';
    problems.push(new RyeError('config_invalid', `config mcp: ${problem}`, { hint }));
  };
  const isMapping = isRecord(given) || given === undefined || given === null;
  if (!isMapping) refuse('mcp_files is not a mapping from file to SHA-256');
  for (const [file, hash] of Object.entries(isRecord(given) ? given : {})) {
    const path = posix.normalize(file);
    if (isAbsolute(path) || /^\.\.(?:\/|$)/.test(path)) {
      refuse(`mcp_files: ${JSON.stringify(file)} is not in the project`);
    } else if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash)) {
      refuse(`mcp_files: ${JSON.stringify(file)} has no SHA-256`);
    } else hashes.set(path, hash);
  }
  if (typeof ofClaude === 'string') hashes.set('.mcp.json', ofClaude);
  return { hashes, problems };
}

/**
 * Reads the files of other programs. They start programs and have no signature, so they are used only if a configuration
 * that is trusted names their SHA-256.
 */
function readFiles(
  { options: { projectPath }, notice }: Workspace,
  hashes: ReadonlyMap<string, string>,
): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const file of new Set([...PLACES, ...hashes.keys()])) {
    const path = join(projectPath, file);
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) continue;
    try {
      const bytes = readInside({ type: 'config', id: file, path }, () => realpathSync(projectPath));
      const text = Buffer.from(bytes).toString('utf8');
      const sha256 = sha256Hex(bytes);
      if (hashes.get(file) === sha256) texts.set(file, text);
      // settings of a program that may have no servers
      else if (basename(file) === 'mcp.json' || text.includes('mcp')) {
        const line =
          file === '.mcp.json' ? `mcp_json_sha256: ${sha256}` : `"${file}": ${sha256} to mcp_files`;
        const place = file === '.mcp.json' ? 'to' : 'in';
        notice(
          `ignored: ${path} is not trusted. To use it, add ${line} ${place} .ai/config/mcp.yaml and sign that file.`,
        );
      }
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      notice(`ignored: ${messageOf(error)}`);
    }
  }
  return texts;
}
