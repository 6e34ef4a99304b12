import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import { expect, onTestFinished, test } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { calls, reply, startWireServer, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const PROGRAM = path.resolve(import.meta.dirname, '../fixtures/hostile-mcp.mjs');
const DIRECTIVE = `\`\`\`xml
<directive name="work" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author>
    <permissions><execute><tool>mcp/*</tool></execute><acknowledge risk="elevated">r</acknowledge></permissions></metadata>
</directive>
\`\`\`

Do the work.
`;

interface Server {
  readonly mode: string;
  readonly timeout_seconds?: number;
  readonly disclosure?: string;
}

async function lab(servers: Readonly<Record<string, Server>>, script: WireScript) {
  const here = await workspace();
  const write = (file: string, text: string): void => {
    const target = path.join(here.project, '.ai', file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
  };
  const entries = Object.entries(servers).map(([name, { mode, ...rest }]) => [
    name,
    { command: process.execPath, args: [PROGRAM, mode], ...rest },
  ]);
  write('config/mcp.yaml', JSON.stringify({ servers: Object.fromEntries(entries) as object }));
  write('directives/work.md', DIRECTIVE);
  for (const item of [
    ['config', 'mcp'],
    ['directive', 'work'],
  ]) {
    const signed = await here.rye(['sign', ...item]);
    expect(signed.code, signed.stderr).toBe(0);
  }
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  return { here, server, env };
}

async function run(here: Workspace, env: Readonly<Record<string, string>>) {
  const began = performance.now();
  const ended = await here.rye(['run', 'work', '--json'], { env });
  return { ...ended, seconds: (performance.now() - began) / 1000 };
}

// Requirement: server-failure-is-isolated
test('tools with bad or colliding names are dropped with a warning, and the run continues', async () => {
  const { here, server, env } = await lab(
    { odd: { mode: 'names' }, good: { mode: 'good' } },
    ({ index }) => (index === 0 ? calls(toolUse('mcp_good_fine', {})) : reply('Done.')),
  );
  const { code, stderr } = await run(here, env);
  expect(code, stderr).toBe(0);
  const names = server.requests[0]?.body.tools?.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(['mcp_odd_fine', 'mcp_odd_a_b', 'mcp_good_fine']));
  expect(names?.filter((name) => name?.startsWith('mcp_odd'))).toHaveLength(2);
  expect(stderr).toContain('its name "a_b" would be mcp_odd_a_b, as that of mcp/odd/a-b');
  expect(stderr).toContain('its name "" is not usable');
  expect(stderr).toMatch(/its name "x{80}…" is too long/);
  expect(stderr).toContain('its name "..." is not usable');
  expect(JSON.stringify(server.requests[1]?.body.messages.at(-1))).toContain('fine');
});

// Requirement: server-failure-is-isolated
test('a tool with a bad schema costs that tool, and one with a strange schema is offered', async () => {
  const { here, server, env } = await lab({ odd: { mode: 'schemas' } }, ({ index }) =>
    index === 0 ? calls(toolUse('mcp_odd_fine', {})) : reply('Done.'),
  );
  const { code, stderr } = await run(here, env);
  expect(code, stderr).toBe(0);
  const names = server.requests[0]?.body.tools?.flatMap(
    ({ name }) => /^mcp_odd_(.*)/.exec(name ?? '')?.[1] ?? [],
  );
  expect(names?.toSorted()).toEqual([
    'bad_hints',
    'bad_output',
    'fine',
    'none',
    'null_members',
    'one_of',
    'true_property',
  ]);
  for (const name of ['text', 'array', 'task']) {
    expect(stderr).toContain(`a tool of the MCP server odd is dropped: "${name}" `);
  }
  expect(stderr).toContain('a tool of the MCP server odd is dropped: it has no name');
  expect(JSON.stringify(server.requests[1]?.body.messages.at(-1))).toContain('fine');
});

test('two servers whose tools would share a name keep the first, and the run continues', async () => {
  const { here, server, env } = await lab(
    { a: { mode: 'good' }, a_fine: { mode: 'good' }, 'a-fine': { mode: 'good' } },
    () => reply('Done.'),
  );
  const { code, stderr } = await run(here, env);
  expect(code, stderr).toBe(0);
  const names = server.requests[0]?.body.tools?.map(({ name }) => name) ?? [];
  expect(new Set(names).size).toBe(names.length);
  expect(stderr).toMatch(/is dropped: it would share the name mcp_a_fine_fine/);
});

test.each(['endless', 'huge'])(
  'a server that answers with an %s line is ended, and the model is told why',
  async (mode) => {
    const { here, server, env } = await lab({ bad: { mode } }, ({ index }) =>
      index === 0 ? calls(toolUse('mcp_bad_fine', {})) : reply('Done.'),
    );
    const { code, stderr } = await run(here, env);
    expect(code, stderr).toBe(0);
    expect(JSON.stringify(server.requests[1]?.body.messages.at(-1))).toContain(
      'it sent a message of more than 16 MiB',
    );
  },
);

test('an interrupt ends a run at once while a server floods its output and ignores SIGTERM', async () => {
  const { here, env } = await lab({ bad: { mode: 'drip' } }, () =>
    calls(toolUse('mcp_bad_fine', {})),
  );
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, 'run', 'work', '--thread-id', 't'], {
    cwd: here.project,
    env: { PATH: process.env['PATH'], HOME: here.home, ...env },
    stdio: 'ignore',
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const log = path.join(here.project, '.ai/state/threads/t/transcript.jsonl');
  while (!existsSync(log) || !readFileSync(log, 'utf8').includes('tool_call_start'))
    await delay(20);
  // long enough for more of its line than answers have
  await delay(1000);
  const began = performance.now();
  child.kill('SIGINT');
  const [code] = (await once(child, 'exit')) as [number];
  expect(code).toBe(130);
  // without the fix it waits two seconds and more for a server that does not listen
  expect(performance.now() - began).toBeLessThan(2000);
  expect(await here.json(['threads', 'show', 't'])).toMatchObject({
    thread: { status: 'cancelled' },
  });
});

test('thousands of tools cost a bounded catalog, and the person is told', async () => {
  const { here, server, env } = await lab({ big: { mode: 'many' } }, () => reply('Done.'));
  const { code, stderr } = await run(here, env);
  expect(code, stderr).toBe(0);
  const request = JSON.stringify(server.requests[0]?.body);
  expect(request.length).toBeLessThan(120_000);
  expect(request).toContain('more are found by tool_search');
  expect(stderr).toContain('offers more tools than 1000');
  expect(stderr).toMatch(/\d+ tools of the MCP server big are listed by name only/);
});

test('eager means that all tools of an ordinary server are offered with their schemas', async () => {
  const { here, server, env } = await lab(
    { one: { mode: 'names' }, two: { mode: 'good', disclosure: 'lazy' } },
    () => reply('Done.'),
  );
  const { code } = await run(here, env);
  expect(code).toBe(0);
  const names = server.requests[0]?.body.tools?.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(['mcp_one_fine', 'mcp_one_a_b', 'tool_search']));
  expect(names).not.toContain('mcp_two_fine');
});
