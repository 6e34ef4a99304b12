import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type {
  McpServerOptions,
  McpServerStart,
  OpenRyeOptions,
} from '../../src/kernel/app/api/rye.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

/** An MCP server with the tool `now` that notes its process at its start; `HOLD` has it wait for a file before it greets. */
const SERVER = `
import { appendFileSync, existsSync, watch } from 'node:fs';
import { createInterface } from 'node:readline';
import path from 'node:path';
appendFileSync(process.env.STARTS, process.pid + '\\n');
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
const gate = process.env.HOLD;
const opened = gate === undefined ? Promise.resolve() : new Promise((resolve) => {
  const look = () => existsSync(gate) && resolve();
  watch(path.dirname(gate), look);
  look();
});
createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') { await opened; send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } }); }
  if (method === 'tools/list') send({ id, result: { tools: [{ name: 'now', description: 'Returns the time.', inputSchema: { type: 'object' } }] } });
  if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: 'noon' }] } });
});
`;

const DIRECTIVE = {
  id: 'team/work',
  description: 'Works.',
  instructions: 'Work.',
  permissions: {
    execute: { tool: 'mcp/clock/now' },
    acknowledge: [{ risk: 'elevated', reason: 'A test.' }],
  },
} as const;

async function clockLab() {
  const lab = await libraryLab();
  const folder = path.join(lab.project, 'clock');
  mkdirSync(folder);
  const [file, starts, gate] = ['clock.mjs', 'starts', 'gate'].map((name) =>
    path.join(folder, name),
  ) as [string, string, string];
  writeFileSync(file, SERVER);
  const clock = (env: Record<string, string> = {}): McpServerOptions => ({
    command: process.execPath,
    args: [file],
    env: { STARTS: starts, ...env },
  });
  const model = mockModel([
    { calls: [{ tool: 'mcp/clock/now' }] },
    'Done.',
    { calls: [{ tool: 'mcp/clock/now' }] },
    'Done.',
  ]);
  const told: McpServerStart[] = [];
  const notices: string[] = [];
  const open = (options: Partial<OpenRyeOptions> = {}) =>
    lab.open({
      providers: { mock: model.kind },
      mcpServers: { clock: clock() },
      onMcpServer: (start) => told.push(start),
      onNotice: (notice) => notices.push(notice),
      ...options,
    });
  const pids = (): readonly number[] =>
    existsSync(starts) ? readFileSync(starts, 'utf8').trim().split('\n').map(Number) : [];
  return { open, clock, told, notices, pids, gate };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('a warm-up', () => {
  // Requirement: background-warm-up
  it('connects the servers once, for all runs until rye is closed', async () => {
    const { open, told, pids } = await clockLab();
    const rye = open();
    await Promise.all([rye.warmUp(), rye.warmUp()]);
    await rye.warmUp();
    expect(told).toEqual([{ server: 'clock', duration_ms: expect.any(Number), tools: 1 }]);
    const directive = await rye.defineDirective(DIRECTIVE);
    for (const _ of [1, 2]) {
      const logged: unknown[] = [];
      const outcome = await rye.run({
        directive,
        provider: 'mock',
        handlers: { mcp_server_started: ({ payload }) => void logged.push(payload) },
      });
      expect(outcome).toMatchObject({ kind: 'completed' });
      expect(logged).toEqual(told);
    }
    expect(pids()).toHaveLength(1);
    rye.close();
    await vi.waitUntil(() => !pids().some(isAlive), { timeout: 10_000 });
  });

  it('begins by itself with eager, and is shared with a run that starts meanwhile', async () => {
    const { open, clock, told, pids, gate } = await clockLab();
    const rye = open({ eager: true, mcpServers: { clock: clock({ HOLD: gate }) } });
    const directive = await rye.defineDirective(DIRECTIVE);
    const outcome = rye.run({ directive, provider: 'mock' });
    await vi.waitUntil(() => pids().length > 0, { timeout: 10_000 });
    writeFileSync(gate, '');
    expect(await outcome).toMatchObject({ kind: 'completed' });
    await rye.warmUp();
    expect(pids()).toHaveLength(1);
    expect(told).toHaveLength(1);
  });

  it('takes over the servers that a run is starting', async () => {
    const { open, clock, pids, gate } = await clockLab();
    const rye = open({ mcpServers: { clock: clock({ HOLD: gate }) } });
    const directive = await rye.defineDirective(DIRECTIVE);
    const outcome = rye.run({ directive, provider: 'mock' });
    await vi.waitUntil(() => pids().length > 0, { timeout: 10_000 });
    const warm = rye.warmUp();
    writeFileSync(gate, '');
    expect(await outcome).toMatchObject({ kind: 'completed' });
    await warm;
    expect(await rye.run({ directive, provider: 'mock' })).toMatchObject({ kind: 'completed' });
    expect(pids()).toHaveLength(1);
  });

  it('tells what fails and rejects nothing; the run tries again', async () => {
    const { open, clock, told } = await clockLab();
    const broken = { command: process.execPath, args: ['-e', 'process.exit(3)'] };
    const rye = open({ mcpServers: { broken, clock: clock() } });
    await rye.warmUp();
    expect(told).toHaveLength(2);
    expect(told).toContainEqual({
      server: 'broken',
      duration_ms: expect.any(Number),
      error: expect.stringContaining('broken') as string,
    });
    const directive = await rye.defineDirective({
      ...DIRECTIVE,
      permissions: { ...DIRECTIVE.permissions, optional: true, execute: { tool: 'mcp/*' } },
    });
    await rye.run({ directive, provider: 'mock' });
    expect(told.filter(({ server }) => server === 'broken')).toHaveLength(2);
    expect(told.filter(({ server }) => server === 'clock')).toHaveLength(1);
  });

  it('leaves no server if rye is closed meanwhile', async () => {
    const { open, clock, notices, pids, gate } = await clockLab();
    const rye = open({ mcpServers: { clock: clock({ HOLD: gate }) } });
    const warm = rye.warmUp();
    await vi.waitUntil(() => pids().length > 0, { timeout: 10_000 });
    rye.close();
    await warm;
    await vi.waitUntil(() => !pids().some(isAlive), { timeout: 10_000 });
    expect(notices).toEqual([]);
    const late = open();
    late.close();
    await late.warmUp();
    expect(pids()).toHaveLength(1);
  });

  it('is nothing without it', async () => {
    const { open, pids } = await clockLab();
    const rye = open();
    await rye.items.list('directive');
    expect(pids()).toEqual([]);
  });
});
