import { NUMBER, objectOf, TEXT } from '../../../kernel/core/shape.ts';
import { takenOver } from '../../../kernel/core/thread-errors.ts';
import type { QuarantinedPart } from '../../../kernel/storage/store.ts';
import { storedJson } from '../../../kernel/storage/stored-json.ts';
import type { PostgresDatabase } from './database.ts';

/** The state of a log, without its bytes. */
export interface HeadRow {
  readonly epoch: number;
  /** Id of the owner that holds the log open; null: none does. */
  readonly holder: string | null;
  /** Name of the opening; a writer with another name is refused. */
  readonly lease: string | null;
  /** True if a worker holds it whose row was removed: a row never comes back. */
  readonly is_removed: boolean;
  readonly bytes: number;
  readonly archived: boolean;
}

export interface PieceRow {
  readonly start: number;
  readonly data: Buffer;
}

/** Bytes that are taken off a log, and what is kept of it. */
export interface Cut {
  readonly kept: readonly Buffer[];
  readonly bytes: Buffer;
  readonly part: QuarantinedPart;
}

/** An opening of a log for writing. */
export interface Opening {
  readonly threadId: string;
  readonly lease: string;
}

const PART = objectOf<QuarantinedPart>({
  offset: NUMBER,
  bytes: NUMBER,
  lines: NUMBER,
  sha256: TEXT,
  file: TEXT,
});

/** Pieces that one query reads. */
const PAGE = 64;

/** The rows of logs, see `schema.ts`. Writes name the opening that they belong to, and are refused once there is another one. */
export class LogRows {
  readonly #database: PostgresDatabase;
  readonly #workerId: string | null;

  /** `workerId`: the worker that this process belongs to; null: none. */
  constructor(database: PostgresDatabase, workerId: string | null) {
    this.#database = database;
    this.#workerId = workerId;
  }

  async head(threadId: string): Promise<HeadRow | undefined> {
    const [row] = await this.#rows(
      `SELECT epoch, holder, lease, bytes, archived, worker IS NOT NULL
         AND NOT EXISTS (SELECT FROM workers WHERE worker_id = worker) AS is_removed
       FROM log_heads WHERE thread_id = $1`,
      [threadId],
    );
    return row as HeadRow | undefined;
  }

  /** Pieces in order, from the piece with the byte at `from`. */
  async page(threadId: string, from: number): Promise<readonly PieceRow[]> {
    const rows = await this.#rows(
      `SELECT start, data FROM log_pieces WHERE thread_id = $1 AND start + length(data) > $2
         AND start >= coalesce((SELECT max(start) FROM log_pieces WHERE thread_id = $1 AND start <= $2), 0)
       ORDER BY start LIMIT ${PAGE}`,
      [threadId, from],
    );
    return rows as readonly PieceRow[];
  }

  /** Start of the last piece that begins at or before a line, counted from 0. */
  async startOfLine(threadId: string, line: number): Promise<number> {
    return await this.#start(
      'SELECT coalesce(max(start), 0) AS start FROM log_pieces WHERE thread_id = $1 AND lines <= $2',
      [threadId, line],
    );
  }

  /** Start of a piece after which the log has at least `count` lines; 0 for a shorter log. */
  async startOfLast(threadId: string, count: number): Promise<number> {
    return await this.#start(
      `SELECT coalesce(max(start), 0) AS start FROM log_pieces WHERE thread_id = $1
         AND lines <= (SELECT lines FROM log_heads WHERE thread_id = $1) - $2`,
      [threadId, count],
    );
  }

  async #start(text: string, values: readonly unknown[]): Promise<number> {
    const [row] = (await this.#rows(text, values)) as readonly { readonly start: number }[];
    return row?.start ?? 0;
  }

  async archive(threadId: string): Promise<void> {
    await this.#rows('UPDATE log_heads SET archived = true WHERE thread_id = $1', [threadId]);
  }

  async quarantined(threadId: string): Promise<readonly QuarantinedPart[]> {
    const rows = (await this.#rows('SELECT part FROM log_quarantine WHERE thread_id = $1', [
      threadId,
    ])) as readonly { readonly part: string }[];
    const parts = rows.map(({ part }) =>
      storedJson(part, PART, `a quarantined part of ${threadId}`),
    );
    return parts.toSorted((one, other) => one.offset - other.offset);
  }

  async quarantinedBytes(threadId: string, file: string): Promise<Buffer | undefined> {
    const [row] = (await this.#rows(
      'SELECT data FROM log_quarantine WHERE thread_id = $1 AND file = $2',
      [threadId, file],
    )) as readonly { readonly data: Buffer }[];
    return row?.data;
  }

  /** Lets an opening write in place of the opening that the caller has seen; false if that one has changed. */
  async take(
    { threadId, lease }: Opening,
    {
      epoch,
      holder,
      before,
    }: { readonly epoch: number; readonly holder: string; readonly before: string | null },
  ): Promise<boolean> {
    const { rowCount } = await this.#database.query(
      `INSERT INTO log_heads AS head (thread_id, epoch, holder, lease, worker) VALUES ($1, $2, $3, $4, $6)
       ON CONFLICT (thread_id) DO UPDATE SET epoch = $2, holder = $3, lease = $4, worker = $6
         WHERE head.lease IS NOT DISTINCT FROM $5`,
      [threadId, epoch, holder, lease, before, this.#workerId],
    );
    return rowCount === 1;
  }

  async release({ threadId, lease }: Opening): Promise<void> {
    await this.#rows(
      'UPDATE log_heads SET holder = NULL, lease = NULL, worker = NULL WHERE thread_id = $1 AND lease = $2',
      [threadId, lease],
    );
  }

  /** Appends bytes; false if the log does not end at their start. Throws `thread_locked` if another opening may write. */
  async append({ threadId, lease }: Opening, start: number, bytes: Buffer): Promise<boolean> {
    const [row] = (await this.#rows('SELECT append_log($1, $2, $3, $4, $5) AS answer', [
      threadId,
      lease,
      start,
      bytes,
      countLines(bytes),
    ])) as readonly { readonly answer: string }[];
    if (row?.answer === 'lost') throw takenOver(threadId);
    return row?.answer === 'done';
  }

  /** Returns the length of a log. Throws `thread_locked` if another opening may write. */
  async committed({ threadId, lease }: Opening): Promise<number> {
    const head = await this.head(threadId);
    if (head?.lease !== lease) throw takenOver(threadId);
    return head.bytes;
  }

  /** Moves bytes to the quarantine, in one transaction with the new end of the log. */
  async cut({ threadId, lease }: Opening, { part, bytes, kept }: Cut): Promise<void> {
    const end = kept.reduce((sum, chunk) => sum + chunk.length, 0);
    const lines = kept.reduce((sum, chunk) => sum + countLines(chunk), 0);
    const [row] = (await this.#rows('SELECT cut_log($1, $2, $3, $4, $5, $6, $7) AS done', [
      threadId,
      lease,
      end,
      lines,
      part.file,
      JSON.stringify(part),
      bytes,
    ])) as readonly { readonly done: boolean }[];
    if (row?.done !== true) throw takenOver(threadId);
  }

  async saveText(threadId: string, name: string, text: string): Promise<void> {
    await this.#rows(
      'INSERT INTO log_texts (thread_id, name, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
      [threadId, name, Buffer.from(text)],
    );
  }

  async #rows(text: string, values: readonly unknown[]): Promise<readonly unknown[]> {
    return (await this.#database.query(text, values)).rows;
  }
}

function countLines(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) count += 1;
  return count;
}
