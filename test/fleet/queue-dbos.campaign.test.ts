import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { DbosQueue } from '../../src/features/fleet/dbos/queue.ts';
import { PostgresDatabase } from '../../src/features/fleet/postgres/database.ts';
import { systemClock } from '../../src/kernel/app/system.ts';
import type { LegSpec, RunLeg, WorkOptions } from '../../src/kernel/storage/fleet-queue.ts';
import { withClient } from '../../src/kernel/storage/sql-work.ts';
import {
  eventually,
  House,
  type MortalWorker,
  noting,
  type OpenedQueue,
} from '../../testing/conformance/fleet-fixtures.ts';
import { describeFleetQueue } from '../../testing/conformance/fleet-queue.ts';
import { bundle } from '../helpers/bundle.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';

const TIMEOUT_MS = 180_000;

let server: PostgresServer;
let program = '';

beforeAll(async () => {
  program = await bundle(path.resolve(import.meta.dirname, 'dbos-child.ts'));
  server = await startPostgres(['-c', 'fsync=off']);
}, TIMEOUT_MS);

afterAll(async () => {
  await server.stop();
});

describeFleetQueue('PostgreSQL', async () => await open());

describe('the queue on PostgreSQL', { timeout: TIMEOUT_MS }, () => {
  it('prints nothing, and reports no notice in a normal run', async () => {
    // in a process, whose output is its own
    const house = await openHouse();
    await house.enqueue('a#1');
    const { started, run } = noting();
    const child = await house.opened.elsewhere(house.options(), run);
    await eventually(() => expect(started).toHaveLength(1));
    await house.becomes({ queued: 0, running: 0 });
    await child.worker.drain(60_000);
    expect(printed.get(child)).toBe('');
  });

  it('refuses a second worker in one process', async () => {
    const house = await openHouse();
    await house.work(noting().run);
    await expect(house.work(noting().run)).rejects.toMatchObject({ code: 'usage' });
  });

  it('runs other legs when the stored input of one cannot be read', async () => {
    const house = await openHouse();
    const { database } = opened(house);
    await house.enqueue('bad#1');
    await house.enqueue('good#1');
    await database.query(
      'UPDATE rye_queue.workflow_input SET inputs = $2 WHERE workflow_uuid = $1',
      [house.name('bad#1'), '{"positionalArgs":['],
    );
    const { started, run } = noting();
    await house.work(run);
    await eventually(() => expect(started).toEqual([house.name('good#1')]));
    await house.becomes({ queued: 0, running: 0, failed: 1 });
  });

  it('reports that the server cannot be reached, without the password', async () => {
    const queue = new DbosQueue({
      url: 'postgres://rye:s3cret@127.0.0.1:1/none',
      clock: systemClock,
    });
    const error = await queue.queues().catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'storage_failed' });
    expect(`${String(error)} ${JSON.stringify(error)}`).not.toContain('s3cret');
    await queue.close();
  });
});

const databases = new WeakMap<OpenedQueue, { readonly database: PostgresDatabase }>();
const printed = new WeakMap<MortalWorker, string>();

function opened(house: House): { readonly database: PostgresDatabase } {
  const found = databases.get(house.opened);
  if (!found) throw new Error('not opened here');
  return found;
}

async function openHouse(): Promise<House> {
  const house = new House(await open());
  onTestFinished(async () => await house.close(), TIMEOUT_MS);
  return house;
}

async function open(): Promise<OpenedQueue> {
  const url = await server.url('fleet');
  const queue = new DbosQueue({ url, clock: systemClock });
  const database = new PostgresDatabase({ url });
  const close = queue.close.bind(queue);
  queue.close = async () => {
    database.close();
    await close();
  };
  const made: OpenedQueue = {
    queue,
    transaction: async (work) => await database.write(() => withClient(work)),
    elsewhere: async (options, run) => await elsewhere(url, options, run),
    corrupt: async (legId, row) => {
      await database.query(
        'UPDATE rye_queue.workflow_input SET inputs = $2 WHERE workflow_uuid = $1',
        [legId, JSON.stringify({ positionalArgs: [row] })],
      );
    },
  };
  databases.set(made, { database });
  return made;
}

/** Starts a worker in another process, whose legs run here. */
async function elsewhere(url: string, options: WorkOptions, run: RunLeg): Promise<MortalWorker> {
  const worker = fork(program, [], { execArgv: [], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  const running = new Map<string, AbortController>();
  const mortal: MortalWorker = {
    worker: {
      workerId: options.workerId,
      running: () => [...running.keys()],
      async drain(graceMs) {
        const ended = ending(worker);
        if (worker.connected) worker.send({ type: 'drain', graceMs });
        await ended;
      },
    },
    async kill() {
      const ended = ending(worker);
      worker.kill('SIGKILL');
      await ended;
    },
  };
  printed.set(mortal, '');
  for (const stream of [worker.stdout, worker.stderr])
    stream?.on('data', (part) =>
      printed.set(mortal, `${printed.get(mortal) ?? ''}${String(part)}`),
    );
  const answer = async (leg: LegSpec): Promise<void> => {
    const controller = new AbortController();
    running.set(leg.legId, controller);
    const error = await run(leg, controller.signal).then(
      () => null,
      (caught: unknown) => String(caught),
    );
    running.delete(leg.legId);
    if (worker.connected) worker.send({ type: 'ended', legId: leg.legId, error });
  };
  const { report: _report, ...plain } = options;
  worker.send({ type: 'work', url, options: plain });
  await new Promise<void>((resolve, reject) => {
    worker.once('exit', () => reject(new Error(`the worker ended: ${printed.get(mortal) ?? ''}`)));
    worker.on(
      'message',
      (message: { type: string; leg: LegSpec; legId: string; reason: string }) => {
        if (message.type === 'ready') resolve();
        else if (message.type === 'run') void answer(message.leg);
        else running.get(message.legId)?.abort(message.reason);
      },
    );
  });
  return mortal;
}

async function ending(process: ChildProcess): Promise<void> {
  if (process.exitCode === null && process.signalCode === null) await once(process, 'exit');
}
