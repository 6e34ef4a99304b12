import { OBJECT, objectOf, type Shape, TEXT } from '../../core/shape.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { change, one, type Work } from '../sql-work.ts';
import { storedJson } from '../stored-json.ts';

/** The number of each thread's current or last run, and the ends of the runs before it. */
export const RUNS_MIGRATION = `
  ALTER TABLE threads ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
  ALTER TABLE deliveries ADD COLUMN child_run INTEGER;
  CREATE TABLE ends (
    thread_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    ending TEXT NOT NULL,
    PRIMARY KEY (thread_id, run)
  ) WITHOUT ROWID;`;

/** The columns that the end of a run sets, and the next run clears. */
type Ending = Pick<
  ThreadRecord,
  'status' | 'updated_at' | 'completed_at' | 'cost' | 'result' | 'outputs' | 'error'
> & { readonly cancel_requested: string | null };

const ENDING = objectOf<Pick<Ending, 'status' | 'cost'>>({
  status: TEXT,
  cost: OBJECT,
}) as Shape<unknown> as Shape<Ending>;

/** Ends of earlier runs that a thread keeps, for those who still wait for one of them. */
const KEPT_ENDS = 20;

/** Returns the number of a thread's current or last run; 0 for an unknown thread. */
export function* runOf(threadId: string): Work<number> {
  const row = (yield* one('SELECT run FROM threads WHERE thread_id = ?', threadId)) as
    | { readonly run: number }
    | undefined;
  return row?.run ?? 0;
}

/** Sets the end of the last run aside and clears it, for the next run. */
export function* beginRun(before: ThreadRecord): Work<void> {
  const { thread_id: id, status, updated_at, completed_at, cost, result, outputs, error } = before;
  const { cancel_requested } = before;
  const ending: Ending = {
    status,
    updated_at,
    completed_at,
    cost,
    result,
    outputs,
    error,
    cancel_requested,
  };
  const run = yield* runOf(id);
  yield* change(
    `INSERT INTO ends (thread_id, run, ending) VALUES (?, ?, ?)
     ON CONFLICT (thread_id, run) DO UPDATE SET ending = excluded.ending`,
    id,
    run,
    JSON.stringify(ending),
  );
  yield* change('DELETE FROM ends WHERE thread_id = ? AND run <= ?', id, run - KEPT_ENDS);
  yield* change(
    `UPDATE threads SET run = run + 1, completed_at = NULL, result = NULL, outputs = NULL, error = NULL,
       cancel_requested = NULL WHERE thread_id = ?`,
    id,
  );
}

/** Returns the end that a run had when the next one began; undefined if it is not kept. */
export function* pastEnd(threadId: string, run: number): Work<Ending | undefined> {
  const row = (yield* one(
    'SELECT ending FROM ends WHERE thread_id = ? AND run = ?',
    threadId,
    run,
  )) as { readonly ending: string } | undefined;
  return row && storedJson(row.ending, ENDING, `the end of run ${run} of ${threadId}`);
}

/** Makes an earlier run the last one again, because the runs after it never began. */
export function* dropRunsAfter(threadId: string, run: number): Work<void> {
  yield* change('DELETE FROM ends WHERE thread_id = ? AND run >= ?', threadId, run);
  yield* change('UPDATE threads SET run = ? WHERE thread_id = ?', run, threadId);
}

/** Puts a newer state in place of a row that lost its last changes; false if the row is no longer as `before`. */
export function* renewRow(before: ThreadRecord, record: ThreadRecord, run: number): Work<boolean> {
  const { thread_id: threadId, outputs, error } = record;
  const isAsBefore = yield* one(
    'SELECT 1 FROM threads WHERE thread_id = ? AND epoch = ? AND status = ?',
    threadId,
    before.epoch,
    before.status,
  );
  if (isAsBefore === undefined) return false;
  if ((yield* runOf(threadId)) < run) yield* beginRun(before);
  yield* change(
    `UPDATE threads SET status = ?, updated_at = ?, completed_at = ?, pid = ?, process_start = ?, host = ?, epoch = ?,
       heartbeat_at = ?, model = ?, cost = ?, result = ?, outputs = ?, error = ?,
       run = CASE WHEN run < ? THEN ? ELSE run END,
       continuation_thread_id = coalesce(continuation_thread_id, ?)
      WHERE thread_id = ?`,
    record.status,
    record.updated_at,
    record.completed_at,
    record.pid,
    record.process_start,
    record.host,
    record.epoch,
    record.heartbeat_at,
    record.model,
    JSON.stringify(record.cost),
    record.result,
    outputs ? JSON.stringify(outputs) : null,
    error ? JSON.stringify(error) : null,
    run,
    run,
    record.continuation_thread_id,
    threadId,
  );
  return true;
}

/** Gives a thread the end back that it had before a resume that could not begin. Its epoch stays raised. */
export function* restoreEnd(before: ThreadRecord): Work<void> {
  const { thread_id: threadId, outputs, error } = before;
  yield* dropRunsAfter(threadId, (yield* runOf(threadId)) - 1);
  yield* change(
    `UPDATE threads SET status = ?, updated_at = ?, completed_at = ?, result = ?, outputs = ?, error = ?,
       cancel_requested = ? WHERE thread_id = ?`,
    before.status,
    before.updated_at,
    before.completed_at,
    before.result,
    outputs ? JSON.stringify(outputs) : null,
    error ? JSON.stringify(error) : null,
    before.cancel_requested,
    threadId,
  );
}
