import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { calls, reply, startWireServer, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const SERVERS = path.resolve('node_modules', '@modelcontextprotocol');

function program(name: string): string {
  return path.join(SERVERS, `server-${name}`, 'dist', 'index.js');
}

function write(here: Workspace, file: string, text: string): void {
  const full = path.join(here.project, file);
  mkdirSync(path.dirname(full), { recursive: true });
  writeFileSync(full, text);
}

/** Writes `.ai/config/mcp.yaml` (YAML is a superset of JSON) and signs it. */
async function configure(here: Workspace, config: object): Promise<void> {
  write(here, '.ai/config/mcp.yaml', JSON.stringify(config, null, 1));
  expect(await here.rye(['sign', 'config', 'mcp'])).toMatchObject({ code: 0 });
}

/** Marks a tool without which the directive may run. */
const OPTIONAL = ' (optional)';

async function directive(here: Workspace, tools: readonly string[]): Promise<void> {
  const grants = tools
    .map((tool) => {
      const id = tool.replace(OPTIONAL, '');
      return `<execute><tool optional="${id !== tool}">${id}</tool></execute>`;
    })
    .join('');
  write(
    here,
    '.ai/directives/work.md',
    `# Work\n\n\`\`\`xml\n<directive name="work" version="1.0.0"><metadata><description>Use servers.</description><category></category><author>test</author><permissions><acknowledge risk="elevated">Only test servers.</acknowledge><fetch><skill>*</skill></fetch>${grants}</permissions></metadata></directive>\n\`\`\`\n\nUse the servers.\n`,
  );
  expect(await here.rye(['sign', 'directive', 'work'])).toMatchObject({ code: 0 });
}

async function run(here: Workspace, script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'sk-ant-of-this-test', ANTHROPIC_BASE_URL: server.url };
  const { stdout, stderr } = await here.rye(['--json', 'run', 'work'], { env });
  return { server, result: JSON.parse(stdout) as Record<string, unknown>, stderr };
}

/** Returns the texts of the results in a request's last message. */
function lastResults(body: unknown): string {
  const { messages } = body as { messages: readonly unknown[] };
  return JSON.stringify(messages.at(-1));
}

/** The reference server over streamable HTTP, on a free port. */
async function everything(): Promise<{ url: string; child: ChildProcess }> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const address = probe.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  probe.close();
  await once(probe, 'close');
  const child = spawn(process.execPath, [program('everything'), 'streamableHttp'], {
    env: { PATH: process.env['PATH'], PORT: String(port) },
    stdio: 'ignore',
  });
  onTestFinished(() => {
    child.kill('SIGKILL');
  });
  const url = `http://127.0.0.1:${port}/mcp`;
  for (;;) {
    try {
      await fetch(url);
      return { url, child };
    } catch {
      await delay(50);
    }
  }
}

/** True if a living process has this text in its command line. */
function isRunning(text: string): boolean {
  return readdirSync('/proc').some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(text);
    } catch {
      return false;
    }
  });
}

// Requirement: tools-before-system-text, server-failure-is-isolated, tool-disclosure, tool-search, tool-list-updates, locked-tool-refused
test('a thread works with two skills and three servers, one over HTTP and one lazy; a broken one affects no other', async () => {
  const here = await workspace();
  const { url } = await everything();
  write(here, 'notes/a.txt', 'the text of the note');
  for (const name of ['naming', 'filing']) {
    const text = `---\nname: ${name}\ndescription: About ${name}.\n---\nBody of ${name}.\n`;
    write(here, `.ai/skills/${name}/SKILL.md`, text);
    expect(await here.rye(['sign', 'skill', name])).toMatchObject({ code: 0 });
  }
  const graph = path.join(here.project, 'graph.jsonl');
  await configure(here, {
    servers: {
      filesystem: {
        command: process.execPath,
        args: [program('filesystem'), path.join(here.project, 'notes')],
      },
      memory: {
        command: process.execPath,
        args: [program('memory')],
        env: { MEMORY_FILE_PATH: graph },
        disclosure: 'lazy',
      },
      everything: { url },
      broken: {
        command: process.execPath,
        args: ['-e', 'console.error("no luck"); process.exit(3)'],
      },
    },
  });
  await directive(here, [
    'mcp/filesystem/read_text_file',
    'mcp/memory/*',
    'mcp/everything/echo',
    `mcp/broken/*${OPTIONAL}`,
  ]);
  const entity = { name: 'Ada', entityType: 'person', observations: ['wrote the first program'] };
  const { server, result, stderr } = await run(here, [
    calls(
      toolUse(
        'mcp_filesystem_read_text_file',
        { path: path.join(here.project, 'notes/a.txt') },
        'a',
      ),
      toolUse('mcp_everything_echo', { message: 'over HTTP' }, 'b'),
      toolUse('mcp_memory_create_entities', { entities: [entity] }, 'c'),
    ),
    calls(
      toolUse('tool_search', { names: ['mcp_memory_create_entities'] }, 'd'),
      toolUse('skills_use', { name: 'naming' }, 'f'),
      toolUse('skills_use', { name: 'filing' }, 'g'),
    ),
    calls(toolUse('mcp_memory_create_entities', { entities: [entity] }, 'e')),
    reply('done'),
  ]);
  expect(result).toMatchObject({ success: true, result: 'done' });
  const [first, second, third, fourth] = server.requests.map(({ body }) => body);
  const names = (first?.tools ?? []).map(({ name }) => name);
  expect(names).toContain('mcp_filesystem_read_text_file');
  expect(names).toContain('mcp_everything_echo');
  expect(names).not.toContain('mcp_filesystem_write_file');
  expect(names).not.toContain('mcp_memory_create_entities');
  expect(JSON.stringify(first?.system)).toContain('mcp_memory_create_entities');
  const results = lastResults(second);
  expect(results).toContain('the text of the note');
  expect(results).toContain('over HTTP');
  expect(results).toContain('load its schema with tool_search');
  expect(lastResults(third)).toContain('observations');
  expect(lastResults(third)).toContain('Body of naming.');
  expect(lastResults(third)).toContain('Body of filing.');
  expect((third?.tools ?? []).map(({ name }) => name)).toContain('mcp_memory_create_entities');
  expect(lastResults(fourth)).toContain('Ada');
  expect(readFileSync(graph, 'utf8')).toContain('wrote the first program');
  expect(isRunning(path.join(here.project, 'notes'))).toBe(false);
  expect(stderr).toContain('the MCP server broken can');
  expect(stderr).toContain('no luck');
  const verified = await here.json(['verify', 'thread', String(result['thread_id'])]);
  expect(verified).toMatchObject({ success: true });
});

// Requirement: touch-on-first-use
test('a dry run starts no server and reaches none; it names the servers that a run would start', async () => {
  const here = await workspace();
  let reached = 0;
  const remote = createServer((socket) => {
    reached += 1;
    socket.destroy();
  }).listen(0, '127.0.0.1');
  await once(remote, 'listening');
  onTestFinished(() => void remote.close());
  const address = remote.address();
  const host = `127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`;
  const mark = path.join(here.project, 'started');
  const script = `require('node:fs').writeFileSync(${JSON.stringify(mark)}, '')`;
  await configure(here, {
    servers: {
      local: { command: process.execPath, args: ['-e', script, '--token=of-this-test'] },
      remote: { url: `http://${host}/mcp?token=of-this-test` },
      unreached: { command: process.execPath },
    },
  });
  await directive(here, ['mcp/local/*', 'mcp/remote/do']);
  const plan = await here.rye(['run', 'work', '--dry-run']);
  expect(plan.code).toBe(0);
  expect(plan.stdout).toContain(`MCP server local are not known`);
  expect(plan.stdout).toContain(`would start ${process.execPath} to ask`);
  expect(plan.stdout).toContain(`would connect to ${host} to ask`);
  expect(plan.stdout).not.toContain('unreached');
  expect(plan.stdout).not.toContain('of-this-test');
  await here.rye(['doctor']);
  expect(existsSync(mark)).toBe(false);
  expect(reached).toBe(0);
});

test('.mcp.json starts nothing until a signed mcp.yaml names its hash; then its tools can be run by hand', async () => {
  const here = await workspace();
  write(here, 'notes/a.txt', 'the text of the note');
  const args = [program('filesystem'), '${workspaceFolder}/notes'];
  const server = { command: process.execPath, args, autoApprove: [], disabled: false };
  const text = `\uFEFF// as other programs write it\n${JSON.stringify({ mcpServers: { files: server } })}`;
  write(here, '.mcp.json', text);
  const params = JSON.stringify({ path: path.join(here.project, 'notes/a.txt') });
  const command = ['execute', 'tool', 'mcp/files/read_text_file', '--params', params];
  const read = async () => await here.rye([...command, '--acknowledge', 'elevated']);
  const refused = await read();
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('.mcp.json is not trusted');
  const sha256 = createHash('sha256').update(text).digest('hex');
  await configure(here, { mcp_json_sha256: sha256 });
  const allowed = await read();
  expect(allowed.stdout).toContain('the text of the note');
  write(here, '.mcp.json', `${text} `);
  expect((await read()).code).not.toBe(0);
});

test('an unsigned mcp.yaml of the project starts nothing', async () => {
  const here = await workspace();
  const args = ['-e', `require('node:fs').writeFileSync('ran', '')`];
  const servers = { files: { command: process.execPath, args } };
  write(here, '.ai/config/mcp.yaml', JSON.stringify({ servers }));
  const { code, stderr } = await here.rye([
    'execute',
    'tool',
    'mcp/files/read',
    '--acknowledge',
    'elevated',
  ]);
  expect(code).not.toBe(0);
  expect(stderr).toContain('ignored');
  expect(existsSync(path.join(here.project, 'ran'))).toBe(false);
});
