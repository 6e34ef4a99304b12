import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { connectFleet } from '../../src/features/fleet/connection.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { type FleetLab, writeDirective, writeTool } from './lab.ts';
import { answeredFleet, linesOf, proveFleet, untilTrue } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

/** A fleet with a directive `job`, whose thread calls `mark` this often. */
async function marking(count: number): Promise<{ readonly lab: FleetLab; readonly marks: string }> {
  const lab = await answeredFleet(server, ({ results }) =>
    results === count
      ? reply('Done.')
      : calls(toolUse('mark', { text: `line ${results}` }, `toolu_${results}`)),
  );
  const { here } = lab;
  const marks = path.join(here.home, 'marks');
  const script = `text="$(cat)"; sleep 0.3; echo "$text" >> ${marks}`;
  await writeTool(here, 'mark', script, { parameters: ['text'] });
  const permissions = '<execute><tool>mark</tool></execute>';
  await writeDirective(here, 'job', { permissions, spend: '20.00' });
  return { lab, marks };
}

it('a thread whose tool kills its own process ends as crashed after five take-overs, and frees its budget', async () => {
  let asked = 0;
  const lab = await answeredFleet(server, () => {
    asked += 1;
    return calls(toolUse('poison', {}, `toolu_${asked}`));
  });
  const { here, env, sql } = lab;
  // the group of the leg, which has no time to write
  await writeTool(here, 'poison', 'kill -9 "$PPID"');
  const permissions = '<execute><tool>poison</tool></execute>';
  await writeDirective(here, 'job', { permissions, spend: '40.00', turns: 50 });
  await lab.worker();
  await here.json(['run', 'job', '--fleet', '--thread-id', 'poisoned'], { env });
  await lab.until('SELECT takeovers >= 1 FROM threads');
  // the pauses between the tries double: skip three of them
  await sql.query('UPDATE threads SET takeovers = takeovers + 3');
  const waited = await here.json(['threads', 'wait', 'poisoned']);
  expect(waited).toMatchObject({
    success: false,
    threads: [{ status: 'error', error: { code: 'thread_crashed' } }],
  });
  await lab.until("SELECT status = 'released' FROM budget_ledger");
  // it was asked once more than it was taken over, and each call is in the log once
  expect(asked).toBeGreaterThanOrEqual(2);
  expect(asked).toBeLessThanOrEqual(5);
  expect(await proveFleet(lab)).toMatchObject({ threads: 1, calls: asked, interrupted: asked });
});

it('legs that are queued and dispatched again at random change nothing', async () => {
  const { lab, marks } = await marking(6);
  const { here, env } = lab;
  const workers = [await lab.worker({ label: 'a' }), await lab.worker({ label: 'b' })];
  const ids = await Promise.all(workers.map(async (worker) => await worker.id()));
  const { fleet, queue, close } = connectFleet({
    url: lab.url,
    clock: systemClock,
    ids: systemIds,
  });
  onTestFinished(close);
  await here.json(['run', 'job', '--fleet', '--thread-id', 'busy'], { env });
  await untilTrue('its first call has ended', () => linesOf(marks).length > 0);
  let seed = 7;
  for (let count = 0; count < 100; count += 1) {
    seed = (seed * 16_807) % 2_147_483_647;
    if (seed % 4 === 0) await queue.redispatch(ids[seed % 2] ?? '');
    else await fleet.resume('busy');
    // a duplicate is no take-over
    const { rows } = await lab.sql.query('SELECT takeovers FROM threads');
    expect(rows).toEqual([{ takeovers: 0 }]);
    await delay(seed % 20);
  }
  expect(await here.json(['threads', 'wait', 'busy'])).toMatchObject({
    success: true,
    threads: [{ result: 'Done.' }],
  });
  await lab.until(
    "SELECT count(*) = 0 FROM rye_queue.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
  );
  expect(linesOf(marks)).toHaveLength(6);
  // a leg that was given back parks between two turns and continues
  expect(await proveFleet(lab)).toMatchObject({ threads: 1, calls: 6, interrupted: 0 });
});

it('workers whose clocks are an hour off, and jump, replace a dead one and keep a living one', async () => {
  const { lab, marks } = await marking(8);
  const { here, env } = lab;
  // moves the time of day of Node's programs; the monotonic clock stays
  const skew = (name: string, shift: string): Record<string, string> => {
    const file = path.join(here.home, `${name}.cjs`);
    writeFileSync(
      file,
      `const RealDate = Date; const now = Date.now; const shift = () => ${shift};
       globalThis.Date = class extends RealDate {
         constructor(...given) { if (given.length === 0) super(now() + shift()); else super(...given); }
         static now() { return now() + shift(); }
       };`,
    );
    return { NODE_OPTIONS: `--require=${file}` };
  };
  const hour = 3_600_000;
  const first = await lab.worker({ label: 'ahead', env: skew('ahead', `${hour}`) });
  await here.json(['run', 'job', '--fleet', '--thread-id', 'skewed'], { env });
  await untilTrue('its first call has ended', () => linesOf(marks).length > 0);
  const behind = await lab.worker({ label: 'behind', env: skew('behind', `${-hour}`) });
  // it jumps back and forth each second, by an hour
  const jumps = `Math.floor(performance.now() / 1000) % 2 === 0 ? ${hour} : ${-hour}`;
  const jumping = await lab.worker({ label: 'jumping', env: skew('jumping', jumps) });
  await lab.until('SELECT count(*) = 3 FROM workers');
  const dead = await first.id();
  await first.kill();
  expect(await here.json(['threads', 'wait', 'skewed'])).toMatchObject({
    success: true,
    threads: [{ result: 'Done.' }],
  });
  await lab.until('SELECT count(*) = 2 AND NOT bool_or(worker_id = $1) FROM workers', [dead]);
  for (const worker of [behind, jumping]) expect(worker.process.exitCode).toBeNull();
  const lines = linesOf(marks);
  expect(new Set(lines).size).toBe(lines.length);
  expect(await proveFleet(lab)).toMatchObject({ threads: 1, calls: 8 });
});
