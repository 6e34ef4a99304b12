// What a fleet costs: queueing, dispatch, the processor time of a leg, and a durable append. Only loads that two cores bear.
import { fork } from 'node:child_process';
import { fdatasyncSync, openSync, readdirSync, readFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { tsImport } from 'tsx/esm/api';
import { median, openFleet } from './fleet-lab.mjs';
import { pool, row } from './harness.mjs';

const load = async (name) => await tsImport(`../../src/${name}`, import.meta.url);
const { DbosQueue } = await load('features/fleet/dbos/queue.ts');
const { systemClock, systemIds } = await load('kernel/app/system.ts');
const { PostgresDatabase } = await load('features/fleet/postgres/database.ts');
const { withClient } = await load('kernel/storage/sql-work.ts');
const { openPostgresStore } = await load('features/fleet/postgres/open-postgres.ts');
const { processOwners, ownerOf } = await load('kernel/storage/owners.ts');
const fixtures = await load('testing/conformance/fixtures.ts');

const ENGINE = fileURLToPath(new URL('./fleet-engine.mjs', import.meta.url));
const CLIENTS = 8;
const APPENDS = 400;
/** Legs of threads whose processor time is measured. */
const MEASURED = 40;
const PER_SECOND = 10;
const LOW_SECONDS = 20;
const TICK_MS = 10;

const now = () => Number(process.hrtime.bigint() / 1000n) / 1000;
const percentile = (values, part) =>
  values.toSorted((one, two) => one - two)[Math.floor(values.length * part)] ?? Number.NaN;

/** Fields of a process: its parent, its own processor time and that of its ended children, in milliseconds. */
function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    return {
      parent: fields[1],
      own: (fields[11] + fields[12]) * TICK_MS,
      children: (fields[13] + fields[14]) * TICK_MS,
    };
  } catch {
    return { parent: 0, own: 0, children: 0 };
  }
}

/** Processor time of the children of a process, of those that live and those that have ended. */
function childrenMs(pid) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(statOf)
    .filter(({ parent }) => parent === pid)
    .reduce((sum, { own, children }) => sum + own + children, statOf(pid).children);
}

/** Processor time of PostgreSQL with all its processes. */
function serverMs({ pid }) {
  return statOf(pid).own + childrenMs(pid);
}

async function engines(url, count, slots) {
  return await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const child = fork(ENGINE, [url, `engine${index}`, String(slots)], { execArgv: [] });
      await new Promise((resolve, reject) => {
        child.once('message', resolve);
        child.once('exit', () => reject(new Error('a worker of the queue ended')));
      });
      return child;
    }),
  );
}

/** Ends the workers, and returns what they counted. */
async function told(children) {
  return await Promise.all(
    children.map(async (child) => {
      const answer = new Promise((resolve) => child.once('message', resolve));
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.send('end');
      const made = await answer;
      await ended;
      return made;
    }),
  );
}

function counting(fleet) {
  const client = process.cpuUsage();
  const server = serverMs(fleet.server);
  return () => {
    const { user, system } = process.cpuUsage(client);
    return { client: (user + system) / 1000, server: serverMs(fleet.server) - server };
  };
}

/** Queues legs that do nothing, and lets two workers run them. */
async function engine(fleet, result, count) {
  const queue = new DbosQueue({ url: fleet.url, clock: systemClock });
  const database = new PostgresDatabase({ url: fleet.url, connections: CLIENTS });
  const enqueue = async (id) => {
    const threadId = `leg${id}`;
    const leg = {
      legId: `${threadId}#1`,
      threadId,
      queue: 'default',
      priority: 5,
      notBefore: null,
      partition: null,
      payload: { at: now() },
    };
    await database.write(() => withClient(async (tx) => await queue.enqueueLeg(tx, leg)));
  };
  await enqueue('first');
  const queued = counting(fleet);
  let begun = performance.now();
  await pool(count, CLIENTS, enqueue);
  let took = (performance.now() - begun) / 1000;
  const enqueueing = queued();
  result.tell(`${count} legs queued: ${Math.round(count / took)}/s`);

  let children = await engines(fleet.url, 2, 20);
  const running = counting(fleet);
  begun = performance.now();
  const isEmpty = `SELECT NOT EXISTS (SELECT FROM rye_queue.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))`;
  if (!(await fleet.until(isEmpty))) result.fail('running', 'legs stay in the queue');
  took = (performance.now() - begun) / 1000;
  const ran = running();
  const workers = (await told(children)).reduce((sum, { cpuMs }) => sum + cpuMs, 0);
  const per = (ms) => (ms / count).toFixed(2);
  result.tell(`run by 2 workers with 20 slots: ${Math.round(count / took)}/s`);
  result.tell(
    `CPU ms of a leg in the engine: server ${per(enqueueing.server + ran.server)} + worker ${per(workers)} + client ${per(enqueueing.client)}`,
  );

  children = await engines(fleet.url, 2, 20);
  for (let index = 0; index < PER_SECOND * LOW_SECONDS; index += 1) {
    const next = delay(1000 / PER_SECOND);
    await enqueue(`low${index}`);
    await next;
  }
  await fleet.until(isEmpty);
  const waits = (await told(children)).flatMap((one) => one.waits);
  result.tell(
    `dispatch at ${PER_SECOND}/s: p50 ${Math.round(median(waits))} ms, p99 ${Math.round(percentile(waits, 0.99))} ms`,
  );
  await queue.close();
  database.close();
}

/** Queues real threads, prepared and signed, and runs some with a worker. */
async function threads(fleet, result, count) {
  await fleet.submit('warm');
  const queued = counting(fleet);
  const begun = performance.now();
  await pool(count, CLIENTS, async (index) => await fleet.submit(`s${index}`));
  const took = (performance.now() - begun) / 1000;
  const { client, server } = queued();
  result.tell(
    `${count} threads prepared, signed and queued: ${Math.round(count / took)}/s, CPU ms of each ${(client / count).toFixed(1)} + server ${(server / count).toFixed(1)}`,
  );
  const [worker] = await fleet.machines(1, 2);
  const pid = worker.child.pid;
  await fleet.until("SELECT count(*) >= 5 FROM threads WHERE status = 'completed'");
  const done = async () =>
    (await fleet.rows("SELECT count(*)::int AS n FROM threads WHERE status = 'completed'"))[0].n;
  const state = async () => ({
    own: statOf(pid).own,
    legs: await done(),
    processes: childrenMs(pid),
    server: serverMs(fleet.server),
  });
  const first = await state();
  await fleet.until("SELECT count(*) >= $1 FROM threads WHERE status = 'completed'", [MEASURED]);
  const last = await state();
  const per = (name) => ((last[name] - first[name]) / (last.legs - first.legs)).toFixed(0);
  result.tell(
    `CPU ms of a leg of one turn: its process ${per('processes')}, worker ${per('own')}, server ${per('server')}`,
  );
  await fleet.kill(worker, 'SIGTERM');
}

/** A durable append in the store beside a local one and a round trip, in turn. */
async function appends(fleet, result) {
  const store = openPostgresStore({
    url: fleet.url,
    clock: systemClock,
    ids: systemIds,
    owners: processOwners(),
    index: { close: () => undefined },
    workerId: null,
  });
  const owner = ownerOf({ pid: process.pid, process_start: 'x', host: 'x' });
  const options = { ...fixtures.writerOptions(store), owner, epoch: 1 };
  const writer = await store.logs.create(fixtures.headerFor('append'), options);
  const file = openSync(path.join(fleet.place.root, 'appended'), 'a');
  const bytes = Buffer.alloc(1024, 'x');
  const times = { store: [], local: [], trip: [] };
  const timed = async (name, work) => {
    const begun = performance.now();
    await work();
    times[name].push(performance.now() - begun);
  };
  for (let index = 0; index < APPENDS; index += 1) {
    await timed('store', async () => {
      writer.append([fixtures.userMessage('x'.repeat(700))]);
      await writer.sync();
    });
    await timed('local', () => {
      writeSync(file, bytes);
      fdatasyncSync(file);
    });
    await timed('trip', async () => await fleet.rows('SELECT 1'));
  }
  await writer.close();
  const p50 = Object.fromEntries(Object.entries(times).map(([name, all]) => [name, median(all)]));
  const bar = 2 * p50.local + p50.trip;
  result.tell(
    `durable append p50 ${p50.store.toFixed(2)} ms (p99 ${percentile(times.store, 0.99).toFixed(1)}), local ${p50.local.toFixed(2)} ms, round trip ${p50.trip.toFixed(2)} ms: ${(p50.store / bar).toFixed(2)} of the bar`,
  );
  store.close();
}

export async function scale({ model, count }) {
  const result = row('fleet: what it costs');
  const fleet = await openFleet(model.session(() => ({ words: ['Done.'] })));
  try {
    await appends(fleet, result);
    await engine(fleet, result, count);
    await threads(fleet, result, Math.max(MEASURED + 5, Math.ceil(count / 50)));
    result.n = count;
  } finally {
    await fleet.close();
  }
  return result;
}
