import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  openPostgresStore,
  openWorkerLeases,
} from '../../src/features/fleet/postgres/open-postgres.ts';
import { WorkerLease } from '../../src/features/fleet/worker-lease.ts';
import { BEAT_MS, WorkerReaper } from '../../src/features/fleet/worker-reaper.ts';
import { ownerOf, processOwners } from '../../src/kernel/storage/owners.ts';
import { SqliteSearchIndex } from '../../src/kernel/storage/sqlite/search-index.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import type { Leases } from '../../src/kernel/storage/worker-leases.ts';
import {
  COST,
  countingIds,
  headerFor,
  STOPPED,
  T0,
  T1,
  T2,
  threadParams,
  userMessage,
  writerOptions,
} from '../../testing/conformance/fixtures.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { openProxy } from '../helpers/tcp-proxy.ts';

let server: PostgresServer;
let count = 0;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

async function newDatabase(): Promise<string> {
  count += 1;
  return await server.url(`leases${count}`);
}

function leasesAt(url: string): Leases {
  const leases = openWorkerLeases(url);
  onTestFinished(() => leases.close());
  return leases;
}

/** The store as a process of this worker opens it; null: a process of no worker. */
function storeOf(url: string, workerId: string | null): Store {
  const store = openPostgresStore({
    url,
    clock: STOPPED,
    ids: countingIds(),
    owners: processOwners(),
    index: new SqliteSearchIndex({ path: ':memory:' }),
    workerId,
  });
  onTestFinished(() => store.close());
  return store;
}

/** A monotonic clock that a test moves. */
class Hand {
  at = 0;
  readonly monotonic = (): number => this.at;
  readonly sleep = async (): Promise<void> => undefined;
}

const FACTS = { labels: ['gpu'], version: '1.0.0' };
/** An owner that can't be checked from this machine. */
const ELSEWHERE = ownerOf({ pid: 7, process_start: 'then', host: 'another-machine' });
const NEXT = ownerOf({ pid: 8, process_start: 'then', host: 'a-third-machine' });

async function untilExpired(leases: Leases, workers: number): Promise<void> {
  for (;;) {
    const rows = await leases.list();
    if (rows.filter(({ is_expired: isExpired }) => isExpired).length === workers) return;
    await delay(10);
  }
}

describe('a thread of a worker', () => {
  async function running(url: string) {
    const leases = leasesAt(url);
    await leases.add({ workerId: 'w-1', leaseMs: 1, ...FACTS });
    const first = storeOf(url, 'w-1');
    await first.registry.register(threadParams('t-1'));
    await first.ledger.register('t-1', 100);
    const record = await first.registry.claim('t-1', ELSEWHERE, T0);
    return { leases, first, record };
  }

  it('cannot be claimed while the worker has a row, however silent it is', async () => {
    const url = await newDatabase();
    const { leases, record } = await running(url);
    await untilExpired(leases, 1);
    const second = storeOf(url, 'w-2');
    for (const silentSince of [null, record.heartbeat_at])
      await expect(second.registry.claim('t-1', NEXT, T1, silentSince)).rejects.toMatchObject({
        code: 'thread_locked',
        message: expect.stringContaining('w-1'),
      });
    await leases.remove('w-1');
    expect(await second.registry.claim('t-1', NEXT, T1)).toMatchObject({ epoch: 2 });
    // the next holder counts, not the first
    await leases.add({ workerId: 'w-2', leaseMs: 60_000, ...FACTS });
    await expect(storeOf(url, null).registry.claim('t-1', ELSEWHERE, T1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
  });

  it('takes no write of the worker that lost it', async () => {
    const url = await newDatabase();
    const { leases, first, record } = await running(url);
    const options = { ...writerOptions(first), owner: ELSEWHERE, epoch: record.epoch };
    const writer = await first.logs.create(headerFor('t-1'), options);
    writer.append([userMessage('one')]);
    await writer.sync();
    await leases.remove('w-1');

    const second = storeOf(url, 'w-2');
    const taken = await second.registry.claim('t-1', NEXT, T1);
    await second.ledger.fence('t-1', taken.epoch);
    const { epoch } = taken;
    const next = await second.logs.reopen('t-1', { ...options, owner: NEXT, epoch });

    writer.append([userMessage('late')]);
    await expect(Promise.resolve(writer.sync())).rejects.toMatchObject({ code: 'thread_locked' });
    const locked = { code: 'thread_locked' };
    await expect(first.registry.heartbeat('t-1', record.epoch, T2)).rejects.toMatchObject(locked);
    await expect(first.ledger.report('t-1', 5, record.epoch)).rejects.toMatchObject(locked);
    await expect(
      first.registry.finish('t-1', {
        status: 'completed',
        now: T2,
        cost: COST,
        result: 'late',
        epoch: record.epoch,
      }),
    ).rejects.toMatchObject(locked);
    await next.close();
    expect(JSON.stringify(await second.logs.tail('t-1', 9))).not.toContain('late');
  });
});

describe('the reaper', () => {
  it('removes a silent worker after two beats of the monotonic clock, and no sooner', async () => {
    const leases = leasesAt(await newDatabase());
    const clock = new Hand();
    await leases.add({ workerId: 'dead', leaseMs: 1, ...FACTS });
    await leases.add({ workerId: 'alive', leaseMs: 60_000, ...FACTS });
    await untilExpired(leases, 1);
    const reaper = new WorkerReaper({ leases, clock });
    for (let look = 0; look < 2; look += 1) {
      expect(await reaper.look()).toEqual([]);
      clock.at += BEAT_MS;
    }
    expect(await reaper.look()).toEqual(['dead']);
    expect((await leases.list()).map(({ worker_id: id }) => id)).toEqual(['alive']);
    expect(await reaper.look()).toEqual([]);
  });

  it('spares a worker that renewed its lease, and begins again after it was stopped itself', async () => {
    const leases = leasesAt(await newDatabase());
    const clock = new Hand();
    await leases.add({ workerId: 'slow', leaseMs: 1, ...FACTS });
    await untilExpired(leases, 1);
    const reaper = new WorkerReaper({ leases, clock });
    const looks = async (times: number): Promise<readonly string[]> => {
      const all: string[] = [];
      for (let look = 0; look < times; look += 1) {
        all.push(...(await reaper.look()));
        clock.at += BEAT_MS;
      }
      return all;
    };
    expect(await looks(2)).toEqual([]);
    expect(await leases.renew('slow', 1)).toMatchObject({ is_draining: false });
    await untilExpired(leases, 1);
    expect(await looks(2)).toEqual([]);
    // as after SIGSTOP and SIGCONT: time has passed without a look
    clock.at += 60_000;
    expect(await looks(2)).toEqual([]);
    expect(await looks(1)).toEqual(['slow']);
  });

  it('two reapers remove one worker once', async () => {
    const leases = leasesAt(await newDatabase());
    await leases.add({ workerId: 'dead', leaseMs: 1, ...FACTS });
    await untilExpired(leases, 1);
    const [row] = await leases.list();
    if (!row) throw new Error('no row');
    const removed = await Promise.all([leases.removeSilent(row), leases.removeSilent(row)]);
    expect(removed.filter(Boolean)).toHaveLength(1);
  });

  it('is kept by the first two living workers, and looks in no other', async () => {
    const leases = leasesAt(await newDatabase());
    const clock = new Hand();
    const workers = ['a', 'b', 'c', 'd'].map(
      (workerId) => new WorkerLease({ leases, clock, workerId, leaseMs: 60_000, ...FACTS }),
    );
    for (const worker of workers) await worker.take();
    const watching = async (): Promise<readonly boolean[]> => {
      for (const worker of workers) await worker.renew();
      return workers.map(({ isWatching }) => isWatching);
    };
    expect(await watching()).toEqual([true, true, false, false]);
    // one is gone, and the lease of another one runs out
    await leases.remove('a');
    workers.shift();
    expect(await watching()).toEqual([true, true, false]);
    await leases.renew('b', 1);
    await untilExpired(leases, 1);
    workers.shift();
    expect(await watching()).toEqual([true, true]);
    clock.at += 60_000;
    expect(workers.map(({ isWatching }) => isWatching)).toEqual([false, false]);

    const stop = new AbortController();
    let beats = 0;
    const looks: number[] = [];
    const reaper = new WorkerReaper({
      leases: {
        list: async () => {
          looks.push(beats);
          return await leases.list();
        },
        removeSilent: async () => true,
      },
      clock: {
        monotonic: clock.monotonic,
        sleep: async () => {
          beats += 1;
          if (beats > 4) stop.abort();
        },
      },
      isWatching: () => beats > 2,
    });
    await reaper.watch(stop.signal, async () => undefined);
    expect(looks).toEqual([3, 4]);
  });

  it('removes no worker after an outage that outlasted every lease', async () => {
    const url = await newDatabase();
    const direct = leasesAt(url);
    const proxy = await openProxy(server.port);
    const far = leasesAt(proxy.urlOf(url));
    const clock = new Hand();
    const workers = ['a', 'b'].map(
      (workerId) => new WorkerLease({ leases: far, clock, workerId, leaseMs: 200, ...FACTS }),
    );
    for (const worker of workers) await worker.take();
    const reaper = new WorkerReaper({ leases: far, clock });
    expect(await reaper.look()).toEqual([]);

    proxy.cut();
    await untilExpired(direct, 2);
    for (let beat = 0; beat < 4; beat += 1) {
      clock.at += BEAT_MS;
      await expect(reaper.look()).rejects.toMatchObject({ code: 'storage_failed' });
      for (const worker of workers)
        await expect(worker.renew()).rejects.toMatchObject({ code: 'storage_failed' });
    }
    // each has stopped before another could take over
    expect(workers.map(({ mayStart }) => mayStart)).toEqual([false, false]);

    proxy.mend();
    // the reaper is back first
    expect(await reaper.look()).toEqual([]);
    for (const worker of workers) await worker.renew();
    expect(workers.map(({ mayStart }) => mayStart)).toEqual([true, true]);
    clock.at += BEAT_MS;
    expect(await reaper.look()).toEqual([]);
    expect(await direct.list()).toHaveLength(2);
  });
});

describe('the lease of a worker', () => {
  it('ends by its own clock before the database lets it end', async () => {
    const leases = leasesAt(await newDatabase());
    const clock = new Hand();
    const lease = new WorkerLease({ leases, clock, workerId: 'w', leaseMs: 3000, ...FACTS });
    await lease.take();
    expect(lease.mayStart).toBe(true);
    clock.at += 2999;
    expect(lease.mayStart).toBe(true);
    clock.at += 1;
    expect(lease.mayStart).toBe(false);
    expect(() => lease.assertMayStart()).toThrow('lost its lease');
    await lease.renew();
    expect(lease.mayStart).toBe(true);
    expect(await leases.list()).toMatchObject([
      { worker_id: 'w', beat: 1, is_expired: false, labels: ['gpu'], version: '1.0.0' },
    ]);
  });

  it('hears with a renewal that it is to leave', async () => {
    const leases = leasesAt(await newDatabase());
    const lease = new WorkerLease({
      leases,
      clock: new Hand(),
      workerId: 'w',
      leaseMs: 3000,
      ...FACTS,
    });
    await lease.take();
    await lease.renew();
    expect(lease.isDraining).toBe(false);
    await leases.askToDrain('w');
    await lease.renew();
    expect(lease.isDraining).toBe(true);
  });

  it('is gone for good once the fleet has removed it', async () => {
    const leases = leasesAt(await newDatabase());
    const clock = new Hand();
    const lease = new WorkerLease({ leases, clock, workerId: 'w', leaseMs: 3000, ...FACTS });
    await lease.take();
    await leases.remove('w');
    await lease.renew();
    expect(lease).toMatchObject({ isRemoved: true, mayStart: false });
    expect(await leases.list()).toEqual([]);
    await lease.release();
  });

  it('refuses a second worker of the same ID', async () => {
    const leases = leasesAt(await newDatabase());
    await leases.add({ workerId: 'w', leaseMs: 3000, ...FACTS });
    await expect(leases.add({ workerId: 'w', leaseMs: 3000, ...FACTS })).rejects.toMatchObject({
      code: 'already_exists',
    });
  });
});
