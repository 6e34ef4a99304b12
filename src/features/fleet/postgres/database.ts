import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Pool, PoolClient, QueryResult } from 'pg';
import { messageOf, RyeError } from '../../../kernel/core/errors.ts';
import type { SqlDatabase, Work } from '../../../kernel/storage/sql-work.ts';
import { parseStoreUrl } from '../../../kernel/storage/store-url.ts';
import { MIGRATIONS } from './schema.ts';

/** Code of PostgreSQL for a prepared statement whose tables have changed since. */
const PLAN_CHANGED = '0A000';
const MAX_PREPARED = 500;

/** The statements of a database, which its server parses once for each connection. */
class Statements {
  readonly #names = new Map<string, string>();
  /** False once the tables have changed under a prepared statement: then each is parsed again. */
  #isPreparing = true;

  async run(
    client: Pool | PoolClient,
    text: string,
    values: readonly unknown[],
  ): Promise<QueryResult> {
    const statement = { text, values: [...values] };
    const name = this.#nameOf(text);
    if (name === undefined) return await client.query(statement);
    try {
      return await client.query({ ...statement, name });
    } catch (error) {
      if (codeOf(error) === PLAN_CHANGED) this.#isPreparing = false;
      throw error;
    }
  }

  #nameOf(text: string): string | undefined {
    if (!this.#isPreparing) return undefined;
    let name = this.#names.get(text);
    if (name === undefined && this.#names.size < MAX_PREPARED) {
      name = `rye${this.#names.size}`;
      this.#names.set(text, name);
    }
    return name;
  }
}

/** Runs what is in no transaction, and runs it again if the tables have changed under a prepared statement. */
async function planned<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (codeOf(error) !== PLAN_CHANGED) throw error;
    return await work();
  }
}

/** Returns the code of an error of PostgreSQL or of the system. */
function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

export interface PostgresOptions {
  /** `postgres://user:password@host:port/database` */
  readonly url: string;
  /** Connections at most. */
  readonly connections?: number;
  /**
   * Milliseconds for which work waits while the server is away. Work whose commit was cut off is run again only if it did
   * not take effect. Default: 0.
   */
  readonly patientMs?: number;
  /**
   * The longest wait for an answer, in milliseconds. Then the connection is replaced: one that was lost without a word never
   * answers. Default: a minute for a patient database, whose work is tried again, else no limit.
   */
  readonly answerMs?: number;
}

/** The schema that holds everything of rye, so that a database may have other tenants. */
const SCHEMA = 'rye';
/** Key of the advisory lock under which the schema is migrated. */
const MIGRATION_LOCK = 7_931_001;
const MAX_TRIES = 50;
const MAX_TRIES_FOR_KEY = 3;
const FIRST_PAUSE_MS = 2;
const LONGEST_PAUSE_MS = 200;
const CONNECT_TIMEOUT_MS = 10_000;
const PATIENT_ANSWER_MS = 60_000;
/** Milliseconds in which a server that could not be reached is not asked again: one command waits for it once. */
const UNREACHABLE_MS = 5000;

const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 2000;

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const SERIALIZATION_FAILURE = '40001';
const DEADLOCK = '40P01';
const UNIQUE_VIOLATION = '23505';
const INT8_OID = 20;

/**
 * A PostgreSQL database. Transactions are serializable, so that work means the same as on SQLite, where one writer follows
 * the other; work that conflicts with another transaction is run again.
 */
export class PostgresDatabase implements SqlDatabase {
  readonly #options: PostgresOptions;
  readonly #statements = new Statements();
  #pool: Promise<Pool> | undefined;
  #failedAt: number | undefined;

  constructor(options: PostgresOptions) {
    this.#options = options;
  }

  async read<T>(work: () => Work<T>): Promise<T> {
    return await this.guarded(
      async () =>
        await this.#patiently(
          async () => await planned(async () => await this.#drive(work(), await this.pool())),
        ),
    );
  }

  async write<T>(work: () => Work<T>, { isLosable = false } = {}): Promise<T> {
    return await this.guarded(async () => {
      for (let tries = 1; ; tries += 1) {
        try {
          return await this.#patiently(async () => await this.#transaction(work, isLosable));
        } catch (error) {
          if (tries >= triesAfter(error)) throw error;
          await sleep(pause(tries));
        }
      }
    });
  }

  /** Tries again while the server is away, for as long as this database is patient. */
  async #patiently<T>(work: () => Promise<T>): Promise<T> {
    const { patientMs = 0 } = this.#options;
    const until = performance.now() + patientMs;
    for (let tries = 1; ; tries += 1) {
      try {
        return await work();
      } catch (error) {
        if (!isAway(error) || performance.now() >= until) throw error;
        // a pool that could not be opened is opened again
        if (this.#failedAt !== undefined) this.#pool = undefined;
        await sleep(
          Math.random() * Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(tries, 10)),
        );
      }
    }
  }

  /** Runs one statement of PostgreSQL's own dialect, with `$1` for parameters. A patient database may run it twice. */
  async query(text: string, values: readonly unknown[] = []): Promise<QueryResult> {
    return await this.guarded(
      async () =>
        await this.#patiently(
          async () =>
            await planned(async () => await this.#statements.run(await this.pool(), text, values)),
        ),
    );
  }

  async pool(): Promise<Pool> {
    const isOld =
      this.#failedAt !== undefined && performance.now() - this.#failedAt > UNREACHABLE_MS;
    if (isOld) this.#pool = undefined;
    this.#pool ??= this.#open();
    return await this.#pool;
  }

  async #open(): Promise<Pool> {
    this.#failedAt = undefined;
    try {
      return await openPool(this.#options);
    } catch (error) {
      this.#failedAt = performance.now();
      throw error;
    }
  }

  async guarded<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw storageError(error);
    }
  }

  close(): void {
    const pool = this.#pool;
    this.#pool = undefined;
    // the queries that are under way come to their end
    void pool?.then(async (opened) => await opened.end()).catch(() => undefined);
  }

  async #transaction<T>(work: () => Work<T>, isLosable: boolean): Promise<T> {
    const client = await (await this.pool()).connect();
    try {
      const id = await this.#begin(client, isLosable);
      const result = await this.#drive(work(), client);
      await this.#commit(client, id);
      client.release();
      return result;
    } catch (error) {
      await rollBack(client);
      throw error;
    }
  }

  async #drive<T>(work: Work<T>, client: Pool | PoolClient): Promise<T> {
    let step = work.next();
    while (step.done !== true) {
      if (step.value.kind === 'client') {
        step = work.next(await step.value.run(client));
        continue;
      }
      const { kind, sql, parameters } = step.value;
      const { rows, rowCount } = await this.#statements.run(client, numbered(sql), parameters);
      if (kind === 'one') step = work.next(rows[0]);
      else step = work.next(kind === 'all' ? rows : (rowCount ?? 0));
    }
    return step.value;
  }

  /** Begins a transaction. Returns its ID if this database is patient: it may have to ask for it. */
  async #begin(client: PoolClient, isLosable: boolean): Promise<string | undefined> {
    const isPatient = (this.#options.patientMs ?? 0) > 0;
    const statements = [
      'BEGIN ISOLATION LEVEL SERIALIZABLE',
      ...(isLosable ? ['SET LOCAL synchronous_commit = off'] : []),
      ...(isPatient ? ['SELECT pg_current_xact_id()::text AS id'] : []),
    ];
    const answer: unknown = await client.query(statements.join('; '));
    if (!isPatient) return undefined;
    const last = (answer as readonly QueryResult<{ readonly id: string }>[]).at(-1);
    return last?.rows[0]?.id;
  }

  /** Commits. If the connection breaks meanwhile, a patient database asks the server whether it did. */
  async #commit(client: PoolClient, id: string | undefined): Promise<void> {
    try {
      await client.query('COMMIT');
    } catch (error) {
      if (!isAway(error) || id === undefined) throw error;
      if ((await this.#fateOf(id)) !== 'committed') throw error;
    }
  }

  async #fateOf(transactionId: string): Promise<string> {
    for (;;) {
      const { rows } = await this.query('SELECT pg_xact_status($1::xid8) AS fate', [transactionId]);
      const { fate } = rows[0] as { readonly fate: string };
      if (fate !== 'in progress') return fate;
      await sleep(FIRST_WAIT_MS);
    }
  }
}

async function rollBack(client: PoolClient): Promise<void> {
  try {
    await client.query('ROLLBACK');
    client.release();
  } catch {
    // a connection in an unknown state is not used again
    client.release(true);
  }
}

/** Replaces each `?` with the number of its parameter. The statements of rye have no `?` in their texts. */
function numbered(sql: string): string {
  let count = 0;
  return sql.replaceAll('?', () => {
    count += 1;
    return `$${count}`;
  });
}

async function openPool(options: PostgresOptions): Promise<Pool> {
  const { url, connections = 4, patientMs = 0 } = options;
  const { answerMs = patientMs > 0 ? PATIENT_ANSWER_MS : undefined } = options;
  const driver = loadDriver();
  const types = new driver.TypeOverrides();
  // amounts and lengths stay far below 2^53
  types.setTypeParser(INT8_OID, Number);
  const pool = new driver.Pool({
    connectionString: url,
    max: connections,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    ...(answerMs === undefined ? {} : { query_timeout: answerMs }),
    options: `-c search_path=${SCHEMA}`,
    application_name: 'rye',
    types,
  });
  // a connection that breaks while idle is replaced by the next query
  pool.on('error', () => undefined);
  // one that breaks between two statements of a transaction fails the next of them
  pool.on('connect', (client) => client.on('error', () => undefined));
  try {
    await migrate(pool);
  } catch (error) {
    await pool.end();
    throw error instanceof RyeError ? error : unavailable(url, error);
  }
  return pool;
}

// `import()` does not work in the compiled program, see bin/rye.js
const load = createRequire(import.meta.url);

function loadDriver(): typeof pg {
  try {
    return load('pg') as typeof pg;
  } catch (error) {
    throw new RyeError('fleet_unavailable', 'the driver of PostgreSQL is not installed', {
      hint: 'Install it beside rye: npm install pg',
      cause: error,
    });
  }
}

/** The store could not be opened at all. */
function unavailable(url: string, error: unknown): RyeError {
  const { shown } = parseStoreUrl(url);
  // a connection to several addresses fails with an error that has only a code
  const reason = messageOf(error) || codeOf(error) || 'no connection';
  return new RyeError('fleet_unavailable', `the store ${shown} can't be opened: ${reason}`, {
    hint: 'Check the server, and the URL and its place with: rye config get store.url',
    details: { url: shown, code: codeOf(error) ?? null },
    cause: error,
  });
}

async function migrate(pool: Pool): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query(`SELECT pg_advisory_lock(${MIGRATION_LOCK})`);
    await client.query(
      `CREATE SCHEMA IF NOT EXISTS ${SCHEMA}; CREATE TABLE IF NOT EXISTS ${SCHEMA}.version (version INTEGER NOT NULL)`,
    );
    const { rows } = await client.query<{ version: number }>('SELECT version FROM version');
    const from = rows[0]?.version ?? 0;
    if (from > MIGRATIONS.length) throw newerSchema(from);
    for (const [index, sql] of MIGRATIONS.entries()) {
      if (index < from) continue;
      await client.query(
        `BEGIN; ${sql}; DELETE FROM version; INSERT INTO version VALUES (${index + 1}); COMMIT`,
      );
    }
    await client.query(`SELECT pg_advisory_unlock(${MIGRATION_LOCK})`);
    client.release();
  } catch (error) {
    // the lock ends with the connection
    client.release(true);
    throw error;
  }
}

function newerSchema(version: number): RyeError {
  return new RyeError('storage_failed', `the store has version ${version} of the schema`, {
    hint: `This rye knows versions up to ${MIGRATIONS.length}: update it.`,
  });
}

/** True if the server cannot be reached just now, or was stopped: the same work may succeed later. */
function isAway(error: unknown): boolean {
  const code = codeOf(error) ?? '';
  if (AWAY.has(code) || code.startsWith('08')) return true;
  if (error instanceof RyeError) return error.code === 'fleet_unavailable' && isAway(error.cause);
  // the driver has no code for these
  return (
    error instanceof Error &&
    /^(?:Connection terminated|timeout e|Query read timeout)/.test(error.message)
  );
}

/** Shut down, crashed, starting, too many connections; and the connection itself. */
const AWAY: ReadonlySet<string> = new Set([
  '57P01',
  '57P02',
  '57P03',
  '53300',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);

/** Returns how often work that failed like this is tried. A taken key may be one that was free when the work looked. */
function triesAfter(error: unknown): number {
  const code = codeOf(error);
  if (code === SERIALIZATION_FAILURE || code === DEADLOCK) return MAX_TRIES;
  return code === UNIQUE_VIOLATION || code === PLAN_CHANGED ? MAX_TRIES_FOR_KEY : 1;
}

function pause(tries: number): number {
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 10));
  return Math.random() * longest;
}

/** Keeps the server's message, drops the store's URL, which contains the password. */
function storageError(error: unknown): RyeError {
  if (error instanceof RyeError) return error;
  return new RyeError('storage_failed', `the PostgreSQL store failed: ${messageOf(error)}`, {
    hint: 'Check that the server runs and can be reached, then try again.',
    details: { code: codeOf(error) ?? null },
    cause: error,
  });
}
