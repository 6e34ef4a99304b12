import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';

const SERVER = path.resolve(import.meta.dirname, '../../fixtures/mcp/asking.mjs');

let lab: Lab;

beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => await lab.remove());

async function rye(...args: readonly string[]) {
  const io = createFakeIo({ cwd: lab.project });
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const env = { ...lab.env, HOME: lab.home };
  const code = await main(args, { ...io, env, openRye: open });
  return { code, out: io.out(), err: io.err() };
}

it('adds a server, starts it once its file is signed, and lists its tools', async () => {
  expect((await rye('mcp')).out).toContain('Add one: rye mcp add NAME COMMAND');
  const added = await rye('mcp', 'add', 'clock', '--', process.execPath, SERVER);
  expect(added).toEqual({
    code: 0,
    out: 'wrote .ai/config/mcp.yaml\n',
    err: 'next: rye sign config mcp && rye mcp test clock\n',
  });
  const unsigned = await rye('mcp', 'list');
  expect(unsigned.out).not.toContain('clock');
  expect(unsigned.err).toContain('config mcp is not signed');
  await rye('sign', 'config', 'mcp');
  expect((await rye('doctor')).out).toContain('mcp: clock (not started)');
  expect((await rye('mcp', 'list')).out).toBe('ok   clock: 1 tool\n     mcp/clock/deploy\n');
  expect((await rye('mcp', 'test', 'clock')).out).toContain('mcp/clock/deploy  Deploys.');
});

it('reports a server that does not start, an unknown one and a name that is taken', async () => {
  lab.write('config/mcp.yaml', '# ours\nservers: {}\n');
  await rye('mcp', 'add', 'bad', '--', '/nonexistent/program');
  await rye('sign', 'config', 'mcp');
  const bad = await rye('mcp', 'test', 'bad');
  expect(bad.out).toMatch(/^FAIL bad: .*program not found/);
  expect([bad.code, bad.err]).toEqual([1, expect.not.stringContaining('program not found')]);
  expect((await rye('fetch', 'tool', 'mcp/bad/read')).err).toContain('rye mcp test bad');
  expect((await rye('mcp', 'test', 'nope')).err).toContain('unknown MCP server "nope"');
  expect((await rye('mcp', 'add', 'bad', 'https://x.example')).code).toBe(2);
  expect((await rye('mcp', 'add', 'no/name', 'x')).code).not.toBe(0);
  const file = path.join(lab.project, '.ai/config/mcp.yaml');
  expect(readFileSync(file, 'utf8')).toMatch(/# ours\nservers:[^]*bad:/);
  writeFileSync(file, 'servers: [\n');
  expect((await rye('mcp', 'add', 'other', 'x')).err).toContain('[config_invalid]');
});
