import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openHttpProxy } from '../helpers/http-proxy.ts';
import { oncePerRun } from '../helpers/once-per-run.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const CALL = ['execute', 'tool', 'items', '--acknowledge', 'elevated'];
const LOGIN = 'me:hunter2-of-the-proxy';

/** A private authority and a certificate of it for the hosts of these tests. */
async function certificates(): Promise<{ folder: string; key: string; cert: string; ca: string }> {
  const folder = await oncePerRun('private-ca', (made) => {
    mkdirSync(made, { recursive: true });
    const key = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
    const run = (words: string) =>
      execFileSync('openssl', words.split(' '), { cwd: made, stdio: 'ignore' });
    run(`req -x509 ${key} -days 30 -subj /CN=private-ca -keyout ca.key -out ca.pem`);
    run(`req ${key} -subj /CN=host -keyout host.key -out host.csr`);
    writeFileSync(path.join(made, 'names'), 'subjectAltName=DNS:model.test,DNS:localhost\n');
    run('x509 -req -in host.csr -CA ca.pem -CAkey ca.key -days 30 -extfile names -out host.pem');
  });
  const read = (name: string) => readFileSync(path.join(folder, name), 'utf8');
  return { folder, key: read('host.key'), cert: read('host.pem'), ca: path.join(folder, 'ca.pem') };
}

async function listening(handler: RequestListener, isTls: boolean): Promise<number> {
  const server = isTls ? createTlsServer(await certificates(), handler) : createServer(handler);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A model that answers everything, an API at `/items`, and an MCP server at `/mcp`. */
const origin: RequestListener = (request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (part: string) => {
    body += part;
  });
  request.on('end', () => {
    const send = (type: string, text: string) =>
      response.writeHead(200, { 'content-type': type }).end(text);
    if (request.url === '/items') return send('application/json', '{"items":2}');
    if (request.url !== '/mcp') return send('text/event-stream', ANSWER);
    if (request.method !== 'POST') return response.writeHead(405).end();
    const { id, method } = JSON.parse(body) as { id?: number; method: string };
    if (id === undefined) return response.writeHead(202).end();
    const result =
      method === 'initialize'
        ? {
            protocolVersion: '2025-06-18',
            capabilities: { tools: {} },
            serverInfo: { name: 's', version: '1' },
          }
        : { tools: [{ name: 'far', inputSchema: { type: 'object' } }] };
    return send('application/json', JSON.stringify({ jsonrpc: '2.0', id, result }));
  });
};
const ANSWER = [
  '{"model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}',
  '{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
  '[DONE]',
]
  .map((data) => `data: ${data}\n\n`)
  .join('');

const DIRECTIVE = `# D
\`\`\`xml
<directive name="d" version="1.0.0"><metadata><description>Say hello.</description><category></category><author>t</author>
<limits turns="2" spend="1"/></metadata></directive>
\`\`\`
Say hello.
`;

async function write(here: Workspace, kind: string, id: string, text: string): Promise<void> {
  const folders = { directive: 'directives', tool: 'tools', config: 'config' } as const;
  const folder = folders[kind as keyof typeof folders];
  const file = path.join(here.project, '.ai', folder, id);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
  const signed = await here.rye(['sign', kind, id.replace(/\.\w+$/, '')]);
  expect(signed.code, signed.stderr).toBe(0);
}

/** A workspace whose directive `d` asks a model at `model.test`, and that has an HTTP tool and an MCP server there. */
async function world(scheme: 'http' | 'https'): Promise<Workspace> {
  const here = await workspace();
  const base = `${scheme}://model.test`;
  await write(
    here,
    'config',
    'agent/providers/lab.yaml',
    `kind: openai\ndialect: compatible\nbase_url: ${base}/v1\ntiers: {general: m}\nfallback: []\nprices_as_of: "2026-11-21"\nmodels:\n  m: {context_window: 9000, max_output_tokens: 400, pricing: {input: 1, output: 1}, capabilities: [tools]}\n`,
  );
  await write(here, 'config', 'agent/resilience.yaml', 'retry: {max_retries: 0}\n');
  await write(here, 'config', 'mcp.yaml', `servers:\n  far: {url: "${base}/mcp"}\n`);
  await write(
    here,
    'tool',
    'items.yaml',
    `version: 1.0.0\ntool_type: http\ndescription: Items.\nconfig: {method: GET, url: "${base}/items"}\n`,
  );
  await write(here, 'directive', 'd.md', DIRECTIVE);
  return here;
}

interface Result {
  readonly status?: string;
  readonly result?: string;
  readonly error?: { readonly code: string; readonly message: string; readonly hint?: string };
}

async function ask(here: Workspace, env: Record<string, string>): Promise<Result> {
  return await here.json(['run', 'd', '--provider', 'lab'], { env });
}

test('models, HTTP tools and MCP servers are reached by way of HTTP_PROXY', async () => {
  const hosts = { 'model.test:80': await listening(origin, false) };
  const { port, seen } = await openHttpProxy({ hosts, login: LOGIN });
  const here = await world('http');
  const env = { HTTP_PROXY: `http://${LOGIN}@127.0.0.1:${port}` };
  expect(await ask(here, env)).toMatchObject({ status: 'completed', result: 'hello' });
  expect(seen).toEqual(['POST http://model.test/v1/chat/completions']);
  const called = await here.rye(CALL, { env });
  expect(called.stdout).toContain('"items": 2');
  expect(seen.at(-1)).toBe('GET http://model.test/items');
  const tools = await here.rye(['mcp', 'test', 'far'], { env });
  expect(tools.stdout).toContain('far');
  expect(seen.filter((line) => line === 'POST http://model.test/mcp').length).toBeGreaterThan(1);
  // its tools get the variables, and its password is a secret
  const shell = await here.rye(
    [
      'execute',
      'tool',
      'rye/bash',
      '--param',
      'command=echo "$HTTP_PROXY $NO_PROXY $SSL_CERT_DIR"',
      '--acknowledge',
      'elevated',
    ],
    { env: { ...env, NO_PROXY: 'a.test', SSL_CERT_DIR: '/x' } },
  );
  expect(shell.stdout).toContain(`http://***@127.0.0.1:${port} a.test /x`);
});

test('an encrypted server with a certificate of a private authority is reached by a tunnel', async () => {
  const { ca, folder } = await certificates();
  const hosts = { 'model.test:443': await listening(origin, true) };
  const here = await world('https');
  for (const trusted of [
    { NODE_EXTRA_CA_CERTS: ca },
    { SSL_CERT_FILE: ca },
    { SSL_CERT_DIR: `/missing:${folder}` },
  ]) {
    const { port, seen } = await openHttpProxy({ hosts });
    const env = { https_proxy: `127.0.0.1:${port}`, ...trusted };
    expect(await ask(here, env)).toMatchObject({ status: 'completed', result: 'hello' });
    expect(seen).toEqual(['CONNECT model.test:443']);
    expect((await here.rye(CALL, { env })).stdout).toContain('"items": 2');
    expect((await here.rye(['mcp', 'test', 'far'], { env })).stdout).toContain('far');
  }
});

test('each failure on the way has a code and names its variable, and no password', async () => {
  const { ca } = await certificates();
  const hosts = { 'model.test:443': await listening(origin, true) };
  const open = await openHttpProxy({ hosts });
  const locked = await openHttpProxy({ hosts, login: LOGIN });
  const denied = await openHttpProxy({ refusal: 403 });
  const here = await world('https');
  const empty = path.join(here.home, 'empty.pem');
  writeFileSync(empty, 'nothing\n');
  const at = (port: number, login = '') => `http://${login}127.0.0.1:${port}`;
  const through = { HTTPS_PROXY: at(open.port) };
  const wrong = 'me:wrong-password@';
  const cases: readonly (readonly [object, string, RegExp])[] = [
    [{ HTTPS_PROXY: at(locked.port) }, 'proxy_refused', /HTTPS_PROXY\) asks for a user.* \(407\)/],
    [{ HTTPS_PROXY: at(locked.port, wrong) }, 'proxy_refused', /refuses its user and password/],
    [{ HTTPS_PROXY: at(denied.port) }, 'proxy_refused', /HTTPS_PROXY\) opens no way there: 403/],
    [{ ALL_PROXY: at(1) }, 'proxy_unreachable', /ALL_PROXY\) does not answer: ECONNREFUSED/],
    [{ all_proxy: 'socks5://127.0.0.1:1' }, 'proxy_refused', /all_proxy names a SOCKS proxy/],
    [{ ...through, SSL_CERT_FILE: '/missing.pem' }, 'ca_unreadable', /SSL_CERT_FILE .*ENOENT/],
    [{ ...through, NODE_EXTRA_CA_CERTS: empty }, 'ca_unreadable', /NODE_EXTRA_CA_CERTS .*no cert/],
    [through, 'provider_rejected', /UNABLE_TO_VERIFY_LEAF_SIGNATURE/],
    [{ ...through, SSL_CERT_FILE: ca, NO_PROXY: '.test' }, 'provider_rejected', /ENOTFOUND/],
  ];
  for (const [variables, code, message] of cases) {
    const { error } = await ask(here, variables as Record<string, string>);
    expect([error?.code, error?.message]).toEqual([code, expect.stringMatching(message)]);
    expect(JSON.stringify(error)).not.toContain('wrong-password');
  }
  const untrusted = await ask(here, through);
  expect(untrusted.error?.hint).toContain('set NODE_EXTRA_CA_CERTS');
  const env = { HTTPS_PROXY: at(locked.port, wrong) };
  for (const args of [CALL, ['mcp', 'test', 'far']]) {
    const { stdout, stderr } = await here.rye(args, { env });
    expect(stdout + stderr).toMatch(/HTTPS_PROXY\) refuses its user and password \(407\)/);
    expect(stdout + stderr).not.toContain('wrong-password');
  }
});
