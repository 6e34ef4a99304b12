import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { inspectServer } from '../../src/features/fleet/postgres/server-report.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import type { Workspace } from '../helpers/workspace.ts';
import { fleetLab } from './lab.ts';
import { transactionPooler } from './transaction-pooler.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off', '-c', 'max_connections=60']);
});

afterAll(async () => {
  await server.stop();
});

type Found = Readonly<
  Record<string, { readonly status: string; readonly detail: string; readonly hint?: string }>
>;

async function examined(here: Workspace): Promise<Found> {
  const { checks } = await here.json(['doctor']);
  const lines = checks as readonly ({ readonly check: string } & Found[string])[];
  return Object.fromEntries(
    lines.flatMap(({ check, ...line }) =>
      check.startsWith('fleet: ') ? [[check.slice('fleet: '.length), line]] : [],
    ),
  );
}

it('doctor describes the fleet of a project, and each warning names the next command', async () => {
  const lab = await fleetLab(server);
  const { here, sql } = lab;
  const empty = await examined(here);
  expect(empty).toMatchObject({
    packages: { status: 'ok' },
    server: {
      status: 'ok',
      detail: expect.stringMatching(/^PostgreSQL \d+\S* at postgres:.* ms away$/),
    },
    durability: { status: 'warn', detail: expect.stringContaining('no standby') },
    pooler: { status: 'ok' },
    connections: { status: 'ok', detail: expect.stringMatching(/^\d+ of 60 in use$/) },
    clock: { status: 'ok' },
    tables: { status: 'ok' },
    workers: {
      status: 'warn',
      detail: 'none',
      hint: expect.stringContaining('rye worker --token'),
    },
    queues: { status: 'ok' },
    root: { status: 'warn', hint: expect.stringContaining('rye fleet enroll') },
    'secret inputs': { status: 'ok' },
  });

  // before the worker starts: one that runs follows a pause within seconds
  await here.json(['fleet', 'pause', 'default']);
  await here.json(['run', 'hello', '--fleet']);
  const worker = await lab.worker();
  await worker.id();
  await sql.query(
    `ALTER DATABASE ${new URL(lab.url).pathname.slice(1)} SET synchronous_commit = off`,
  );
  await sql.query(
    "INSERT INTO workers (worker_id, lease_until, labels, version) VALUES ('other', 'infinity', '[]', '0.0.9')",
  );
  await sql.query('DELETE FROM pool_keys');
  const used = await examined(here);
  expect(used).toMatchObject({
    durability: { status: 'fail', hint: expect.stringContaining('ALTER DATABASE') },
    workers: { status: 'warn', detail: expect.stringContaining('some run rye 0.0.9') },
    queues: {
      status: 'warn',
      detail: expect.stringMatching(/1 queued.*oldest waits for \d+ s in default.*paused: default/),
      hint: 'Start its legs again: rye fleet pause default --off',
    },
    root: { status: 'ok', detail: expect.stringContaining('certifies the workers') },
    'secret inputs': { status: 'fail', hint: expect.stringContaining('rye fleet init') },
  });
  await sql.query('UPDATE version SET version = 999');
  const newer = await examined(here);
  expect(newer['tables']).toMatchObject({ status: 'fail', detail: expect.stringContaining('999') });
  expect(newer['workers']).toBeUndefined();
});

it('doctor tells a server that is not there, without the password', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const file = path.join(here.project, '.ai', 'config', 'store.yaml');
  writeFileSync(file, 'url: postgres://rye:secret-word@127.0.0.1:1/none\n', { mode: 0o600 });
  expect(await here.rye(['sign', 'config', 'store'])).toMatchObject({ code: 0 });
  const run = await here.rye(['doctor']);
  expect(run.code).toBe(1);
  expect(run.stdout).toContain('fleet: server');
  expect(run.stdout).toContain('rye config get store.url');
  expect(run.stdout + run.stderr).not.toContain('secret-word');
});

it('a pooler that hands connections out by transaction is found', async () => {
  const { url } = await fleetLab(server);
  expect(await inspectServer(url)).toMatchObject({ isPooledByTransaction: false });
  const pooled = await inspectServer(await transactionPooler(url));
  expect(pooled).toMatchObject({ isPooledByTransaction: true });
});
