import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { toolKind } from '../../src/kernel/items/tool-metadata.ts';
import { readToolMetadata } from '../../src/kernel/items/tool-metadata-fs.ts';
import { runsTypescript } from '../../src/kernel/items/tool-runtime.ts';
import { rejectionOf, where } from './helpers.ts';

const SCHEMA = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] };
const EXPECTED = {
  description: 'Counts words.',
  version: '1.0.0',
  category: 'text',
  inputSchema: SCHEMA,
  traits: { reads_only: true, timeout_seconds: 5, risk: 'safe' },
};

describe('a JavaScript tool', () => {
  it('is read from its constants', async () => {
    const text = `#!/usr/bin/env node
// rye:signed:x
import fs from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Counts ' +
  "words.";
const __category__ = \`text\`;
let __traits__ = { reads_only: true, 'timeout_seconds': 5, risk: "safe", };
const CONFIG_SCHEMA = ${JSON.stringify(SCHEMA)};
const ENV_CONFIG = { API_URL: {}, 'not a name': {} };
process.exit(1);
`;
    expect(await readToolMetadata(text, 't.js')).toEqual({
      path: 't.js',
      kind: 'javascript',
      env: ['API_URL'],
      ...EXPECTED,
    });
  });

  it('is read as CommonJS where it is no module', async () => {
    const text = 'const __version__ = "1.0.0";\nwith (a) {}\nreturn;';
    expect(await readToolMetadata(text, 't.cjs')).toMatchObject({ version: '1.0.0' });
  });

  it('never runs', async () => {
    const text =
      'const __version__ = "1.0.0"; globalThis.hostileToolRan = true; throw new Error("ran");';
    expect(await readToolMetadata(text, 't.mjs')).toMatchObject({ version: '1.0.0' });
    expect(globalThis).not.toHaveProperty('hostileToolRan');
  });

  it('declares nothing without constants', async () => {
    expect(await readToolMetadata('', 't.js')).toEqual({
      path: 't.js',
      kind: 'javascript',
      description: '',
      inputSchema: { type: 'object' },
      traits: {},
      env: [],
      unsupported: expect.objectContaining({ code: 'tool_unsupported' }),
    });
  });

  it('ignores constants inside of functions and null values', async () => {
    const text =
      'function f() { const __version__ = "9.9.9"; }\nconst CONFIG_SCHEMA = null;\nconst [x] = [1];';
    expect(await readToolMetadata(text, 't.js')).toMatchObject({ inputSchema: { type: 'object' } });
  });

  test.each([
    ['a call', 'const a = 1;\nconst __version__ = String(1);', '2:21'],
    ['a reference', 'const CONFIG_SCHEMA = { type: kind };', '1:31'],
    ['a spread', 'const CONFIG_SCHEMA = { ...base };', '1:25'],
    ['a computed key', 'const CONFIG_SCHEMA = { [a]: 1 };', '1:25'],
    ['a getter', 'const CONFIG_SCHEMA = { get a() { return 1; } };', '1:25'],
    ['a template with expressions', 'const __version__ = `${1}`;', '1:21'],
    ['a regular expression', 'const CONFIG_SCHEMA = { a: /x/ };', '1:28'],
    ['a hole', 'const CONFIG_SCHEMA = [1, , 2];', ':'],
    ['a syntax error', 'const __version__ = "1.0.0";\nconst = 5;', '2:7'],
  ])('is refused with its place: %s', async (_, text, place) => {
    expect(where(await rejectionOf(readToolMetadata(text, 't.js')))).toBe(
      `tool_malformed ${place}`,
    );
  });
});

describe('a Python tool', () => {
  it('is read from its syntax tree', async () => {
    const text = `#!/usr/bin/env python3
"""Docs"""
import os
__version__ = "1.0.0"
__tool_description__: str = ("Counts "
    "words.")
__category__ = 'text'
__traits__ = {"reads_only": True, "timeout_seconds": 5, "risk": "safe"}
CONFIG_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CONFIG = None
`;
    expect(await readToolMetadata(text, 't.py')).toMatchObject({ kind: 'python', ...EXPECTED });
  });

  it('never runs', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rye-items-'));
    try {
      const marker = join(folder, 'ran');
      const text = `open(${JSON.stringify(marker)}, "w").close()\n__version__ = "1.0.0"\n`;
      expect(await readToolMetadata(text, 't.py')).toMatchObject({ version: '1.0.0' });
      expect(existsSync(marker)).toBe(false);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test.each([
    ['a call', 'import os\n__version__ = os.getcwd()\n', '2:15'],
    ['a syntax error', '__version__ = "1"\ndef f(:\n', '2:7'],
    ['a value that JSON has not', 'CONFIG_SCHEMA = {"a": {1, 2}}\n', '1:23'],
    ['infinity', 'CONFIG_SCHEMA = {"a": 1e999}\n', '1:23'],
    ['deep nesting', `CONFIG_SCHEMA = ${'['.repeat(5000)}${']'.repeat(5000)}\n`, '1:'],
  ])('is refused with its place: %s', async (_, text, place) => {
    expect(where(await rejectionOf(readToolMetadata(text, 't.py')))).toContain(
      `tool_malformed ${place}`,
    );
  });

  it('needs no Python if nothing is declared or a header declares it', async () => {
    const options = { python: 'no-such-python' };
    expect((await readToolMetadata('print(1)\n', 't.py', options)).description).toBe('');
    const header = '# rye:tool\n# description: D\n# /rye:tool\n__version__ = f()\n';
    expect((await readToolMetadata(header, 't.py', options)).description).toBe('D');
  });

  it('reports what to do without Python', async () => {
    const error = await rejectionOf(
      readToolMetadata('__version__ = "1"', 't.py', { python: 'no-such-python' }),
    );
    expect(error.code).toBe('tool_failed');
    expect(error.hint).toContain('# rye:tool');
  });

  it('gives up on an interpreter that hangs or fails', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rye-items-'));
    try {
      for (const [script, reason] of [
        ['exec sleep 60', 'exceeded its time'],
        ['exit 3', 'status 3'],
        ['echo no json', 'printed no result'],
      ] as const) {
        const python = join(folder, 'python');
        await writeFile(python, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
        const options = { python, timeoutMs: script.includes('sleep') ? 200 : 10_000 };
        const error = await rejectionOf(readToolMetadata('__version__ = "1"', 't.py', options));
        expect(error.message).toContain(reason);
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

const YAML = `description: Counts words.
version: 1.0.0
category: text
parameters:
  type: object
  properties: {path: {type: string}}
  required: [path]
traits: {reads_only: true, timeout_seconds: 5, risk: safe}`;

const withMark = (mark: string) =>
  YAML.split('\n')
    .map((line) => `${mark}${line}`)
    .join('\n');

describe('a header comment', () => {
  test.each([
    ['t.sh', `#!/bin/sh\n# rye:signed:x\n\n# rye:tool\n${withMark('# ')}\n# /rye:tool\necho hi\n`],
    ['t.rb', `# rye:tool\n${withMark('# ')}\n#\n# /rye:tool\n`],
    ['t.ts', `// rye:tool\n${withMark('// ')}\n// /rye:tool\n`],
    ['t.js', `/* rye:tool\n${YAML}\n/rye:tool */\n`],
    ['t.js', `/**\n * rye:tool\n${withMark(' * ')}\n * /rye:tool\n */\n`],
    ['t.lua', `-- rye:tool\n${withMark('-- ')}\n-- /rye:tool\n`],
    ['t.py', `"""\nrye:tool\n${YAML}\n/rye:tool\n"""\n`],
    [
      't',
      `#!/usr/bin/env deno\r\n// rye:tool\r\n${withMark('// ').replaceAll('\n', '\r\n')}\r\n// /rye:tool\r\n`,
    ],
  ])('is read in %s', async (path, text) => {
    expect(await readToolMetadata(text, path)).toMatchObject(EXPECTED);
  });

  test.each([
    ['is not closed', '\n# rye:tool\n# a: 1\n', 'tool_malformed 2:'],
    ['lacks its mark', '# rye:tool\n# a: 1\nb: 2\n# /rye:tool\n', 'tool_malformed 3:'],
    ['is no YAML', '# rye:tool\n# a: [\n# /rye:tool\n', 'tool_malformed 2:7'],
    ['has a bad member', '# rye:tool\n# a: 1\n# traits: [x]\n# /rye:tool\n', 'tool_malformed 3:3'],
  ])('is refused where it %s', async (_, text, place) => {
    expect(where(await rejectionOf(readToolMetadata(text, 't.sh')))).toBe(place);
  });

  it('counts only at the head of the file', async () => {
    const text = `${'\n'.repeat(300)}# rye:tool\n# description: D\n# /rye:tool\n`;
    expect((await readToolMetadata(text, 't.sh')).description).toBe('');
  });
});

describe('a manifest', () => {
  const read = (yaml: string, path = 't.yaml') => readToolMetadata(yaml, path);

  test.each([
    ['command: [python3, run.py, --fast]', ['python3', 'run.py', '--fast']],
    ['command: ./run.sh\nargs: [a]', ['./run.sh', 'a']],
    ['config: {command: /bin/echo, args: [a, b]}', ['/bin/echo', 'a', 'b']],
  ])('names its command: %s', async (yaml, command) => {
    expect(await read(yaml)).toMatchObject({ kind: 'manifest', command });
  });

  it('may be JSON', async () => {
    expect(
      await read('{"command": ["a"], "description": "D", "_signature": "x"}', 't.json'),
    ).toMatchObject({ command: ['a'], description: 'D' });
  });

  it('may list its parameters', async () => {
    const yaml =
      'command: a\nparameters:\n  - {name: p, type: string, required: true, description: P}\n  - {name: q, enum: [1]}';
    expect((await read(yaml)).inputSchema).toEqual({
      type: 'object',
      properties: { p: { type: 'string', description: 'P' }, q: { enum: [1] } },
      required: ['p'],
    });
  });

  test.each([
    ['description: D', 'has no command'],
    ['command: []', 'has no command'],
    ['command: [a, 1]', 'has no command'],
    ['command: rm -rf x', 'with a space'],
    ['command: a\nparameters: 5', 'must be a JSON Schema'],
    ['command: a\nparameters: {type: string}', 'has the type "string"'],
    ['command: a\nparameters: [{type: string}]', 'has no name'],
    ['command: a\ndescription: [x]', 'must be text'],
    ['command: a\ntraits: {read_only: true}', 'unknown trait "read_only"'],
    ['command: a\ntraits: {reads_only: "yes"}', 'must be true or false'],
    ['command: a\ntraits: {timeout_seconds: 0}', 'positive number'],
    ['command: a\ntraits: {risk: high}', 'one of safe'],
    ['- a', 'not a mapping'],
  ])('is refused: %s', async (yaml, message) => {
    const error = await rejectionOf(read(yaml));
    expect(error.code).toBe('tool_malformed');
    expect(error.message).toContain(message);
    expect(error.location?.line).toBeGreaterThan(0);
  });

  it('is refused at the member', async () => {
    expect(where(await rejectionOf(read('command: a\n\ntraits: {risk: high}')))).toBe(
      'tool_malformed 3:1',
    );
  });
});

test.each([
  ['a.js', 'javascript'],
  ['a.MJS', 'javascript'],
  ['a.ts', 'typescript'],
  ['a.py', 'python'],
  ['a.sh', 'shell'],
  ['a.yml', 'manifest'],
  ['a.json', 'manifest'],
  ['a.rb', 'executable'],
  ['a', 'executable'],
])('%s is %s', (path, kind) => {
  expect(toolKind(path)).toBe(kind);
});

test.each([
  ['20.20.1', false],
  ['22.17.9', false],
  ['22.18.0', true],
  ['23.5.0', false],
  ['23.6.0', true],
  ['24.0.0', true],
])('Node %s runs TypeScript tools as they are: %s', (version, runs) => {
  expect(runsTypescript(version)).toBe(runs);
});

test.each([
  ['nothing', '', { timeout_seconds: 120, network: true }],
  ['that it needs no network', 'traits: {network: false, risk: safe}\n', { network: true }],
  ['a timeout', 'traits: {timeout_seconds: 7}\n', { timeout_seconds: 7, network: true }],
])('a request of a manifest that declares %s uses the network', async (_, more, traits) => {
  const text = `version: "1.0.0"
tool_type: http
executor_id: rye/core/primitives/http_client
description: d
config:
  url: "https://example.org/items/{id}"
${more}parameters: [{ name: id, type: string, required: true }]
`;
  expect((await readToolMetadata(text, 't.yaml')).traits).toMatchObject(traits);
});
