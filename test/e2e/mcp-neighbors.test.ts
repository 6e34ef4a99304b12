import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

function write(here: Workspace, file: string, text: string): void {
  const full = path.join(here.project, file);
  mkdirSync(path.dirname(full), { recursive: true });
  writeFileSync(full, text);
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** A server that only leaves a mark when it is started. */
const marking = (mark: string) => ({ command: 'touch', args: [`started-${mark}`] });

/** Servers of each program as it writes them, with members that rye does not know. */
const FILES: Readonly<Record<string, string>> = {
  '.cursor/mcp.json': JSON.stringify({ mcpServers: { cursor: marking('cursor') } }),
  '.vscode/mcp.json': `{
    // as VS Code writes it
    "inputs": [{ "type": "promptString", "id": "key", "password": true }],
    "servers": {
      "code": ${JSON.stringify({ type: 'stdio', ...marking('code'), envFile: '.env' })},
      "asks": ${JSON.stringify({ ...marking('asks'), env: { KEY: '${input:key}' } })},
    },
  }`,
  '.codex/config.toml': [
    'model = "gpt-6-sol"',
    '[mcp_servers.codex]',
    'command = "touch"',
    "args = ['started-codex']",
    'startup_timeout_sec = 20',
    'enabled_tools = ["open"]',
    '[mcp_servers.codex.env]',
    'A = "b"',
    '[mcp_servers."vendor.docs"]',
    'url = "http://127.0.0.1:9/mcp"',
    'bearer_token_env_var = "UNSET_TOKEN"',
  ].join('\n'),
  '.gemini/settings.json': JSON.stringify({
    theme: 'x',
    mcpServers: { gemini: { ...marking('gemini'), trust: true } },
  }),
  '.roo/mcp.json': JSON.stringify({
    mcpServers: { roo: { ...marking('roo'), alwaysAllow: [], disabled: true } },
  }),
  'windsurf/mcp_config.json': JSON.stringify({
    mcpServers: { surf: { serverUrl: 'http://127.0.0.1:9/mcp', disabledTools: [] } },
  }),
};

async function trust(here: Workspace, files: Readonly<Record<string, unknown>>, more = {}) {
  write(here, '.ai/config/mcp.yaml', JSON.stringify({ mcp_files: files, ...more }));
  return await here.rye(['sign', 'config', 'mcp']);
}

/** Starts all servers; returns their names and what rye tells. */
async function list(here: Workspace) {
  const { stdout, stderr } = await here.rye(['mcp', 'list', '--json']);
  const { servers } = JSON.parse(stdout) as { servers: readonly { name: string }[] };
  // the document has the notices too
  return { names: servers.map(({ name }) => name), told: `${stderr}\n${stdout}` };
}

test("other programs' files start nothing until a signed mcp.yaml names their hashes", async () => {
  const here = await workspace();
  for (const [file, text] of Object.entries(FILES)) write(here, file, text);
  const before = await list(here);
  expect(before.names).toEqual([]);
  for (const [file, text] of Object.entries(FILES)) {
    if (file.startsWith('windsurf')) continue;
    expect(before.told).toContain(`${file} is not trusted`);
    expect(before.told).toContain(sha256(text));
  }
  const hashes = Object.entries(FILES).map(([file, text]) => [file, sha256(text)] as const);
  const files = Object.fromEntries(hashes);
  write(here, '.ai/config/mcp.yaml', JSON.stringify({ mcp_files: files }));
  expect((await list(here)).names).toEqual([]);
  expect(existsSync(path.join(here.project, 'started-cursor'))).toBe(false);

  await trust(here, files);
  const { names, told } = await list(here);
  expect(names.toSorted()).toEqual(['codex', 'code', 'cursor', 'gemini', 'surf'].toSorted());
  for (const one of ['codex', 'code', 'cursor', 'gemini'])
    expect(existsSync(path.join(here.project, `started-${one}`)), one).toBe(true);
  for (const one of ['asks', 'roo'])
    expect(existsSync(path.join(here.project, `started-${one}`)), one).toBe(false);
  for (const note of [
    'code\\": ignored: envFile',
    'asks\\": env.KEY needs the input key',
    'codex\\": ignored: enabled_tools',
    'vendor_docs\\": headers.Authorization needs the environment variable UNSET_TOKEN',
    'gemini\\": ignored: trust',
  ]) {
    expect(told.replaceAll(/(?<!\\)"/g, String.raw`\"`)).toContain(note);
  }

  // a changed file is another file
  write(here, '.cursor/mcp.json', `${FILES['.cursor/mcp.json']} `);
  expect((await list(here)).names).not.toContain('cursor');
});

test('of servers with one name the first file has its own, also if it is off, and a note names both', async () => {
  const here = await workspace();
  const texts = {
    '.mcp.json': JSON.stringify({ mcpServers: { a: marking('mcp'), same: marking('same') } }),
    '.cursor/mcp.json': JSON.stringify({
      mcpServers: { a: marking('cursor'), same: marking('same'), off: marking('off') },
    }),
    '.codex/config.toml': '[mcp_servers.a]\ncommand = "touch"\nargs = ["started-codex"]\n',
  };
  for (const [file, text] of Object.entries(texts)) write(here, file, text);
  await trust(
    here,
    Object.fromEntries(Object.entries(texts).map(([file, text]) => [file, sha256(text)])),
    { servers: { off: { ...marking('off'), enabled: false } } },
  );
  const { names, told } = await list(here);
  expect(names.toSorted()).toEqual(['a', 'same']);
  expect(existsSync(path.join(here.project, 'started-mcp'))).toBe(true);
  for (const one of ['cursor', 'codex', 'off'])
    expect(existsSync(path.join(here.project, `started-${one}`)), one).toBe(false);
  const plain = told.replaceAll(String.raw`\"`, '"');
  expect(plain).toContain('.cursor/mcp.json: the MCP server "a" is ignored: .mcp.json has one');
  expect(plain).toContain('.codex/config.toml: the MCP server "a" is ignored: .mcp.json has one');
  expect(plain).toContain('.cursor/mcp.json: the MCP server "off" is ignored: config mcp has one');
  expect(plain).not.toContain('"same" is ignored');
});

const HOSTILE: readonly (readonly [string, string, string, string])[] = [
  ['torn JSON', '.cursor/mcp.json', '{"mcpServers": {"a": {"command": "touch"', 'it is not JSON'],
  ['torn TOML', '.codex/config.toml', '[mcp_servers.a\ncommand = "touch"', 'it is not TOML'],
  ['two tables of one name', '.codex/config.toml', '[mcp_servers.a]\n[mcp_servers.a]', 'not TOML'],
  ['a list', '.vscode/mcp.json', '[]', 'no mapping mcpServers'],
  ['servers as a text', '.vscode/mcp.json', '{"servers": "a"}', 'no mapping mcpServers'],
  ['a number in TOML', '.codex/config.toml', 'mcp_servers = 7', 'no mapping mcpServers'],
  ['a server as a date', '.codex/config.toml', '[mcp_servers]\na = 2026-01-01', 'MCP server "a"'],
  ['other types', '.cursor/mcp.json', '{"mcpServers": {"a": {"command": {}}}}', 'MCP server "a"'],
  [
    '__proto__',
    '.cursor/mcp.json',
    '{"mcpServers": {"__proto__": {"command": "touch", "__proto__": {"args": ["started-x"]}}}}',
    'has the name proto here',
  ],
  [
    'a type that each object has',
    '.cursor/mcp.json',
    '{"mcpServers": {"a": {"command": "x", "type": "constructor"}}}',
    'MCP server "a"',
  ],
  ['5 MiB', '.cursor/mcp.json', `{"mcpServers": {}, "x": "${'x'.repeat(5 << 20)}"}`, '4 MiB'],
  ['deep lists', '.codex/config.toml', `mcp = ${'['.repeat(1e5)}`, 'not TOML'],
  ['quotes in an open text', '.vscode/mcp.json', `"${'\\"'.repeat(5e5)}`, 'it is not JSON'],
  ['open comments', '.vscode/mcp.json', '/*'.repeat(5e5), 'it is not JSON'],
];

test.each(HOSTILE)('%s in %s starts nothing and tells why', async (_, file, text, problem) => {
  const here = await workspace();
  write(here, file, text);
  await trust(here, { [file]: sha256(text) });
  const { told } = await list(here);
  expect(told).toContain(file);
  expect(told.replaceAll(String.raw`\"`, '"')).toContain(problem);
  expect(existsSync(path.join(here.project, 'started-x'))).toBe(false);
});

test.each(['.mcp.json', '.cursor/mcp.json'])('%s is no link out of the project', async (file) => {
  const here = await workspace();
  const text = JSON.stringify({ mcpServers: { a: marking('a') } });
  const outside = path.join(path.dirname(here.project), `outside-${path.basename(here.project)}`);
  writeFileSync(outside, text);
  mkdirSync(path.dirname(path.join(here.project, file)), { recursive: true });
  symlinkSync(outside, path.join(here.project, file));
  await trust(here, { [file]: sha256(text) });
  const linked = await list(here);
  expect(linked.names).toEqual([]);
  expect(linked.told).toContain('it is a symbolic link out of');

  // nor is its folder
  rmSync(path.join(here.project, file));
  write(here, file, text);
  expect((await list(here)).names).toEqual(['a']);
  rmSync(outside);
});

test.each([
  [['.cursor/mcp.json'], 'mcp_files is not a mapping from file to SHA-256'],
  [{ '.cursor/mcp.json': true }, '".cursor/mcp.json" has no SHA-256'],
  [{ '.cursor/mcp.json': 'abc' }, '".cursor/mcp.json" has no SHA-256'],
  [{ '../mcp.json': sha256('') }, '"../mcp.json" is not in the project'],
  [{ 'a/../../mcp.json': sha256('') }, 'is not in the project'],
  [{ '/etc/mcp.json': sha256('') }, '"/etc/mcp.json" is not in the project'],
])('mcp_files %j is refused', async (files, problem) => {
  const here = await workspace();
  const { code, stderr } = await trust(here, files as Record<string, unknown>);
  expect(code).not.toBe(0);
  expect(stderr).toContain(problem);
  expect(stderr).toContain('config_invalid');
});
