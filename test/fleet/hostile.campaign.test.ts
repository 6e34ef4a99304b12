import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { writeDirective, writeTool } from './lab.ts';
import { answeredFleet, linesOf, untilTrue } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const HUGE = "repeat('x', 3000000)";

const row = (id: string, set: string): string =>
  `UPDATE threads SET ${set} WHERE thread_id = '${id}'`;
const file = (id: string, name: string, bytes: string): string =>
  `UPDATE thread_files SET bytes = ${bytes}, sha256 = encode(sha256(${bytes}), 'hex')
   WHERE thread_id = '${id}' AND name = '${name}'`;
const otherFile = (name: string): string =>
  `(SELECT bytes FROM thread_files WHERE thread_id = 'other' AND name = '${name}')`;
const leg = (id: string, inputs: string): string =>
  `UPDATE rye_queue.workflow_input SET inputs = ${inputs} WHERE workflow_uuid LIKE '${id}#%'`;
const otherLeg = "(SELECT inputs FROM rye_queue.workflow_input WHERE workflow_uuid LIKE 'other#%')";

/** The rows of a queued thread that are changed, and its end: a code or a status. */
const ATTACKS: Readonly<
  Record<string, readonly [attack: (id: string) => string | readonly string[], end: string]>
> = {
  // --- where its legs run
  'place-garbage': [(id) => row(id, "fleet = '{'"), 'thread_tampered'],
  'place-huge': [(id) => row(id, `fleet = ${HUGE}`), 'thread_tampered'],
  'place-types': [(id) => row(id, `fleet = '{"queue":1,"priority":"a"}'`), 'thread_tampered'],
  'place-none': [(id) => row(id, 'fleet = NULL'), 'created'],
  // --- status, epoch and worker
  'status-garbage': [(id) => row(id, "status = 'never'"), 'never'],
  'status-final': [(id) => row(id, "status = 'completed'"), 'completed'],
  'status-running': [(id) => row(id, "status = 'running'"), 'completed'],
  'status-error': [(id) => row(id, "status = 'suspended', error = '{'"), 'suspended'],
  'epoch-high': [(id) => row(id, 'epoch = 100000'), 'completed'],
  'epoch-low': [(id) => row(id, 'epoch = -7'), 'storage_failed'],
  'epoch-last': [(id) => row(id, 'epoch = 2147483647'), 'storage_failed'],
  'worker-gone': [(id) => row(id, "worker = 'ghost'"), 'completed'],
  'worker-huge': [(id) => row(id, `worker = ${HUGE}`), 'completed'],
  // --- signed files
  'document-garbage': [(id) => file(id, 'thread.json', "'{}'::bytea"), 'thread_tampered'],
  'document-other': [(id) => file(id, 'thread.json', otherFile('thread.json')), 'thread_tampered'],
  'plan-garbage': [(id) => file(id, 'plan.json', "'{}'::bytea"), 'thread_tampered'],
  'plan-huge': [(id) => file(id, 'plan.json', `${HUGE}::bytea`), 'thread_tampered'],
  // --- the leg: one that cannot start leaves its thread without one, and the look for such threads queues the next
  'leg-garbage': [(id) => leg(id, "'{'"), 'completed'],
  'leg-other': [(id) => leg(id, otherLeg), 'completed'],
  'leg-huge': [
    (id) => leg(id, `'{"positionalArgs":["' || ${HUGE} || '"],"namedArgs":{}}'`),
    'completed',
  ],
  // beside rows that are garbage
  'leg-lost': [
    (id) => [
      row(id, "status = 'running', worker = 'ghost'"),
      `DELETE FROM rye_queue.workflow_status WHERE workflow_uuid LIKE '${id}#%'`,
    ],
    'completed',
  ],
  'error-garbage': [
    (id) => [
      row(id, "status = 'suspended', error = '{'"),
      `DELETE FROM rye_queue.workflow_status WHERE workflow_uuid LIKE '${id}#%'`,
    ],
    'suspended',
  ],
};

/** Threads whose submitter waits for them: what was signed of them was replaced. */
const WAITED: Readonly<Record<string, (id: string) => string>> = {
  'plan-other': (id) => file(id, 'plan.json', otherFile('plan.json')),
  'bundle-other': (id) => row(id, `fleet = replace(fleet, '"bundle":"', '"bundle":"00')`),
};

it('a queued thread whose rows were changed is refused or runs as it was signed', async () => {
  const lab = await answeredFleet(server, () => reply('Done.'));
  const { here, sql } = lab;
  await here.json(['fleet', 'pause', 'default']);
  const submit = ['run', 'hello', '--fleet', '--json', '--thread-id'];
  await here.json([...submit, 'other', '--input', 'who=Eve']);
  const waited = Object.keys(WAITED).map(async (id) => await here.rye([...submit, id, '--wait']));
  for (const id of Object.keys(ATTACKS))
    expect(await here.json([...submit, id])).toMatchObject({ success: true });
  await lab.until(
    "SELECT count(*) = 2 FROM rye_queue.workflow_status WHERE workflow_uuid ~ '^(plan|bundle)-other#'",
  );
  const changes = [
    ...Object.entries(ATTACKS).flatMap(([id, [attack]]) => attack(id)),
    ...Object.entries(WAITED).map(([id, attack]) => attack(id)),
    `INSERT INTO certificates VALUES ('garbage', 'x'), ('0123456789abcdef', ${HUGE}), ('../../up', '')`,
    `INSERT INTO workers (worker_id, lease_until, labels, version, beat)
     VALUES ('old', '-infinity', '[', '', -1), ('eternal', 'infinity', '{}', ${HUGE}, 7), ('../x', 'now', 'null', '1', 0)`,
  ];
  for (const change of changes) expect((await sql.query(change)).rowCount).toBeGreaterThan(0);

  const worker = await lab.worker({ args: ['--slots', '2'] });
  await here.json(['fleet', 'pause', 'default', '--off']);
  for (const run of await Promise.all(waited)) {
    expect(run.code).toBe(3);
    expect(JSON.parse(run.stdout)).toMatchObject({ error: { code: 'thread_tampered' } });
  }
  // nothing hangs: each leg has ended, and the threads without one got another
  await lab.until(
    `SELECT NOT EXISTS (SELECT FROM rye_queue.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED'))
       AND (SELECT bool_and(status = 'completed') FROM threads WHERE thread_id LIKE 'leg-%')`,
  );
  const { rows } = await sql.query<{ id: string; end: string }>(
    `SELECT thread_id AS id, coalesce(json_or_null(error) ->> 'code', status) AS end FROM threads`,
  );
  const ends = Object.fromEntries(rows.map(({ id, end }) => [id, end]));
  const expected = Object.entries(ATTACKS).map(([id, [, end]]) => [id, end] as const);
  expect(ends).toMatchObject({ ...Object.fromEntries(expected), other: 'completed' });
  // the thread whose row only claims its end has no result that verifies
  expect((await here.rye(['verify', 'thread', 'status-final'])).code).not.toBe(0);
  expect(await here.json(['verify', 'thread', 'leg-lost'])).toMatchObject({ success: true });
  // the worker of before runs on; ghosts are removed once they are silent
  expect(await here.json(['run', 'hello', '--fleet', '--wait'])).toMatchObject({ success: true });
  await lab.until("SELECT NOT EXISTS (SELECT FROM workers WHERE worker_id IN ('old', '../x'))");
  expect(worker.process.exitCode).toBeNull();
  expect(await here.json(['fleet', 'status'])).toMatchObject({ success: true });
});

it('a leg that a dead worker has taken is returned, also if the remover of that worker died before it did so', async () => {
  const lab = await answeredFleet(server, () => reply('Done.'));
  const { here, sql } = lab;
  await here.json(['fleet', 'pause', 'default']);
  await here.json(['run', 'hello', '--fleet', '--json', '--thread-id', 'left']);
  const taken = `UPDATE rye_queue.workflow_status SET status = 'PENDING', executor_id = 'ghost'
    WHERE workflow_uuid LIKE 'left#%'`;
  expect((await sql.query(taken)).rowCount).toBe(1);
  await here.json(['fleet', 'pause', 'default', '--off']);
  await lab.worker();
  await lab.until("SELECT status = 'completed' FROM threads WHERE thread_id = 'left'");
});

it('a waiting thread whose log was changed is refused when it is decided, and its call never runs', async () => {
  const lab = await answeredFleet(server, ({ results }) =>
    results === 0 ? calls(toolUse('mark', {}, 'toolu_1')) : reply('Done.'),
  );
  const { here, env, sql } = lab;
  const marks = path.join(here.home, 'marks');
  await writeTool(here, 'mark', `echo marked >> ${marks}`);
  const permissions = '<execute><tool ask="true">mark</tool></execute>';
  await writeDirective(here, 'job', { permissions });
  const first = await lab.worker({ label: 'first' });
  const run = await here.rye(['run', 'job', '--fleet', '--wait', '--json', '--thread-id', 'asks'], {
    env,
  });
  const { error } = JSON.parse(run.stdout) as {
    readonly error: { readonly details: { readonly approvals: readonly string[] } };
  };
  await first.leave();
  expect(await here.rye(['approve', error.details.approvals[0] ?? ''])).toMatchObject({ code: 0 });
  const changed = await sql.query(
    `UPDATE log_pieces SET data = decode(replace(encode(data, 'hex'), encode('toolu_1', 'hex'), encode('toolu_7', 'hex')), 'hex')
     WHERE thread_id = 'asks' AND position('toolu_1'::bytea IN data) > 0`,
  );
  expect(changed.rowCount).toBeGreaterThan(0);
  expect(await here.rye(['verify', 'thread', 'asks'])).toMatchObject({ code: 3 });
  const second = await lab.worker({ label: 'second' });
  await lab.until("SELECT status = 'error' FROM threads");
  const { rows } = await sql.query("SELECT json_or_null(error) ->> 'code' AS code FROM threads");
  expect(rows).toEqual([{ code: 'transcript_tampered' }]);
  // what it had set aside is free again
  await lab.until("SELECT status = 'released' FROM budget_ledger WHERE thread_id = 'asks'");
  await untilTrue('a person is told', () => second.output().includes('asks is refused'));
  expect(linesOf(marks)).toEqual([]);
  expect(second.process.exitCode).toBeNull();
});
