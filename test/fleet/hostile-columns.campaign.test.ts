import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { openRye } from '../../src/open-rye.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { type FleetLab, writeDirective, writeTool } from './lab.ts';
import { answeredFleet } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

/**
 * What comes of each column of rye's tables if every row of it is rewritten, for commands that read. `refused`: a command
 * that relies on it ends with exit status 3, and the thread does not verify. `shown`: lists show it, and nothing relies on
 * it. `none`: no effect on anything that is read here, or the rules of the table refuse the value. Otherwise the code with
 * which a command ends. A new column has to be decided here.
 */
const DECIDED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // entries that wait for the owner of a thread; like deliveries, they are signed with its log
  appends: { none: 'seq thread_id entry_id draft created_at' },
  approval_decisions: { refused: 'signed', none: 'seq approval_id signature recorded_at late' },
  approvals: {
    refused: 'requested',
    none: 'rowid approval_id thread_id state created_at expires_at closed_at',
  },
  budget_ledger: {
    none: 'rowid thread_id parent_id max reserved actual in_flight next_call status epoch',
  },
  bundle_statements: { none: 'digest plan_sha256 envelope created_at' },
  bundles: { none: 'digest tar created_at' },
  certificates: { none: 'key_id certificate' },
  deliveries: {
    // a message is found by either of the first two
    none: `thread_id | sent_to seq delivery_id class kind mode source source_key text requires_artifact state close_reason
      manual_reason attempts max_attempts created_at closed_at entry_id run_id accepted answer_id child_run`,
  },
  delivery_attempts: {
    none: `attempt_id delivery_id thread_id generation kind marker state epoch expected_run_id expected_revision run_id
      reason proof created_at`,
  },
  delivery_decisions: {
    none: 'seq at thread_id delivery_id attempt_id run_id epoch decision reason details',
  },
  ends: { none: 'thread_id run ending' },
  heads: {
    refused: 'updated_at bytes sha256 knowledge_sha256',
    none: 'thread_id status epoch events',
  },
  log_heads: { none: 'thread_id epoch holder lease bytes lines link archived worker' },
  log_pieces: { refused: 'data', shown: 'lines', none: 'thread_id start' },
  log_quarantine: { refused: 'part', none: 'thread_id file data' },
  log_texts: { none: 'thread_id name data' },
  // their statements are signed by the root, and what is sealed is refused by the worker: see the tests of secrets
  pool_keys: { none: 'pool_id statement' },
  runs: {
    none: `run_id thread_id epoch kind status requires_approval requires_network requires_write_access risk_class revision
      started_at ended_at point`,
  },
  sealed_secrets: { none: 'thread_id sealed' },
  thread_files: { refused: 'bytes sha256 signature', none: 'thread_id name epoch written_at' },
  threads: {
    refused: 'result outputs',
    shown: 'status cost error',
    thread_not_found: 'continuation_of continuation_thread_id',
    // the signed document and the heads outside of the store tell the epoch
    none: `rowid thread_id epoch directive parent_id created_at updated_at completed_at pid process_start host heartbeat_at model
      spawn_count chain_root_id cancel_requested background signed_head run worker fleet takeovers`,
  },
  version: { fleet_unavailable: 'version' },
  workers: { none: 'worker_id lease_until beat labels version is_draining' },
};

interface Column {
  readonly table: string;
  readonly column: string;
  readonly type: string;
}

/** Values that no rye writes, by the type of the column; the first that the rules of the table take is stored. */
const HOSTILE: Readonly<Record<string, readonly string[]>> = {
  text: [`'{"hostile":[1]}'`, "'hostile'"],
  int4: ['-7', '7', '1', '0'],
  int8: ['-7', '7', '1', '0'],
  timestamptz: ["'-infinity'"],
  bytea: ["'{}'::bytea"],
};

async function columnsOf({ sql }: FleetLab, schema: string): Promise<readonly Column[]> {
  const { rows } = await sql.query<Column>(
    `SELECT table_name AS table, column_name AS column, udt_name AS type FROM information_schema.columns
     WHERE table_schema = $1 ORDER BY table_name, ordinal_position`,
    [schema],
  );
  return rows;
}

async function rewrite({ sql }: FleetLab, { table, column, type }: Column): Promise<void> {
  const values = type === 'bool' ? [`NOT ${column}`] : (HOSTILE[type] ?? []);
  expect(values, `${table}.${column} is ${type}`).not.toEqual([]);
  for (const value of values) {
    const isTaken = await sql.query(`UPDATE ${table} SET ${column} = ${value}`).then(
      () => true,
      () => false,
    );
    if (isTaken) return;
  }
}

/** Keeps the rows of a table, and returns the function that puts them back. */
async function kept({ sql }: FleetLab, table: string): Promise<() => Promise<void>> {
  await sql.query(`CREATE TEMPORARY TABLE kept_rows AS SELECT * FROM ${table}`);
  return async () => {
    await sql.query(`SET session_replication_role = replica; DELETE FROM ${table};
      INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_rows;
      SET session_replication_role = origin; DROP TABLE kept_rows`);
  };
}

interface Refusal {
  readonly code: string;
  readonly exit: number;
}

type Facts = Readonly<Record<string, unknown>>;

/** Everything that readers are told, by the command; of a refusal, its code and exit status. */
async function facts(rye: Rye, approval: string): Promise<Facts> {
  const seen: Record<string, unknown> = {};
  const ask = async (name: string, work: () => Promise<unknown>): Promise<void> => {
    try {
      seen[name] = JSON.stringify(await work());
    } catch (error) {
      if (!(error instanceof RyeError) || error.code === 'internal') throw error;
      seen[name] = { code: error.code, exit: error.exitCode } satisfies Refusal;
    }
  };
  for (const id of ['done', 'asks']) {
    await ask(`verify ${id}`, async () => (await rye.threads.verify(id)).ok);
    await ask(`show ${id}`, async () => {
      const { status, result, cost, error } = (await rye.threads.show(id)).thread;
      return [status, result, cost.spend, error?.code];
    });
    await ask(`logs ${id}`, async () => {
      let count = 0;
      for await (const _ of rye.threads.logs(id)) count += 1;
      return count;
    });
  }
  await ask('wait', async () => {
    const { threads } = await rye.children.wait(['done'], { timeoutSeconds: 0 });
    return threads.map(({ status, result, outputs, error }) => [
      status,
      result,
      outputs,
      error?.code,
    ]);
  });
  await ask('list', async () => (await rye.threads.list()).map(({ thread_id: id }) => id));
  await ask('approvals', async () => (await rye.approvals.list()).length);
  await ask('approval', async () => await rye.approvals.verify(approval));
  await ask('deliveries', async () => (await rye.deliveries.list('done')).length);
  await ask('status', async () => (await rye.fleet.status()).queues.length);
  return seen;
}

function differences(before: Facts, after: Facts): Facts {
  return Object.fromEntries(
    Object.entries(after).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name]),
    ),
  );
}

function outcomeOf(changed: Facts): string {
  const values = Object.values(changed);
  const codes = values.map((value) => (value as Partial<Refusal>).code);
  const isIntegrity = values.some(
    (value) =>
      value === 'false' ||
      (typeof value === 'string' && value.includes('thread_tampered')) ||
      (value as Partial<Refusal>).exit === 3,
  );
  if (isIntegrity) return 'refused';
  const code = codes.find((one) => one !== undefined);
  return code ?? (values.length === 0 ? 'none' : 'shown');
}

it('every column of every table that is rewritten is refused or has no effect on what is relied on', async () => {
  const lab = await answeredFleet(server, ({ results }) =>
    results === 0 ? calls(toolUse('mark', {}, 'toolu_1')) : reply('Done.'),
  );
  const { here, env, sql } = lab;
  const decided = Object.entries(DECIDED).flatMap(([table, outcomes]) =>
    Object.values(outcomes).flatMap((names) =>
      names
        .split(/[\s|]+/)
        .filter(Boolean)
        .map((name) => `${table}.${name}`),
    ),
  );
  const columns = await columnsOf(lab, 'rye');
  expect(columns.map(({ table, column }) => `${table}.${column}`).toSorted()).toEqual(
    decided.toSorted(),
  );
  await writeTool(here, 'mark', `echo marked >> ${path.join(here.home, 'marks')}`);
  for (const [id, ask] of [
    ['done', ''],
    ['asks', ' ask="true"'],
  ] as const)
    await writeDirective(here, id, {
      permissions: `<execute><tool${ask}>mark</tool></execute>`,
      spend: '20.00',
    });
  await here.json(['fleet', 'pause', 'default']);
  for (const id of ['done', 'asks'])
    await here.json(['run', id, '--fleet', '--thread-id', id], { env });
  await here.rye(['threads', 'steer', 'done', 'Mind the gap.']);
  const worker = await lab.worker();
  await here.json(['fleet', 'pause', 'default', '--off']);
  await lab.until("SELECT bool_and(status IN ('completed', 'suspended')) FROM threads");
  await worker.leave();
  const { rows } = await sql.query<{ id: string }>('SELECT approval_id AS id FROM approvals');
  const approval = rows[0]?.id ?? '';
  expect(await here.rye(['approve', approval])).toMatchObject({ code: 0 });
  // tables that these threads leave empty
  await sql.query(`INSERT INTO workers (worker_id, lease_until, labels, version) VALUES ('w', now(), '[]', '1');
    INSERT INTO log_quarantine VALUES ('done', 'x.jsonl', '{"offset":1,"bytes":1,"lines":1,"sha256":"00","file":"x.jsonl"}', 'x');
    INSERT INTO log_texts VALUES ('done', 'text-x.txt', 'x');
    INSERT INTO ends VALUES ('done', 7, '{"status":"completed","cost":{}}')`);
  const rye = openRye({
    projectPath: here.project,
    userSpacePath: here.home,
    env: { HOME: here.home },
    onNotice: () => undefined,
  });
  onTestFinished(() => rye.close());
  const before = await facts(rye, approval);
  expect(before).toMatchObject({
    'verify done': 'true',
    'verify asks': 'true',
    wait: '[["completed","Done.",null,null]]',
  });
  const effects: string[] = [];
  for (const [table, outcomes] of Object.entries(DECIDED)) {
    const of = (names = ''): readonly Column[] =>
      columns.filter((one) => one.table === table && names.split(/\s+/).includes(one.column));
    for (const [outcome, names] of Object.entries(outcomes)) {
      // what has no effect is rewritten at once, but for a bar between names
      const groups = outcome === 'none' ? names.split('|').map(of) : of(names).map((one) => [one]);
      for (const group of groups) {
        const restore = await kept(lab, table);
        for (const column of group) await rewrite(lab, column);
        const changed = differences(before, await facts(rye, approval));
        await restore();
        const label = `${table}: ${group.map(({ column }) => column).join(' ')}`;
        if (outcomeOf(changed) !== outcome)
          effects.push(`${label} is ${outcomeOf(changed)}: ${JSON.stringify(changed)}`);
        // a process that waits is never told of another success
        if (changed['wait'] !== undefined)
          expect(changed['wait'], label).not.toContain('"completed"');
      }
    }
  }
  expect(effects).toEqual([]);
  expect(differences(before, await facts(rye, approval))).toEqual({});
});

/**
 * The same for a queued leg: the status of its thread in the end. A leg that the worker refuses is queued again. One that
 * stays in the queue and is not dispatched leaves its thread `created`: it can be cancelled, and nothing of it ran.
 */
const QUEUED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  workflow_input: { created: 'workflow_uuid', completed: 'inputs retention_timestamp' },
  workflow_status: {
    created: 'status name application_version class_name config_name application_name',
    completed: `workflow_uuid queue_name workflow_deadline_epoch_ms priority serialization
      authenticated_user assumed_role authenticated_roles request output error executor_id created_at updated_at
      application_id recovery_attempts workflow_timeout_ms inputs started_at_epoch_ms deduplication_id
      queue_partition_key forked_from owner_xid parent_workflow_id delay_until_epoch_ms was_forked_from rate_limited
      completed_at attributes schedule_name debounce_deadline_epoch_ms is_debounced creator_xid`,
  },
};
/** Tables of the engine whose rows decide nothing about a leg: limits, what ended, and features that rye does not use. */
const NOT_OF_LEGS = `application_versions dbos_migrations event_dispatch_kv notifications operation_outputs queues streams
  workflow_events workflow_events_history workflow_output workflow_schedules`;
const QUEUE_VALUES: Readonly<Record<string, readonly string[]>> = {
  ...HOSTILE,
  varchar: ["'hostile'"],
  jsonb: [`'{"hostile":[1]}'`],
};

it('a queued leg with a rewritten column runs its thread as it was signed, or not at all', async () => {
  const lab = await answeredFleet(server, () => reply('Done.'));
  const { here, sql } = lab;
  await here.json(['fleet', 'pause', 'default']);
  const columns = await columnsOf(lab, 'rye_queue');
  expect([...new Set(columns.map(({ table }) => table))].toSorted()).toEqual(
    [...NOT_OF_LEGS.split(/\s+/), ...Object.keys(QUEUED)].toSorted(),
  );
  const ofLegs = columns.filter(({ table }) => table in QUEUED);
  const rye = openRye({
    projectPath: here.project,
    userSpacePath: here.home,
    env: { HOME: here.home },
    onNotice: () => undefined,
  });
  onTestFinished(() => rye.close());
  for (const [index, { table, column, type }] of ofLegs.entries()) {
    const id = `q${index}`;
    await rye.fleet.submit({ directiveId: 'hello', threadId: id });
    const values = type === 'bool' ? [`NOT ${column}`] : (QUEUE_VALUES[type] ?? []);
    expect(values, `${table}.${column} is ${type}`).not.toEqual([]);
    for (const value of values) {
      const update = `UPDATE rye_queue.${table} SET ${column} = ${value} WHERE workflow_uuid LIKE '${id}#%'`;
      const isTaken = await sql.query(update).then(
        () => true,
        () => false,
      );
      if (isTaken) break;
    }
  }
  await rye.fleet.submit({ directiveId: 'hello', threadId: 'own' });
  const worker = await lab.worker({ args: ['--slots', '4'] });
  await here.json(['fleet', 'pause', 'default', '--off']);
  const completed = Object.values(QUEUED).flatMap((one) => one['completed']?.split(/\s+/) ?? []);
  await lab.until(
    `SELECT count(*) FILTER (WHERE status = 'completed') >= $1 AND NOT bool_or(status = 'running') FROM threads`,
    [completed.length + 1],
  );
  const { rows } = await sql.query<{ id: string; status: string }>(
    'SELECT thread_id AS id, status FROM threads',
  );
  const statuses = new Map(rows.map(({ id, status }) => [id, status]));
  const found = ofLegs.map(({ table, column }, index) => [
    `${table}.${column}`,
    statuses.get(`q${index}`),
  ]);
  const expected = Object.entries(QUEUED).flatMap(([table, outcomes]) =>
    Object.entries(outcomes).flatMap(([status, names]) =>
      names.split(/\s+/).map((name) => [`${table}.${name}`, status]),
    ),
  );
  expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));
  expect(worker.process.exitCode).toBeNull();
});

it('a gate of the program is not lost on the workers: the thread is not submitted', async () => {
  const { here, sql } = await answeredFleet(server, () => reply('Done.'));
  const rye = openRye({
    projectPath: here.project,
    userSpacePath: here.home,
    env: { HOME: here.home },
    onNotice: () => undefined,
  });
  onTestFinished(() => rye.close());
  const preset = { handlers: { tool_gate: () => ({ block: 'not here' }) } };
  await expect(
    rye.fleet.submit({ directiveId: 'hello', threadId: 'guarded', preset }),
  ).rejects.toMatchObject({ code: 'program_required' });
  expect((await sql.query(`SELECT 1 FROM threads WHERE thread_id = 'guarded'`)).rows).toEqual([]);
});
