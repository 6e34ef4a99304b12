import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { McpServerOptions } from '../../../src/kernel/app/api/rye.ts';
import { type LibraryLab, libraryLab } from '../../app/library-lab.ts';
import { calls, reply, toolUse } from '../../helpers/wire-server.ts';

/** An MCP server with the tool `now`, which notes its start in `log`, and first waits for a line of `other`. */
const server = (name: string, other: string, log: string) => `
import { appendFileSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
const log = ${JSON.stringify(log)};
appendFileSync(log, '${name}\\n');
while (!readFileSync(log, 'utf8').split('\\n').includes('${other}'))
  await new Promise((resolve) => setTimeout(resolve, 5));
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } });
  if (method === 'tools/list') send({ id, result: { tools: [{ name: 'now', description: 'The time.', inputSchema: { type: 'object' } }] } });
  if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: '${name} says noon' }] } });
});
`;

/** A lab with the directive `team/work`, which may use the tools of all servers, and servers that note their start. */
async function withServers(
  script: Parameters<typeof libraryLab>[0],
  ...names: readonly (readonly [string, string])[]
): Promise<{
  lab: LibraryLab;
  starts: () => string[];
  mcpServers: Record<string, McpServerOptions>;
}> {
  const lab = await libraryLab(script);
  const log = path.join(lab.project, 'starts.txt');
  appendFileSync(log, '');
  const mcpServers = Object.fromEntries(
    names.map(([name, other]) => {
      const file = path.join(lab.project, `${name}.mjs`);
      writeFileSync(file, server(name, other, log));
      return [name, { command: process.execPath, args: [file], connect_timeout_seconds: 20 }];
    }),
  );
  const metadata =
    '<permissions><acknowledge risk="elevated">Test servers.</acknowledge></permissions>';
  await lab.directive('work', ['mcp/*'], { metadata });
  const starts = (): string[] => readFileSync(log, 'utf8').trim().split('\n').filter(Boolean);
  return { lab, starts, mcpServers };
}

test('a server is started once for a thread and its children, which call it at the same time', async () => {
  const child = { item_type: 'directive', item_id: 'team/child', parameters: {} };
  const { lab, starts, mcpServers } = await withServers(
    async ({ index, body }) => {
      if (index === 0) return calls(...['a', 'b'].map((id) => toolUse('rye_execute', child, id)));
      // neither child ends before the other has asked
      await lab.server.request(2);
      const isAnswered = JSON.stringify(body.messages.at(-1)).includes('tool_result');
      return isAnswered ? reply('Done.') : calls(toolUse('mcp_one_now', {}, `now-${index}`));
    },
    ['one', 'one'],
  );
  for (const name of ['child', 'work'])
    await lab.directive(name, [], {
      metadata:
        '<permissions><execute><tool>mcp/*</tool><directive>*</directive></execute><acknowledge risk="elevated">Test servers.</acknowledge></permissions>',
    });
  const rye = lab.open({ mcpServers });
  expect(starts()).toEqual([]);
  expect(await rye.run({ directiveId: 'team/work' })).toMatchObject({ kind: 'completed' });
  const said = JSON.stringify(lab.server.requests.map(({ body }) => body.messages.at(-1)));
  expect(said.match(/one says noon/g)?.length).toBe(2);
  expect(starts()).toEqual(['one']);
});

test('servers start side by side: each waits until the other has started', async () => {
  const { lab, starts, mcpServers } = await withServers(
    [reply('Done.')],
    ['one', 'two'],
    ['two', 'one'],
  );
  const outcome = await lab.open({ mcpServers }).run({ directiveId: 'team/work' });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(starts().toSorted()).toEqual(['one', 'two']);
});

test('a server that fails takes its own tools away and nothing else', async () => {
  const { lab, mcpServers } = await withServers(
    [calls(toolUse('mcp_one_now', {}, 'a')), reply('Done.')],
    ['one', 'one'],
  );
  const broken = { command: process.execPath, args: ['-e', 'process.exit(3)'] };
  const failed: string[] = [];
  const rye = lab.open({
    mcpServers: { ...mcpServers, broken },
    onMcpServer: (start) => void ('error' in start && failed.push(start.server)),
  });
  expect(await rye.run({ directiveId: 'team/work' })).toMatchObject({ kind: 'completed' });
  const [first, second] = lab.server.requests.map(({ body }) => body);
  expect((first?.tools ?? []).map(({ name }) => name)).toContain('mcp_one_now');
  expect(JSON.stringify(second?.messages.at(-1))).toContain('one says noon');
  expect(failed).toEqual(['broken']);
});
