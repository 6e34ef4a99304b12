import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { HandlerMap } from '../../../src/kernel/hooks/handlers.ts';
import { libraryLab } from '../../app/library-lab.ts';
import { reply } from '../../helpers/wire-server.ts';

// Requirement: server-start-event, server-outcomes-differ
test('each start is told with its duration and how it went', async () => {
  const lab = await libraryLab([reply('Done.')]);
  const everything = path.resolve('node_modules/@modelcontextprotocol/server-memory/dist/index.js');
  const servers = {
    memory: { command: process.execPath, args: [everything] },
    broken: { command: process.execPath, args: ['-e', 'process.exit(3)'] },
  };
  mkdirSync(path.join(lab.project, '.ai/config'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/mcp.yaml'), JSON.stringify({ servers }));
  const starts: object[] = [];
  const rye = lab.open({ onMcpServer: (start) => starts.push(start) });
  await rye.items.sign('config', 'mcp');
  await lab.directive('work', ['mcp/*'], {
    metadata:
      '<permissions><execute><tool>mcp/*</tool></execute><acknowledge risk="elevated">Test servers.</acknowledge></permissions>',
  });
  const logged: unknown[] = [];
  const handlers: HandlerMap = { mcp_server_started: ({ payload }) => void logged.push(payload) };
  const request = { directiveId: 'team/work', behavior: { nudge: false }, handlers };
  expect(await rye.run(request)).toMatchObject({ kind: 'completed' });
  const duration_ms = expect.any(Number) as number;
  expect(starts.toSorted((a, b) => JSON.stringify(a).localeCompare(JSON.stringify(b)))).toEqual(
    expect.arrayContaining([
      { server: 'memory', duration_ms, tools: expect.any(Number) as number },
      { server: 'broken', duration_ms, error: expect.stringContaining('broken') as string },
    ]),
  );
  expect(logged).toHaveLength(2);
  expect(logged).toEqual(expect.arrayContaining(starts));
});
