import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { type FleetLab, type RunningWorker, writeDirective, writeTool } from './lab.ts';
import {
  type Asked,
  answeredFleet,
  isProcess,
  linesOf,
  proveFleet,
  storedThread,
  untilTrue,
} from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

/** A fleet with a thread `long` on its only worker, once the file `ready` or the model was reached. */
async function longThread(
  answer: (asked: Asked) => WireTurn | Promise<WireTurn>,
  reached: (lab: FleetLab) => Promise<void>,
) {
  const lab = await answeredFleet(server, answer);
  const { here, env, sql } = lab;
  const marks = path.join(here.home, 'marks');
  for (const name of ['one', 'two', 'three'])
    await writeTool(here, name, `echo ${name} >> ${marks}`);
  // in flight when its worker is stopped; its process is not, and waits for the test
  await writeTool(
    here,
    'held',
    `echo $$ >> ${marks}.pid; while [ ! -e ${marks}.go ]; do sleep 0.05; done; echo held >> ${marks}`,
  );
  const tools = ['one', 'two', 'three', 'held'].map((name) => `<tool>${name}</tool>`);
  // a call of the model that was open when its process was stopped is charged with all that it may have cost
  const permissions = `<execute>${tools.join('')}</execute>`;
  await writeDirective(here, 'job', { permissions, spend: '20.00' });
  const worker = await lab.worker({ label: 'first' });
  await worker.id();
  await here.json(['run', 'job', '--fleet', '--thread-id', 'long'], { env });
  await reached(lab);
  const { rows } = await sql.query<{ pid: number }>(
    "SELECT pid FROM threads WHERE thread_id = 'long'",
  );
  return { lab, worker, marks, leg: rows[0]?.pid ?? 0 };
}

/** Stops a worker and the process of its leg, as a machine does that is suspended. */
function stop(worker: RunningWorker, leg: number): { readonly wake: () => void } {
  const pids = [worker.process.pid ?? 0, leg];
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  const wake = (): void => {
    for (const pid of pids) if (isProcess(pid)) process.kill(pid, 'SIGCONT');
  };
  onTestFinished(() => {
    if (isProcess(leg)) process.kill(leg, 'SIGKILL');
  });
  return { wake };
}

/** Waits for the end of a worker that woke after it was replaced, which tells a person what to do. */
async function endOf(worker: RunningWorker): Promise<void> {
  await untilTrue('the worker ends', () => worker.process.exitCode !== null);
  expect(worker.output()).toMatch(/worker first-\S+ was removed from the fleet/);
  expect(worker.output()).toContain('Start it again: rye worker');
  expect(worker.process.exitCode).toBeGreaterThan(0);
}

const expired = 'SELECT bool_or(lease_until < clock_timestamp()) FROM workers';

it('a worker that was stopped for its lease continues its thread', async () => {
  let answer: () => void = () => undefined;
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const { lab, worker, marks, leg } = await longThread(
    async ({ results }) => {
      if (results === 0) return calls(toolUse('one', {}, 'toolu_1'));
      if (results > 1) return reply('Done.');
      await answered;
      return calls(toolUse('two', {}, 'toolu_2'));
    },
    async (one) =>
      await one.until(
        "SELECT position('toolu_1' in string_agg(encode(data, 'escape'), '')) > 0 FROM log_pieces",
      ),
  );
  const { here } = lab;
  const stopped = stop(worker, leg);
  await lab.until(expired);
  stopped.wake();
  answer();
  const waited = await here.json(['threads', 'wait', 'long']);
  expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
  expect(linesOf(marks)).toEqual(['one', 'two']);
  expect(await proveFleet(lab)).toMatchObject({
    threads: 1,
    calls: 2,
    interrupted: 0,
    highestEpoch: 1,
  });
  expect(await worker.leave()).toBe(0);
});

it('a worker that wakes after its replacement writes nothing and begins no call', async () => {
  let asked: () => void = () => undefined;
  const isAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  let answer: () => void = () => undefined;
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  onTestFinished(() => answer());
  let second = 0;
  const { lab, worker, marks, leg } = await longThread(
    async ({ results }) => {
      if (results === 0) return calls(toolUse('one', {}, 'toolu_1'));
      if (results > 1) return reply('Done.');
      second += 1;
      if (second > 1) return calls(toolUse('three', {}, 'toolu_3'));
      asked();
      // for the process that sleeps: it gets a call that only it may think of
      await answered;
      return calls(toolUse('two', {}, 'toolu_2'));
    },
    async () => await isAsked,
  );
  const { here } = lab;
  const stopped = stop(worker, leg);
  const next = await lab.worker({ label: 'second' });
  const waited = await here.json(['threads', 'wait', 'long']);
  expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
  const { threads } = await here.json(['threads', 'list']);
  expect(threads).toMatchObject([{ worker: await next.id(), epoch: 3 }]);
  const before = await storedThread(lab, 'long');
  answer();
  stopped.wake();
  await endOf(worker);
  await untilTrue('the process of the leg ends', () => !isProcess(leg));
  expect(await storedThread(lab, 'long')).toBe(before);
  expect(linesOf(marks)).toEqual(['one', 'three']);
  expect(await proveFleet(lab)).toMatchObject({ threads: 1, calls: 2, highestEpoch: 3 });
});

it('a worker that wakes after its replacement ends the processes of its calls', async () => {
  const { lab, worker, marks, leg } = await longThread(
    ({ results }) => {
      if (results === 0) return calls(toolUse('held', {}, 'toolu_1'));
      return results === 1 ? calls(toolUse('three', {}, 'toolu_3')) : reply('Done.');
    },
    async ({ here }) =>
      await untilTrue('the call runs', () => linesOf(path.join(here.home, 'marks.pid')).length > 0),
  );
  const { here } = lab;
  const [tool] = linesOf(`${marks}.pid`).map(Number);
  const stopped = stop(worker, leg);
  await lab.worker({ label: 'second' });
  const waited = await here.json(['threads', 'wait', 'long']);
  expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
  const before = await storedThread(lab, 'long');
  stopped.wake();
  await endOf(worker);
  await untilTrue('the processes end', () => !isProcess(leg) && !isProcess(tool ?? 0));
  writeFileSync(`${marks}.go`, '');
  expect(await storedThread(lab, 'long')).toBe(before);
  // the call that was in flight is recorded as such, and ran once
  expect(linesOf(marks)).toEqual(['three']);
  expect(linesOf(`${marks}.pid`)).toHaveLength(1);
  expect(await proveFleet(lab)).toMatchObject({ interrupted: 1, highestEpoch: 3 });
});
