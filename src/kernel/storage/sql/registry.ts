import { RyeError } from '../../core/errors.ts';
import { assertTransition, isFinal, type ThreadRecord } from '../../core/thread.ts';
import { continuedElsewhere, runBy } from '../../core/thread-errors.ts';
import { NO_COST } from '../../core/usage.ts';
import { columnsOf, processOf } from '../owners.ts';
import {
  all,
  bind,
  change,
  one,
  reading,
  type SqlDatabase,
  type Work,
  writing,
} from '../sql-work.ts';
import type {
  FinishParams,
  Owner,
  Owners,
  RegisterParams,
  Registry,
  ThreadFilter,
  TurnProgress,
} from '../store.ts';
import type { ThreadLeases } from '../worker-leases.ts';
import { chainOf, linkContinuation } from './chains.ts';
import { enqueueChildEnd } from './delivery-queue.ts';
import { signedHead } from './heads.ts';
import {
  assertEpoch,
  assign,
  COLUMNS,
  conditions,
  findRecord,
  idsLike,
  insertRecord,
  noteProgress,
  type RegistryRow,
  recordOf,
  requireRecord,
  takeLaunch,
} from './registry-rows.ts';
import { beginRun, dropRunsAfter, pastEnd, renewRow, restoreEnd, runOf } from './run-ends.ts';

/** The registry of a project in a database. `leases`: absent for a store that no fleet shares. */
export function sqlRegistry(
  database: SqlDatabase,
  owners: Owners,
  leases?: ThreadLeases,
): Registry {
  return bind<Registry>(database, {
    register: writing((params) => register(params, leases)),
    restore: writing(insertRecord),
    renew: writing(renewRow),
    get: reading(findRecord),
    findIds: reading(idsLike),
    list: reading(list),
    count: reading(count),
    claim: writing((threadId, owner, now, silentSince = null) =>
      claim(owners, { threadId, owner, now, silentSince, leases }),
    ),
    resume: writing((before, owner, now) => resume(before, { owner, now, leases })),
    revert: writing(revert),
    runOf: reading(runOf),
    endOf: writing(endOf),
    heartbeat: writing((threadId, epoch, now, progress = {}) =>
      heartbeat(threadId, epoch, { now, ...progress }),
    ),
    signedHead: reading(signedHead),
    assign: writing((threadId, owner, now) => assign({ threadId, owner, now })),
    takeLaunch: writing((threadId, owner, limits, now) =>
      takeLaunch(owners, { threadId, owner, limits, now }),
    ),
    finish: writing(finish),
    requestCancel: writing(requestCancel),
    linkContinuation: writing(linkContinuation),
    chain: reading(chainOf),
  });
}

function* register(params: RegisterParams, leases: ThreadLeases | undefined): Work<ThreadRecord> {
  const { threadId, owner, now, isClaimed = false } = params;
  yield* assertFree(threadId);
  yield* countSpawn(params);
  yield* insert(params);
  if (owner && isClaimed) return yield* own(threadId, { owner, now, leases });
  return yield* requireRecord(threadId);
}

function* list(filter: ThreadFilter): Work<readonly ThreadRecord[]> {
  const { where, parameters } = conditions(filter);
  const direction = filter.order === 'oldest first' ? 'ASC' : 'DESC';
  const limit = filter.limit === undefined ? [] : [filter.limit];
  const rows = (yield* all(
    `SELECT ${COLUMNS} FROM threads ${where} ORDER BY created_at ${direction}, rowid ${direction}
     ${limit.map(() => 'LIMIT ?').join('')}`,
    ...parameters,
    ...limit,
  )) as readonly RegistryRow[];
  return rows.map(recordOf);
}

function* count(filter: ThreadFilter): Work<number> {
  const { where, parameters } = conditions(filter);
  const row = yield* one(`SELECT count(*) AS found FROM threads ${where}`, ...parameters);
  return Number((row as { readonly found: unknown }).found);
}

function* claim(owners: Owners, { threadId, silentSince, ...next }: Claim): Work<ThreadRecord> {
  const record = yield* requireRecord(threadId);
  const isSilent = silentSince !== null && record.heartbeat_at === silentSince;
  if (isFinal(record.status)) throw endedThread(record);
  if (record.status === 'running') {
    // a worker is silent in every outage of the database: only the removal of its row ends its right
    const isRemoved = next.leases ? yield* next.leases.assertRemoved(threadId) : false;
    if (!isRemoved && !isSilent) assertOwnerGone(owners, record);
  }
  return yield* own(threadId, next);
}

interface NextOwner {
  readonly owner: Owner;
  readonly now: string;
  readonly leases: ThreadLeases | undefined;
}

interface Claim extends NextOwner {
  readonly threadId: string;
  readonly silentSince: string | null;
}

function* resume(before: ThreadRecord, next: NextOwner): Work<ThreadRecord> {
  const { thread_id: threadId } = before;
  const record = yield* requireRecord(threadId);
  const { status, epoch } = record;
  if (status !== before.status || epoch !== before.epoch) throw continuedElsewhere(threadId);
  assertTransition(threadId, status, 'running');
  yield* beginRun(record);
  return yield* own(threadId, next);
}

function* revert(before: ThreadRecord, epoch: number): Work<void> {
  assertEpoch(yield* requireRecord(before.thread_id), epoch);
  yield* restoreEnd(before);
}

function* endOf(threadId: string, run: number): Work<ThreadRecord | undefined> {
  const record = yield* findRecord(threadId);
  if (!record) return undefined;
  const past = yield* pastEnd(threadId, run);
  if (past) return { ...record, ...past };
  const isOver = isFinal(record.status) || record.status === 'suspended';
  return isOver || (yield* runOf(threadId)) > run ? record : undefined;
}

function* heartbeat(
  threadId: string,
  epoch: number,
  progress: TurnProgress & { readonly now: string },
): Work<void> {
  if ((yield* noteProgress(threadId, epoch, progress)) > 0) return;
  assertEpoch(yield* requireRecord(threadId), epoch);
}

function* finish(threadId: string, params: FinishParams): Work<ThreadRecord> {
  const record = yield* requireRecord(threadId);
  assertEpoch(record, params.epoch);
  const { status, now, cost, result, outputs, error } = params;
  if (isFinal(record.status) && status === 'running') throw endedThread(record);
  assertTransition(threadId, record.status, status);
  const run = params.run ?? (yield* runOf(threadId));
  const past = yield* pastEnd(threadId, run);
  yield* dropRunsAfter(threadId, run);
  yield* change(
    `UPDATE threads SET status = ?, updated_at = ?, completed_at = ?, cost = ?, result = ?, outputs = ?,
       error = ? WHERE thread_id = ?`,
    status,
    now,
    isFinal(status) ? (past?.completed_at ?? now) : null,
    JSON.stringify(cost),
    result,
    outputs ? JSON.stringify(outputs) : null,
    error ? JSON.stringify(error) : null,
    threadId,
  );
  const ended = yield* requireRecord(threadId);
  yield* enqueueChildEnd(ended, run, now);
  return ended;
}

function* requestCancel(threadId: string, reason: string, now: string): Work<void> {
  let record = yield* requireRecord(threadId);
  // it may have handed off since the caller looked; a chain has no loop
  while (record.status === 'continued' && record.continuation_thread_id !== null)
    record = yield* requireRecord(record.continuation_thread_id);
  // the first reason stays: the owner may already have acted on it
  yield* change(
    `UPDATE threads SET cancel_requested = coalesce(cancel_requested, ?), updated_at = ? WHERE thread_id = ?`,
    reason,
    now,
    record.thread_id,
  );
}

function* insert(params: RegisterParams): Work<void> {
  const { threadId, directive, parentId, model, now, owner, continuationOf } = params;
  const root = continuationOf === undefined ? null : yield* requireRecord(continuationOf);
  yield* change(
    `INSERT INTO threads (thread_id, directive, parent_id, status, created_at, updated_at, pid, process_start,
       host, epoch, model, cost, continuation_of, chain_root_id, background)
     VALUES (?, ?, ?, 'created', ?, ?, ?, ?, ?, 0, ?, ?, ?, ?,
       coalesce((SELECT background FROM threads WHERE thread_id = ?), 0))`,
    threadId,
    directive,
    parentId,
    now,
    now,
    ...columnsOf(owner),
    model,
    JSON.stringify(NO_COST),
    continuationOf ?? null,
    root ? (root.chain_root_id ?? root.thread_id) : null,
    continuationOf ?? null,
  );
}

/** Also of rows that something put there before: a new thread has had no messages, no runs and no children. */
function* assertFree(threadId: string): Work<void> {
  // folders of ids that differ in letter case are one folder on many disks
  const taken = yield* one(
    `SELECT 1 FROM threads WHERE lower(thread_id) = lower(?)
     UNION ALL SELECT 1 FROM threads WHERE parent_id = ?
     UNION ALL SELECT 1 FROM deliveries WHERE thread_id = ? OR sent_to = ?
     UNION ALL SELECT 1 FROM runs WHERE thread_id = ?
     UNION ALL SELECT 1 FROM delivery_attempts WHERE thread_id = ? LIMIT 1`,
    ...Array.from({ length: 6 }, () => threadId),
  );
  if (taken === undefined) return;
  throw new RyeError('thread_id_taken', `thread "${threadId}" already exists`, {
    hint: 'Choose another --thread-id.',
    details: { thread_id: threadId },
  });
}

/** Counts a child against its parent's limit; the count is never lowered, so that finished children count too. */
function* countSpawn({
  parentId,
  maxSpawns,
  threadId,
  continuationOf,
}: RegisterParams): Work<void> {
  // a continuation continues the same work: it is not another child
  if (parentId === null || continuationOf !== undefined) return;
  const parent = yield* requireRecord(parentId);
  if (maxSpawns !== undefined && parent.spawn_count >= maxSpawns) {
    throw new RyeError(
      'limit_spawns',
      `thread ${parentId} has started ${parent.spawn_count} of at most ${maxSpawns} children`,
      {
        hint: 'Raise limits.spawns of the parent, or do the work in fewer children.',
        details: {
          thread_id: threadId,
          parent_id: parentId,
          current: parent.spawn_count,
          max: maxSpawns,
        },
      },
    );
  }
  yield* change('UPDATE threads SET spawn_count = spawn_count + 1 WHERE thread_id = ?', parentId);
}

/** Makes the thread `running` for a new owner. */
function* own(threadId: string, { owner, now, leases }: NextOwner): Work<ThreadRecord> {
  if (leases) yield* leases.note(threadId);
  yield* change(
    `UPDATE threads SET status = 'running', pid = ?, process_start = ?, host = ?, epoch = epoch + 1,
       heartbeat_at = ?, updated_at = ? WHERE thread_id = ?`,
    ...columnsOf(owner),
    now,
    now,
    threadId,
  );
  return yield* requireRecord(threadId);
}

function assertOwnerGone(owners: Owners, record: ThreadRecord): void {
  const owner = owners.ofRecord(record);
  if (!owner || owners.state(owner) === 'gone') return;
  const { thread_id } = record;
  const { pid, host } = processOf(owner);
  throw runBy(thread_id, `process ${pid} on ${host}`, { pid, host });
}

/** The error for a claim of a thread that ended: only a resume runs it again. */
function endedThread({ thread_id: threadId, status }: ThreadRecord): RyeError {
  return new RyeError('illegal_transition', `thread ${threadId} is ${status}: no process runs it`, {
    hint: `Run it again: rye threads resume ${threadId}`,
    details: { thread_id: threadId, from: status, to: 'running' },
  });
}
