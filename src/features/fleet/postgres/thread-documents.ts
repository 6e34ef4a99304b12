import { RyeError } from '../../../kernel/core/errors.ts';
import { takenOver } from '../../../kernel/core/thread-errors.ts';
import { sha256Hex } from '../../../kernel/log/checkpoint.ts';
import type {
  ListedFile,
  StoredFile,
  ThreadDocuments,
} from '../../../kernel/storage/thread-documents.ts';
import type { PostgresDatabase } from './database.ts';

/** The files of threads in a table. */
export class PostgresThreadDocuments implements ThreadDocuments {
  readonly #database: PostgresDatabase;

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  async put(
    threadId: string,
    { name, bytes, signature }: StoredFile,
    epoch: number,
  ): Promise<void> {
    // the lock on the row makes a claim wait, so that no write of an earlier owner follows it
    const { rowCount } = await this.#database.query(
      `WITH thread AS (SELECT epoch FROM threads WHERE thread_id = $1 FOR SHARE)
       INSERT INTO thread_files (thread_id, name, bytes, sha256, signature, epoch)
       SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (SELECT FROM thread WHERE epoch > $6)
       ON CONFLICT (thread_id, name) DO UPDATE SET bytes = excluded.bytes, sha256 = excluded.sha256,
         signature = excluded.signature, epoch = excluded.epoch, written_at = excluded.written_at`,
      [threadId, name, Buffer.from(bytes), sha256Hex(bytes), signature, epoch],
    );
    if (rowCount === 1) return;
    throw takenOver(threadId);
  }

  async get(threadId: string, name: string): Promise<StoredFile | undefined> {
    const { rows } = await this.#database.query(
      'SELECT bytes, sha256, signature FROM thread_files WHERE thread_id = $1 AND name = $2',
      [threadId, name],
    );
    const [row] = rows as readonly Row[];
    if (!row) return undefined;
    const { bytes, sha256, signature } = row;
    if (sha256Hex(bytes) === sha256) return { name, bytes, signature };
    throw new RyeError('thread_tampered', `${name} of ${threadId} in the store has another hash`, {
      hint: 'It was changed in the database. rye ignored it.',
      details: { thread_id: threadId, file: name },
    });
  }

  async list(threadId: string): Promise<readonly ListedFile[]> {
    const { rows } = await this.#database.query(
      `SELECT name, sha256, octet_length(bytes) AS size FROM thread_files WHERE thread_id = $1
       ORDER BY name`,
      [threadId],
    );
    return rows as readonly ListedFile[];
  }
}

interface Row {
  readonly bytes: Buffer;
  readonly sha256: string;
  readonly signature: string;
}
