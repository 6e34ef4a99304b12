import { join } from 'node:path';
import type { McpServerOptions, McpServerReport } from '../../kernel/app/api/rye.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { serverOfTool } from '../../kernel/core/ids.ts';
import { compact, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import { readTextInside, writeInside } from '../../kernel/disk/inside.ts';
import { parseServers } from './config.ts';
import { PlacedServers } from './mcp.ts';

/** {@link Rye.mcpServers} */
export async function inspectServers(
  workspace: Workspace,
  name?: string,
): Promise<readonly McpServerReport[]> {
  const { project } = new PlacedServers(workspace);
  const isWanted = (server: string): boolean => name === undefined || server === name;
  const { servers, tools, warnings } = await project.offered(isWanted);
  const told = [...servers.values()].map((error) => error?.message ?? '');
  for (const warning of warnings) {
    if (!told.some((message) => message !== '' && warning.includes(message))) {
      workspace.notice(warning);
    }
  }
  if (name !== undefined && !servers.has(name)) {
    throw new RyeError('item_not_found', `unknown MCP server ${JSON.stringify(name)}`, {
      hint: 'List the servers with: rye mcp list',
    });
  }
  return [...servers].map(([server, error]) => ({
    name: server,
    ok: error === undefined,
    ...compact({ error: error?.toJSON() }),
    tools: tools
      .filter(({ id }) => serverOfTool(id) === server)
      .map(({ id, description }) => ({ id, description })),
  }));
}

/** {@link Rye.addMcpServer} */
export async function addServer(
  { options: { projectPath, env } }: Workspace,
  name: string,
  server: McpServerOptions,
): Promise<string> {
  const value = server as JsonObject;
  const { problems } = parseServers({
    servers: { [name]: value },
    disclosure: undefined,
    origin: 'rye mcp add',
    env,
  });
  const [problem] = problems;
  if (problem) throw problem;
  const folder = join(projectPath, '.ai', 'config');
  const path = join(folder, 'mcp.yaml');
  const { parseDocument } = await import('yaml');
  const document = parseDocument(readTextInside(projectPath, path) ?? '');
  const [mistake] = document.errors;
  if (mistake) {
    throw new RyeError('config_invalid', `${path}: ${mistake.message}`, {
      hint: 'Correct the file, then run the command again.',
    });
  }
  const known: unknown = document.toJS();
  const servers = isRecord(known) && isRecord(known['servers']) ? known['servers'] : {};
  if (Object.hasOwn(servers, name)) {
    throw new RyeError('already_exists', `${path} has an MCP server ${name} already`, {
      hint: 'Choose another name, or change the file and sign it: rye sign config mcp',
    });
  }
  document.setIn(['servers', name], document.createNode(value));
  writeInside(projectPath, path, String(document));
  return path;
}
