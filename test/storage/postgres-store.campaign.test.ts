import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { PostgresDatabase } from '../../src/features/fleet/postgres/database.ts';
import {
  openPostgresStore,
  openWorkerLeases,
} from '../../src/features/fleet/postgres/open-postgres.ts';
import type { Clock } from '../../src/kernel/core/clock.ts';
import type { IdSource } from '../../src/kernel/core/ids.ts';
import { sha256Hex } from '../../src/kernel/log/checkpoint.ts';
import { ownerOf, processOwners } from '../../src/kernel/storage/owners.ts';
import { all, withClient } from '../../src/kernel/storage/sql-work.ts';
import { SqliteSearchIndex } from '../../src/kernel/storage/sqlite/search-index.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import {
  countingIds,
  headerFor,
  STOPPED,
  T0,
  T1,
  threadParams,
  userMessage,
  writerOptions,
} from '../../testing/conformance/fixtures.ts';
import { describeStore } from '../../testing/conformance/store.ts';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';

let server: PostgresServer;
let count = 0;
const SOURCES: { readonly clock: Clock; readonly ids: IdSource } = {
  clock: STOPPED,
  ids: countingIds(),
};
/** An owner that can't be checked from this machine. */
const ELSEWHERE = ownerOf({ pid: 7, process_start: 'then', host: 'another-machine' });
const urls = new WeakMap<Store, string>();

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

describeStore(
  'PostgreSQL',
  async (sources) => {
    count += 1;
    return openAt(await server.url(`store${count}`), sources);
  },
  { openAgain: (store) => openAt(urls.get(store) ?? '', SOURCES) },
);

describe('a PostgreSQL store', () => {
  /** A store with one log, and direct access to its rows. */
  async function house() {
    count += 1;
    const url = await server.url(`store${count}`);
    const store = openAt(url, SOURCES);
    const database = new PostgresDatabase({ url });
    onTestFinished(() => {
      store.close();
      database.close();
    });
    const options = writerOptions(store);
    const writer = await store.logs.create(headerFor('t-1'), options);
    writer.append([userMessage('one')]);
    await writer.sync();
    return { store, database, options, writer, url };
  }

  it('lets a log go that a worker of another machine held, once its row is removed', async () => {
    const { store, url } = await house();
    const away = openAt(url, SOURCES, 'w-1');
    const leases = openWorkerLeases(url);
    onTestFinished(() => {
      away.close();
      leases.close();
    });
    await leases.add({ workerId: 'w-1', leaseMs: 60_000, labels: [], version: '1' });
    const options = writerOptions(store);
    const held = await away.logs.create(headerFor('t-3'), { ...options, owner: ELSEWHERE });
    held.append([userMessage('one')]);
    await held.sync();
    await expect(store.logs.reopen('t-3', options)).rejects.toMatchObject(locked);
    await leases.remove('w-1');
    await (await store.logs.reopen('t-3', options)).close();
    held.append([userMessage('two')]);
    await expect(held.sync()).rejects.toMatchObject(locked);
  });

  const file = (text: string) => ({
    name: 'thread.json',
    bytes: Buffer.from(text),
    signature: 'proof',
  });
  const locked = { code: 'thread_locked' };

  /** A store with a thread that was claimed twice, and the files of it. */
  async function filed() {
    const { store, database } = await house();
    const { registry, documents } = store;
    if (!documents) throw new Error('the store keeps no files');
    await registry.register(threadParams('t-2'));
    await documents.put('t-2', file('as it began'), 0);
    await registry.claim('t-2', ELSEWHERE, T0);
    return { store, database, documents };
  }

  it('takes files of the last owner of a thread alone', async () => {
    const { store, documents } = await filed();
    await documents.put('t-2', file('of the first'), 1);
    expect(await store.registry.claim('t-2', ELSEWHERE, T1, T0)).toMatchObject({ epoch: 2 });
    await documents.put('t-2', file('of the second'), 2);
    for (const epoch of [0, 1])
      await expect(documents.put('t-2', file('late'), epoch)).rejects.toMatchObject(locked);
    await expect(documents.put('t-2', { ...file('new'), name: 'x' }, 1)).rejects.toMatchObject(
      locked,
    );
    expect(await documents.get('t-2', 'thread.json')).toEqual(file('of the second'));
    expect(await documents.list('t-2')).toEqual([
      { name: 'thread.json', size: 13, sha256: sha256Hex('of the second') },
    ]);
    expect(await documents.get('t-2', 'plan.json')).toBeUndefined();
    expect(await documents.list('t-3')).toEqual([]);
  });

  it('lets a file wait for a claim that is under way, and refuses it then', async () => {
    const { database, documents } = await filed();
    const client = await (await database.pool()).connect();
    onTestFinished(() => client.release());
    await client.query('BEGIN');
    await client.query("UPDATE threads SET epoch = 2 WHERE thread_id = 't-2'");
    const late = documents.put('t-2', file('late'), 1).then(
      () => undefined,
      (error: unknown) => error,
    );
    const waits =
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%thread_files%'";
    await expect.poll(async () => (await database.query(waits)).rowCount).toBe(1);
    await client.query('COMMIT');
    expect(await late).toMatchObject(locked);
    expect(await documents.get('t-2', 'thread.json')).toEqual(file('as it began'));
  });

  it('keeps the tar of a bundle once, and finds every change of its rows', async () => {
    const { store, database } = await house();
    const { bundles } = store;
    if (!bundles) throw new Error('the store keeps no bundles');
    const tar = Buffer.from('the items');
    const digest = sha256Hex(tar);
    const bundle = { digest, planSha256: 'plan-1', tar, envelope: 'signed' };
    await Promise.all([bundles.put(bundle), bundles.put(bundle)]);
    await bundles.put({ ...bundle, planSha256: 'plan-2', envelope: 'signed too' });
    // the first statement stays
    await bundles.put({ ...bundle, envelope: 'another' });
    expect(await bundles.get(digest, 'plan-1')).toEqual(bundle);
    expect(await bundles.get(digest, 'plan-2')).toMatchObject({ envelope: 'signed too' });
    expect(await bundles.get(digest, 'plan-3')).toBeUndefined();
    expect((await database.query('SELECT 1 FROM bundles')).rowCount).toBe(1);
    const other = { ...bundle, tar: Buffer.from('other items') };
    await expect(bundles.put(other)).rejects.toMatchObject({ code: 'invalid_input' });
    await database.query("UPDATE bundles SET tar = tar || ' '::bytea");
    await expect(bundles.get(digest, 'plan-1')).rejects.toMatchObject({ code: 'thread_tampered' });
  });

  it('hands the client of a transaction to a part of it, which commits or rolls back with the rest', async () => {
    const { database } = await house();
    const insert = (name: string) =>
      withClient(async (transaction) => {
        await transaction.query(`CREATE TABLE ${name} (x INTEGER)`);
        return name;
      });
    expect(await database.write(() => insert('kept'))).toBe('kept');
    const failing = database.write(function* () {
      yield* insert('dropped');
      yield* withClient(async (transaction) => await transaction.query('SELECT 1/0'));
    });
    await expect(failing).rejects.toMatchObject({ code: 'storage_failed' });
    const { rows } = await database.query(
      `SELECT to_regclass('kept') AS kept, to_regclass('dropped') AS dropped`,
    );
    expect(rows).toEqual([{ kept: 'kept', dropped: null }]);
  });

  const LAST = 'start = (SELECT max(start) FROM log_pieces)';

  it.each([
    [
      'a changed text',
      `UPDATE log_pieces SET data = replace(encode(data, 'escape'), 'one', 'two')::bytea WHERE ${LAST}`,
    ],
    ['an emptied piece', `UPDATE log_pieces SET data = '' WHERE ${LAST}`],
    ['a removed piece', `DELETE FROM log_pieces WHERE ${LAST}`],
    ['a piece in front', `UPDATE log_pieces SET start = -1 WHERE ${LAST}`],
  ])('finds %s in the rows of a log', async (_name, change) => {
    const { store, database, options, writer } = await house();
    await writer.close();
    const expected = writer.state();
    expect(await store.logs.verify('t-1', { ...options, expected })).toMatchObject({ ok: true });
    await database.query(change);
    expect(await store.logs.verify('t-1', { ...options, expected })).toMatchObject({ ok: false });
  });

  it('refuses a piece of an opening that was replaced, and takes the same piece once', async () => {
    const { store, database, writer } = await house();
    const { rows } = await database.query('SELECT lease, bytes FROM log_heads');
    const [{ lease, bytes }] = rows as [{ lease: string; bytes: number }];
    const append = async (held: string): Promise<unknown> => {
      const sql = 'SELECT append_log($1, $2, $3, $4, 1) AS answer';
      const values = ['t-1', held, bytes, Buffer.from('{}\n')];
      return (await database.query(sql, values)).rows[0] as unknown;
    };
    expect(await append('another')).toEqual({ answer: 'lost' });
    expect(await append(lease)).toEqual({ answer: 'done' });
    // the answer to the first one may not have arrived
    expect(await append(lease)).toEqual({ answer: 'done' });
    expect(await store.logs.size('t-1')).toBe(bytes + 3);
    writer.append([userMessage('at a place that is taken')]);
    await expect(writer.sync()).rejects.toMatchObject({ code: 'thread_locked' });
  });

  it.each(['query', 'read', 'write'] as const)(
    'a %s works while a newer version of rye changes its tables',
    async (kind) => {
      const { database: other, url } = await house();
      // one connection, which keeps its prepared statements
      const database = new PostgresDatabase({ url, connections: 1 });
      onTestFinished(() => database.close());
      const text = 'SELECT * FROM certificates';
      const ask = async (): Promise<readonly unknown[]> =>
        kind === 'query'
          ? (await database.query(text)).rows
          : await database[kind](() => all(text));
      await other.query("INSERT INTO certificates (key_id, certificate) VALUES ('k', 'c')");
      expect(await ask()).toMatchObject([{ key_id: 'k' }]);
      await other.query("ALTER TABLE certificates ADD COLUMN later TEXT DEFAULT 'x'");
      for (let again = 0; again < 2; again += 1)
        expect(await ask()).toMatchObject([{ key_id: 'k', later: 'x' }]);
    },
  );

  it('fails the work whose connection breaks between two statements, and nothing else', async () => {
    const own = await startPostgres(['-c', 'fsync=off']);
    onTestFinished(async () => await own.stop());
    const database = new PostgresDatabase({ url: await own.url('breaks') });
    onTestFinished(() => database.close());
    const work = database.write(function* broken() {
      yield* all('SELECT 1 AS one');
      yield* withClient(async () => {
        await own.crash();
        // the loss is noticed while no statement is under way
        await new Promise((resolve) => setImmediate(resolve));
        await own.startAgain();
      });
      return yield* all('SELECT 2 AS two');
    });
    await expect(work).rejects.toMatchObject({ code: 'storage_failed' });
    expect(await database.read(() => all('SELECT 3 AS three'))).toEqual([{ three: 3 }]);
  });

  it('keeps the password of its address out of errors', async () => {
    const url = `postgres://rye:hunter22@127.0.0.1:1/none`;
    const store = openAt(url, SOURCES);
    onTestFinished(() => store.close());
    const error: unknown = await store.registry.get('t-1').catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'fleet_unavailable' });
    expect(JSON.stringify(error) + String(error)).not.toContain('hunter22');
  });
});

function openAt(
  url: string,
  { clock, ids }: typeof SOURCES,
  workerId: string | null = null,
): Store {
  const index = new SqliteSearchIndex({ path: ':memory:' });
  const store = openPostgresStore({ url, clock, ids, owners: processOwners(), index, workerId });
  urls.set(store, url);
  return store;
}
