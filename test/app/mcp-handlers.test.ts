import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { composeHandlers, type HandlerMap } from '../../src/kernel/hooks/handlers.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

const SERVER = `
import { createInterface } from 'node:readline';
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } });
  if (method === 'tools/list') send({ id, result: { tools: ['now', 'then'].map((name) => ({ name, description: name, inputSchema: { type: 'object' } })) } });
  if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: 'noon' }] } });
});
`;

it('handlers of MCP servers decide about their calls and no others', async () => {
  const lab = await libraryLab();
  const file = path.join(lab.project, 'clock.mjs');
  writeFileSync(file, SERVER);
  const ls = { tool: 'rye_file_system_ls', input: {} };
  const model = mockModel([
    { calls: [ls, { tool: 'mcp/clock/now' }, { tool: 'mcp/clock/then' }] },
    'Done.',
  ]);
  const seen: string[] = [];
  const handlers: HandlerMap = {
    mcp_tool_gate: ({ tool }) => {
      seen.push(`gate ${tool}`);
      return tool.endsWith('then') ? { block: 'that is over' } : undefined;
    },
    mcp_tool_transform: ({ tool }) => {
      seen.push(`transform ${tool}`);
      return { result: 'about noon' };
    },
  };
  const rye = lab.open({
    providers: { mock: model.kind },
    mcpServers: { clock: { command: process.execPath, args: [file] } },
  });
  const directive = await rye.defineDirective({
    id: 'team/work',
    description: 'Works.',
    instructions: 'Work.',
    permissions: {
      execute: { tool: ['mcp/clock/*', 'rye/file-system/ls'] },
      acknowledge: [{ risk: 'elevated', reason: 'A test.' }],
    },
  });
  expect(await rye.run({ directive, provider: 'mock', handlers })).toMatchObject({
    kind: 'completed',
  });
  expect(seen.toSorted((a, b) => a.localeCompare(b))).toEqual([
    'gate mcp/clock/now',
    'gate mcp/clock/then',
    'transform mcp/clock/now',
  ]);
  const results = JSON.stringify(model.requests[1]?.messages);
  expect(results).toContain('about noon');
  expect(results).toContain('Blocked: that is over');
  expect(results).toContain('clock.mjs');
});

it('they are deciding handlers, and a misspelled one is refused', () => {
  const lists = composeHandlers({ mcp_tool_gate: () => undefined, tool_gate: () => undefined });
  expect(lists.tool_gate).toHaveLength(2);
  expect(() => composeHandlers({ mcp_tool_gat: () => undefined } as HandlerMap)).toThrow(
    expect.objectContaining({ hint: 'Did you mean mcp_tool_gate?' }),
  );
});
