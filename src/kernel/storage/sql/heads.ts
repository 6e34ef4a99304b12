import { isJsonObject, parseJson } from '../../core/json.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import { bind, change, one, reading, type SqlDatabase, type Work, writing } from '../sql-work.ts';
import type { LogHeads, StoredHead } from '../store.ts';

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
export function* signedHead(threadId: string): Work<LogHead | undefined> {
  const row = (yield* one('SELECT signed_head FROM threads WHERE thread_id = ?', threadId)) as
    | { readonly signed_head: string | null }
    | undefined;
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
export function sqlHeads(database: SqlDatabase): LogHeads {
  return bind<LogHeads>(database, {
    find: reading(find),
    accept: writing(accept),
    note: writing(put),
  });
}

function* find(threadId: string): Work<StoredHead | undefined> {
  return (yield* one('SELECT * FROM heads WHERE thread_id = ?', threadId)) as
    | StoredHead
    | undefined;
}

function* accept(head: StoredHead): Work<void> {
  yield* put(head);
  yield* change('UPDATE threads SET signed_head = NULL WHERE thread_id = ?', head.thread_id);
}

function* put(head: StoredHead): Work<void> {
  yield* change(
    `INSERT INTO heads (thread_id, status, epoch, updated_at, bytes, sha256, events, knowledge_sha256)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (thread_id) DO UPDATE SET status = excluded.status, epoch = excluded.epoch,
       updated_at = excluded.updated_at, bytes = excluded.bytes, sha256 = excluded.sha256, events = excluded.events,
       knowledge_sha256 = excluded.knowledge_sha256`,
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
