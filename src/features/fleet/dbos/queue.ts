import type { DBOSClient } from '@dbos-inc/dbos-sdk';
import type { ClientBase } from 'pg';
import { type Clock, isoTime } from '../../../kernel/core/clock.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import { isRecord } from '../../../kernel/core/json.ts';
import type {
  FleetQueue,
  LegSpec,
  QueueLimits,
  QueueState,
  RunLeg,
  ScheduleSpec,
  ScheduleState,
  Worker,
  WorkOptions,
} from '../../../kernel/storage/fleet-queue.ts';
import { type Transaction, withClient } from '../../../kernel/storage/sql-work.ts';
import {
  checkLimits,
  checkQueueName,
  checkSchedule,
  checkWork,
  rowOfLeg,
  timeOf,
} from '../leg-row.ts';
import { LegRunner } from '../leg-runner.ts';
import { PostgresDatabase } from '../postgres/database.ts';
import {
  APPLICATION,
  type Engine,
  engineError,
  engineUrl,
  FIRING,
  LEG,
  LEG_PROTOCOL,
  loadEngine,
  quietLog,
  SCHEMA,
} from './engine.ts';
import {
  ADVANCE,
  COUNTS,
  GIVE_BACK,
  OWNERS,
  PRUNE,
  RUNNING,
  SUPERSEDE,
  WITH_LEG,
} from './statements.ts';
import { DbosWorker, hasWorker } from './worker.ts';

export interface DbosQueueOptions {
  /** `postgres://user:password@host:port/database`: the store of the fleet. */
  readonly url: string;
  readonly clock: Clock;
  /** Connections that outlive this queue. Default: its own. */
  readonly database?: PostgresDatabase;
}

/** The partition of legs that name none: a queue may get a limit per partition at any time. */
const NO_PARTITION = 'rye:none';
const CLIENT_CONNECTIONS = 2;
const PRUNE_AT_ONCE = 1000;
const TRIES = 3;
const UNIQUE_VIOLATION = '23505';
const SERIALIZATION_FAILURE = '40001';
const SAVEPOINT = 'rye_leg';

type StoredSchedule = Awaited<ReturnType<DBOSClient['listSchedules']>>[number];

interface Opened {
  readonly engine: Engine;
  readonly client: DBOSClient;
}

/** The queue of a fleet on PostgreSQL, by DBOS. Nothing is loaded or connected before its first use. */
export class DbosQueue implements FleetQueue {
  readonly #options: DbosQueueOptions;
  readonly #database: PostgresDatabase;
  readonly #known = new Set<string>();
  #opened: Promise<Opened> | undefined;

  constructor(options: DbosQueueOptions) {
    this.#options = options;
    this.#database = options.database ?? new PostgresDatabase({ url: options.url });
  }

  async enqueueLeg(tx: Transaction, leg: LegSpec): Promise<boolean> {
    const row = rowOfLeg(leg);
    const { client } = await this.#open();
    await this.#ensureQueue(leg.queue);
    const notBefore = leg.notBefore === null ? null : timeOf(leg.notBefore);
    const delayMs = notBefore === null ? 0 : notBefore - Date.now();
    const options = {
      queueName: leg.queue,
      workflowName: LEG,
      workflowID: leg.legId,
      workflowIDReusePolicy: 'reject',
      deduplicationID: leg.threadId,
      appVersion: LEG_PROTOCOL,
      priority: leg.priority,
      queuePartitionKey: leg.partition ?? NO_PARTITION,
      attributes: { thread_id: leg.threadId },
      ...(delayMs > 0 ? { delaySeconds: delayMs / 1000 } : {}),
    } as const;
    for (let tries = 0; tries < TRIES; tries += 1) {
      await tx.query(`SAVEPOINT ${SAVEPOINT}`);
      try {
        await client.enqueuePortableInTransaction(tx as ClientBase, options, [row]);
        await tx.query(`RELEASE SAVEPOINT ${SAVEPOINT}`);
        return true;
      } catch (error) {
        const name = error instanceof Error ? error.name : '';
        const isUsed = name === 'DBOSWorkflowIDInUseError';
        if (!isUsed && name !== 'DBOSQueueDuplicatedError') throw error;
        await tx.query(`ROLLBACK TO SAVEPOINT ${SAVEPOINT}`);
        if (isUsed) return false;
      }
      const { rowCount } = await tx.query(ADVANCE, [
        leg.queue,
        leg.threadId,
        leg.priority,
        delayMs > 0 ? notBefore : null,
      ]);
      if (rowCount === 1) return false;
      // the queued leg has started meanwhile, or this transaction does not see it yet
    }
    throw Object.assign(new Error('the queued leg of the thread changes'), {
      code: SERIALIZATION_FAILURE,
    });
  }

  async cancelLeg(legId: string): Promise<void> {
    await this.#guarded(async ({ client }) => await client.cancelWorkflow(legId));
  }

  async work(options: WorkOptions, run: RunLeg): Promise<Worker> {
    checkWork(options);
    if (hasWorker()) throw new RyeError('usage', 'this process runs a worker already');
    const { clock, url } = this.#options;
    return await this.#guarded(async ({ engine }) => {
      for (const queue of options.queues) await this.#ensureQueue(queue);
      // the legs of this worker's earlier life; DBOS would return them without their threads
      await this.redispatch(options.workerId);
      return await DbosWorker.start({
        engine,
        url,
        database: this.#database,
        options,
        runner: new LegRunner(options, run, clock),
        monotonic: () => clock.monotonic(),
        enqueue: async (leg) => {
          await this.#database.write(() =>
            withClient(async (tx) => await this.enqueueLeg(tx, leg)),
          );
        },
        release: async () => await this.redispatch(options.workerId),
      });
    });
  }

  async redispatch(workerId: string): Promise<number> {
    return await this.#guarded(async () => {
      const { rows } = await this.#database.query(RUNNING, [workerId]);
      let count = 0;
      for (const row of rows)
        count += await this.#giveBack(String(fieldOf(row, 'leg_id')), workerId);
      return count;
    });
  }

  async owners(): Promise<readonly string[]> {
    return await this.#guarded(async () => {
      const { rows } = await this.#database.query(OWNERS, []);
      return rows.map((row) => String(fieldOf(row, 'worker_id')));
    });
  }

  async withoutLeg(
    threads: readonly Pick<LegSpec, 'threadId' | 'queue'>[],
    workers: readonly string[],
  ): Promise<readonly string[]> {
    if (threads.length === 0) return [];
    return await this.#guarded(async () => {
      const ids = threads.map(({ threadId }) => threadId);
      const queues = [...new Set(threads.map(({ queue }) => queue))];
      const { rows } = await this.#database.query(WITH_LEG, [ids, queues, workers]);
      const served = new Set(rows.map((row) => fieldOf(row, 'thread_id')));
      return ids.filter((id) => !served.has(id));
    });
  }

  async schedule(spec: ScheduleSpec): Promise<void> {
    checkSchedule(spec);
    const { name, cron, timezone, queue, payload, missed } = spec;
    await this.#guarded(async ({ client }) => {
      await this.#ensureQueue(queue);
      await client.applySchedules([
        {
          scheduleName: name,
          workflowName: FIRING,
          schedule: cron,
          cronTimezone: timezone,
          automaticBackfill: missed === 'all',
          context: { name, timezone, queue, payload },
          applicationName: APPLICATION,
        },
      ]);
    });
  }

  async unschedule(name: string): Promise<boolean> {
    return await this.#guarded(async ({ client }) => {
      if ((await client.getSchedule(name)) === null) return false;
      await client.deleteSchedule(name);
      return true;
    });
  }

  async pause(name: string, isPaused: boolean): Promise<boolean> {
    return await this.#guarded(async ({ client }) => {
      if ((await client.getSchedule(name)) === null) return false;
      if (isPaused) await client.pauseSchedule(name);
      else await client.resumeSchedule(name);
      return true;
    });
  }

  async schedules(): Promise<readonly ScheduleState[]> {
    return await this.#guarded(async ({ client }) => {
      const rows = await client.listSchedules({ applicationName: APPLICATION });
      return rows
        .map((row) => ({
          name: row.scheduleName,
          paused: row.status !== 'ACTIVE',
          spec: specOfRow(row),
        }))
        .toSorted((one, two) => (one.name < two.name ? -1 : 1));
    });
  }

  async fire(name: string): Promise<void> {
    await this.#guarded(async ({ client }) => {
      if ((await client.getSchedule(name)) === null)
        throw new RyeError('item_not_found', `no schedule has the name ${name}`);
      await client.triggerSchedule(name);
    });
  }

  async limit(queue: string, limits: QueueLimits): Promise<void> {
    checkQueueName(queue);
    checkLimits(limits);
    const { global, partition, rate } = limits;
    await this.#guarded(async ({ client }) => {
      await client.registerQueue(queue, {
        ...(global === null ? {} : { globalConcurrency: global }),
        ...(partition === null ? {} : { partitionConcurrency: partition }),
        ...(rate === null
          ? {}
          : { rateLimit: { limitPerPeriod: rate.legs, periodSec: rate.seconds } }),
        onConflict: 'always_update',
        applicationName: APPLICATION,
      });
    });
  }

  async queues(): Promise<readonly QueueState[]> {
    return await this.#guarded(async ({ client }) => {
      const queues = await client.listQueues();
      const { rows } = await this.#database.query(COUNTS);
      const counts = new Map(rows.map((row) => [fieldOf(row, 'name'), row]));
      return queues
        .toSorted((one, two) => (one.name < two.name ? -1 : 1))
        .map((queue) => {
          const count = counts.get(queue.name);
          const oldest = fieldOf(count, 'oldest');
          const { rateLimit } = queue;
          return {
            name: queue.name,
            queued: Number(fieldOf(count, 'queued') ?? 0),
            delayed: Number(fieldOf(count, 'delayed') ?? 0),
            running: Number(fieldOf(count, 'running') ?? 0),
            failed: Number(fieldOf(count, 'failed') ?? 0),
            oldestAt: oldest === null || oldest === undefined ? null : isoTime(Number(oldest)),
            limits: {
              global: queue.concurrency ?? null,
              partition: queue.partitionConcurrency ?? null,
              rate: rateLimit
                ? { legs: rateLimit.limitPerPeriod, seconds: rateLimit.periodSec }
                : null,
            },
          };
        });
    });
  }

  async prune(olderThan: string): Promise<number> {
    const before = timeOf(olderThan);
    return await this.#guarded(async () => {
      for (let count = 0; ; ) {
        const { rows } = await this.#database.query(PRUNE, [before, PRUNE_AT_ONCE]);
        count += rows.filter((row) => fieldOf(row, 'name') === LEG).length;
        if (rows.length < PRUNE_AT_ONCE) return count;
      }
    });
  }

  async close(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    if (this.#options.database === undefined) this.#database.close();
    await opened?.then(
      async ({ client }) => await client.destroy(),
      () => undefined,
    );
  }

  async #giveBack(legId: string, workerId: string): Promise<number> {
    try {
      const { rowCount } = await this.#database.query(GIVE_BACK, [legId, workerId]);
      return rowCount ?? 0;
    } catch (error) {
      if (!(error instanceof RyeError) || error.details?.['code'] !== UNIQUE_VIOLATION) throw error;
      await this.#database.query(SUPERSEDE, [legId, workerId]);
      return 0;
    }
  }

  async #ensureQueue(name: string): Promise<void> {
    if (this.#known.has(name)) return;
    const { client } = await this.#open();
    await client.registerQueue(name, { onConflict: 'never_update', applicationName: APPLICATION });
    this.#known.add(name);
  }

  async #open(): Promise<Opened> {
    this.#opened ??= this.#connect();
    try {
      return await this.#opened;
    } catch (error) {
      // the next call tries again
      this.#opened = undefined;
      throw engineError(error);
    }
  }

  async #connect(): Promise<Opened> {
    const { clock, url } = this.#options;
    const engine = loadEngine();
    const logger = quietLog(
      () => undefined,
      () => clock.monotonic(),
    );
    // it only calls the methods of the logger
    const globalLogger = logger as unknown as Parameters<
      Engine['database']['ensureSystemDatabase']
    >[1];
    await engine.database.ensureSystemDatabase(url, globalLogger, undefined, SCHEMA, false);
    const client = await engine.sdk.DBOSClient.create({
      systemDatabaseUrl: engineUrl(url),
      systemDatabaseIdleTransactionTimeoutMs: 0,
      systemDatabaseSchemaName: SCHEMA,
      systemDatabasePoolSize: CLIENT_CONNECTIONS,
      applicationName: APPLICATION,
      logger,
    });
    return { engine, client };
  }

  async #guarded<T>(work: (opened: Opened) => Promise<T>): Promise<T> {
    try {
      return await work(await this.#open());
    } catch (error) {
      throw engineError(error);
    }
  }
}

function fieldOf(row: unknown, name: string): unknown {
  return isRecord(row) ? row[name] : undefined;
}

/** Returns the schedule of a row, which another program may have changed; null if it is no valid one. */
function specOfRow(row: StoredSchedule): ScheduleSpec | null {
  if (!isRecord(row.context) || row.workflowName !== FIRING) return null;
  const { queue, payload }: { readonly queue?: unknown; readonly payload?: unknown } = row.context;
  const spec = {
    name: row.scheduleName,
    cron: row.schedule,
    timezone: row.cronTimezone ?? 'UTC',
    queue,
    payload,
    missed: row.automaticBackfill ? ('all' as const) : ('skip' as const),
  };
  try {
    // it checks every member whose type is unknown here
    checkSchedule(spec as ScheduleSpec);
    return spec as ScheduleSpec;
  } catch {
    return null;
  }
}
