import { type ErrorInfo, isErrorCode, RyeError } from '../../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import {
  isActive,
  THREAD_STATUSES,
  type ThreadRecord,
  type ThreadStatus,
} from '../../core/thread.ts';
import { type Cost, NO_COST } from '../../core/usage.ts';
import type { LazyDatabase, Migrations } from './database.ts';
import { DELIVERIES_MIGRATION } from './delivery-rows.ts';
import { HEADS_MIGRATION } from './heads.ts';

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
