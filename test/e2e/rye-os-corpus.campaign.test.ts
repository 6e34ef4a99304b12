import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRye } from '../../src/index.ts';
import { corpus, WORKING } from '../fixtures/rye-os/corpus.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

const KEY = { ANTHROPIC_API_KEY: 'sk-test' };
const ACCEPTED = '--allow-unpriced --acknowledge elevated --acknowledge unrestricted'.split(' ');
const SIDE_BY_SIDE = 3;

interface Row {
  readonly type: string;
  readonly id: string;
  readonly path: string;
  readonly verdict: string;
  readonly patched: boolean;
  readonly needs: readonly string[];
  readonly code: string | null;
  readonly hint: string | null;
}

let here: Workspace & { readonly remove: () => void };
let rows: readonly Row[];
let stopServer: () => void;

/** A few at a time, as a shared machine can bear. */
async function each<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += SIDE_BY_SIDE) {
    results.push(...(await Promise.all(items.slice(at, at + SIDE_BY_SIDE).map(work))));
  }
  return results;
}

/** Planning and running a hundred items in one process takes a quarter of the time of a process each. */
function openIt(): ReturnType<typeof openRye> {
  return openRye({
    projectPath: here.project,
    userSpacePath: here.home,
    env: { ...process.env, ...KEY },
  });
}

function share(part: readonly unknown[], whole: readonly unknown[]): number {
  return part.length / whole.length;
}

beforeAll(async () => {
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => response.end(JSON.stringify({ output: `worked: ${body}` })));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stopServer = () => {
    server.closeAllConnections();
    server.close();
  };
  const { port } = server.address() as AddressInfo;
  here = await temporaryWorkspace({ init: false });
  for (const [name, text] of Object.entries(corpus(`http://127.0.0.1:${port}`))) {
    const file = path.join(here.project, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const patch = path.join(here.home, 'patch.diff');
  const before = snapshot(here.project);
  const review = await here.json(['import', 'rye-os', here.project, '--patch', patch], {
    env: KEY,
  });
  expect(snapshot(here.project)).toEqual(before);
  rows = review['items'] as readonly Row[];
  if (readFileSync(patch, 'utf8') !== '')
    execFileSync('git', ['apply', patch], { cwd: here.project });
  await here.rye(['init']);
  for (const type of ['config', 'directive', 'tool']) await here.rye(['sign', type, '**']);
}, 600_000);

afterAll(() => {
  stopServer();
  here.remove();
});

function snapshot(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(path.join(entry.parentPath, entry.name), 'utf8'));
}

describe('a project of Rye OS', () => {
  test('has its directives planned after the patch and acknowledgements, and the review predicts it', async () => {
    const directives = rows.filter(({ type }) => type === 'directive');
    expect(directives.length).toBeGreaterThanOrEqual(40);
    const rye = openIt();
    const planned = await each(directives, async ({ id, path: file }) => {
      const needsPath = readFileSync(path.join(here.project, file), 'utf8').includes(
        'name="path" type',
      );
      const plan = rye.threads.plan({
        directiveId: id,
        allowUnpriced: true,
        acknowledge: ['elevated', 'unrestricted'],
        inputs: needsPath ? { path: 'x' } : {},
      });
      return { id, code: await plan.then(() => 0).catch(() => 1) };
    });
    rye.close();
    const first = await here.rye(['run', directives[0]?.id ?? '', '--dry-run', ...ACCEPTED], {
      env: KEY,
    });
    expect(first.code).toBe(0);
    const failed = planned.filter(({ code }) => code !== 0);
    expect(failed.map(({ id }) => id)).toEqual(['work/broken_0']);
    expect(
      share(
        planned.filter(({ code }) => code === 0),
        planned,
      ),
    ).toBeGreaterThanOrEqual(0.95);
    const promised = directives.filter(({ verdict, patched }) => verdict !== 'change' || patched);
    expect(promised.map(({ id }) => id).toSorted()).toEqual(
      planned
        .filter(({ code }) => code === 0)
        .map(({ id }) => id)
        .toSorted(),
    );
  });

  test('has its tools run, or refused with what to write instead, and none that does nothing', async () => {
    const tools = rows.filter(({ type }) => type === 'tool');
    expect(tools.length).toBeGreaterThanOrEqual(60);
    const present = tools.filter((row) => existsSync(path.join(here.project, row.path)));
    const rye = openIt();
    const params = { text: "it's $HOME" };
    const outcomes = await each(present, async (row) => {
      const run = rye.threads.executeTool({ toolId: row.id, params, acknowledge: ['elevated'] });
      return { row, result: await run.catch((error: unknown) => ({ success: false, error })) };
    });
    rye.close();
    const working = present.find(({ id }) => WORKING.test(id))?.id ?? '';
    const command = ['execute', 'tool', working, '--acknowledge', 'elevated'];
    const printed = await here.json([...command, '--param', `text=${params.text}`]);
    expect(printed['success']).toBe(true);
    const succeeded = outcomes.filter(({ result }) => result.success);
    for (const { row, result } of succeeded) {
      expect(JSON.stringify(result), row.id).toMatch(/worked.*it's \$HOME/);
    }
    expect(succeeded.map(({ row }) => row.id).toSorted()).toEqual(
      tools
        .filter(({ id }) => WORKING.test(id))
        .map(({ id }) => id)
        .toSorted(),
    );
    const others = tools.filter(({ id }) => !WORKING.test(id));
    const advised = others.filter(({ code, hint }) => code === 'tool_unsupported' && hint !== null);
    expect(advised.map(({ id }) => id)).toEqual(others.map(({ id }) => id));
    expect(share([...succeeded, ...advised], tools)).toBeGreaterThanOrEqual(0.8);
  });

  test('keeps its configuration, with its servers and providers at their new places', async () => {
    const config = rows.filter(({ type }) => type === 'config');
    expect(config.map(({ verdict }) => verdict)).toEqual(config.map(() => 'runs'));
    const read = (name: string): string =>
      readFileSync(path.join(here.project, '.ai/config', name), 'utf8');
    expect(read('mcp.yaml')).toContain('url: https://mcp.example.com/mcp');
    expect(read('mcp.yaml')).toContain('command: npx');
    expect(read('agent/providers/gateway0.yaml')).toContain('api_key_env: GATEWAY_KEY');
    const { stdout } = await here.rye(['models', 'list'], { env: KEY });
    expect(stdout).toMatch(/gateway0.*small-1/);
  });

  test('is shown as a table with shares, and the reason and advice for each that needs something', async () => {
    const { stdout, code } = await here.rye(['import', 'rye-os', here.project], { env: KEY });
    expect(code).toBe(0);
    expect(stdout).toMatch(/Run with an acknowledgement \(\d+\):/);
    expect(stdout).toMatch(/directive work\/wide_0 {2}\[elevated\]/);
    expect(stdout).toContain('directive work/broken_0');
    expect(stdout).toContain('the manifest is a state graph');
    expect(stdout).toMatch(/^tool: \d+: .*runs \d+ \(\d+ %\)/m);
    const missing = await here.rye(['import', 'rye-os', path.join(here.home, 'nowhere')]);
    expect(missing.code).toBe(6);
  });
});
