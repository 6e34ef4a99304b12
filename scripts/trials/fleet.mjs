// A fleet under kills, stops and outages: real workers, a real PostgreSQL, a model on loopback. What the store holds is
// checked by the rules of the store alone. `--only fleet --count 500` runs the bar: 8 workers, one killed every 5 s.
import { setTimeout as delay } from 'node:timers/promises';
import { endGroup, isAlive, median, openFleet, seconds, signal } from './fleet-lab.mjs';
import { scale } from './fleet-scale.mjs';
import { pool, row } from './harness.mjs';
import { blocksOf } from './model.mjs';

const WORKERS = 8;
const SLOTS = 2;
const KILL_EVERY_MS = 5000;
const REPLACE_AFTER_MS = 1000;
const LEASE_MS = 3000;
/** Lease, two beats of a reaper and a second: the longest time until another worker has a thread. */
const TAKE_OVER_MS = LEASE_MS + 2 * 1500 + 1000;
const CALLS = 4;
const PATIENCE_MS = 120_000;
/** The time that a thread may take of it all, in milliseconds. */
const THREAD_MS = 3000;
const CHILDREN = 40;

const ALL_FINAL =
  "SELECT count(*) = $1 AND bool_and(status IN ('completed', 'error', 'cancelled')) FROM threads";
const ALL_COMPLETED = "SELECT count(*)::int AS n FROM threads WHERE status = 'completed'";

/** The name of the thread that asks. */
const nameIn = (body) => /I am (\w+)/.exec(JSON.stringify(body.messages))?.[1] ?? '';
const resultsIn = (body) => blocksOf(body, 'tool_result').length;

/** Calls `mark` once a turn, by the conversation alone: who asks again gets the same answer. */
function marker(calls = CALLS) {
  return (body) => {
    const done = resultsIn(body);
    if (done >= calls) return { words: ['Done.'] };
    const text = `${nameIn(body)}-${done}`;
    return { tools: [{ name: 'mark', input: { text } }], pauseMs: 60 };
  };
}

/** Kills one worker after another until `isOver`, and starts another one on its machine. */
async function killing(fleet, { random, isOver, takeOvers, removals }) {
  let kills = 0;
  const watches = [];
  while (!isOver()) {
    await delay(KILL_EVERY_MS);
    const living = [...fleet.workers];
    const worker = living[Math.floor(random() * living.length)];
    if (isOver() || worker === undefined) break;
    const rows = await fleet.rows(
      "SELECT thread_id, epoch, pid FROM threads WHERE worker = $1 AND status = 'running'",
      [worker.id],
    );
    // every second time the processes of its legs, too; otherwise these end by themselves
    if (kills % 2 === 1) for (const { pid } of rows) if (pid !== null) endGroup(pid);
    const at = performance.now();
    await fleet.kill(worker);
    kills += 1;
    watches.push(
      takenOver(fleet, { worker, rows, at, takeOvers }),
      removed(fleet, { worker, at, removals }),
      delay(REPLACE_AFTER_MS).then(async () => await fleet.worker(worker.machine, worker.slots)),
    );
    // the error that ends a trial early is the one to report, not that of a look after it
    for (const watch of watches) watch.catch(() => undefined);
  }
  await Promise.all(watches);
  return kills;
}

/** Measures how long the threads of a dead worker wait for another owner. */
async function takenOver(fleet, { worker, rows, at, takeOvers }) {
  const waiting = new Map(rows.map(({ thread_id: id, epoch }) => [id, epoch]));
  const end = at + PATIENCE_MS;
  while (waiting.size > 0 && performance.now() < end) {
    const now = await fleet.rows(
      'SELECT thread_id, epoch, worker, status FROM threads WHERE thread_id = ANY($1)',
      [[...waiting.keys()]],
    );
    for (const { thread_id: id, epoch, worker: holder, status } of now) {
      const hasEnded = epoch === waiting.get(id) && status !== 'running';
      if (hasEnded) waiting.delete(id);
      else if (epoch > waiting.get(id) && holder !== worker.id) {
        takeOvers.push(performance.now() - at);
        waiting.delete(id);
      }
    }
    await delay(25);
  }
}

async function removed(fleet, { worker, at, removals }) {
  if (await fleet.until('SELECT count(*) = 0 FROM workers WHERE worker_id = $1', [worker.id]))
    removals.push(performance.now() - at);
}

/**
 * Counts the writes of processes that have lost their thread, in the store itself: appends to logs, and beats of their
 * rows. A sequence counts also what a transaction takes back.
 */
async function countRefusals(fleet) {
  await fleet.sql.query(`
    CREATE SEQUENCE refused;
    ALTER FUNCTION append_log RENAME TO append_log_itself;
    CREATE FUNCTION append_log(id TEXT, held TEXT, offset_ BIGINT, piece BYTEA, added BIGINT) RETURNS TEXT
    LANGUAGE plpgsql AS $$
    DECLARE answer TEXT;
    BEGIN
      answer := append_log_itself(id, held, offset_, piece, added);
      IF answer <> 'done' THEN PERFORM nextval('rye.refused'); END IF;
      RETURN answer;
    END $$;
    CREATE FUNCTION note_refused() RETURNS TRIGGER LANGUAGE plpgsql AS $$
    BEGIN
      IF NOT EXISTS (SELECT FROM changed) AND current_query() LIKE '%heartbeat_at = $%'
        THEN PERFORM nextval('rye.refused'); END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER beats AFTER UPDATE ON threads REFERENCING NEW TABLE AS changed
      FOR EACH STATEMENT EXECUTE FUNCTION note_refused()`);
}

async function refusals(fleet) {
  const [{ n }] = await fleet.rows(
    'SELECT CASE WHEN is_called THEN last_value::int ELSE 0 END AS n FROM refused',
  );
  return n;
}

async function submitAll(fleet, prefix, count) {
  await pool(count, 4, async (index) => await fleet.submit(`${prefix}${index}`));
}

async function endAll(fleet) {
  await Promise.all([...fleet.workers].map(async (worker) => await fleet.kill(worker, 'SIGTERM')));
}

async function noteEnd(fleet, result, { threads }) {
  const [{ n }] = await fleet.rows(ALL_COMPLETED);
  result.n += threads;
  result.note('threads completed', n);
  if (n !== threads) {
    const rest = await fleet.rows(
      "SELECT thread_id, status, left(error, 300) AS error FROM threads WHERE status <> 'completed' LIMIT 5",
    );
    result.fail('lost', `${threads - n} of ${threads} did not complete: ${JSON.stringify(rest)}`);
  }
}

function noteTimes(result, { takeOvers, removals }) {
  if (takeOvers.length === 0) return;
  result.note('legs taken over', takeOvers.length);
  result.tell(
    `take-over median ${seconds(median(takeOvers))}, max ${seconds(Math.max(...takeOvers))}`,
  );
  result.tell(
    `dead worker removed: median ${seconds(median(removals))}, max ${seconds(Math.max(...removals))}`,
  );
  const late = takeOvers.filter((ms) => ms > TAKE_OVER_MS).length;
  result.note(`take-overs over the bar of ${seconds(TAKE_OVER_MS)}`, late);
}

async function killed({ model, random, count }) {
  const result = row('fleet: 8 workers, kill -9 of one every 5 s');
  const fleet = await openFleet(model.session(marker()));
  try {
    await countRefusals(fleet);
    await fleet.machines(WORKERS, SLOTS);
    const begun = performance.now();
    let isOver = false;
    const takeOvers = [];
    const removals = [];
    const killer = killing(fleet, { random, isOver: () => isOver, takeOvers, removals });
    await submitAll(fleet, 't', count);
    result.tell(`submitted in ${seconds(performance.now() - begun)}`);
    await fleet.until(ALL_FINAL, [count], PATIENCE_MS + count * THREAD_MS);
    isOver = true;
    result.note('kills', await killer);
    result.tell(`all final after ${seconds(performance.now() - begun)}`);
    noteTimes(result, { takeOvers, removals });
    result.note('late writes refused', await refusals(fleet));
    await endAll(fleet);
    await noteEnd(fleet, result, { threads: count });
    await fleet.check(result, { calls: count * CALLS });
  } finally {
    await fleet.close();
  }
  return result;
}

/**
 * The parent starts 40 children in the background, waits, and answers. A start that was in flight at a kill is not made
 * again by itself: the model asks for another child. Each child calls `mark` twice.
 */
function familyModel() {
  const child = marker(2);
  return (body) => {
    if (nameIn(body) !== 'parent') return child(body);
    const asked = resultsIn(body);
    const started = blocksOf(body, 'tool_result').filter((block) =>
      JSON.stringify(block.content).includes('thread_id'),
    ).length;
    if (JSON.stringify(body.messages).includes('"wait_threads"')) return { words: ['All ended.'] };
    if (started >= CHILDREN)
      return {
        tools: [{ name: 'rye_agent_threads_orchestrator', input: { operation: 'wait_threads' } }],
      };
    const tools = Array.from({ length: Math.min(10, CHILDREN - started) }, (_, index) => ({
      name: 'rye_execute',
      input: {
        item_type: 'directive',
        item_id: 'work',
        async: true,
        parameters: { who: `c${asked + index}` },
      },
    }));
    return { tools };
  };
}

async function family({ model, random }) {
  const result = row('fleet: a parent and 40 children, kill -9 of one worker every 5 s');
  const fleet = await openFleet(model.session(familyModel()));
  try {
    await fleet.machines(WORKERS, SLOTS);
    let isOver = false;
    const takeOvers = [];
    const removals = [];
    const killer = killing(fleet, { random, isOver: () => isOver, takeOvers, removals });
    await fleet.submit('parent', { directive: 'parent' });
    await fleet.until(
      "SELECT count(*) > $1 AND bool_and(status IN ('completed', 'error', 'cancelled')) FROM threads",
      [CHILDREN],
    );
    isOver = true;
    result.note('kills', await killer);
    noteTimes(result, { takeOvers, removals });
    await endAll(fleet);
    await familyEnd(fleet, result);
    await fleet.check(result);
    await exactLedger(fleet, result);
  } finally {
    await fleet.close();
  }
  return result;
}

/** All have completed, but for children whose start was in flight at a kill: they have no log. */
async function familyEnd(fleet, result) {
  const ends = await fleet.rows(
    `SELECT thread_id, status, error, EXISTS (SELECT FROM log_pieces AS p WHERE p.thread_id = t.thread_id) AS ran
     FROM threads AS t`,
  );
  const cut = ends.filter(({ status, ran }) => status !== 'completed' && !ran);
  const lost = ends.filter(({ status, ran }) => status !== 'completed' && ran);
  for (const end of lost) result.fail('lost', JSON.stringify(end));
  result.n += ends.length;
  result.note('threads completed', ends.length - cut.length - lost.length);
  result.note('children whose start was killed, ended without a call', cut.length);
}

/** Each row has exactly what its log booked, the tree has their sum, and nothing stays reserved. */
async function exactLedger(fleet, result) {
  const rows = await fleet.rows(`
    SELECT thread_id, l.actual::float8 AS actual, l.status,
      round((t.cost::json ->> 'spend')::numeric * 1000000)::float8 AS booked
    FROM budget_ledger AS l JOIN threads AS t USING (thread_id)`);
  for (const one of rows)
    if (one.status !== 'released' || one.actual !== one.booked)
      result.fail('broken', `the ledger is not exact: ${JSON.stringify(one)}`);
  const [{ tree }] = await fleet.rows(`
    WITH RECURSIVE below AS (
      SELECT thread_id, actual FROM budget_ledger WHERE thread_id = 'parent'
      UNION ALL SELECT l.thread_id, l.actual FROM budget_ledger AS l JOIN below ON l.parent_id = below.thread_id
    ) SELECT sum(actual)::float8 AS tree FROM below`);
  const sum = rows.reduce((total, { booked }) => total + booked, 0);
  if (tree !== sum) result.fail('broken', `the tree spent ${tree}, its threads ${sum}`);
  result.tell(`ledger exact at $${(sum / 1e6).toFixed(6)}`);
}

/** The time for which each worker is stopped, in leases. */
const STOPPED_LEASES = [1, 3, 30];

async function zombies({ model }) {
  const result = row('fleet: SIGSTOP of a worker with its legs for 1, 3 and 30 leases');
  const threads = 30;
  const calls = 30;
  const fleet = await openFleet(model.session(marker(calls)));
  try {
    await countRefusals(fleet);
    await submitAll(fleet, 'z', threads);
    const workers = await fleet.machines(STOPPED_LEASES.length, 3);
    for (const [index, worker] of workers.entries()) {
      const leases = STOPPED_LEASES[index];
      await stopped(fleet, { worker, leases, result });
      if (leases > 1) await fleet.worker(worker.machine, worker.slots);
    }
    await fleet.until(ALL_FINAL, [threads]);
    result.note('late writes refused', await refusals(fleet));
    await endAll(fleet);
    await noteEnd(fleet, result, { threads });
    await fleet.check(result, { calls: threads * calls });
  } finally {
    await fleet.close();
  }
  return result;
}

/** Stops a worker and its legs, and wakes the legs first: each finds out by its next write. */
async function stopped(fleet, { worker, leases, result }) {
  await fleet.until("SELECT count(*) = $2 FROM threads WHERE worker = $1 AND status = 'running'", [
    worker.id,
    worker.slots,
  ]);
  const held = await fleet.rows(
    "SELECT thread_id, epoch, pid FROM threads WHERE worker = $1 AND status = 'running'",
    [worker.id],
  );
  const pids = held.map(({ pid }) => pid);
  for (const pid of [worker.child.pid, ...pids]) signal(pid, 'SIGSTOP');
  if (leases === 1) {
    await delay(LEASE_MS);
    for (const pid of [worker.child.pid, ...pids]) signal(pid, 'SIGCONT');
    result.note('workers stopped for a lease that continued');
    return;
  }
  await delay(leases * LEASE_MS);
  const ids = held.map(({ thread_id: id }) => id);
  const isTaken =
    'SELECT coalesce(bool_and(worker IS DISTINCT FROM $2), true) FROM threads WHERE thread_id = ANY($1)';
  await fleet.until(isTaken, [ids, worker.id]);
  const before = await refusals(fleet);
  for (const pid of pids) signal(pid, 'SIGCONT');
  const ended = performance.now() + 30_000;
  while (pids.some((pid) => isAlive(pid)) && performance.now() < ended) await delay(50);
  result.note('legs that woke after their replacement', pids.length);
  result.note('refused writes of these', (await refusals(fleet)) - before);
  worker.child.kill('SIGCONT');
  await Promise.race([new Promise((done) => worker.child.once('exit', done)), delay(30_000)]);
  if (worker.child.exitCode === null) result.fail('running', 'the worker that woke did not end');
  // a leg that had ended just before waits for the next one until its worker is gone
  const gone = performance.now() + 5000;
  while (pids.some((pid) => isAlive(pid)) && performance.now() < gone) await delay(50);
  for (const pid of pids) if (isAlive(pid)) result.fail('running', `the leg ${pid} did not end`);
  fleet.workers.delete(worker);
  const stolen = await fleet.rows(
    'SELECT thread_id FROM threads WHERE worker = $1 AND thread_id = ANY($2)',
    [worker.id, ids],
  );
  for (const { thread_id: id } of stolen) result.fail('broken', `${id} belongs to the dead worker`);
}

async function outage({ model }) {
  const result = row('fleet: PostgreSQL crashes for two leases');
  const threads = 60;
  const calls = 10;
  const fleet = await openFleet(model.session(marker(calls)));
  try {
    await submitAll(fleet, 'o', threads);
    const workers = await fleet.machines(4, 4);
    const ids = workers.map(({ id }) => id);
    await fleet.until(
      "SELECT count(*) >= 24 FROM threads WHERE status IN ('running', 'completed')",
    );
    await fleet.sql.end().catch(() => undefined);
    await fleet.server.crash();
    await delay(2 * LEASE_MS);
    await fleet.server.startAgain();
    fleet.connect();
    await fleet.until(ALL_FINAL, [threads]);
    const left = await fleet.rows('SELECT worker_id FROM workers');
    const kept = new Set(left.map(({ worker_id: id }) => id));
    for (const id of ids) if (!kept.has(id)) result.fail('broken', `worker ${id} was removed`);
    const [{ n }] = await fleet.rows('SELECT count(*)::int AS n FROM threads WHERE epoch > 1');
    result.note('threads with a second epoch', n);
    await endAll(fleet);
    await noteEnd(fleet, result, { threads });
    await fleet.check(result, { calls: threads * calls });
  } finally {
    await fleet.close();
  }
  return result;
}

const PARTS = { kills: killed, family, zombies, outage, scale };

export async function run({ model, random, count = 40, part }) {
  const rows = [];
  for (const [name, work] of Object.entries(PARTS)) {
    if (part !== undefined && part !== name) continue;
    rows.push(await work({ model, random, count }));
  }
  return rows;
}
