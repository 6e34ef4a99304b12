import { readdir, symlink, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../../src/kernel/core/json.ts';
import {
  createItemTool,
  type ItemToolOptions,
  type ItemToolSource,
} from '../../../src/kernel/tools/item/item-tool.ts';
import { resolveSecrets, scrubText, scrubValue } from '../../../src/kernel/tools/secrets.ts';
import { Project, type Shown, shown } from '../helpers.ts';

const EXTENSIONS = {
  javascript: 'js',
  typescript: 'ts',
  python: 'py',
  shell: 'sh',
  executable: 'x',
  manifest: 'yaml',
};

interface Scenario extends Partial<ItemToolSource> {
  readonly input?: JsonObject;
  readonly options?: Partial<ItemToolOptions>;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

async function run(
  project: Project,
  { input = {}, options = {}, signal, onProgress, ...source }: Scenario,
): Promise<Shown> {
  const kind = source.kind ?? 'shell';
  const tool = createItemTool(
    {
      id: 'demo/tool',
      path: project.file(`.ai/tools/demo/tool.${EXTENSIONS[kind]}`),
      kind,
      description: 'A tool.',
      inputSchema: { type: 'object' },
      traits: {},
      content: '',
      ...source,
    },
    { env: process.env, ...options },
  );
  const context = project.context({
    ...(signal ? { signal } : {}),
    ...(onProgress ? { progress: onProgress } : {}),
  });
  return shown(await tool.execute(input, context));
}

describe('the contract of item tools', () => {
  it.each<[ItemToolSource['kind'], string]>([
    [
      'javascript',
      "import { readFileSync } from 'node:fs';\nexport const __version__ = '1';\nconst input = JSON.parse(readFileSync(0, 'utf8'));\nconsole.log(JSON.stringify({ ...input, cwd: process.cwd() }));\n",
    ],
    [
      'javascript',
      "const { readFileSync } = require('node:fs');\nconst input = JSON.parse(readFileSync(0, 'utf8'));\nconsole.log(JSON.stringify({ ...input, cwd: process.cwd() }));\n",
    ],
    [
      'python',
      'import json, os, sys\nvalue = json.load(sys.stdin)\nprint(json.dumps({**value, "cwd": os.getcwd()}))\n',
    ],
    ['shell', '#!/bin/sh\nread -r input\nprintf \'{"name": "é", "cwd": "%s"}\' "$PWD"\n'],
  ])('%s: JSON on stdin, JSON on stdout, in the project', async (kind, content) => {
    await using project = await Project.create();
    const result = await run(project, { kind, content, input: { name: 'é' } });
    expect(result.text).toContain('"name": "é"');
    expect(result).toMatchObject({ isError: false, data: { name: 'é', cwd: project.path } });
  });

  it('runs the command of a manifest with its placeholders', async () => {
    await using project = await Project.create({ '.ai/tools/demo/other.txt': 'other' });
    const files = [{ name: 'lib/helper.txt', bytes: Buffer.from('helped') }];
    const command = [
      'sh',
      '-c',
      'cat "$0"; printf " %s" "$1"; ls "$2"',
      '{tool_dir}/lib/helper.txt',
      '{project}',
      '{tool_dir}',
    ];
    const { text } = await run(project, { kind: 'manifest', command, files });
    expect(text).toBe(`helped ${project.path}lib`);
    const none = await run(project, { kind: 'manifest', command: [] });
    expect(none.data).toEqual({ code: 'tool_malformed' });
    const missing = await run(project, { kind: 'manifest', command: ['no-such-program'] });
    expect(missing.data).toEqual({ code: 'spawn_failed' });
  });

  it.each([
    ['echo plain text', { text: 'plain text', isError: false, data: { exit_code: 0 } }],
    ['echo "[1, 2]"', { isError: false, data: { result: [1, 2] } }],
    [
      'echo \'{"success": false, "error": "no"}\'',
      { isError: true, data: { success: false, error: 'no' } },
    ],
    ['true', { text: '(no output)', isError: false }],
    [
      'echo why >&2; echo partly; exit 3',
      { isError: true, text: 'demo/tool failed with exit code 3.\nwhy\npartly' },
    ],
    ['kill -9 $$', { isError: true, text: 'demo/tool was ended by SIGKILL.' }],
  ])('%s', async (content, expected) => {
    await using project = await Project.create();
    expect(await run(project, { content })).toMatchObject(expected);
  });

  it('runs the verified bytes when the file or its neighbors changed', async () => {
    await using project = await Project.create({
      '.ai/tools/demo/tool.js': 'console.log("swapped");',
      '.ai/tools/demo/fs.js': 'console.log("neighbour");',
    });
    const result = await run(project, { kind: 'javascript', content: 'console.log("verified");' });
    expect(result.text).toBe('verified');
  });

  it('removes the run folder, also when the tool fails', async () => {
    await using project = await Project.create();
    await using runs = await Project.create();
    for (const content of ['true', 'exit 1', 'touch "$(dirname "$0")/litter"']) {
      await run(project, { content, options: { runFolder: runs.path } });
    }
    expect(await readdir(runs.path)).toEqual([]);
  });

  it('writes its copy with private permissions', async () => {
    await using project = await Project.create();
    const content = 'stat -c %a "$0" "$(dirname "$0")"';
    expect((await run(project, { content })).text).toBe('600\n700');
  });

  it('stops at its timeout, on abort and at too much output', async () => {
    await using project = await Project.create();
    const late = await run(project, { content: 'sleep 60', traits: { timeout_seconds: 1 } });
    expect(late.text).toMatch(/^demo\/tool timed out after [\d.]+ seconds\.$/);
    const controller = new AbortController();
    const cancelled = await run(project, {
      content: 'echo up >&2; sleep 60',
      signal: controller.signal,
      onProgress: () => controller.abort(),
    });
    expect(cancelled.text).toContain('demo/tool was cancelled.');
    const loud = await run(project, { content: 'yes' });
    expect(loud.text.slice(0, 80)).toContain('wrote more than');
  });

  it('gives it the reduced environment and what it asks for', async () => {
    await using project = await Project.create();
    const env = { PATH: process.env['PATH'], EXTRA: 'x', API_KEY: 'hunter2' };
    const result = await run(project, {
      content: 'env',
      env: ['EXTRA', 'API_KEY'],
      options: { env },
    });
    expect(result.text).toContain('EXTRA=x');
    expect(result.text).toContain('RYE_THREAD_ID=demo/thread-1');
    expect(result.text).not.toContain('hunter2');
  });

  it('fills in cautious traits', () => {
    const source = {
      id: 'a',
      path: '/a.sh',
      kind: 'shell',
      description: '',
      inputSchema: {},
      content: '',
    } as const;
    const tool = createItemTool({ ...source, traits: { reads_only: true } }, { env: {} });
    expect(tool.traits).toMatchObject({ reads_only: true, network: true, timeout_seconds: 300 });
  });

  it('is not misled by a link in the run folder name', async () => {
    await using project = await Project.create();
    await using runs = await Project.create();
    await symlink(runs.path, project.file('runs'));
    await writeFile(runs.file('bystander'), 'x');
    await run(project, { content: 'true', options: { runFolder: project.file('runs') } });
    expect(await readdir(runs.path)).toEqual(['bystander']);
  });
});

describe('secrets', () => {
  const schema = {
    type: 'object',
    properties: {
      token: { type: 'string', writeOnly: true },
      note: { type: 'string' },
      auth: { type: 'object', properties: { password: { type: 'string', writeOnly: true } } },
    },
  };
  const resolve = (name: string) => new Map([['API', 'hunter"2é']]).get(name);

  it('replaces handles in writeOnly properties only', async () => {
    const input = {
      token: 'Bearer {secret:API}',
      note: '{secret:API}',
      auth: { password: '{secret:API}' },
    };
    expect(await resolveSecrets(schema, input, resolve)).toEqual({
      input: { token: 'Bearer hunter"2é', note: '{secret:API}', auth: { password: 'hunter"2é' } },
      secrets: ['hunter"2é'],
    });
    await expect(resolveSecrets(schema, { token: '{secret:NONE}' }, resolve)).rejects.toMatchObject(
      {
        code: 'invalid_input',
      },
    );
  });

  it.each<[string, string]>([
    [
      'python',
      'import json, sys\nt = json.load(sys.stdin)["token"]\nprint(json.dumps({"t": t, t: [t]}))',
    ],
    [
      'python',
      'import json, sys\nt = json.load(sys.stdin)["token"]\nprint("text", t, json.dumps(t))',
    ],
    [
      'python',
      'import json, sys\nt = json.load(sys.stdin)["token"]\nprint(t, file=sys.stderr)\nsys.exit(1)',
    ],
  ])('keeps the value out of the result of the call', async (_kind, content) => {
    await using project = await Project.create();
    const live: string[] = [];
    const result = await run(project, {
      kind: 'python',
      content,
      inputSchema: schema,
      input: { token: '{secret:API}' },
      options: { resolveSecret: resolve },
      onProgress: (text) => live.push(text),
    });
    const everything = JSON.stringify([result, live]);
    expect(everything).toContain('***');
    expect(everything).not.toContain('hunter');
  });

  it('scrubs nested values, escaped forms and longer secrets first', () => {
    expect(scrubText('abc ab "é"', ['ab', 'abc', 'é'])).toBe('*** *** "***"');
    expect(scrubText('x\\u00e9y', ['é'])).toBe('x***y');
    expect(scrubValue({ a: ['xs'], s: 12 }, ['s', '12'])).toEqual({ a: ['x***'], '***': '***' });
    expect(scrubValue({ a: 1 }, [])).toEqual({ a: 1 });
  });
});
