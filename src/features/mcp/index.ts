import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';

export const mcp: Feature = {
  name: 'mcp',
  services: (workspace) => ({
    mcpServers: async (name) =>
      await (await import('./inspect.ts')).inspectServers(workspace, name),
    addMcpServer: async (name, server) =>
      await (await import('./inspect.ts')).addServer(workspace, name, server),
  }),
  thread: async () => {
    const { toolServers, warmServers } = await import('./mcp.ts');
    return { servers: toolServers, warmServers };
  },
  checks: async (workspace) => await (await import('./doctor.ts')).examineServers(workspace),
  files: {
    mcp: async (file, spaces) => await (await import('./check.ts')).checkServersFile(file, spaces),
  },
  commands: withHeading(
    'Write:',
    ...commandsOf(() => import('./cli/mcp.ts'), { mcp: 'List, test and add MCP servers' }),
  ),
};
