import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest';
import { LEASE_MS } from '../../src/features/fleet/worker.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { openProxy } from '../helpers/tcp-proxy.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { writeDirective, writeTool } from './lab.ts';
import { answeredFleet, client, linesOf, proveFleet, untilTrue } from './proof.ts';

let server: PostgresServer;

beforeEach(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterEach(async () => {
  await server.stop();
});

const THREADS = ['t0', 't1', 't2', 't3', 't4', 't5'];
const LINES = 3;

/**
 * A fleet whose threads each write three lines, one a turn. In the second turn, half of them wait in their call and the
 * others for the model, until `release`.
 */
async function writingFleet() {
  const waiting = new Set<string>();
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  onTestFinished(() => release());
  const isInCall = (name: string): boolean => Number(name.slice(1)) % 2 === 0;
  const lab = await answeredFleet(server, async ({ name, results }) => {
    if (results === LINES) return reply('Done.');
    if (results === 1 && !isInCall(name)) {
      waiting.add(name);
      await released;
    }
    const text = `${name}-${results}`;
    const tool = results === 1 && isInCall(name) ? 'held' : 'mark';
    return calls(toolUse(tool, { text }, `toolu_${text}`));
  });
  const { here, env } = lab;
  const marks = path.join(here.home, 'marks');
  const parameters = ['text'];
  await writeTool(here, 'mark', `echo "$(cat)" >> ${marks}`, { parameters });
  const wait = `while [ ! -e ${marks}.go ]; do sleep 0.05; done`;
  await writeTool(
    here,
    'held',
    `text="$(cat)"; echo "$text" >> ${marks}.held; ${wait}; echo "$text" >> ${marks}`,
    { parameters },
  );
  const permissions = '<execute><tool>mark</tool><tool>held</tool></execute>';
  for (const name of THREADS)
    await writeDirective(here, name, {
      permissions,
      spend: '20.00',
      body: `I am ${name}.`,
      isSigned: false,
    });
  expect(await here.rye(['sign', 'directive', '*'])).toMatchObject({ code: 0 });
  return {
    lab,
    marks,
    /** Queues the threads, and resolves once each waits. */
    begin: async () => {
      for (const name of THREADS)
        expect(
          await here.json(['run', name, '--fleet', '--thread-id', name], { env }),
        ).toMatchObject({ success: true });
      await untilTrue(
        'each thread waits',
        () => waiting.size === 3 && new Set(linesOf(`${marks}.held`)).size === 3,
      );
    },
    release: () => {
      release();
      writeFileSync(`${marks}.go`, '');
    },
    allCompleted: async () => {
      const waited = await here.json(['threads', 'wait', ...THREADS]);
      expect(waited).toMatchObject({
        success: true,
        threads: THREADS.map(() => ({ status: 'completed', result: 'Done.' })),
      });
    },
  };
}

it('a crash of PostgreSQL for longer than a lease costs no call and no worker', async () => {
  const { lab, marks, begin, release, allCompleted } = await writingFleet();
  const workers = [await lab.worker({ label: 'a' }), await lab.worker({ label: 'b' })];
  const ids = [];
  for (const worker of workers) ids.push(await worker.id());
  await begin();
  await server.crash();
  const crashedAt = performance.now();
  await untilTrue('every lease is over', () => performance.now() - crashedAt > LEASE_MS * 1.5);
  // calls and answers end while the server is away
  release();
  await server.startAgain();
  await allCompleted();
  const sql = await client(lab.url);
  const { rows } = await sql.query<{ worker_id: string }>('SELECT worker_id FROM workers');
  expect(rows.map((row) => row.worker_id).toSorted()).toEqual(ids.toSorted());
  for (const worker of workers) expect(worker.output()).not.toContain('is gone');
  const lines = linesOf(marks);
  expect(new Set(lines).size).toBe(lines.length);
  expect(lines).toHaveLength(THREADS.length * LINES);
  expect(await proveFleet({ here: lab.here, sql })).toMatchObject({
    threads: 6,
    calls: 18,
    interrupted: 0,
    highestEpoch: 1,
  });
});

it.each(['cut', 'swallow'] as const)(
  'a worker whose connections are lost (%s) for longer than its lease is replaced, and no call runs twice',
  async (how) => {
    const { lab, marks, begin, release, allCompleted } = await writingFleet();
    const proxy = await openProxy(server.port);
    const far = await lab.worker({ label: 'far', args: ['--slots', '6'], urlOf: proxy.urlOf });
    await far.id();
    await begin();
    const near = await lab.worker({ label: 'near', args: ['--slots', '6'] });
    const nearId = await near.id();
    proxy[how]();
    await lab.until('SELECT bool_and(worker = $1) FROM threads', [nearId]);
    release();
    await allCompleted();
    proxy.mend();
    await untilTrue('the worker ends', () => far.process.exitCode !== null);
    expect(far.process.exitCode).toBeGreaterThan(0);
    expect(far.output()).toContain('Start it again: rye worker');
    const lines = linesOf(marks);
    expect(new Set(lines).size).toBe(lines.length);
    const { interrupted, ...check } = await proveFleet(lab);
    expect(check).toMatchObject({ threads: 6, calls: 18 });
    // the calls that were in flight on the other side
    expect(interrupted).toBeLessThanOrEqual(THREADS.length / 2);
    expect(lines.length).toBeGreaterThanOrEqual(THREADS.length * LINES - interrupted);
  },
);

it('a worker whose connections break for a moment continues its threads', async () => {
  const { lab, marks, begin, release, allCompleted } = await writingFleet();
  const proxy = await openProxy(server.port);
  const far = await lab.worker({ label: 'far', args: ['--slots', '6'], urlOf: proxy.urlOf });
  await far.id();
  await begin();
  await (await lab.worker({ label: 'near', args: ['--slots', '6'] })).id();
  for (const ms of [50, 500, 1500]) {
    proxy.cut();
    const at = performance.now();
    await untilTrue('a moment has passed', () => performance.now() - at > ms);
    proxy.mend();
  }
  release();
  await allCompleted();
  expect(far.process.exitCode).toBeNull();
  expect(linesOf(marks)).toHaveLength(THREADS.length * LINES);
  expect(await proveFleet(lab)).toMatchObject({
    threads: 6,
    calls: 18,
    interrupted: 0,
    highestEpoch: 1,
  });
});
