import path from 'node:path';
import { Client } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { type FleetLab, writeDirective, writeTool } from './lab.ts';
import { type Asked, answeredFleet, client, linesOf, proveFleet, untilTrue } from './proof.ts';

const LINES = 3;

async function serverWith(
  flags: readonly string[] = [],
  initFlags: readonly string[] = [],
): Promise<PostgresServer> {
  const server = await startPostgres(['-c', 'fsync=off', ...flags], initFlags);
  onTestFinished(async () => await server.stop());
  return server;
}

/** A gate that a request to the model waits at. */
class Gate {
  isReached = false;
  open: () => void = () => undefined;
  readonly #opened = new Promise<void>((resolve) => {
    this.open = resolve;
  });

  async pass(): Promise<void> {
    this.isReached = true;
    await this.#opened;
  }
}

/** A fleet with a thread that writes three lines, one a turn; `before` is called before each answer of the model. */
async function writing(server: PostgresServer, before: (asked: Asked) => Promise<void>) {
  const lab = await answeredFleet(server, async (asked) => {
    await before(asked);
    const text = `${asked.name}-${asked.results}`;
    return asked.results === LINES
      ? reply('Done.')
      : calls(toolUse('mark', { text }, `toolu_${text}`));
  });
  const marks = path.join(lab.here.home, 'marks');
  await writeTool(lab.here, 'mark', `echo marked >> ${marks}; wc -l < ${marks}`, {
    parameters: ['text'],
  });
  await writeDirective(lab.here, 'job', {
    permissions: '<execute><tool>mark</tool></execute>',
    body: 'I am t0.',
  });
  return { lab, marks };
}

/** The same with two gates: before the answers of the second and of the third turn. */
async function gated(server: PostgresServer) {
  const gates = [new Gate(), new Gate()];
  onTestFinished(() => gates.forEach(({ open }) => open()));
  const made = await writing(server, async ({ results }) => {
    await gates[results - 1]?.pass();
  });
  return { ...made, gates };
}

/** Stores pieces of a strange log, of 16 bytes a block, until the server refuses one. */
async function fill(sql: Client, blocks: number): Promise<void> {
  const insert = `
    INSERT INTO log_pieces (thread_id, start, lines, data)
    SELECT 'other', n + 1, n + 1, decode(repeat(md5(n::text), $1), 'hex')
    FROM (SELECT max(start) AS n FROM log_pieces WHERE thread_id = 'other') AS last`;
  for (let piece = 0; piece < 2000; piece += 1) {
    try {
      await sql.query(insert, [blocks]);
    } catch (error) {
      expect(String(error)).toContain('File too large');
      return;
    }
  }
  throw new Error('the disk of the server does not become full');
}

async function submit({ here, env }: FleetLab): Promise<void> {
  const run = ['run', 'job', '--fleet', '--thread-id', 't0'];
  expect(await here.json(run, { env })).toMatchObject({ success: true });
}

it('a server that has lost the last commits makes no call run twice', async () => {
  const server = await serverWith();
  const { lab, marks, gates } = await gated(server);
  const worker = await lab.worker();
  await worker.id();
  await submit(lab);
  await untilTrue('the second turn waits', () => gates[0]?.isReached === true);
  await server.crash();
  server.keepData();
  await server.startAgain();
  gates[0]?.open();
  await untilTrue('the third turn waits', () => gates[1]?.isReached === true);
  await server.crash();
  // the standby that takes over has not seen the second call
  server.loseCommits();
  await server.startAgain();
  gates[1]?.open();
  const sql = await client(lab.url);
  const waited = await lab.here.json(['threads', 'wait', 't0', '--timeout', '50']);
  expect(waited).toMatchObject({
    success: true,
    threads: [{ status: 'completed', result: 'Done.' }],
  });
  expect(linesOf(marks)).toHaveLength(LINES);
  expect(await proveFleet({ here: lab.here, sql })).toMatchObject({
    threads: 1,
    calls: LINES,
    interrupted: 0,
    highestEpoch: 1,
  });
});

it('a server that has lost more than a worker can restore makes the thread continue with a new epoch', async () => {
  const server = await serverWith();
  const { lab, marks, gates } = await gated(server);
  const [first, second] = [await lab.worker({ label: 'a' }), await lab.worker({ label: 'b' })];
  await first.id();
  await second.id();
  // the thread is queued, and no worker has begun it
  await lab.here.json(['fleet', 'pause', 'default']);
  await submit(lab);
  await server.crash();
  server.keepData();
  await server.startAgain();
  await lab.here.json(['fleet', 'pause', 'default', '--off']);
  await untilTrue('the second turn waits', () => gates[0]?.isReached === true);
  await server.crash();
  // the leg that runs was never begun
  server.loseCommits();
  await server.startAgain();
  for (const gate of gates) gate.open();
  await lab.here.json(['fleet', 'pause', 'default', '--off']);
  const waited = await lab.here.json(['threads', 'wait', 't0', '--timeout', '50']);
  expect(waited).toMatchObject({
    success: true,
    threads: [{ status: 'completed', result: 'Done.' }],
  });
  // what the server has forgotten cannot be known: the first call runs again, on one worker only
  expect(linesOf(marks)).toHaveLength(LINES + 1);
  const healthy = await client(lab.url);
  expect(await proveFleet({ here: lab.here, sql: healthy })).toMatchObject({
    threads: 1,
    calls: LINES,
  });
});

it('a server without a free connection refuses with the reason, and loses no thread', async () => {
  const server = await serverWith([
    '-c',
    'max_connections=24',
    '-c',
    'superuser_reserved_connections=0',
  ]);
  const gate = new Gate();
  const { lab, marks } = await writing(server, async ({ results }) => {
    if (results === 1) await gate.pass();
  });
  onTestFinished(() => gate.open());
  await (await lab.worker({ args: ['--slots', '1'] })).id();
  await submit(lab);
  await untilTrue('the second turn waits', () => gate.isReached);
  const taken: Client[] = [];
  onTestFinished(async () => {
    await Promise.all(taken.map(async (one) => await one.end()));
  });
  // connections that become free are taken, too
  const stop = new AbortController();
  const taking = (async () => {
    while (!stop.signal.aborted) {
      const one = new Client({ connectionString: lab.url });
      one.on('error', () => undefined);
      await one.connect().then(
        () => taken.push(one),
        async () => await new Promise((resolve) => setTimeout(resolve, 20)),
      );
    }
  })();
  // a separate process has no connection yet
  const run = async () =>
    await lab.here.rye(['run', 'hello', '--fleet', '--json'], { spawned: true });
  let refused = await run();
  while (refused.code === 0) refused = await run();
  expect(JSON.parse(refused.stdout)).toMatchObject({
    success: false,
    error: {
      code: expect.stringMatching(/^(?:fleet_unavailable|storage_failed)$/),
      message: expect.stringContaining('too many clients'),
      hint: expect.any(String),
    },
  });
  gate.open();
  stop.abort();
  await taking;
  await Promise.all(taken.splice(0).map(async (one) => await one.end()));
  const waited = await lab.here.json(['threads', 'wait', 't0', '--timeout', '50']);
  expect(waited).toMatchObject({
    success: true,
    threads: [{ status: 'completed', result: 'Done.' }],
  });
  expect(linesOf(marks)).toHaveLength(LINES);
  await lab.until("SELECT count(*) = 0 FROM threads WHERE status NOT IN ('completed')");
  expect(await proveFleet(lab)).toMatchObject({ interrupted: 0 });
});

it('a server whose disk is full stops a thread, which continues when there is space', async () => {
  // a small segment of the server's own log, so that a table meets the limit of a file first
  const server = await serverWith([], ['--wal-segsize=1']);
  const gate = new Gate();
  const { lab, marks } = await writing(server, async ({ results }) => {
    if (results === 1) await gate.pass();
  });
  onTestFinished(() => gate.open());
  // the table of the logs is almost as large as it may become
  await lab.sql.query("INSERT INTO log_heads (thread_id, epoch) VALUES ('other', 1)");
  await lab.sql.query(`
    INSERT INTO log_pieces (thread_id, start, lines, data)
    SELECT 'other', n, n, decode(repeat(md5(n::text), 118), 'hex') FROM generate_series(1, 4 * 126) AS n`);
  await server.crash();
  await server.startAgain({ fileMiB: 1 });
  const worker = await lab.worker();
  await worker.id();
  await submit(lab);
  await untilTrue('the second turn waits', () => gate.isReached);
  // not even a small piece of a log finds a place now
  const sql = await client(lab.url);
  for (const blocks of [118, 12, 1]) await fill(sql, blocks);
  gate.open();
  await untilTrue('the store has failed', () => worker.output().includes('File too large'));
  const { threads } = await lab.here.json(['threads', 'wait', 't0', '--timeout', '50']);
  // what was spent is told, although the log of it could not be written
  expect(threads).toMatchObject([
    { status: 'error', error: { code: 'storage_failed' }, cost: { spend: 0.00014 } },
  ]);
  await server.crash();
  await server.startAgain();
  const resumed = await lab.here.rye(['threads', 'resume', 't0', '--json'], { env: lab.env });
  expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0);
  // five answers; the answer that the log could not hold is booked as an estimate
  const end = JSON.parse(resumed.stdout);
  expect(end).toMatchObject({ success: true });
  expect(end.total_cost_usd).toBeGreaterThanOrEqual(0.00035);
  expect(end.total_cost_usd).toBeLessThan(0.01);
  expect(linesOf(marks)).toHaveLength(LINES);
  const healthy = await client(lab.url);
  expect(await proveFleet({ here: lab.here, sql: healthy })).toMatchObject({
    threads: 1,
    calls: LINES,
  });
});
