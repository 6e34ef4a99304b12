import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makePoolKey, poolStatement, readPoolKey } from '../../src/features/fleet/pool-key.ts';
import { generateKeyPair, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import type { Workspace } from '../helpers/workspace.ts';
import { type FleetLab, fleetLab, type RunningWorker } from './lab.ts';
import { linesOf, untilTrue } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const SECRET = 'hunter2-hunter2-hunter2';

/** A directive that uses a secret input, waits for a person, and uses it again. */
async function secretJob(
  here: Workspace,
): Promise<{ readonly got: string; readonly seen: string }> {
  const got = path.join(here.home, 'got');
  const seen = path.join(here.home, 'seen');
  const { mkdirSync } = await import('node:fs');
  for (const folder of ['directives', 'tools'])
    mkdirSync(path.join(here.project, '.ai', folder), { recursive: true });
  for (const name of ['login', 'again'])
    writeFileSync(
      path.join(here.project, '.ai', 'tools', `${name}.sh`),
      `# rye:tool
# version: 1.0.0
# description: Test.
# config_schema: {type: object, properties: {token: {type: string, writeOnly: true}}}
# traits: {reads_only: false, network: false, timeout_seconds: 60, risk: safe}
# /rye:tool
cat | sha256sum >> ${got}
env >> ${seen}
at=$$
while [ "$at" -gt 1 ]; do
  cat /proc/$at/cmdline /proc/$at/environ >> ${seen}
  at=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$at/status)
done
true
`,
    );
  const step = (tool: string): string =>
    `<step name="${tool}"><execute item_type="tool" item_id="${tool}"><param name="token">{input:token}</param></execute></step>`;
  writeFileSync(
    path.join(here.project, '.ai', 'directives', 'job.md'),
    `# job

\`\`\`xml
<directive name="job" version="1.0.0">
<metadata><description>Test.</description><category></category><author>me</author><model provider="literal"/>
<limits turns="10" spend="0.10" spawns="3" depth="3"/>
<permissions><execute><tool>login</tool><tool ask="true">again</tool></execute></permissions></metadata>
<inputs><input name="token" type="string" secret="true" required="true">T</input></inputs>
<process>${step('login')}${step('again')}</process>
</directive>
\`\`\`
`,
  );
  for (const [type, id] of [
    ['tool', 'login'],
    ['tool', 'again'],
    ['directive', 'job'],
  ] as const)
    expect(await here.rye(['sign', type, id])).toMatchObject({ code: 0 });
  return { got, seen };
}

/** The value comes through a pipe: the command line of the submitter is visible to others, too. */
const submit = (id: string): readonly string[] => {
  return ['run', 'job', '--fleet', '--json', '--thread-id', id, '--input', 'token=-'];
};
const GIVEN = { stdin: SECRET };

/** Everything that the database holds, as text; bytes are hexadecimal. */
async function dump({ sql }: FleetLab): Promise<string> {
  const { rows: tables } = await sql.query<{ name: string }>(
    "SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables WHERE table_schema IN ('rye', 'rye_queue', 'dbos') AND table_type = 'BASE TABLE'",
  );
  const parts: string[] = [];
  for (const { name } of tables) {
    const { rows } = await sql.query<{ all: string | null }>(
      `SELECT string_agg(t::text, chr(10)) AS all FROM ${name} AS t`,
    );
    parts.push(`${name}\n${rows[0]?.all ?? ''}`);
  }
  return parts.join('\n');
}

/** The forms in which a text could be found. */
const FORMS = [
  SECRET,
  Buffer.from(SECRET).toString('hex'),
  Buffer.from(SECRET).toString('base64').slice(0, 28),
];

function expectNone(text: string, what: string): void {
  for (const form of FORMS) expect(text.includes(form), `${what} has ${form}`).toBe(false);
}

it('secret inputs are sealed to the workers, reach each leg, and are deleted at the end', async () => {
  const lab = await fleetLab(server);
  const { here, sql } = lab;
  const { got, seen } = await secretJob(here);
  const workers: RunningWorker[] = [await lab.worker({ label: 'first' })];
  const run = await here.rye([...submit('waits'), '--wait'], GIVEN);
  expect(run.code, run.stdout + run.stderr).toBe(8);
  expect((await sql.query('SELECT thread_id FROM sealed_secrets')).rows).toEqual([
    { thread_id: 'waits' },
  ]);
  const before = await dump(lab);
  expect(before).toContain('"ephemeral"');
  await workers[0]?.leave();
  workers.push(await lab.worker({ label: 'second' }));
  const { error } = JSON.parse(run.stdout) as {
    readonly error: { readonly details: { readonly approvals: readonly string[] } };
  };
  expect(await here.rye(['approve', error.details.approvals[0] ?? ''])).toMatchObject({ code: 0 });
  await lab.until("SELECT status = 'completed' FROM threads WHERE thread_id = 'waits'");
  // both legs gave the tools the same value
  const lines = linesOf(got);
  expect(lines).toHaveLength(2);
  expect(new Set(lines).size).toBe(1);
  await lab.until('SELECT count(*) = 0 FROM sealed_secrets');
  expectNone(before, 'the database before the end');
  expectNone(await dump(lab), 'the database');
  // the environments and command lines of the tool, of the leg and of its worker
  const read = readFileSync(seen, 'utf8');
  expect(read).toContain('__run-leg');
  expectNone(read, 'an environment or a command line');
  for (const worker of workers) expectNone(worker.output(), 'the output of a worker');
  expectNone((await here.rye(['threads', 'logs', 'waits', '--json'])).stdout, 'the log');
  expect(await here.json(['verify', 'thread', 'waits'])).toMatchObject({ success: true });
});

it('a key that no trusted root certified is not sealed to, and blobs of other threads are refused', async () => {
  const lab = await fleetLab(server);
  const { here, sql } = lab;
  const { got } = await secretJob(here);
  await here.json(['fleet', 'pause', 'default']);
  // the key of an attacker, signed by another root, and newer than the real one
  const { privatePem } = generateKeyPair();
  const attacker = readPoolKey(makePoolKey());
  const forged = poolStatement(
    readPrivateKey(privatePem, 'x'),
    attacker,
    '2099-01-01T00:00:00.000Z',
  );
  await sql.query('INSERT INTO pool_keys VALUES ($1, $2)', [attacker.poolId, forged]);
  for (const id of ['one', 'two', 'gone'])
    expect(await here.json([...submit(id)], GIVEN)).toMatchObject({ success: true });
  const pools = await sql.query<{ pool: string }>(
    "SELECT sealed::json ->> 'pool' AS pool FROM sealed_secrets",
  );
  expect(pools.rows.some(({ pool }) => pool === attacker.poolId)).toBe(false);
  // alone, it refuses the thread before anything is sealed
  const real = await sql.query('DELETE FROM pool_keys WHERE pool_id <> $1 RETURNING *', [
    attacker.poolId,
  ]);
  const refused = await here.rye(submit('refused'), GIVEN);
  expect(refused).toMatchObject({ code: 3, stderr: expect.any(String) });
  expect(refused.stdout + refused.stderr).toContain('keys trust root.pem');
  // a real statement with another key does not verify
  const [row] = real.rows as { readonly pool_id: string; readonly statement: string }[];
  const { statement, signature } = JSON.parse(row?.statement ?? '') as {
    readonly statement: object;
    readonly signature: string;
  };
  const stolen = JSON.parse(forged) as { readonly statement: { readonly key: string } };
  const mixed = { statement: { ...statement, key: stolen.statement.key }, signature };
  await sql.query('UPDATE pool_keys SET statement = $1', [JSON.stringify(mixed)]);
  expect(await here.rye(submit('mixed'), GIVEN)).toMatchObject({ code: 3 });
  expect(
    (await sql.query("SELECT FROM sealed_secrets WHERE thread_id IN ('mixed', 'refused')"))
      .rowCount,
  ).toBe(0);

  await sql.query(
    "UPDATE sealed_secrets SET sealed = (SELECT sealed FROM sealed_secrets WHERE thread_id = 'one') WHERE thread_id = 'two'",
  );
  await sql.query("DELETE FROM sealed_secrets WHERE thread_id = 'gone'");
  const worker = await lab.worker();
  await here.json(['fleet', 'pause', 'default', '--off']);
  await lab.until(
    "SELECT count(*) = 2 FROM threads WHERE status = 'error' AND thread_id IN ('two', 'gone')",
  );
  const { rows } = await sql.query(
    "SELECT json_or_null(error) ->> 'code' AS code FROM threads WHERE thread_id IN ('two', 'gone')",
  );
  expect(rows).toEqual([{ code: 'thread_tampered' }, { code: 'thread_tampered' }]);
  await lab.until("SELECT status = 'suspended' FROM threads WHERE thread_id = 'one'");
  expect(linesOf(got)).toHaveLength(1);
  expectNone(worker.output(), 'the output');
});

it('a worker with an older token leaves such threads to others, and a new key opens earlier ones', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const { got } = await secretJob(here);
  const older = await lab.worker({ label: 'older', isOlder: true });
  await older.id();
  expect(await here.json([...submit('early')], GIVEN)).toMatchObject({ success: true });
  await untilTrue('the worker tells it', () => older.output().includes('cannot open'));
  expect(older.output()).toContain('rye fleet enroll');
  // enrolled after a change of the key: it has the earlier key too
  expect(await here.rye(['fleet', 'enroll', '--new-pool-key'])).toMatchObject({ code: 0 });
  await lab.worker({ label: 'newer' });
  await lab.until("SELECT status = 'suspended' FROM threads WHERE thread_id = 'early'");
  expect(linesOf(got)).toHaveLength(1);
  expect(older.process.exitCode).toBeNull();
  // both workers run what needs no secret
  expect(await here.json(['run', 'hello', '--fleet', '--wait'])).toMatchObject({ success: true });
});
