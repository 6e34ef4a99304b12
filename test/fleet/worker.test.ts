import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { type FleetLab, fleetLab, writeDirective, writeTool } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

async function modelled(script: Parameters<typeof startWireServer>[0]): Promise<FleetLab> {
  const model = await startWireServer(script);
  onTestFinished(async () => await model.close());
  return await fleetLab(server, {
    ANTHROPIC_API_KEY: 'sk-ant-fleet-0123456789',
    ANTHROPIC_BASE_URL: model.url,
  });
}

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
  const lab = await modelled([calls(toolUse('mark', {}, 'toolu_1')), reply('Done.')]);
  const { here, env } = lab;
  const mark = path.join(here.home, 'marked');
  await writeTool(here, 'mark', `echo marked >> ${mark}`);
  await writeDirective(here, 'job', { permissions: '<execute><tool>mark</tool></execute>' });
  await lab.worker();
  const run = await here.rye(['run', 'job', '--fleet', '--wait', '--json'], { env });
  expect(JSON.parse(run.stdout)).toMatchObject({ success: true, result: 'Done.' });
  expect(readFileSync(mark, 'utf8')).toBe('marked\n');
});

it.each(['leg', 'worker', 'both'])(
  'after kill -9 of the %s another leg goes on, and no call runs twice',
  async (victim) => {
    const lab = await modelled([
      calls(toolUse('mark', {}, 'toolu_1')),
      calls(toolUse('hold', {}, 'toolu_2')),
      reply('Done.'),
    ]);
    const { here, env } = lab;
    const mark = path.join(here.home, 'marked');
    const pid = path.join(here.home, 'pid');
    await writeTool(here, 'mark', `echo marked >> ${mark}`);
    // the call that is in flight at the kill, and whose result tells the model so
    await writeTool(here, 'hold', `echo "$PPID" > ${pid}; sleep 600`);
    await writeDirective(here, 'job', {
      permissions: '<execute><tool>mark</tool><tool>hold</tool></execute>',
    });
    const first = await lab.worker({ label: 'first' });
    await first.id();
    const submitted = await here.json(['run', 'job', '--fleet', '--thread-id', 'long'], { env });
    expect(submitted).toMatchObject({ success: true, status: 'created' });
    await lab.until('SELECT count(*) = 1 FROM threads WHERE pid IS NOT NULL');
    await waitForFile(pid);
    const { rows } = await lab.sql.query<{ pid: number }>('SELECT pid FROM threads');
    if (victim !== 'leg') await lab.worker({ label: 'second' }).then(async (one) => await one.id());
    if (victim !== 'worker') process.kill(rows[0]?.pid ?? 0, 'SIGKILL');
    if (victim !== 'leg') await first.kill();
    const waited = await here.json(['threads', 'wait', 'long']);
    expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
    expect(readFileSync(mark, 'utf8')).toBe('marked\n');
    const logs = (await here.rye(['threads', 'logs', 'long', '--json'])).stdout;
    expect(logs).toContain('interrupted');
    expect(await here.json(['verify', 'thread', 'long'])).toMatchObject({ success: true });
  },
);

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
  const lab = await modelled(async () => {
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

async function waitForFile(file: string): Promise<void> {
  const { setTimeout: delay } = await import('node:timers/promises');
  const end = Date.now() + 60_000;
  while (!existsSync(file)) {
    if (Date.now() > end) throw new Error(`${file} was never written`);
    await delay(20);
  }
}
