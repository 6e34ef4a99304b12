import { createRequire } from 'node:module';
import type pg from 'pg';
import type { Client, ClientConfig } from 'pg';
import { MIGRATIONS } from './schema.ts';

/** The facts of a server, before rye makes or changes anything in it. */
export interface ServerReport {
  /** Version of PostgreSQL. */
  readonly version: string;
  /** Milliseconds of one exchange. */
  readonly roundTripMs: number;
  /** Its clock, in milliseconds since the epoch, and the time of this machine in the middle of the exchange. */
  readonly clock: { readonly server: number; readonly here: number };
  readonly synchronousCommit: string;
  /** Standbys that a commit waits for. */
  readonly synchronousStandbys: number;
  readonly standbys: number;
  readonly isStandby: boolean;
  readonly connections: { readonly used: number; readonly limit: number };
  /** True if one connection is served by several ones of the server. */
  readonly isPooledByTransaction: boolean;
  /** Version of rye's tables; null: there are none. */
  readonly schema: number | null;
  readonly knownSchema: number;
}

const CONNECT_MS = 5000;
const ANSWER_MS = 10_000;

const FACTS = `
  SELECT current_setting('server_version') AS version, current_setting('synchronous_commit') AS synchronous_commit,
    pg_is_in_recovery() AS is_standby, current_setting('max_connections')::int AS max_connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS connections,
    (SELECT count(*) FROM pg_stat_replication)::int AS standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int AS synchronous,
    to_regclass('rye.version') IS NOT NULL AS is_made`;

// `import()` does not work in the compiled program, see bin/rye.js
const load = createRequire(import.meta.url);

/** Looks at a server. Changes nothing. Throws what the driver throws. */
export async function inspectServer(url: string): Promise<ServerReport> {
  const driver = load('pg') as typeof pg;
  const opened: Client[] = [];
  const open = async (more: ClientConfig = {}): Promise<Client> => {
    const client = new driver.Client({
      connectionString: url,
      connectionTimeoutMillis: CONNECT_MS,
      query_timeout: ANSWER_MS,
      application_name: 'rye doctor',
      ...more,
    });
    client.on('error', () => undefined);
    opened.push(client);
    await client.connect();
    return client;
  };
  try {
    const first = await open();
    const before = Date.now();
    const { rows: times } = await first.query<{ now: string }>(
      'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now',
    );
    const after = Date.now();
    const { rows } = await first.query<Facts>(FACTS);
    const [facts] = rows;
    if (!facts) throw new Error('the server told nothing');
    return {
      version: facts.version,
      roundTripMs: after - before,
      clock: { server: Number(times[0]?.now), here: (before + after) / 2 },
      synchronousCommit: facts.synchronous_commit,
      synchronousStandbys: facts.synchronous,
      standbys: facts.standbys,
      isStandby: facts.is_standby,
      connections: { used: facts.connections, limit: facts.max_connections },
      isPooledByTransaction: await isPooled(first, open),
      schema: facts.is_made ? await schemaOf(first) : null,
      knownSchema: MIGRATIONS.length,
    };
  } finally {
    await Promise.all(opened.map(async (client) => await client.end().catch(() => undefined)));
  }
}

interface Facts {
  readonly version: string;
  readonly synchronous_commit: string;
  readonly is_standby: boolean;
  readonly max_connections: number;
  readonly connections: number;
  readonly standbys: number;
  readonly synchronous: number;
  readonly is_made: boolean;
}

/**
 * A pooler that hands connections out by transaction gives the last used one to the next transaction. While other
 * transactions are open, the first connection is then served by another one of the server.
 */
async function isPooled(first: Client, open: () => Promise<Client>): Promise<boolean> {
  const before = await backendOf(first);
  const second = await open();
  await second.query('BEGIN');
  await backendOf(second);
  const after = await backendOf(first);
  await second.query('ROLLBACK');
  return before !== after;
}

async function backendOf(client: Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return rows[0]?.pid;
}

async function schemaOf(client: Client): Promise<number> {
  const { rows } = await client.query<{ version: number }>('SELECT version FROM rye.version');
  return rows[0]?.version ?? 0;
}
