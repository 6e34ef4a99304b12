import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { type FleetLab, fleetLab } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const SCHEMAS = path.resolve(import.meta.dirname, '../../docs/schemas');

/** Runs a command, and checks its document against the published schema. */
async function checked({ here }: FleetLab, name: string, ...words: readonly string[]) {
  const document = await here.json(words);
  const schema = JSON.parse(readFileSync(path.join(SCHEMAS, `${name}.json`), 'utf8')) as object;
  const validate = new Ajv2020({ allErrors: true, allowUnionTypes: true }).compile(schema);
  validate(document);
  expect(validate.errors ?? [], words.join(' ')).toEqual([]);
  expect(document['success'], words.join(' ')).toBe(true);
  return document;
}

it('every document of the fleet matches its schema, and shows no password', async () => {
  const lab = await fleetLab(server);
  await checked(lab, 'fleet-init', 'fleet', 'init', '--database', lab.url);
  await checked(lab, 'fleet-enroll', 'fleet', 'enroll', '--label', 'a');
  await checked(lab, 'fleet-root', 'fleet', 'root');
  const worker = await lab.worker({
    label: 'gpu',
    args: ['--queue', 'default,gpu', '--label', 'eu'],
  });
  const id = await worker.id();
  await lab.until('SELECT count(*) = 1 FROM workers');
  await checked(lab, 'fleet-queue', 'fleet', 'limits', 'gpu', '--global', '20', '--rate', '50/min');
  const { queue } = await checked(lab, 'fleet-queue', 'fleet', 'pause', 'gpu');
  expect(queue).toMatchObject({ paused: true, limits: { rate: { legs: 50, seconds: 60 } } });
  await checked(lab, 'fleet-queue', 'fleet', 'pause', 'gpu', '--off');
  await checked(lab, 'fleet-queues', 'fleet', 'queues');
  const { workers } = await checked(lab, 'fleet-workers', 'fleet', 'workers');
  expect(workers).toMatchObject([{ worker_id: id, labels: ['gpu', 'eu'] }]);
  await checked(lab, 'fleet-status', 'fleet', 'status');
  await checked(lab, 'fleet-drain', 'fleet', 'drain', id);
  await lab.until('SELECT count(*) = 0 FROM workers');
  await worker.leave();
  expect(worker.process.exitCode).toBe(0);
});

it('a delayed thread starts at its time, and a paused queue keeps its legs', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  await here.json(['fleet', 'pause', 'default']);
  const at = new Date(Date.now() + 3600_000).toISOString();
  await here.json(['run', 'hello', '--fleet', '--thread-id', 'later', '--at', at]);
  await here.json(['run', 'hello', '--fleet', '--thread-id', 'now']);
  const { queues } = await here.json(['fleet', 'queues']);
  expect(queues).toMatchObject([{ name: 'default', queued: 1, delayed: 1, paused: true }]);
  await lab.worker();
  await here.json(['fleet', 'pause', 'default', '--off']);
  expect(await here.json(['threads', 'wait', 'now'])).toMatchObject({ success: true });
  const { threads } = await here.json(['threads', 'list', '--status', 'created']);
  expect(threads).toMatchObject([{ thread_id: 'later' }]);
});

it('metrics are served in the text format of Prometheus', async () => {
  const lab = await fleetLab(server);
  const port = 20_000 + (process.pid % 20_000);
  const worker = await lab.worker({ args: ['--metrics', `127.0.0.1:${port}`] });
  await worker.id();
  await lab.here.rye(['run', 'hello', '--fleet', '--wait']);
  const response = await fetch(`http://127.0.0.1:${port}/metrics`);
  const text = await response.text();
  expect(text).toContain('rye_legs_started_total 1');
  expect(text).toContain('rye_queue_legs{queue="default",state="queued"} 0');
  expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(404);
});

it('a password in the URL stays in a private file that git ignores', async () => {
  const lab = await fleetLab(server);
  const url = lab.url.replace('rye@', 'rye:open-sesame-93@');
  const other = await lab.here.rye(['fleet', 'init', '--database', url]);
  expect(other).toMatchObject({ code: 2, stderr: expect.stringContaining('names another store') });
});
