import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { cliPackageOf } from '../helpers/run-cli.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { fleetLab, writeDirective, writeTool } from './lab.ts';
import { answeredFleet, linesOf, proveFleet, untilTrue } from './proof.ts';

const NEXT = '99.1.0';
const { version: OWN } = JSON.parse(
  readFileSync(path.resolve(import.meta.dirname, '../../package.json'), 'utf8'),
) as { readonly version: string };

let server: PostgresServer;
let next = '';

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
  next = await cliPackageOf(NEXT);
});

afterAll(async () => {
  await server.stop();
});

it('threads move between workers of two builds in both directions', async () => {
  const gates = ['up', 'down'].map((name) => {
    const gate = { name, isAsked: false, open: (): void => undefined };
    const opened = new Promise<void>((resolve) => {
      gate.open = resolve;
    });
    onTestFinished(() => gate.open());
    return { gate, opened };
  });
  const lab = await answeredFleet(server, async ({ name, results }) => {
    if (results === 2) return reply('Done.');
    const waits = gates.find(({ gate }) => gate.name === name);
    if (results === 1 && waits) {
      waits.gate.isAsked = true;
      await waits.opened;
    }
    return calls(toolUse('mark', { text: `${name}-${results}` }, `toolu_${name}_${results}`));
  });
  const { here, env } = lab;
  const marks = path.join(here.home, 'marks');
  await writeTool(here, 'mark', `echo "$(cat)" >> ${marks}`, { parameters: ['text'] });
  for (const name of ['up', 'down'])
    await writeDirective(here, name, {
      permissions: '<execute><tool>mark</tool></execute>',
      body: `I am ${name}.`,
      spend: '20.00',
    });
  const moved = async (name: string, from?: string, to?: string): Promise<void> => {
    const before = await lab.worker({ label: 'before', ...(from ? { build: from } : {}) });
    await here.json(['run', name, '--fleet', '--thread-id', name], { env });
    const gate = gates.find((one) => one.gate.name === name)?.gate;
    await untilTrue('it runs', () => gate?.isAsked === true);
    const left = before.leave();
    const after = await lab.worker({ label: 'after', ...(to ? { build: to } : {}) });
    await lab.until("SELECT bool_or(worker_id LIKE 'after-%') FROM workers");
    const { workers } = await here.json(['fleet', 'workers']);
    expect(workers).toContainEqual(
      expect.objectContaining({ worker_id: await after.id(), version: to ? NEXT : OWN }),
    );
    gate?.open();
    expect(await left).toBe(0);
    const waited = await here.json(['threads', 'wait', name]);
    expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
    const { rows } = await lab.sql.query('SELECT worker FROM threads WHERE thread_id = $1', [name]);
    expect(rows).toEqual([{ worker: await after.id() }]);
    expect(await after.leave()).toBe(0);
  };
  await moved('up', undefined, next);
  await moved('down', next, undefined);
  expect(linesOf(marks)).toHaveLength(4);
  expect(await proveFleet(lab)).toMatchObject({ threads: 2, calls: 4, interrupted: 0 });
});

it('workers of two builds share one queue', async () => {
  const lab = await fleetLab(server);
  const { here } = lab;
  const workers = [
    await lab.worker({ label: 'old', args: ['--slots', '1'] }),
    await lab.worker({ label: 'new', args: ['--slots', '1'], build: next }),
  ];
  await lab.until('SELECT count(*) = 2 FROM workers');
  const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
  await here.json(['fleet', 'pause', 'default']);
  for (const id of ids) await here.json(['run', 'hello', '--fleet', '--thread-id', id]);
  await here.json(['fleet', 'pause', 'default', '--off']);
  expect(await here.json(['threads', 'wait', ...ids])).toMatchObject({
    success: true,
    threads: ids.map(() => ({ status: 'completed' })),
  });
  const { rows } = await lab.sql.query<{ worker: string }>('SELECT DISTINCT worker FROM threads');
  expect(rows.map(({ worker }) => worker).toSorted()).toEqual(
    (await Promise.all(workers.map(async (worker) => await worker.id()))).toSorted(),
  );
  expect(await proveFleet(lab)).toMatchObject({ threads: 6 });
});

it('a worker refuses the legs and the tables of a later protocol by name', async () => {
  const lab = await fleetLab(server);
  const { here, sql } = lab;
  await here.json(['fleet', 'pause', 'default']);
  for (const id of ['newer', 'later', 'own'])
    await here.json(['run', 'hello', '--fleet', '--thread-id', id]);
  // a leg that another version wrote under this protocol's name, and one of the next protocol
  await sql.query(
    `UPDATE rye_queue.workflow_input SET inputs = replace(inputs, '"version":1', '"version":2')
     WHERE workflow_uuid LIKE 'newer#%'`,
  );
  await sql.query(
    "UPDATE rye_queue.workflow_status SET application_version = 'rye-leg-2' WHERE workflow_uuid LIKE 'later#%'",
  );
  const worker = await lab.worker();
  await here.json(['fleet', 'pause', 'default', '--off']);
  expect(await here.json(['threads', 'wait', 'own'])).toMatchObject({ success: true });
  await untilTrue('a person is told', () =>
    worker.output().includes('a leg has version 2, this rye runs version 1'),
  );
  // the leg of the next protocol waits for a worker that knows it
  await lab.until(
    "SELECT status = 'ENQUEUED' FROM rye_queue.workflow_status WHERE workflow_uuid LIKE 'later#%'",
  );
  expect(await worker.leave()).toBe(0);

  const { stdout: token } = await here.rye(['fleet', 'enroll', '--label', 'late']);
  const file = path.join(here.home, 'late.token');
  writeFileSync(file, token);
  await sql.query('UPDATE version SET version = 99');
  for (const words of [
    ['worker', '--token', file],
    ['threads', 'list'],
    ['run', 'hello', '--fleet'],
  ]) {
    const { code, stderr } = await here.rye(words);
    expect(code, words.join(' ')).toBe(1);
    expect(stderr).toContain('the store has version 99 of the schema');
    expect(stderr).toContain('update it');
  }
});
