import { RyeError } from '../../core/errors.ts';
import { assertTransition, isFinal, type ThreadRecord } from '../../core/thread.ts';
import { NO_COST } from '../../core/usage.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import { columnsOf, processOf } from '../owners.ts';
import type {
  CloseOptions,
  FinishParams,
  LaunchLimits,
  Owner,
  Owners,
  RegisterParams,
  Registry,
  ThreadFilter,
  TurnProgress,
} from '../store.ts';
import { SqliteApprovals } from './approvals.ts';
import { chainOf, linkContinuation } from './chains.ts';
import { LazyDatabase } from './database.ts';
import { SqliteDeliveries } from './deliveries.ts';
import { enqueueChildEnd } from './delivery-queue.ts';
import { SqliteHeads, signedHead } from './heads.ts';
import {
  assertEpoch,
  assign,
  COLUMNS,
  conditions,
  findRecord,
  idsLike,
  insertRecord,
  noteProgress,
  REGISTRY_MIGRATIONS,
  type RegistryRow,
  recordOf,
  requireRecord,
  takeLaunch,
} from './registry-rows.ts';
import { beginRun, dropRunsAfter, pastEnd, restoreEnd, runOf } from './run-ends.ts';

export interface SqliteRegistryOptions {
  readonly path: string;
  readonly owners: Owners;
}

/** The registry of a project in one SQLite file. */
export class SqliteRegistry implements Registry {
  readonly deliveries: SqliteDeliveries;
  readonly heads: SqliteHeads;
  readonly approvals: SqliteApprovals;
  readonly #database: LazyDatabase;
  readonly #owners: Owners;

  constructor({ path, owners }: SqliteRegistryOptions) {
    this.#database = new LazyDatabase({
      path,
      migrations: REGISTRY_MIGRATIONS,
      synchronous: 'normal',
    });
    this.#owners = owners;
    this.deliveries = new SqliteDeliveries(this.#database);
    this.heads = new SqliteHeads(this.#database);
    this.approvals = new SqliteApprovals(this.#database);
  }

  async register(params: RegisterParams): Promise<ThreadRecord> {
    return this.#database.immediate(() => {
      this.#assertFree(params.threadId);
      this.#countSpawn(params);
      this.#insert(params);
      return requireRecord(this.#database, params.threadId);
    });
  }

  async restore(record: ThreadRecord): Promise<boolean> {
    return this.#database.immediate(() => insertRecord(this.#database, record));
  }

  async get(threadId: string): Promise<ThreadRecord | undefined> {
    return findRecord(this.#database, threadId);
  }

  async findIds(part: string, limit: number): Promise<readonly string[]> {
    return idsLike(this.#database, part, limit);
  }

  async list(filter: ThreadFilter): Promise<readonly ThreadRecord[]> {
    const { where, parameters } = conditions(filter);
    const direction = filter.order === 'oldest first' ? 'ASC' : 'DESC';
    return this.#records(
      `SELECT ${COLUMNS} FROM threads ${where} ORDER BY created_at ${direction}, rowid ${direction} LIMIT ?`,
      ...parameters,
      filter.limit ?? -1,
    );
  }

  async claim(
    threadId: string,
    owner: Owner,
    now: string,
    silentSince: string | null = null,
  ): Promise<ThreadRecord> {
    return this.#database.immediate(() => {
      const record = requireRecord(this.#database, threadId);
      const isSilent = silentSince !== null && record.heartbeat_at === silentSince;
      if (isFinal(record.status)) throw endedThread(record);
      if (record.status === 'running' && !isSilent) this.#assertOwnerGone(record);
      return this.#own(threadId, owner, now);
    });
  }

  async resume(before: ThreadRecord, owner: Owner, now: string): Promise<ThreadRecord> {
    const { thread_id: threadId } = before;
    return this.#database.immediate(() => {
      const record = requireRecord(this.#database, threadId);
      const { status, epoch } = record;
      if (status !== before.status || epoch !== before.epoch) throw continuedElsewhere(threadId);
      assertTransition(threadId, status, 'running');
      beginRun(this.#database, record);
      return this.#own(threadId, owner, now);
    });
  }

  async revert(before: ThreadRecord, epoch: number): Promise<void> {
    const { thread_id: threadId } = before;
    this.#database.immediate(() => {
      assertEpoch(requireRecord(this.#database, threadId), epoch);
      restoreEnd(this.#database, before);
    });
  }

  async runOf(threadId: string): Promise<number> {
    return runOf(this.#database, threadId);
  }

  async endOf(threadId: string, run: number): Promise<ThreadRecord | undefined> {
    return this.#database.immediate(() => {
      const record = findRecord(this.#database, threadId);
      if (!record) return undefined;
      const past = pastEnd(this.#database, threadId, run);
      if (past) return { ...record, ...past };
      const isOver = isFinal(record.status) || record.status === 'suspended';
      return isOver || runOf(this.#database, threadId) > run ? record : undefined;
    });
  }

  async heartbeat(
    threadId: string,
    epoch: number,
    now: string,
    progress: TurnProgress = {},
  ): Promise<void> {
    this.#database.immediate(() => {
      assertEpoch(requireRecord(this.#database, threadId), epoch);
      noteProgress(this.#database, threadId, { now, ...progress });
    });
  }

  async signedHead(threadId: string): Promise<LogHead | undefined> {
    return signedHead(this.#database, threadId);
  }

  async assign(threadId: string, owner: Owner | null, now: string): Promise<boolean> {
    return assign(this.#database, { threadId, owner, now });
  }

  async takeLaunch(
    threadId: string,
    owner: Owner,
    limits: LaunchLimits,
    now: string,
  ): Promise<boolean> {
    const tables = { database: this.#database, owners: this.#owners };
    return this.#database.immediate(() => takeLaunch(tables, { threadId, owner, limits, now }));
  }

  async finish(threadId: string, params: FinishParams): Promise<ThreadRecord> {
    return this.#database.immediate(() => {
      const record = requireRecord(this.#database, threadId);
      assertEpoch(record, params.epoch);
      if (isFinal(record.status) && params.status === 'running') throw endedThread(record);
      assertTransition(threadId, record.status, params.status);
      const {
        status,
        now,
        cost,
        result,
        outputs,
        error,
        run = runOf(this.#database, threadId),
      } = params;
      const past = pastEnd(this.#database, threadId, run);
      dropRunsAfter(this.#database, threadId, run);
      this.#database.run(
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
      const ended = requireRecord(this.#database, threadId);
      enqueueChildEnd(this.#database, ended, run, now);
      return ended;
    });
  }

  async requestCancel(threadId: string, reason: string, now: string): Promise<void> {
    this.#database.immediate(() => {
      let record = requireRecord(this.#database, threadId);
      // it may have handed off since the caller looked; a chain has no loop
      while (record.status === 'continued' && record.continuation_thread_id !== null)
        record = requireRecord(this.#database, record.continuation_thread_id);
      // the first reason stays: it is the one that the owner may already have acted on
      this.#database.run(
        `UPDATE threads SET cancel_requested = coalesce(cancel_requested, ?), updated_at = ? WHERE thread_id = ?`,
        reason,
        now,
        record.thread_id,
      );
    });
  }

  async linkContinuation(
    threadId: string,
    successorId: string,
    now: string,
    epoch?: number,
  ): Promise<void> {
    this.#database.immediate(() =>
      linkContinuation(this.#database, threadId, successorId, now, epoch),
    );
  }

  async chain(threadId: string): Promise<readonly ThreadRecord[]> {
    return chainOf(this.#database, threadId);
  }

  close(options?: CloseOptions): void {
    this.#database.close(options);
  }

  #insert(params: RegisterParams): void {
    const { threadId, directive, parentId, model, now, owner, continuationOf } = params;
    const root =
      continuationOf === undefined ? null : requireRecord(this.#database, continuationOf);
    this.#database.run(
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
  #assertFree(threadId: string): void {
    // folders of ids that differ in letter case are one folder on many disks
    const taken = this.#database.get(
      `SELECT 1 FROM threads WHERE thread_id = :id COLLATE NOCASE
       UNION ALL SELECT 1 FROM threads WHERE parent_id = :id
       UNION ALL SELECT 1 FROM deliveries WHERE thread_id = :id OR sent_to = :id
       UNION ALL SELECT 1 FROM runs WHERE thread_id = :id
       UNION ALL SELECT 1 FROM delivery_attempts WHERE thread_id = :id LIMIT 1`,
      { id: threadId },
    );
    if (taken === undefined) return;
    throw new RyeError('thread_id_taken', `thread "${threadId}" already exists`, {
      hint: 'Choose another --thread-id.',
      details: { thread_id: threadId },
    });
  }

  /** Counts a child against its parent's limit; the count is never lowered, so that finished children count too. */
  #countSpawn({ parentId, maxSpawns, threadId, continuationOf }: RegisterParams): void {
    // a continuation continues the same work: it is not another child
    if (parentId === null || continuationOf !== undefined) return;
    const parent = requireRecord(this.#database, parentId);
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
    this.#database.run(
      'UPDATE threads SET spawn_count = spawn_count + 1 WHERE thread_id = ?',
      parentId,
    );
  }

  /** Makes the thread `running` for a new owner. */
  #own(threadId: string, owner: Owner, now: string): ThreadRecord {
    this.#database.run(
      `UPDATE threads SET status = 'running', pid = ?, process_start = ?, host = ?, epoch = epoch + 1,
         heartbeat_at = ?, updated_at = ? WHERE thread_id = ?`,
      ...columnsOf(owner),
      now,
      now,
      threadId,
    );
    return requireRecord(this.#database, threadId);
  }

  #records(sql: string, ...parameters: readonly unknown[]): readonly ThreadRecord[] {
    return (this.#database.all(sql, ...parameters) as readonly RegistryRow[]).map(recordOf);
  }

  #assertOwnerGone(record: ThreadRecord): void {
    const owner = this.#owners.ofRecord(record);
    if (!owner || this.#owners.state(owner) === 'gone') return;
    const { thread_id } = record;
    const { pid, host } = processOf(owner);
    throw new RyeError('thread_locked', `thread ${thread_id} is run by process ${pid} on ${host}`, {
      hint: 'Wait for it to end, or cancel the thread with `rye threads cancel`.',
      details: { thread_id, pid, host },
    });
  }
}

/** The error for a claim of a thread that ended: only a resume runs it again. */
function endedThread({ thread_id: threadId, status }: ThreadRecord): RyeError {
  return new RyeError('illegal_transition', `thread ${threadId} is ${status}: no process runs it`, {
    hint: `Run it again: rye threads resume ${threadId}`,
    details: { thread_id: threadId, from: status, to: 'running' },
  });
}

function continuedElsewhere(threadId: string): RyeError {
  return new RyeError(
    'thread_locked',
    `thread ${threadId} was continued by another process just now`,
    { hint: `See: rye threads show ${threadId}`, details: { thread_id: threadId } },
  );
}
