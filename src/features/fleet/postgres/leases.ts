import { setTimeout as sleep } from 'node:timers/promises';
import type { QueryResult } from 'pg';
import { RyeError } from '../../../kernel/core/errors.ts';
import { parseJson } from '../../../kernel/core/json.ts';
import { runBy } from '../../../kernel/core/thread-errors.ts';
import { change, one } from '../../../kernel/storage/sql-work.ts';
import type {
  Leases,
  Renewal,
  ThreadLeases,
  WorkerFacts,
  WorkerRow,
} from '../../../kernel/storage/worker-leases.ts';
import type { PostgresDatabase } from './database.ts';

/** The longest wait for one statement, in milliseconds: a connection that hangs must not hide that the lease runs out. */
export const STATEMENT_MS = 2000;

const UNTIL = "clock_timestamp() + $2 * interval '1 millisecond'";

/** Living workers that watch the others: two, so that one is there when the other dies. */
const WATCHERS = 2;
/** A renewal that a crash of the server loses only makes the lease shorter, so its commit waits for no disk. */
const RENEW = `
  WITH quick AS (SELECT set_config('synchronous_commit', 'off', true))
  UPDATE workers SET lease_until = ${UNTIL}, beat = beat + 1 FROM quick WHERE worker_id = $1
  RETURNING is_draining, $3 > (
    SELECT count(*) FROM (
      SELECT FROM workers AS other WHERE other.worker_id < $1 AND other.lease_until >= clock_timestamp()
      ORDER BY other.worker_id LIMIT $3
    ) AS earlier
  ) AS is_watching`;

/** The leases of workers in a table. All times come from the database, so that no worker's clock decides about another. */
export class WorkerLeases implements Leases {
  readonly #database: PostgresDatabase;

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  async add({ workerId, labels, version, leaseMs }: WorkerFacts): Promise<void> {
    const added = await this.#change(
      `INSERT INTO workers (worker_id, lease_until, labels, version) VALUES ($1, ${UNTIL}, $3, $4)
       ON CONFLICT DO NOTHING`,
      [workerId, leaseMs, JSON.stringify(labels), version],
    );
    if (added === 1) return;
    throw new RyeError('already_exists', `a worker with the ID ${workerId} is in the fleet`, {
      hint: 'Start it with another ID, or wait until the fleet has removed the earlier one.',
      details: { worker_id: workerId },
    });
  }

  async renew(workerId: string, leaseMs: number): Promise<Renewal | undefined> {
    const { rows } = await this.#query(RENEW, [workerId, leaseMs, WATCHERS]);
    return rows[0] as Renewal | undefined;
  }

  async remove(workerId: string): Promise<void> {
    await this.#change('DELETE FROM workers WHERE worker_id = $1', [workerId]);
  }

  async removeSilent({ worker_id, beat }: Pick<WorkerRow, 'worker_id' | 'beat'>): Promise<boolean> {
    const removed = await this.#change(
      'DELETE FROM workers WHERE worker_id = $1 AND beat = $2 AND lease_until < clock_timestamp()',
      [worker_id, beat],
    );
    return removed === 1;
  }

  async askToDrain(workerId: string): Promise<boolean> {
    const asked = await this.#change('UPDATE workers SET is_draining = true WHERE worker_id = $1', [
      workerId,
    ]);
    return asked === 1;
  }

  async list(): Promise<readonly WorkerRow[]> {
    const { rows } = await this.#query(
      `SELECT worker_id, beat, labels, version, is_draining, lease_until < clock_timestamp() AS is_expired,
         extract(epoch FROM lease_until - clock_timestamp())::float8 AS seconds_left
       FROM workers ORDER BY worker_id`,
      [],
    );
    return rows.map((row: Row) => ({ ...row, labels: labelsIn(row.labels) }));
  }

  async #change(text: string, values: readonly unknown[]): Promise<number> {
    return (await this.#query(text, values)).rowCount ?? 0;
  }

  /** A statement that takes too long fails here, and may still take effect: each of these may. */
  async #query(text: string, values: readonly unknown[]): Promise<QueryResult> {
    const over = new AbortController();
    const late = sleep(STATEMENT_MS, undefined, { signal: over.signal }).then(() => {
      throw new RyeError('storage_failed', `the store did not answer within ${STATEMENT_MS} ms`);
    });
    try {
      return await Promise.race([this.#database.query(text, values), late]);
    } finally {
      over.abort();
      late.catch(() => undefined);
    }
  }
}

type Row = Omit<WorkerRow, 'labels'> & { readonly labels: string };

function labelsIn(text: string): readonly string[] {
  const value = parseJson(text);
  return Array.isArray(value) ? value.map(String) : [];
}

/**
 * Leases for the claims of one process. A worker that is silent keeps its threads until its row is removed: a lease that
 * has only run out may be that of a worker whose database was away.
 */
export function threadLeases(workerId: string | null): ThreadLeases {
  return {
    *assertRemoved(threadId) {
      const row = (yield* one('SELECT worker FROM threads WHERE thread_id = ?', threadId)) as
        | { readonly worker: string | null }
        | undefined;
      const holder = row?.worker ?? null;
      if (holder === null || holder === workerId) return false;
      // a removed row never comes back: an answer of none stays true
      const living = yield* one('SELECT 1 FROM workers WHERE worker_id = ?', holder);
      if (living === undefined) return true;
      throw runBy(threadId, `worker ${holder}`, { worker: holder });
    },
    *note(threadId) {
      yield* change('UPDATE threads SET worker = ? WHERE thread_id = ?', workerId, threadId);
    },
  };
}
