import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { fleetLab, modelledLab, writeDirective, writeTool } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

it('a worker in an empty folder runs a thread, whose log every command of the submitter verifies', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const worker = await lab.worker({ label: 'gpu' });
  const workerId = await worker.id();
  const run = await here.rye(['run', 'hello', '--fleet', '--wait', '--json', '--input', 'who=Ada']);
  expect(run.stderr).toBe('');
  expect(JSON.parse(run.stdout)).toMatchObject({
    success: true,
    status: 'completed',
    outputs: { greeting: 'Hello, Ada!' },
  });
  const { thread_id: id } = JSON.parse(run.stdout) as { readonly thread_id: string };
  const { threads } = await here.json(['threads', 'list']);
  expect(threads).toMatchObject([{ thread_id: id, worker: workerId, epoch: 1 }]);
  expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
  expect((await here.rye(['threads', 'logs', id])).stdout).toContain('Hello, Ada!');
  const { workers } = await here.json(['fleet', 'workers']);
  expect(workers).toMatchObject([{ worker_id: workerId, labels: ['gpu'], draining: false }]);
  expect(await here.json(['fleet', 'status'])).toMatchObject({ lease_seconds: 3 });
  expect(await worker.leave()).toBe(0);
  expect((await here.json(['fleet', 'workers']))['workers']).toEqual([]);
});

it('the items of a thread come from its signed bundle', async () => {
  const lab = await modelledLab(server, [calls(toolUse('mark', {}, 'toolu_1')), reply('Done.')]);
  const { here, env } = lab;
  const mark = path.join(here.home, 'marked');
  await writeTool(here, 'mark', `echo marked >> ${mark}`);
  await writeDirective(here, 'job', { permissions: '<execute><tool>mark</tool></execute>' });
  await lab.worker();
  const run = await here.rye(['run', 'job', '--fleet', '--wait', '--json'], { env });
  expect(JSON.parse(run.stdout)).toMatchObject({ success: true, result: 'Done.' });
  expect(readFileSync(mark, 'utf8')).toBe('marked\n');
});

it('SIGTERM parks a thread between two turns, and another worker continues it without a message', async () => {
  let answer: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => {
    answer = resolve;
  });
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let count = 0;
  const lab = await modelledLab(server, async () => {
    count += 1;
    if (count === 1) return calls(toolUse('mark', {}, 'toolu_1'));
    if (count > 2) return reply('Done.');
    answer();
    await released;
    return calls(toolUse('mark', {}, 'toolu_2'));
  });
  const { here, env } = lab;
  const mark = path.join(here.home, 'marked');
  await writeTool(here, 'mark', `echo marked >> ${mark}`);
  await writeDirective(here, 'job', { permissions: '<execute><tool>mark</tool></execute>' });
  const first = await lab.worker({ label: 'first' });
  await here.json(['run', 'job', '--fleet', '--thread-id', 'long'], { env });
  await asked;
  const left = first.leave();
  await lab.until('SELECT is_draining OR count(*) OVER () = 1 FROM workers');
  release();
  expect(await left).toBe(0);
  const { threads } = await here.json(['threads', 'list']);
  expect(threads).toMatchObject([{ status: 'suspended', error: { code: 'thread_parked' } }]);
  await lab.worker({ label: 'second' });
  expect(await here.json(['threads', 'wait', 'long'])).toMatchObject({ success: true });
  expect(readFileSync(mark, 'utf8')).toBe('marked\nmarked\n');
  expect(count).toBe(3);
});

it('a worker that does not trust the person refuses the thread, and the budget is free again', async () => {
  const lab = await fleetLab(server);
  const worker = await lab.worker({ trusts: false });
  const run = await lab.here.rye(['run', 'hello', '--fleet', '--wait', '--json']);
  expect(run.code).toBe(3);
  expect(JSON.parse(run.stdout)).toMatchObject({
    success: false,
    error: { code: 'key_untrusted' },
  });
  expect(worker.output()).toContain('refused');
  const { rows } = await lab.sql.query('SELECT status FROM budget_ledger');
  expect(rows).toEqual([{ status: 'released' }]);
});

it('refuses options that a worker cannot honor, and a project without a fleet', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const refused = async (...args: readonly string[]) => await here.rye(['run', 'hello', ...args]);
  expect(await refused('--fleet', '--allow-unsigned')).toMatchObject({ code: 2 });
  expect(await refused('--wait')).toMatchObject({ code: 2 });
  expect(await refused('--fleet', '--priority', '12')).toMatchObject({ code: 2 });
  expect(await refused('--fleet', '--at', 'soon')).toMatchObject({ code: 2 });
  expect(await refused('--fleet', '--queue', 'No Queue')).toMatchObject({ code: 2 });
  const bad = path.join(here.home, 'bad.token');
  writeFileSync(bad, 'rye-worker-1.e30');
  expect(await here.rye(['worker', '--token', bad])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('rye fleet enroll'),
  });
  expect(await here.rye(['fleet', 'drain', 'none'])).toMatchObject({ code: 6 });
});
