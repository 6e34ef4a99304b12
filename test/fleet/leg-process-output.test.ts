import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { expect, it, onTestFinished } from 'vitest';
import type { LegOrder } from '../../src/features/fleet/leg-control.ts';
import { LegProcesses } from '../../src/features/fleet/leg-processes.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

/** A program that prints what is no reply, answers each order, and ends after the second. */
const PROGRAM = `
  let count = 0;
  console.log('[info] a library speaks');
  console.log('{"status":"text"}');
  require('node:readline').createInterface({ input: process.stdin }).on('line', () => {
    count += 1;
    if (count === 2) process.exit(7);
    console.log('{"status":0}');
  });
`;

const order = (threadId: string): LegOrder => ({
  format: 1,
  url: 'postgres://127.0.0.1/none',
  workerId: 'w',
  key: '',
  pool: [],
  threadId,
  folder: '',
  waitInlineMs: 0,
  sandbox: 'off',
  sources: [],
  until: 0,
});

function programs() {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-legs-'));
  onTestFinished(() => removeFolder(folder));
  const file = path.join(folder, 'leg.cjs');
  writeFileSync(file, PROGRAM);
  const lines: string[] = [];
  const legs = new LegProcesses({
    command: process.execPath,
    args: [file],
    cwd: folder,
    env: { PATH: process.env['PATH'] ?? '' },
    slots: 1,
    onLine: (_threadId, line) => lines.push(line),
  });
  onTestFinished(() => legs.close());
  return { legs, lines, file };
}

const NEVER = new AbortController().signal;

it('passes on what a process prints that is no reply, and tells its exit status', async () => {
  const { legs, lines } = programs();
  expect(await legs.run(order('a'), NEVER)).toBe(0);
  expect(lines).toEqual(['[info] a library speaks', '{"status":"text"}']);
  // the same process, which ends by itself
  expect(await legs.run(order('b'), NEVER)).toBe(7);
  expect(lines).toHaveLength(2);
  expect(await legs.run(order('c'), NEVER)).toBe(0);
  expect(lines).toHaveLength(4);
});

it('starts a program again that was replaced while a process of it waited', async () => {
  const { legs, lines, file } = programs();
  expect(await legs.run(order('a'), NEVER)).toBe(0);
  writeFileSync(file, `${PROGRAM}\nconsole.log('the new program');`);
  expect(await legs.run(order('b'), NEVER)).toBe(0);
  expect(lines).toContain('the new program');
});

it('fails a leg whose program cannot be started', async () => {
  const legs = new LegProcesses({
    command: '/no/such/program',
    args: [],
    cwd: tmpdir(),
    env: {},
    slots: 1,
    onLine: () => undefined,
  });
  onTestFinished(() => legs.close());
  await expect(legs.run(order('a'), NEVER)).rejects.toMatchObject({ code: 'ENOENT' });
});
