import { RyeError } from '../../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../../kernel/core/json.ts';
import type {
  EnqueueLeg,
  FleetPlace,
  FleetThreads,
  RunningThread,
} from '../../../kernel/storage/fleet-threads.ts';
import { change, one, type Work, withClient } from '../../../kernel/storage/sql-work.ts';
import type { PostgresDatabase } from './database.ts';

/**
 * Threads that may continue: their worker was removed, they were parked and what they wait for has ended, or
 * people decided since they were suspended. The error has the reason of a suspension.
 */
const RESTING = `
  SELECT thread_id FROM (
    SELECT *, json_or_null(error) AS ending FROM threads
    WHERE fleet IS NOT NULL AND status IN ('running', 'suspended')
  ) AS t
  WHERE CASE
    WHEN status = 'running' THEN
      worker IS NOT NULL AND NOT EXISTS (SELECT FROM workers WHERE worker_id = t.worker)
    WHEN t.ending ->> 'code' = 'thread_parked' THEN NOT EXISTS (
      SELECT FROM json_texts(t.ending -> 'details' -> 'threads') AS awaited (id)
      JOIN threads AS other ON other.thread_id = awaited.id OR other.chain_root_id = awaited.id
      WHERE other.status IN ('created', 'running')
        OR other.status = 'suspended' AND json_or_null(other.error) ->> 'code' = 'thread_parked')
    WHEN t.ending ->> 'code' = 'approval_pending' THEN EXISTS (
      SELECT FROM json_texts(t.ending -> 'details' -> 'approvals') AS asked (id)
      JOIN approvals ON approvals.approval_id = asked.id
      WHERE approvals.state = 'pending' AND approvals.expires_at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        OR EXISTS (SELECT FROM approval_decisions AS d
          WHERE d.approval_id = asked.id AND d.recorded_at > t.updated_at))
    ELSE false END
  ORDER BY updated_at LIMIT $1`;

/** A thread that was continued has ended when the last one of its chain has. */
const DROP_SEALED = `
  DELETE FROM sealed_secrets AS s USING threads AS t
  WHERE t.thread_id = s.thread_id AND t.status IN ('completed', 'error', 'cancelled', 'continued')
    AND NOT EXISTS (SELECT FROM threads AS next
      WHERE next.chain_root_id = coalesce(t.chain_root_id, t.thread_id)
        AND next.status IN ('created', 'running', 'suspended'))`;

/** The threads of a fleet in PostgreSQL. */
export class PostgresFleetThreads implements FleetThreads {
  readonly #database: PostgresDatabase;
  readonly #isOwner: boolean;

  /** `isOwner`: the connections end with these threads. */
  constructor(database: PostgresDatabase, isOwner: boolean) {
    this.#database = database;
    this.#isOwner = isOwner;
  }

  async start(
    threadId: string,
    place: FleetPlace,
    now: string,
    enqueue: EnqueueLeg,
  ): Promise<void> {
    await this.#database.write(function* queue(): Work<void> {
      yield* change(
        `UPDATE threads SET fleet = ?, pid = NULL, process_start = NULL, host = NULL, background = 1, updated_at = ?
         WHERE thread_id = ? AND status = 'created'`,
        JSON.stringify(place),
        now,
        threadId,
      );
      yield* withClient(async (transaction) => await enqueue(transaction, place));
    });
  }

  async resume(threadId: string, enqueue: EnqueueLeg): Promise<boolean> {
    return await this.#database.write(function* queue(): Work<boolean> {
      const place = placeIn(yield* one('SELECT fleet FROM threads WHERE thread_id = ?', threadId));
      if (!place) return false;
      yield* withClient(async (transaction) => await enqueue(transaction, place));
      return true;
    });
  }

  async placeOf(threadId: string): Promise<FleetPlace | undefined> {
    const { rows } = await this.#database.query('SELECT fleet FROM threads WHERE thread_id = $1', [
      threadId,
    ]);
    const place = placeIn(rows[0]);
    if (place || placeText(rows[0]) === undefined) return place;
    throw new RyeError('thread_tampered', `the place of ${threadId} in the store is damaged`, {
      hint: 'It was changed in the database. rye ignored it. Start the thread again.',
      details: { thread_id: threadId },
    });
  }

  async workerOf(threadId: string) {
    const { rows } = await this.#database.query(
      `SELECT threads.worker, workers.worker_id IS NOT NULL AS is_living
       FROM threads LEFT JOIN workers ON workers.worker_id = threads.worker
       WHERE thread_id = $1 AND worker IS NOT NULL`,
      [threadId],
    );
    const row = rows[0] as { readonly worker: string; readonly is_living: boolean } | undefined;
    return row && { workerId: row.worker, isLiving: row.is_living };
  }

  async resting(limit: number): Promise<readonly string[]> {
    const { rows } = await this.#database.query(RESTING, [limit]);
    return (rows as { readonly thread_id: string }[]).map((row) => row.thread_id);
  }

  async runningOn(workerId: string): Promise<readonly RunningThread[]> {
    const { rows } = await this.#database.query(
      `SELECT thread_id, pid, process_start, host FROM threads
       WHERE fleet IS NOT NULL AND status = 'running' AND worker = $1`,
      [workerId],
    );
    return rows as readonly RunningThread[];
  }

  async unstarted(
    limit: number,
  ): Promise<readonly { readonly threadId: string; readonly queue: string }[]> {
    const { rows } = await this.#database.query(
      "SELECT thread_id, fleet FROM threads WHERE fleet IS NOT NULL AND status = 'created' ORDER BY updated_at LIMIT $1",
      [limit],
    );
    return (rows as { readonly thread_id: string }[]).flatMap((row) => {
      const place = placeIn(row);
      return place ? [{ threadId: row.thread_id, queue: place.queue }] : [];
    });
  }

  async noteTakeover(threadId: string): Promise<number> {
    const { rows } = await this.#database.query(
      'UPDATE threads SET takeovers = takeovers + 1 WHERE thread_id = $1 RETURNING takeovers',
      [threadId],
    );
    return (rows[0] as { readonly takeovers: number } | undefined)?.takeovers ?? 0;
  }

  async forgetTakeovers(threadId: string): Promise<void> {
    await this.#database.query(
      'UPDATE threads SET takeovers = 0 WHERE thread_id = $1 AND takeovers > 0',
      [threadId],
    );
  }

  async addCertificate(keyId: string, certificate: string): Promise<void> {
    await this.#database.query(
      `INSERT INTO certificates (key_id, certificate) VALUES ($1, $2)
       ON CONFLICT (key_id) DO UPDATE SET certificate = excluded.certificate`,
      [keyId, certificate],
    );
  }

  async certificates(): Promise<ReadonlyMap<string, string>> {
    const { rows } = await this.#database.query('SELECT key_id, certificate FROM certificates');
    return new Map(
      (rows as { readonly key_id: string; readonly certificate: string }[]).map((row) => [
        row.key_id,
        row.certificate,
      ]),
    );
  }

  async addPool(poolId: string, statement: string): Promise<void> {
    await this.#database.query(
      'INSERT INTO pool_keys (pool_id, statement) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [poolId, statement],
    );
  }

  async pools(): Promise<readonly string[]> {
    const { rows } = await this.#database.query('SELECT statement FROM pool_keys');
    return (rows as { readonly statement: string }[]).map(({ statement }) => statement);
  }

  async putSealed(threadId: string, sealed: string): Promise<void> {
    await this.#database.query(
      'INSERT INTO sealed_secrets (thread_id, sealed) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [threadId, sealed],
    );
  }

  async sealedOf(threadId: string): Promise<string | undefined> {
    const { rows } = await this.#database.query(
      'SELECT sealed FROM sealed_secrets WHERE thread_id = $1',
      [threadId],
    );
    return (rows as { readonly sealed: string }[])[0]?.sealed;
  }

  async dropSealed(): Promise<void> {
    await this.#database.query(DROP_SEALED);
  }

  close(): void {
    if (this.#isOwner) this.#database.close();
  }
}

/** Reads a place that the store holds; undefined for all that is none. */
function placeIn(row: unknown): FleetPlace | undefined {
  const value = placeText(row);
  return value === undefined ? undefined : parsedPlace(value);
}

function placeText(row: unknown): string | undefined {
  const text = isRecord(row) ? row['fleet'] : undefined;
  return typeof text === 'string' ? text : undefined;
}

function parsedPlace(text: string): FleetPlace | undefined {
  const value = parseJson(text);
  if (!isRecord(value)) return undefined;
  const {
    queue,
    priority,
    partition,
    bundle,
    roots,
  }: { readonly [K in keyof FleetPlace]?: unknown } = value;
  const isWhole =
    typeof queue === 'string' &&
    typeof priority === 'number' &&
    (partition === null || typeof partition === 'string') &&
    typeof bundle === 'string';
  if (!isWhole) return undefined;
  const known = Array.isArray(roots) ? { roots: roots.map(String) } : {};
  return { queue, priority, partition, bundle, ...known };
}
