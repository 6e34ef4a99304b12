import { type ErrorInfo, isErrorCode, RyeError } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import {
  isActive,
  THREAD_STATUSES,
  type ThreadRecord,
  type ThreadStatus,
} from '../../core/thread.ts';
import { type Cost, NO_COST } from '../../core/usage.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import { columnsOf } from '../owners.ts';
import type {
  LaunchLimits,
  LogHeads,
  Owner,
  OwnerColumns,
  Owners,
  StoredHead,
  ThreadFilter,
  TurnProgress,
} from '../store.ts';
import type { LazyDatabase, Migrations } from './database.ts';
import { DELIVERIES_MIGRATION } from './delivery-rows.ts';

const HEADS_MIGRATION = `CREATE TABLE heads (
  thread_id TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  updated_at TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  events INTEGER NOT NULL,
  knowledge_sha256 TEXT
) WITHOUT ROWID;`;

/** The number of each thread's current or last run, and the ends of the runs before it. */
const RUNS_MIGRATION = `
  ALTER TABLE threads ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
  ALTER TABLE deliveries ADD COLUMN child_run INTEGER;
  CREATE TABLE ends (
    thread_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    ending TEXT NOT NULL,
    PRIMARY KEY (thread_id, run)
  ) WITHOUT ROWID;`;

export const REGISTRY_MIGRATIONS: Migrations = [
  `CREATE TABLE threads (
     thread_id TEXT PRIMARY KEY,
     directive TEXT NOT NULL,
     parent_id TEXT,
     status TEXT NOT NULL,
     created_at TEXT NOT NULL,
     updated_at TEXT NOT NULL,
     completed_at TEXT,
     pid INTEGER,
     process_start TEXT,
     host TEXT,
     epoch INTEGER NOT NULL DEFAULT 0,
     heartbeat_at TEXT,
     model TEXT,
     cost TEXT NOT NULL,
     spawn_count INTEGER NOT NULL DEFAULT 0,
     result TEXT,
     outputs TEXT,
     error TEXT,
     continuation_of TEXT,
     continuation_thread_id TEXT,
     chain_root_id TEXT,
     cancel_requested TEXT
   );
   CREATE INDEX threads_by_parent ON threads (parent_id);
   CREATE INDEX threads_by_status ON threads (status);
   CREATE INDEX threads_by_time ON threads (created_at);`,
  DELIVERIES_MIGRATION,
  'CREATE INDEX threads_by_folded_id ON threads (thread_id COLLATE NOCASE);',
  'ALTER TABLE threads ADD COLUMN signed_head TEXT;',
  'ALTER TABLE runs ADD COLUMN point TEXT;',
  HEADS_MIGRATION,
  RUNS_MIGRATION,
];

/** The columns of a {@link RegistryRow}, for SELECT. */
export const COLUMNS = `thread_id, directive, parent_id, status, created_at, updated_at, completed_at, pid,
  process_start, host, epoch, heartbeat_at, model, cost, spawn_count, result, outputs, error, continuation_of,
  continuation_thread_id, chain_root_id, cancel_requested`;

/** SQL list of the statuses in which a process is expected to own the thread. */
export const ACTIVE_STATUSES = THREAD_STATUSES.filter(isActive)
  .map((status) => `'${status}'`)
  .join(', ');

/** A row as SQLite returns it: structured columns are JSON text. */
export type RegistryRow = Omit<ThreadRecord, 'status' | 'cost' | 'outputs' | 'error'> & {
  readonly status: string;
  readonly cost: string;
  readonly outputs: string | null;
  readonly error: string | null;
};

/** Inserts a whole row; false if there is one. */
export function insertRecord(database: LazyDatabase, record: ThreadRecord): boolean {
  const names = COLUMNS.split(',').map((name) => name.trim());
  const values = Object.entries(record).map(([name, value]: [string, unknown]) => [
    name,
    typeof value === 'object' && value !== null ? JSON.stringify(value) : value,
  ]);
  const row = Object.fromEntries(values) as Readonly<Record<string, unknown>>;
  const places = names.map((name) => `:${name}`).join(', ');
  return database.run(`INSERT OR IGNORE INTO threads (${COLUMNS}) VALUES (${places})`, row) === 1;
}

/** The columns that the end of a run sets, and the next run clears. */
type Ending = Pick<
  ThreadRecord,
  'status' | 'updated_at' | 'completed_at' | 'cost' | 'result' | 'outputs' | 'error'
> & { readonly cancel_requested: string | null };

/** Ends of earlier runs that a thread keeps, for those who still wait for one of them. */
const KEPT_ENDS = 20;

/** Returns the number of a thread's current or last run; 0 for an unknown thread. */
export function runOf(database: LazyDatabase, threadId: string): number {
  const row = database.get('SELECT run FROM threads WHERE thread_id = ?', threadId) as
    | { readonly run: number }
    | undefined;
  return row?.run ?? 0;
}

/** Sets the end of the last run aside and clears it, for the next run. */
export function beginRun(database: LazyDatabase, before: ThreadRecord): void {
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
  const run = runOf(database, id);
  database.run('INSERT OR REPLACE INTO ends VALUES (?, ?, ?)', id, run, JSON.stringify(ending));
  database.run('DELETE FROM ends WHERE thread_id = ? AND run <= ?', id, run - KEPT_ENDS);
  database.run(
    `UPDATE threads SET run = run + 1, completed_at = NULL, result = NULL, outputs = NULL, error = NULL,
       cancel_requested = NULL WHERE thread_id = ?`,
    id,
  );
}

/** Returns the end that a run had when the next one began; undefined if it is not kept. */
export function pastEnd(database: LazyDatabase, threadId: string, run: number): Ending | undefined {
  const row = database.get(
    'SELECT ending FROM ends WHERE thread_id = ? AND run = ?',
    threadId,
    run,
  ) as { readonly ending: string } | undefined;
  return row && (JSON.parse(row.ending) as Ending);
}

/** Makes an earlier run the last one again, because the runs after it never began. */
export function dropRunsAfter(database: LazyDatabase, threadId: string, run: number): void {
  database.run('DELETE FROM ends WHERE thread_id = ? AND run >= ?', threadId, run);
  database.run('UPDATE threads SET run = ? WHERE thread_id = ?', run, threadId);
}

/** Gives a thread the end back that it had before a resume that could not begin. Its epoch stays raised. */
export function restoreEnd(database: LazyDatabase, before: ThreadRecord): void {
  const { thread_id: threadId, outputs, error } = before;
  dropRunsAfter(database, threadId, runOf(database, threadId) - 1);
  database.run(
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

export function recordOf(row: RegistryRow): ThreadRecord {
  return {
    ...row,
    status: row.status as ThreadStatus,
    cost: (objectIn(row.cost) as Cost | null) ?? NO_COST,
    outputs: objectIn(row.outputs),
    error: errorIn(row.error),
  };
}

function objectIn(text: string | null): JsonObject | null {
  const value = text === null ? undefined : parseJson(text);
  return isJsonObject(value) ? value : null;
}

function errorIn(text: string | null): ErrorInfo | null {
  const value = objectIn(text);
  const code = value?.['code'];
  return typeof code === 'string' && isErrorCode(code) ? (value as unknown as ErrorInfo) : null;
}

/** Refuses an owner that lost its thread to another process. */
export function assertEpoch(record: ThreadRecord, epoch: number): void {
  if (record.epoch <= epoch) return;
  throw new RyeError(
    'thread_locked',
    `thread ${record.thread_id} was taken over: its epoch is ${record.epoch}, this process has ${epoch}`,
    {
      hint: 'Another process runs this thread now; this one must stop.',
      details: { thread_id: record.thread_id, epoch: record.epoch },
    },
  );
}

/** Records a sign of life, and how far the thread has come if that is known. */
export function noteProgress(
  database: LazyDatabase,
  threadId: string,
  { now, cost, head }: TurnProgress & { readonly now: string },
): void {
  database.run(
    `UPDATE threads SET heartbeat_at = ?, updated_at = ?, cost = coalesce(?, cost),
       signed_head = coalesce(?, signed_head) WHERE thread_id = ?`,
    now,
    now,
    cost ? JSON.stringify(cost) : null,
    head ? JSON.stringify(head) : null,
    threadId,
  );
}

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

/** A filter as the condition of a query over threads. */
export function conditions(filter: ThreadFilter): {
  readonly where: string;
  readonly parameters: readonly string[];
} {
  const { active, status, directive, parentId, continuationOf } = filter;
  const parts: string[] = [];
  const parameters: string[] = [];
  const add = (sql: string, ...values: readonly string[]): void => {
    parts.push(sql);
    parameters.push(...values);
  };
  if (active !== undefined) add(`status ${active ? '' : 'NOT '}IN (${ACTIVE_STATUSES})`);
  if (status !== undefined) add('status = ?', status);
  if (parentId !== undefined) add('parent_id = ?', parentId);
  if (continuationOf !== undefined) add('continuation_of = ?', continuationOf);
  if (directive?.includes('*')) add('directive GLOB ?', literalGlob(directive));
  else if (directive !== undefined) add('directive = ?', directive);
  return { where: parts.length === 0 ? '' : `WHERE ${parts.join(' AND ')}`, parameters };
}

/** Escapes the wildcards of SQLite's GLOB except `*`. */
function literalGlob(pattern: string): string {
  return pattern.replaceAll(/[?[]/g, '[$&]');
}

/** Ids that begin or end with `part`, newest first. */
export function idsLike(database: LazyDatabase, part: string, limit: number): readonly string[] {
  // length and substr compare literally: the part may hold `%` and `_`
  const rows = database.all(
    `SELECT thread_id FROM threads
      WHERE substr(thread_id, 1, length(?)) = ? OR substr(thread_id, -length(?)) = ?
      ORDER BY created_at DESC, rowid DESC LIMIT ?`,
    part,
    part,
    part,
    part,
    limit,
  ) as readonly { thread_id: string }[];
  return rows.map(({ thread_id }) => thread_id);
}

/** The tables that the queue of threads uses. */
export interface LaunchTables {
  readonly database: LazyDatabase;
  readonly owners: Owners;
}

interface OwnerRow extends OwnerColumns {
  readonly parent_id: string | null;
}

/**
 * Takes a queued thread for `owner`, in the caller's transaction: only while it is `created` without owner and a slot is
 * free. Threads whose process is dead hold no slot.
 */
export function takeLaunch(
  { database, owners }: LaunchTables,
  { threadId, owner, limits, now }: LaunchRequest,
): boolean {
  const queued = database.get(
    `SELECT parent_id FROM threads WHERE thread_id = ? AND status = 'created' AND pid IS NULL`,
    threadId,
  ) as { readonly parent_id: string | null } | undefined;
  if (!queued) return false;
  const owned = database.all(
    `SELECT parent_id, pid, process_start, host FROM threads WHERE status IN (${ACTIVE_STATUSES}) AND pid IS NOT NULL`,
  ) as readonly OwnerRow[];
  const alive = owned.filter((row) => {
    const found = owners.ofRecord(row);
    return found !== undefined && owners.state(found) !== 'gone';
  });
  const siblings = alive.filter(({ parent_id }) => parent_id === queued.parent_id).length;
  if (!hasSlot({ total: alive.length, siblings, isRoot: queued.parent_id === null }, limits))
    return false;
  return assign(database, { threadId, owner, now });
}

export interface LaunchRequest {
  readonly threadId: string;
  readonly owner: Owner;
  readonly limits: LaunchLimits;
  readonly now: string;
}

/**
 * A parent may always have one running child, even if all slots are taken: otherwise parents that wait for queued children
 * could hold all slots for ever.
 */
function hasSlot(
  running: { readonly total: number; readonly siblings: number; readonly isRoot: boolean },
  { maxChildren, maxTotal }: LaunchLimits,
): boolean {
  if (running.isRoot) return running.total < maxTotal;
  if (running.siblings === 0) return true;
  return running.siblings < maxChildren && running.total < maxTotal;
}

/**
 * Sets or clears the owner of a `created` thread; false when it is not `created` any more. One that waits for a process of
 * its own is a background thread: its end becomes a delivery.
 */
export function assign(
  database: LazyDatabase,
  { threadId, owner, now }: { threadId: string; owner: Owner | null; now: string },
): boolean {
  const changed = database.run(
    `UPDATE threads SET pid = ?, process_start = ?, host = ?, updated_at = ?, background = max(background, ?)
      WHERE thread_id = ? AND status = 'created'`,
    ...columnsOf(owner),
    now,
    Number(owner === null),
    threadId,
  );
  return changed > 0;
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
