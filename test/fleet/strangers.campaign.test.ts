import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { workspace } from '../helpers/workspace.ts';
import { fleetLab, startWorker } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

// Requirement: fleet-roots-apart
it('a stranger with the URL of the database joins only on purpose, runs no thread of others, and is shown', async () => {
  const lab = await fleetLab(server);
  const stranger = await workspace();
  const init = ['fleet', 'init', '--database', lab.url];
  const refused = await stranger.rye([...init, '--json']);
  expect(refused.code).not.toBe(0);
  expect(JSON.parse(refused.stdout)).toMatchObject({ error: { code: 'already_exists' } });
  expect(refused.stdout).toContain('another root');
  // its owner may repeat it
  expect(await lab.here.rye(init)).toMatchObject({ code: 0 });
  expect(await stranger.rye([...init, '--join'])).toMatchObject({ code: 0 });

  const { stdout: pem } = await lab.here.rye(['keys', 'export']);
  const theirs = await startWorker({ here: stranger, env: {} }, pem, { label: 'theirs' });
  const id = await theirs.id();
  await lab.until('SELECT count(*) = 1 FROM workers');
  const listed = await lab.here.rye(['fleet', 'workers']);
  expect(listed.stdout).toMatch(/theirs-\w+ .*not certified by a root you trust/);
  expect(await lab.here.json(['fleet', 'workers'])).toMatchObject({
    workers: [{ worker_id: id, labels: ['theirs'], certified: false }],
  });
  expect((await lab.here.rye(['doctor'])).stdout).toContain(
    `not certified by a root you trust: ${id}`,
  );
  const threads = await lab.here.rye(['run', 'hello', '--fleet', '--json']);
  expect(threads.code).toBe(0);
  const { thread_id: thread } = JSON.parse(threads.stdout) as { readonly thread_id: string };
  await lab.until(
    `SELECT count(*) > 1 FROM rye_queue.workflow_status WHERE workflow_uuid LIKE $1`,
    [`${thread}#%`],
  );
  expect(theirs.output()).toContain("another root's fleet");
  expect(await lab.here.json(['threads', 'show', thread])).toMatchObject({
    thread: { status: 'created' },
  });

  const own = await lab.worker({ label: 'own' });
  const ownId = await own.id();
  await lab.until('SELECT count(*) = 2 FROM workers');
  expect(await lab.here.json(['threads', 'wait', thread])).toMatchObject({ success: true });
  expect(await lab.here.json(['verify', 'thread', thread])).toMatchObject({ success: true });
  const { workers } = await lab.here.json(['fleet', 'workers']);
  expect(workers).toMatchObject([{ worker_id: ownId, certified: true }, { certified: false }]);
  // the proof of another worker's ID is no proof
  await lab.sql.query(
    'UPDATE workers SET labels = (SELECT labels FROM workers WHERE worker_id = $1) WHERE worker_id = $2',
    [ownId, id],
  );
  expect((await lab.here.json(['fleet', 'workers']))['workers']).toMatchObject([
    { worker_id: ownId, certified: true },
    { worker_id: id, certified: false },
  ]);
});
