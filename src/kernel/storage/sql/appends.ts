import type { Appends, QueuedEntry } from '../appends.ts';
import { all, bind, change, reading, type SqlDatabase, type Work, writing } from '../sql-work.ts';

/** The table of SQLite; that of PostgreSQL differs in how it counts. */
export const APPENDS_MIGRATION = `
  CREATE TABLE appends (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    entry_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL,
    draft TEXT NOT NULL,
    created_at TEXT NOT NULL
  );
  CREATE INDEX appends_by_thread ON appends (thread_id, seq);`;

interface Row {
  readonly entry_id: string;
  readonly thread_id: string;
  readonly draft: string;
}

/** The entries that wait for the owners of logs, in the database of the registry. */
export function sqlAppends(database: SqlDatabase): Appends {
  return bind<Appends>(database, {
    add: writing(add),
    list: reading(list),
    remove: writing(remove),
  });
}

function* add({ entryId, threadId, draft }: QueuedEntry, now: string): Work<void> {
  yield* change(
    'INSERT INTO appends (entry_id, thread_id, draft, created_at) VALUES (?, ?, ?, ?)',
    entryId,
    threadId,
    draft,
    now,
  );
}

function* list(threadIds: readonly string[]): Work<readonly QueuedEntry[]> {
  if (threadIds.length === 0) return [];
  const marks = threadIds.map(() => '?').join(', ');
  const rows = (yield* all(
    `SELECT entry_id, thread_id, draft FROM appends WHERE thread_id IN (${marks}) ORDER BY seq`,
    ...threadIds,
  )) as readonly Row[];
  return rows.map(({ entry_id: entryId, thread_id: threadId, draft }) => ({
    entryId,
    threadId,
    draft,
  }));
}

function* remove(entryIds: readonly string[]): Work<void> {
  for (const id of entryIds) yield* change('DELETE FROM appends WHERE entry_id = ?', id);
}
