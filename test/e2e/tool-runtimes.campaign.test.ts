import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** Writes tools below `.ai/tools` and signs those that can be signed. */
async function tools(files: Readonly<Record<string, string>>): Promise<Workspace> {
  const here = await workspace();
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(here.project, '.ai/tools', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  await here.rye(['sign', 'tool', '**']);
  return here;
}

async function call(here: Workspace, id: string, params: object, env: Record<string, string> = {}) {
  return await here.json(
    ['execute', 'tool', id, '--acknowledge', 'elevated', '--params', JSON.stringify(params)],
    { env },
  );
}

const PYTHON = (description: string, executor: string | null, body: string) =>
  [
    '__version__ = "1.0.0"',
    `__tool_description__ = "${description}"`,
    executor === null ? '' : `__executor_id__ = "rye/core/runtimes/python/${executor}"`,
    body,
  ].join('\n');

describe('a Python tool of the function runtime', () => {
  test('is called with its parameters and the project, and its result is the only output', async () => {
    const here = await tools({
      't/sync.py': PYTHON(
        'd',
        'function',
        `
import os, subprocess
def execute(params: dict, project_path: str) -> dict:
    print("noise")
    subprocess.run(["echo", "more noise"])
    return {"success": True, "n": params["n"] + 1, "project": project_path}
`,
      ),
      't/async.py': PYTHON('d', null, 'async def execute(params):\n    return [params["n"]]\n'),
      't/none.py': PYTHON('d', 'function', 'def execute(params, project_path):\n    pass\n'),
    });
    expect(await call(here, 't/sync', { n: 2 })).toMatchObject({
      success: true,
      data: { n: 3, project: here.project },
    });
    expect(await call(here, 't/async', { n: 2 })).toMatchObject({ data: { result: [2] } });
    expect(await call(here, 't/none', {})).toMatchObject({ success: true, data: {} });
  });

  test.each([
    ['raises', 'raise ValueError("no luck")', /ValueError: no luck/],
    ['exits as if all were well', 'import sys; sys.exit(0)', /ended the process instead/],
    ['returns what JSON has not', 'return {"x": float("nan")}', /not JSON/],
    ['reports failure', 'return {"success": False, "error": "full"}', /full/],
  ])('fails when execute %s', async (_, body, message) => {
    const here = await tools({
      't/x.py': PYTHON('d', 'function', `def execute(params, project_path):\n    ${body}\n`),
    });
    const result = await call(here, 't/x', {});
    expect(result['success']).toBe(false);
    expect(JSON.stringify(result)).toMatch(message);
  });

  test('runs with the modules that it pins, and without others', async () => {
    const helper = PYTHON('d', null, 'def double(n):\n    return 2 * n\n');
    const tool = PYTHON(
      'd',
      'function',
      'import helpers\ndef execute(p, path):\n    return helpers.double(p["n"])\n',
    );
    const here = await tools({ 't/helpers.py': helper, 't/x.py': tool });
    const { stdout } = await here.rye(['validate', 'tool', 't/x']);
    expect(stdout).toContain('tool_unsupported: line 4 imports helpers.py');
    const pin = /__files__ = \{.*\}/.exec(stdout)?.[0] ?? '';
    writeFileSync(path.join(here.project, '.ai/tools/t/x.py'), `${pin}\n${tool}`);
    expect((await here.rye(['validate'])).code).toBe(0);
    await here.rye(['sign', 'tool', 't/x']);
    expect(await call(here, 't/x', { n: 4 })).toMatchObject({ data: { result: 8 } });
    writeFileSync(path.join(here.project, '.ai/tools/t/helpers.py'), 'raise SystemExit\n');
    expect(await call(here, 't/x', { n: 4 })).toMatchObject({
      error: { code: 'content_modified' },
    });
  });
});

describe('a script tool', () => {
  test('gets the project path and its parameters by its runtime', async () => {
    const argparse = `
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("--project-path", required=True)
`;
    const here = await tools({
      't/stdin.py': PYTHON(
        'd',
        'script',
        `if __name__ == "__main__":\n${`${argparse}args = parser.parse_args()\nprint(json.dumps({**json.load(sys.stdin), "at": args.project_path}))`
          .split('\n')
          .map((line) => `    ${line}`)
          .join('\n')}`,
      ),
      't/argv.py': PYTHON(
        'd',
        null,
        `${argparse}parser.add_argument("--params", required=True)\nargs = parser.parse_args()\nprint(args.params)\n`,
      ),
      't/node.mjs': `
import { parseArgs } from 'node:util';
import { readFileSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __executor_id__ = 'rye/core/runtimes/node/node';
export const __tool_description__ = 'd';
const KINDS = ['a', 'b'];
export const CONFIG_SCHEMA = { type: 'object', properties: { kind: { type: 'string', enum: KINDS } } };
const { values } = parseArgs({ options: { 'project-path': { type: 'string' } } });
console.log(JSON.stringify({ ...JSON.parse(readFileSync(0, 'utf8')), at: values['project-path'] }));
`,
      't/shell.sh': `# rye:tool
# version: 1.0.0
# description: d
# executor_id: rye/core/runtimes/bash/bash
# /rye:tool
echo "$1"
`,
    });
    const at = here.project;
    expect(await call(here, 't/stdin', { n: 1 })).toMatchObject({ data: { n: 1, at } });
    expect(await call(here, 't/argv', { n: 1 })).toMatchObject({ data: { n: 1 } });
    expect(await call(here, 't/node', { kind: 'b' })).toMatchObject({ data: { kind: 'b', at } });
    expect(await call(here, 't/node', { kind: 'c' })).toMatchObject({
      error: { code: 'invalid_input' },
    });
    expect(await call(here, 't/shell', {})).toMatchObject({ success: true, result: at });
  });
});

describe('a manifest of an older form', () => {
  test('fills its words and its shell command without running what a parameter contains', async () => {
    const here = await tools({
      't/words.yaml': `
version: "1.0.0"
tool_type: subprocess
executor_id: rye/core/primitives/subprocess
description: d
config: { command: printf, args: ["%s|%s|%s", "{text}", "\${NOWHERE:-fallback}", "{project_path}"], timeout: 5 }
parameters: [{ name: text, type: string, required: true }]
`,
      't/shell.yaml': `
version: "1.0.0"
executor_id: rye/core/runtimes/bash/bash
description: d
config: { command: 'printf "%s" "{text}"; printf "|%s" {text} "$1"' }
parameters: [{ name: text, type: string, required: true }]
`,
    });
    const text = `$(touch pwned) '; touch pwned; "`;
    expect(await call(here, 't/words', { text })).toMatchObject({
      result: `${text}|fallback|${here.project}`,
    });
    expect(await call(here, 't/shell', { text })).toMatchObject({
      result: `${text}|${text}|${here.project}`,
    });
    expect((await here.rye(['execute', 'tool', 'rye/file-system/ls'])).stdout).not.toContain(
      'pwned',
    );
  });
});

interface Seen {
  readonly url: string | undefined;
  readonly headers: Record<string, unknown>;
  readonly body: string;
}

async function api(): Promise<{ readonly origin: string; readonly seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      seen.push({ url: request.url, headers: request.headers, body });
      if (request.url?.startsWith('/moved'))
        response.writeHead(302, { location: 'http://evil.test/' });
      else if (request.url?.startsWith('/large')) response.write('x'.repeat(2_000_000));
      else if (request.url?.startsWith('/missing')) response.writeHead(404);
      else if (request.url?.startsWith('/slow')) return;
      response.end(JSON.stringify({ key: request.headers['x-api-key'] ?? null }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, seen };
}

const HTTP = (url: string, more = '') => `
version: "1.0.0"
tool_type: http
executor_id: rye/core/primitives/http_client
description: d
config:
  url: "${url}"
${more}
parameters: [{ name: id, type: string, required: true }, { name: note, type: string }]
`;

describe('an HTTP tool', () => {
  test('sends the request of its manifest to the manifest’s host, and keeps the key out of the answer', async () => {
    const { origin, seen } = await api();
    const auth = '  auth: { type: api_key, key: "${LAB_KEY}", header: x-api-key }';
    const here = await tools({
      't/get.yaml': HTTP(`${origin}/items/{id}?note={note}`, auth),
      't/post.yaml': HTTP(
        `${origin}/items`,
        '  method: POST\n  body: { id: "{id}", memo: "n: {note}" }',
      ),
    });
    const env = { LAB_KEY: 'top-secret-key-1' };
    const got = await call(here, 't/get', { id: '../a b', note: 'x&y=1' }, env);
    expect(got).toMatchObject({ success: true, data: { status: 200, body: { key: '***' } } });
    await call(here, 't/post', { id: 'é"' });
    expect(seen.map(({ url, body }) => [url, body])).toEqual([
      ['/items/..%2Fa%20b?note=x%26y%3D1', ''],
      ['/items', '{"id":"é\\"","memo":"n: "}'],
    ]);
    expect(seen[0]?.headers['x-api-key']).toBe('top-secret-key-1');
    expect(JSON.stringify(await call(here, 't/get', { id: 'a' }))).toContain('LAB_KEY');
    expect(await call(here, 't/get', { id: '..' }, env)).toMatchObject({ success: false });
    expect(seen).toHaveLength(2);
  });

  test('fails on redirects, errors, large answers and silence', async () => {
    const { origin } = await api();
    const here = await tools({
      't/any.yaml': HTTP(`${origin}/{id}?{note}`),
      't/late.yaml': HTTP(`${origin}/{id}?{note}`, '  timeout: 0.3'),
    });
    const texts = await Promise.all(
      ['moved', 'missing', 'large', 'slow'].map(async (id) =>
        JSON.stringify(await call(here, id === 'slow' ? 't/late' : 't/any', { id })),
      ),
    );
    expect(texts[0]).toContain('redirect (HTTP 302) to http://evil.test/');
    expect(texts[1]).toContain('HTTP 404');
    expect(texts[2]).toContain('more than 1048576 bytes');
    expect(texts[3]).toMatch(/no answer within 0.3 seconds|timed out/);
    for (const text of texts) expect(text).toContain('"success":false');
  });

  test.each([
    ['a parameter in the host', HTTP('https://{id}.example.com/{note}'), 'literal scheme and host'],
    ['a variable in the host', HTTP('${BASE}/{id}{note}'), 'literal scheme and host'],
    [
      'a parameter that is not used',
      HTTP('https://a.example/{id}'),
      'does not use the parameter "note"',
    ],
    [
      'a key in the file',
      HTTP('https://a.example/{id}{note}', '  auth: { type: bearer, token: abc }'),
      'name of a variable',
    ],
  ])('is refused with %s', async (_, text, message) => {
    const here = await tools({ 't/x.yaml': text });
    const { stdout, code } = await here.rye(['validate', 'tool', 't/x']);
    expect(code).toBe(2);
    expect(stdout).toContain('tool_unsupported');
    expect(stdout).toContain(message);
  });
});

describe('a tool that would do nothing or cannot run', () => {
  const CASES: readonly (readonly [string, string, string, string])[] = [
    [
      'noop.py',
      PYTHON('d', null, 'def helper():\n    return 1\n'),
      'only defines functions',
      'Define execute(params',
    ],
    [
      'library.py',
      PYTHON(
        'd',
        null,
        'import re\nX = re.compile("x")\ndef find(text):\n    return X.search(text)\n',
      ),
      'only defines functions',
      '__files__ = {"library.py": "SHA-256"}',
    ],
    [
      'functions.sh',
      '# rye:tool\n# version: 1.0.0\n# description: d\n# /rye:tool\ngo() {\n  date\n}\n',
      'no command outside its functions',
      'Write the commands',
    ],
    [
      'gone.py',
      PYTHON('d', 'function', 'print(1)\n'),
      'does not define',
      'def execute(params, project_path)',
    ],
    [
      'own.py',
      PYTHON(
        'd',
        'function',
        'def execute(p, q):\n    from rye.constants import AI_DIR\n    return AI_DIR\n',
      ),
      'line 5 imports rye.constants AI_DIR',
      'AI_DIR = ".ai"',
    ],
    [
      'rel.py',
      PYTHON('d', 'function', 'from .helpers import x\ndef execute(p, q):\n    return x\n'),
      'relative to a package',
      'from helpers import x',
    ],
    [
      'exports.mjs',
      "export const __version__ = '1.0.0';\nexport const __tool_description__ = 'd';\nexport function execute() {}\n",
      'only declares and exports',
      'console.log',
    ],
    [
      'empty.sh',
      '# rye:tool\n# version: 1.0.0\n# description: d\n# /rye:tool\n\n# later\n',
      'no command',
      'Write the commands',
    ],
    [
      'graph.yaml',
      'version: "1.0.0"\ntool_type: graph\ndescription: d\nconfig: {start: a, nodes: {a: {action: {item_type: tool, item_id: rye/bash, params: {command: ls}}}}}\n',
      'state graph',
      '<execute item_type="tool" item_id="rye/bash">',
    ],
    [
      'server.yaml',
      'tool_type: mcp_server\nexecutor_id: null\nversion: 1.0.0\nconfig: {transport: stdio, command: npx, args: [-y, srv]}\n',
      'declared as a tool',
      'command: npx',
    ],
    [
      'zen.yaml',
      'tool_id: zen\ntool_type: http\nversion: "1.0.0"\ntier_mapping: {fast: m1}\npricing: {m1: {input: 1, output: 2}}\nconfig: {url: "https://gw.example/v1/chat/completions", auth: {type: bearer, token: "${ZEN_KEY}"}}\n',
      'model provider zen',
      'api_key_env: ZEN_KEY',
    ],
    [
      'runtime.yaml',
      'tool_type: runtime\nexecutor_id: rye/core/primitives/execute\nversion: "1.0.0"\ndescription: d\n',
      'belongs to Rye OS itself',
      'Delete it',
    ],
    [
      'other.yaml',
      'executor_id: my/own/runtime\nversion: "1.0.0"\ndescription: d\n',
      '"my/own/runtime" is unknown',
      'Remove it',
    ],
    ['package.json', '{"name": "x"}', 'package.json is not a tool', 'Move it out'],
    [
      'enum.py',
      PYTHON('d', null, 'import os\nCONFIG_SCHEMA = {"enum": os.listdir()}\nprint(1)\n'),
      'CONFIG_SCHEMA is not a literal value: os.listdir()',
      'Write plain strings',
    ],
  ];

  test('is refused at validate and sign with the reason and what to write instead', async () => {
    const here = await tools(Object.fromEntries(CASES.map(([name, text]) => [`t/${name}`, text])));
    const { stdout, code } = await here.rye(['validate']);
    expect(code).toBe(2);
    const signed = await here.json(['sign', 'tool', '**']);
    const items = signed['items'] as { path: string; status: string }[];
    for (const [name, , message, hint] of CASES) {
      const at = stdout.indexOf(`t/${name}:`);
      const next = stdout.indexOf('\n.ai/', at);
      const block = stdout.slice(at, next === -1 ? undefined : next);
      expect(block, name).toContain(message);
      expect(block, name).toContain(hint);
      expect(items.find((item) => item.path.endsWith(`/t/${name}`))?.status, name).toBe('failed');
    }
    for (const [name] of CASES) {
      const id = `t/${name.replace(/\.\w+$/, '')}`;
      const { code: exit } = await here.rye([
        'execute',
        'tool',
        id,
        '--allow-unsigned',
        '--acknowledge',
        'elevated',
      ]);
      expect(exit, id).not.toBe(0);
    }
  });

  test('without a description names the header to write', async () => {
    const here = await tools({ 't/x.sh': 'echo hi\n' });
    const { stdout } = await here.rye(['validate']);
    expect(stdout).toContain('description is missing');
    expect(stdout).toContain('  # rye:tool\n  # version: 1.0.0\n  # description: Counts words.\n');
    expect(stdout).toContain('  # /rye:tool');
  });
});
