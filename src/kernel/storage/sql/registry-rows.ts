import { type ErrorInfo, isErrorCode } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import { didYouMean } from '../../core/text.ts';
import {
  isActive,
  THREAD_STATUSES,
  type ThreadRecord,
  type ThreadStatus,
} from '../../core/thread.ts';
import { takenOver, threadNotFound } from '../../core/thread-errors.ts';
import { type Cost, NO_COST } from '../../core/usage.ts';
import { columnsOf } from '../owners.ts';
import { all, change, one, type Work } from '../sql-work.ts';
import type {
  LaunchLimits,
  Owner,
  OwnerColumns,
  Owners,
  ThreadFilter,
  TurnProgress,
} from '../store.ts';
import { BY_THREAD_MIGRATION, LISTING_MIGRATION } from '../thread-indexes.ts';
import { APPENDS_MIGRATION } from './appends.ts';
import { APPROVALS_MIGRATION } from './approvals.ts';
import { DELIVERIES_MIGRATION } from './delivery-rows.ts';
import { HEADS_MIGRATION } from './heads.ts';
import { RUNS_MIGRATION } from './run-ends.ts';

export const REGISTRY_MIGRATIONS: readonly string[] = [
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
  APPROVALS_MIGRATION,
  `DROP INDEX threads_by_folded_id;
   CREATE INDEX threads_by_lower_id ON threads (lower(thread_id));`,
  'ALTER TABLE threads ADD COLUMN worker TEXT;',
  BY_THREAD_MIGRATION,
  LISTING_MIGRATION,
  APPENDS_MIGRATION,
];

/** The columns of a {@link RegistryRow}, for SELECT. */
export const COLUMNS = `thread_id, directive, parent_id, status, created_at, updated_at, completed_at, pid,
  process_start, host, epoch, heartbeat_at, model, cost, spawn_count, result, outputs, error, continuation_of,
  continuation_thread_id, chain_root_id, cancel_requested, worker`;

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
export function* insertRecord(record: ThreadRecord): Work<boolean> {
  const names = COLUMNS.split(',').map((name) => name.trim());
  const values = new Map<string, unknown>(Object.entries(record));
  const inserted = yield* change(
    `INSERT INTO threads (${COLUMNS}) VALUES (${names.map(() => '?').join(', ')}) ON CONFLICT DO NOTHING`,
    ...names.map((name) => columnOf(values.get(name))),
  );
  return inserted === 1;
}

function columnOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : value;
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

/** Returns a thread's record; undefined if the registry doesn't list it. */
export function* findRecord(threadId: string): Work<ThreadRecord | undefined> {
  const row = (yield* one(`SELECT ${COLUMNS} FROM threads WHERE thread_id = ?`, threadId)) as
    | RegistryRow
    | undefined;
  return row && recordOf(row);
}

/** Returns a thread's record, or throws `thread_not_found` with the id that may have been meant. */
export function* requireRecord(threadId: string): Work<ThreadRecord> {
  const record = yield* findRecord(threadId);
  if (record) return record;
  const near = (yield* all(
    'SELECT thread_id FROM threads ORDER BY rowid DESC LIMIT 200',
  )) as readonly { thread_id: string }[];
  const ids = near.map(({ thread_id }) => thread_id);
  throw threadNotFound(threadId, didYouMean(threadId, ids));
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
  throw takenOver(record.thread_id, {
    how: `its epoch is ${record.epoch}, this process has ${epoch}`,
    epoch: record.epoch,
  });
}

/** Records a sign of life of an owner, and how far the thread has come if that is known. Returns 0 if it lost the thread. */
export function* noteProgress(
  threadId: string,
  epoch: number,
  { now, cost, head }: TurnProgress & { readonly now: string },
): Work<number> {
  return yield* change(
    `UPDATE threads SET heartbeat_at = ?, updated_at = ?, cost = coalesce(?, cost),
       signed_head = coalesce(?, signed_head) WHERE thread_id = ? AND epoch <= ?`,
    now,
    now,
    cost ? JSON.stringify(cost) : null,
    head ? JSON.stringify(head) : null,
    threadId,
    epoch,
  );
}

const PARENTS = {
  none: 'parent_id IS NULL',
  // by an index of parents: SQLite would read every row for IS NOT NULL, to have them in order
  unlisted: `rowid IN (SELECT children.rowid FROM threads children WHERE children.parent_id > ''
     AND NOT EXISTS (SELECT 1 FROM threads parents WHERE parents.thread_id = children.parent_id))`,
};

/** A filter as the condition of a query over threads. */
export function conditions(filter: ThreadFilter): {
  readonly where: string;
  readonly parameters: readonly string[];
} {
  const { active, status, directive, parentId, parent, isLast, continuationOf } = filter;
  const parts: string[] = [];
  const parameters: string[] = [];
  const add = (sql: string, ...values: readonly string[]): void => {
    parts.push(sql);
    parameters.push(...values);
  };
  if (active !== undefined) add(`status ${active ? '' : 'NOT '}IN (${ACTIVE_STATUSES})`);
  if (status !== undefined) add('status = ?', status);
  if (parentId !== undefined) add('parent_id = ?', parentId);
  if (parent !== undefined) add(PARENTS[parent]);
  if (isLast) add('continuation_thread_id IS NULL');
  if (continuationOf !== undefined) add('continuation_of = ?', continuationOf);
  if (directive?.includes('*')) add('glob(?, directive)', literalGlob(directive));
  else if (directive !== undefined) add('directive = ?', directive);
  return { where: parts.length === 0 ? '' : `WHERE ${parts.join(' AND ')}`, parameters };
}

/** Escapes the wildcards of SQLite's GLOB except `*`. */
function literalGlob(pattern: string): string {
  return pattern.replaceAll(/[?[]/g, '[$&]');
}

/** PostgreSQL refuses the negative number that means no limit in SQLite. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** Ids that begin or end with `part`, newest first; all if the limit is negative. */
export function* idsLike(part: string, limit: number): Work<readonly string[]> {
  // length and substr compare literally: the part may hold `%` and `_`
  const rows = (yield* all(
    `SELECT thread_id FROM threads
      WHERE substr(thread_id, 1, length(?)) = ? OR substr(thread_id, length(thread_id) - length(?) + 1) = ?
      ORDER BY created_at DESC, rowid DESC LIMIT ?`,
    part,
    part,
    part,
    part,
    limit < 0 ? NO_LIMIT : limit,
  )) as readonly { thread_id: string }[];
  return rows.map(({ thread_id }) => thread_id);
}

interface OwnerRow extends OwnerColumns {
  readonly parent_id: string | null;
  readonly heartbeat_at: string | null;
  readonly updated_at: string;
}

/** Silence after which an owner that can't be seen from here holds no slot: many times the interval of its heartbeats. */
const SILENT_MS = 60_000;

/**
 * Takes a queued thread for `owner`, in the caller's transaction: only while it is `created` without owner and a slot is
 * free. Threads whose process is dead hold no slot, and neither do silent threads of an unseen host.
 */
export function* takeLaunch(
  owners: Owners,
  { threadId, owner, limits, now }: LaunchRequest,
): Work<boolean> {
  const queued = (yield* one(
    `SELECT parent_id FROM threads WHERE thread_id = ? AND status = 'created' AND pid IS NULL`,
    threadId,
  )) as { readonly parent_id: string | null } | undefined;
  if (!queued) return false;
  const owned = (yield* all(
    `SELECT parent_id, pid, process_start, host, heartbeat_at, updated_at FROM threads WHERE status IN (${ACTIVE_STATUSES}) AND pid IS NOT NULL`,
  )) as readonly OwnerRow[];
  const alive = owned.filter((row) => {
    const found = owners.ofRecord(row);
    const state = found === undefined ? 'gone' : owners.state(found);
    return state === 'unknown' ? !isSilent(row, now) : state !== 'gone';
  });
  const siblings = alive.filter(({ parent_id }) => parent_id === queued.parent_id).length;
  if (!hasSlot({ total: alive.length, siblings, isRoot: queued.parent_id === null }, limits))
    return false;
  return yield* assign({ threadId, owner, now });
}

function isSilent({ heartbeat_at: beaten, updated_at: updated }: OwnerRow, now: string): boolean {
  return Date.parse(now) - Date.parse(beaten ?? updated) > SILENT_MS;
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
export function* assign({
  threadId,
  owner,
  now,
}: {
  threadId: string;
  owner: Owner | null;
  now: string;
}): Work<boolean> {
  const changed = yield* change(
    `UPDATE threads SET pid = ?, process_start = ?, host = ?, updated_at = ?, background = CASE WHEN ? = 1 THEN 1 ELSE background END
      WHERE thread_id = ? AND status = 'created'`,
    ...columnsOf(owner),
    now,
    Number(owner === null),
    threadId,
  );
  return changed > 0;
}
