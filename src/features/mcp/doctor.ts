import type { DoctorLine } from '../../kernel/app/api/rye.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { PlacedServers } from './mcp.ts';

/** Names the MCP servers in use. It starts none: a diagnosis runs no programs of a project. */
export async function examineServers(workspace: Workspace): Promise<readonly DoctorLine[]> {
  const { servers } = await new PlacedServers(workspace).project.unresolved(() => true);
  const names = [...servers.keys()];
  if (names.length === 0) return [{ check: 'mcp', status: 'ok', detail: 'no servers' }];
  const hint = 'To start them and see their tools, run: rye mcp list';
  return [{ check: 'mcp', status: 'ok', detail: `${names.join(', ')} (not started)`, hint }];
}
