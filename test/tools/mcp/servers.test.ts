import { mkdtempSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type McpServerConfig, parseServers } from '../../../src/features/mcp/config.ts';
import { connect } from '../../../src/features/mcp/connection.ts';
import { McpServers } from '../../../src/features/mcp/servers.ts';
import { textOf } from '../../../src/kernel/core/message.ts';
import { childEnvironment } from '../../../src/kernel/tools/process.ts';
import type { Tool } from '../../../src/kernel/tools/tool.ts';
import { removeFolder } from '../../helpers/remove-folder.ts';

const EVERYTHING = path.resolve(
  'node_modules/@modelcontextprotocol/server-everything/dist/index.js',
);

/** A server of one tool, which returns its pid and environment, or behaves as `how` names. */
const SMALL = `
import { createInterface } from 'node:readline';
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
process.on('SIGTERM', () => undefined);
let count = 0;
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } } });
  if (method === 'tools/list') send({ id, result: { tools: [
    { name: 'do.it', description: 'd', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } },
    { name: 'do it', description: 'the same id', inputSchema: { type: 'object' } },
    ...(process.env.GIVEN === 'malformed' ? [{ name: 'bad', inputSchema: { type: 'array' } }, 7] : []),
  ] } });
  const how = params?.arguments?.how;
  if (how === 'count') send({ id, result: { content: [{ type: 'text', text: 'calls: ' + ++count }] } });
  if (how === 'slow') setTimeout(() => send({ id, result: { content: [{ type: 'text', text: 'slow is done' }] } }), 300);
  if (how === 'steps') {
    const { progressToken } = params._meta;
    for (const at of [1, 2, 3, 4]) setTimeout(() => send({ method: 'notifications/progress', params: { progressToken, progress: at, message: 'step ' + at } }), at * 200);
    setTimeout(() => send({ id, result: { content: [{ type: 'text', text: 'all steps' }] } }), 1000);
  }
  if (how === 'odd') send({ id, result: { content: [{ type: 'text', text: 'three rows' }, { type: 'hologram' }], structuredContent: [1, 2, 3] } });
  if (how === 'nothing') send({ id, result: { content: 'text' } });
  if (['count', 'slow', 'steps', 'odd', 'nothing'].includes(how)) return;
  if (method === 'tools/call' && params.arguments.how === 'die') process.exit(1);
  if (method === 'tools/call' && params.arguments.how === 'hang') return;
  if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: JSON.stringify({ pid: process.pid, env: process.env, tool: params.name }) }] } });
});
setInterval(() => undefined, 1000);
`;

let folder: string;
let servers: McpServers;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-mcp-')));
});
afterEach(() => {
  servers.kill();
  removeFolder(folder);
});

function open(config: object, env: Record<string, string> = {}): McpServers {
  const origin = 'mcp.yaml';
  const { servers: parsed, problems } = parseServers({
    servers: config,
    disclosure: undefined,
    origin,
    env,
  });
  servers = new McpServers({
    configured: () =>
      Promise.resolve({ servers: parsed, problems: problems.map(({ message }) => message) }),
    connect: async (server: McpServerConfig) =>
      await connect({
        server,
        projectPath: folder,
        env: childEnvironment(process.env, { projectPath: folder, threadId: '' }),
        confine: undefined,
        version: '0.0.0',
      }),
    monotonic: () => performance.now(),
  });
  return servers;
}

function small(more: object = {}): object {
  const file = path.join(folder, 'small.mjs');
  writeFileSync(file, SMALL);
  return { command: process.execPath, args: [file], ...more };
}

async function call(tool: Tool, input: Record<string, string> = {}): Promise<string> {
  const { signal } = new AbortController();
  const context = {
    callId: 'c',
    threadId: 't',
    projectPath: folder,
    signal,
    progress: () => undefined,
  };
  return textOf((await tool.execute(input, context)).content);
}

/** True if the process is gone or a zombie. */
function isGone(pid: number): boolean {
  try {
    return / [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/\(.*\)/, ''));
  } catch {
    return true;
  }
}

async function pidOf(tool: Tool): Promise<number> {
  return (JSON.parse(await call(tool)) as { pid: number }).pid;
}

describe('a server in a separate process', () => {
  test('gets a reduced environment and only the variables that its entry names', async () => {
    process.env['SOME_TOKEN'] = 'not for servers';
    const { tools } = await open(
      { one: small({ env: { GIVEN: 'x-${WANTED}-${MISSING:-y}' } }) },
      { WANTED: 'w' },
    ).offered(() => true);
    delete process.env['SOME_TOKEN'];
    const [tool] = tools;
    expect(tools.map(({ id }) => id)).toEqual(['mcp/one/do_it']);
    const told = JSON.parse(await call(tool as Tool)) as {
      env: Record<string, string>;
      tool: string;
    };
    expect(told.tool).toBe('do.it');
    expect(told.env).toMatchObject({ GIVEN: 'x-w-y', RYE_PROJECT: folder });
    expect(told.env['SOME_TOKEN']).toBeUndefined();
  });

  test('lives on after a malformed answer, with its state and the calls under way', async () => {
    const { tools } = await open({ one: small() }).offered(() => true);
    const [tool] = tools as [Tool];
    expect(await call(tool, { how: 'count' })).toBe('calls: 1');
    const [slow, odd, nothing] = await Promise.all([
      call(tool, { how: 'slow' }),
      call(tool, { how: 'odd' }),
      call(tool, { how: 'nothing' }),
    ]);
    expect(slow).toBe('slow is done');
    expect(odd).toBe('three rows(parts of the answer are malformed; they are omitted)');
    expect(nothing).toContain('its answer is no result of a tool');
    expect(await call(tool, { how: 'count' })).toBe('calls: 2');
  });

  test('keeps its good tools if others in its list are malformed, with a warning', async () => {
    const { tools, warnings } = await open({
      one: small({ env: { GIVEN: 'malformed' } }),
    }).offered(() => true);
    expect(tools.map(({ id }) => id)).toEqual(['mcp/one/do_it']);
    expect(warnings.filter((warning) => warning.includes('has'))).toEqual([
      'a tool of the MCP server one is dropped: "bad" has an inputSchema that describes no object',
      'a tool of the MCP server one is dropped: it has no name',
    ]);
  });

  test('is started again after it died; the call that it died in is an error and is not repeated', async () => {
    const { tools } = await open({ one: small() }).offered(() => true);
    const [tool] = tools as [Tool];
    const before = await pidOf(tool);
    expect(await call(tool, { how: 'die' })).toContain('The MCP server one failed');
    const after = await pidOf(tool);
    expect(after).not.toBe(before);
    expect(isGone(before)).toBe(true);
  });

  // Requirement: close-ends-work
  test('that ignores SIGTERM is gone when its last holder lets go', async () => {
    const { tools } = await open({ one: small() }).offered(() => true);
    const [tool] = tools as [Tool];
    const [first, second] = [servers.hold(), servers.hold()];
    const pid = await pidOf(tool);
    await first();
    expect(isGone(pid)).toBe(false);
    await second();
    expect(isGone(pid)).toBe(true);
  });

  test('lives while one holder is left, also if another lets go twice', async () => {
    const { tools } = await open({ one: small() }).offered(() => true);
    const [tool] = tools as [Tool];
    const [first, second] = [servers.hold(), servers.hold()];
    const pid = await pidOf(tool);
    await first();
    await first();
    expect(isGone(pid)).toBe(false);
    await second();
    expect(isGone(pid)).toBe(true);
  });

  test('is not waited for longer than its timeout', async () => {
    const { tools } = await open({ one: small({ timeout_seconds: 0.2 }) }).offered(() => true);
    expect(await call(tools[0] as Tool, { how: 'hang' })).toContain('timed out');
  });

  test('may take longer than its timeout while it reports progress', async () => {
    const { tools } = await open({ one: small({ timeout_seconds: 0.6 }) }).offered(() => true);
    expect(await call(tools[0] as Tool, { how: 'steps' })).toBe('all steps');
    // the run does not end it earlier
    expect(tools[0]?.traits.timeout_seconds).toBe(3600);
  });

  test('is trusted about its effects only when its entry enables that', async () => {
    const { tools } = await open({
      doubted: small(),
      believed: small({ trust_annotations: true }),
    }).offered(() => true);
    expect(tools.map(({ id, traits }) => [id, traits.reads_only])).toEqual([
      ['mcp/doubted/do_it', false],
      ['mcp/believed/do_it', true],
    ]);
  });
});

// Requirement: touch-on-first-use, server-outcomes-differ
test('servers that are not reached are not started, and broken ones are a warning each', async () => {
  const { tools, warnings } = await open({
    silent: {
      command: process.execPath,
      args: ['-e', 'setInterval(() => 0, 1000)'],
      connect_timeout_seconds: 0.3,
    },
    missing: { command: 'no-such-program-of-this-test' },
    crashed: { command: process.execPath, args: ['/nonexistent.js'] },
    refused: { url: 'http://127.0.0.1:9/mcp' },
    typo: { comand: 'x' },
    unset: { command: 'x', env: { A: '${NOT_SET_ANYWHERE}' } },
    good: small(),
    other: { command: 'no-such-program-either' },
  }).offered((name) => name !== 'other');
  expect(tools.map(({ id }) => id)).toEqual(['mcp/good/do_it']);
  const told = warnings.join('\n');
  expect(told).toContain('"comand" is not a member of a server');
  expect(told).toContain('needs the environment variable NOT_SET_ANYWHERE');
  for (const name of ['silent', 'missing', 'crashed', 'refused'])
    expect(told).toContain(`the MCP server ${name} can't be used`);
  expect(told).toContain("it wrote: Error: Cannot find module '/nonexistent.js'");
  expect(told).toContain('its name "do it" would be');
  expect(warnings).toHaveLength(7);
});

// Requirement: parallel-connections
test('all servers start at the same time: each waits until the other has started', async () => {
  const waiting = (name: string, other: string): object => {
    const file = path.join(folder, `${name}.mjs`);
    const marks = [name, other].map((mark) => JSON.stringify(path.join(folder, `${mark}.started`)));
    const wait = `
import { existsSync, writeFileSync } from 'node:fs';
writeFileSync(${marks[0]}, '');
while (!existsSync(${marks[1]})) await new Promise((resolve) => setTimeout(resolve, 5));
`;
    writeFileSync(file, `${wait}${SMALL}`);
    return { command: process.execPath, args: [file], connect_timeout_seconds: 20 };
  };
  const { tools, warnings } = await open({
    one: waiting('one', 'two'),
    two: waiting('two', 'one'),
  }).offered(() => true);
  expect(warnings.filter((warning) => !warning.includes('do it'))).toEqual([]);
  expect(tools.map(({ id }) => id)).toEqual(['mcp/one/do_it', 'mcp/two/do_it']);
});

// Requirement: shared-connection-attempt
test('threads that ask at the same time share one connection attempt', async () => {
  const opened = open({ one: small() });
  const [first, second] = await Promise.all([
    opened.offered(() => true),
    opened.offered(() => true),
  ]);
  const pids = await Promise.all([pidOf(first.tools[0] as Tool), pidOf(second.tools[0] as Tool)]);
  expect(pids[0]).toBe(pids[1]);
});

const NOT_FOUND = { status: 404, text: '' };

/** A server over streamable HTTP that remembers its sessions until it is told to forget them. */
async function remote(forgotten: { readonly status: number; readonly text: string } = NOT_FOUND) {
  const sessions = new Set<string>();
  let takesNoCall = false;
  const seen: { readonly method: string; readonly authorization: string | undefined }[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      if (request.method !== 'POST') return void response.writeHead(405).end();
      const {
        id,
        method,
        params = {},
      } = JSON.parse(Buffer.concat(chunks).toString()) as {
        id?: number;
        method: string;
        params?: { protocolVersion?: string; arguments?: { how?: string } };
      };
      seen.push({ method, authorization: request.headers.authorization });
      const session = String(request.headers['mcp-session-id']);
      const isKnown = sessions.has(session) && !(takesNoCall && method === 'tools/call');
      if (method !== 'initialize' && !isKnown) {
        return void response.writeHead(forgotten.status).end(forgotten.text);
      }
      if (id === undefined) return void response.writeHead(202).end();
      if (params.arguments?.how === 'hang') return undefined;
      const fresh = `session-${seen.length}`;
      if (method === 'initialize') sessions.add(fresh);
      const results: Record<string, object> = {
        initialize: {
          protocolVersion: params.protocolVersion,
          capabilities: { tools: {} },
          serverInfo: { name: 's', version: '1' },
        },
        'tools/list': { tools: [{ name: 'do', inputSchema: { type: 'object' } }] },
        'tools/call': { content: [{ type: 'text', text: `done in ${session}` }] },
      };
      response.writeHead(200, {
        'content-type': 'application/json',
        ...(method === 'initialize' ? { 'mcp-session-id': fresh } : {}),
      });
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  const forget = (forGood = false): void => {
    sessions.clear();
    takesNoCall = forGood;
  };
  return { url: `http://127.0.0.1:${port}/mcp`, seen, forget };
}

describe('a server over HTTP', () => {
  test.each([
    NOT_FOUND,
    { status: 400, text: '{"error":{"message":"Bad Request: No valid session ID provided"}}' },
  ])(
    'that forgot the session ($status) is greeted again, and gets the call once more',
    async (forgotten) => {
      const { url, seen, forget } = await remote(forgotten);
      const headers = { Authorization: 'Bearer ${REMOTE_KEY}' };
      const { tools } = await open(
        { far: { url, headers } },
        { REMOTE_KEY: 'of-this-test' },
      ).offered(() => true);
      const [tool] = tools as [Tool];
      const first = await call(tool);
      expect(first).toContain('done in session-');
      forget();
      const again = await call(tool);
      expect(again).toContain('done in session-');
      expect(again).not.toBe(first);
      expect(seen.filter(({ method }) => method === 'tools/call')).toHaveLength(3);
      expect(new Set(seen.map(({ authorization }) => authorization))).toEqual(
        new Set(['Bearer of-this-test']),
      );
    },
  );

  test.each([
    [404, '', 2],
    [400, 'no such session', 2],
    [400, 'bad arguments', 1],
    [500, 'session lost', 1],
  ])('that always answers %i %j gets a call %i times', async (status, text, times) => {
    const { url, seen, forget } = await remote({ status, text });
    const { tools } = await open({ far: { url } }).offered(() => true);
    forget(true);
    expect(await call(tools[0] as Tool)).toContain('The MCP server far failed');
    expect(seen.filter(({ method }) => method === 'tools/call')).toHaveLength(times);
  });

  test('is not waited for longer than its timeout', async () => {
    const { url } = await remote();
    const { tools } = await open({ far: { url, timeout_seconds: 0.2 } }).offered(() => true);
    expect(await call(tools[0] as Tool, { how: 'hang' })).toContain('timed out');
  });
});

test('resources and prompts of a server can be listed and read', async () => {
  await open({ all: { command: process.execPath, args: [EVERYTHING] } }).offered(() => true);
  const resources = await call(await servers.find('mcp/all/list_resources'));
  const uri = /^(\S+): /m.exec(resources)?.[1] ?? '';
  expect(uri).toContain(':');
  expect(await call(await servers.find('mcp/all/read_resource'), { uri })).not.toContain('failed');
  expect(await call(await servers.find('mcp/all/list_prompts'))).toContain('simple-prompt');
  expect(await call(await servers.find('mcp/all/get_prompt'), { name: 'simple-prompt' })).not.toBe(
    '',
  );
  expect(await call(await servers.find('mcp/all/get_prompt'), { name: 'none' })).toContain(
    'failed',
  );
});
