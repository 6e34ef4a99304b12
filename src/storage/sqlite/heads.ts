import { isJsonObject, parseJson } from '../../core/json.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import type { LogHeads, StoredHead } from '../store.ts';
import type { LazyDatabase } from './database.ts';

export const HEADS_MIGRATION = `CREATE TABLE heads (
  thread_id TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  updated_at TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  events INTEGER NOT NULL,
  knowledge_sha256 TEXT
) WITHOUT ROWID;`;

/** The last signed checkpoint that the thread's owner reported. */
export function signedHead(database: LazyDatabase, threadId: string): LogHead | undefined {
  const [row] = database.all(
    'SELECT signed_head FROM threads WHERE thread_id = ?',
    threadId,
  ) as readonly { signed_head: string | null }[];
  const value = parseJson(row?.signed_head ?? '');
  if (!isJsonObject(value)) return undefined;
  const { bytes, seq, epoch, sha256 } = value;
  return typeof bytes === 'number' &&
    typeof seq === 'number' &&
    typeof epoch === 'number' &&
    typeof sha256 === 'string'
    ? { bytes, seq, epoch, sha256 }
    : undefined;
}

/** The last signed end of each thread's log, in the database of the registry. */
export class SqliteHeads implements LogHeads {
  readonly #database: LazyDatabase;

  constructor(database: LazyDatabase) {
    this.#database = database;
  }

  async find(threadId: string): Promise<StoredHead | undefined> {
    return this.#database.get('SELECT * FROM heads WHERE thread_id = ?', threadId) as
      | StoredHead
      | undefined;
  }

  async accept(head: StoredHead): Promise<void> {
    this.#database.immediate(() => {
      this.#put(head);
      const sql = 'UPDATE threads SET signed_head = NULL WHERE thread_id = ?';
      this.#database.run(sql, head.thread_id);
    });
  }

  async note(head: StoredHead): Promise<void> {
    this.#put(head);
  }

  #put(head: StoredHead): void {
    this.#database.run(
      `INSERT OR REPLACE INTO heads (thread_id, status, epoch, updated_at, bytes, sha256, events, knowledge_sha256)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      head.thread_id,
      head.status,
      head.epoch,
      head.updated_at,
      head.bytes,
      head.sha256,
      head.events,
      head.knowledge_sha256,
    );
  }
}
