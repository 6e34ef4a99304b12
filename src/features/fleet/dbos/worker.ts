import { setTimeout as sleep } from 'node:timers/promises';
import { RyeError } from '../../../kernel/core/errors.ts';
import { isRecord } from '../../../kernel/core/json.ts';
import type {
  LegSpec,
  QueueNotice,
  ScheduleSpec,
  Worker,
  WorkOptions,
} from '../../../kernel/storage/fleet-queue.ts';
import { legOfFiring } from '../leg-row.ts';
import type { LegRunner } from '../leg-runner.ts';
import type { PostgresDatabase } from '../postgres/database.ts';
import {
  APPLICATION,
  type Engine,
  engineUrl,
  FIRING,
  LEG,
  LEG_PROTOCOL,
  quietLog,
  SCHEMA,
} from './engine.ts';
import { START } from './statements.ts';

const POLL_MS = 200;
const CONNECTIONS = 6;
/** The time for the ends of legs to be written when a worker leaves, in milliseconds. */
const RECORD_MS = 5000;
const LOOK_MS = 10;

export interface DbosWorkerParts {
  readonly engine: Engine;
  readonly url: string;
  readonly database: PostgresDatabase;
  readonly options: WorkOptions;
  readonly runner: LegRunner;
  readonly monotonic: () => number;
  /** Queues the leg of a firing. */
  readonly enqueue: (leg: LegSpec) => Promise<void>;
  /** Returns the legs that did not end to their queues. */
  readonly release: () => Promise<unknown>;
}

/** The worker of this process: DBOS is one executor per process, and finds its workflows by their names. */
let current: DbosWorker | undefined;
let isRegistered = false;

export function hasWorker(): boolean {
  return current !== undefined;
}

/** Runs the legs that DBOS dispatches to this process. */
export class DbosWorker implements Worker {
  readonly #parts: DbosWorkerParts;
  /** Bodies that never end: their legs return to the queue. */
  #left = 0;
  #isStopped = false;
  #drained: Promise<void> | undefined;

  private constructor(parts: DbosWorkerParts) {
    this.#parts = parts;
  }

  static async start(parts: DbosWorkerParts): Promise<DbosWorker> {
    const worker = new DbosWorker(parts);
    current = worker;
    try {
      await worker.#launch();
      return worker;
    } catch (error) {
      current = undefined;
      throw error;
    }
  }

  get workerId(): string {
    return this.#parts.options.workerId;
  }

  running(): readonly string[] {
    return this.#parts.runner.running();
  }

  async drain(graceMs: number): Promise<void> {
    this.#drained ??= this.#drain(graceMs);
    await this.#drained;
  }

  /** The body of a leg. DBOS records that it ended when it returns, and nothing while it does not. */
  async runLeg(legId: string, row: unknown): Promise<void> {
    const { sdk } = this.#parts.engine;
    const end = await sdk.DBOS.runStep(async () => await this.#step(legId, row), { name: 'run' });
    if (end === 'failed') throw new Error('the leg failed');
  }

  async fire(spec: Omit<ScheduleSpec, 'cron' | 'missed'>, at: string): Promise<void> {
    await this.#parts.enqueue(legOfFiring(spec, at));
  }

  /** Returns how many legs the worker may still take, as a number of slots that are in use. */
  usedSlots(known: number): number {
    return this.#parts.runner.isDraining ? Number.POSITIVE_INFINITY : known;
  }

  limits(): { readonly workerConcurrency: number; readonly pollingIntervalSec: number } {
    const { slots, pollMs = POLL_MS } = this.#parts.options;
    return { workerConcurrency: slots, pollingIntervalSec: pollMs / 1000 };
  }

  async #step(legId: string, row: unknown): Promise<'done' | 'failed'> {
    const { engine, database, runner } = this.#parts;
    const { rows } = await database.query(START, [legId]);
    const end = runner.runRow(legId, withPriority(row, rows[0]));
    const signal = engine.sdk.DBOS.stepStatus?.cancelSignal;
    const stop = (): void => runner.stop(legId, 'cancel');
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
    const outcome = await end;
    if (outcome !== 'returned' && !this.#isStopped) return outcome;
    this.#left += 1;
    return await new Promise<never>(() => undefined);
  }

  async #launch(): Promise<void> {
    const { engine, url, options, monotonic } = this.#parts;
    const { DBOS } = engine.sdk;
    register(engine);
    const report = (notice: QueueNotice): void => options.report?.(notice);
    DBOS.setConfig({
      name: APPLICATION,
      systemDatabaseUrl: engineUrl(url),
      systemDatabaseSchemaName: SCHEMA,
      systemDatabasePoolSize: CONNECTIONS,
      applicationVersion: LEG_PROTOCOL,
      executorID: options.workerId,
      listenQueues: [...options.queues],
      // its slots are shared by its queues: one look follows the other
      maxConcurrentQueueDispatches: 1,
      // a setting in the address; DBOS would send it beside the first query, against which the driver warns
      systemDatabaseIdleTransactionTimeoutMs: 0,
      // only its queues are used, and these poll
      useListenNotify: false,
      enableOTLP: false,
      tracingEnabled: false,
      logger: quietLog(report, monotonic),
    });
    await DBOS.launch();
  }

  async #drain(graceMs: number): Promise<void> {
    const { engine, runner, release, monotonic } = this.#parts;
    await runner.drain(graceMs);
    const { systemDatabase } = engine.executor.DBOSExecutor.globalInstance ?? {};
    const until = monotonic() + RECORD_MS;
    const isRecording = (): boolean =>
      systemDatabase !== undefined &&
      bodiesOf(systemDatabase) > this.running().length + this.#left &&
      monotonic() < until;
    while (isRecording()) await sleep(LOOK_MS);
    this.#isStopped = true;
    try {
      await engine.sdk.DBOS.shutdown();
      await release();
    } finally {
      current = undefined;
    }
  }
}

/** Registers the workflows, and makes this process look for legs with its own slots. */
function register({ sdk, executor, database }: Engine): void {
  if (isRegistered) return;
  const { DBOS } = sdk;
  DBOS.registerWorkflow(
    async (row: unknown) => {
      await current?.runLeg(DBOS.workflowID ?? '', row);
    },
    { name: LEG },
  );
  DBOS.registerWorkflow(
    async (at: Date, context: unknown) => {
      await current?.fire(context as ScheduleSpec, new Date(at).toISOString());
    },
    { name: FIRING },
  );
  // In the table of DBOS the slots of a worker belong to the queue: they would be the same for all workers, and apart for
  // each queue. So the executor of this process sees its own slots instead, and counts the legs of all queues.
  const { prototype } = database.SystemDatabase;
  const isOwn = (system: object): boolean =>
    system === executor.DBOSExecutor.globalInstance?.systemDatabase;
  replaceMethod(
    prototype,
    'listQueues',
    (original) =>
      async function (this: object, ...args) {
        const records = (await original.apply(this, args)) as readonly object[];
        const limits = isOwn(this) ? current?.limits() : undefined;
        return limits ? records.map((record) => ({ ...record, ...limits })) : records;
      },
  );
  replaceMethod(
    prototype,
    'countRunningWorkflowsForQueue',
    (original) =>
      function (this: object, ...args) {
        if (!isOwn(this) || !current) return original.apply(this, args);
        return current.usedSlots(bodiesOf(this));
      },
  );
  isRegistered = true;
}

type Method = (this: object, ...args: unknown[]) => unknown;

function replaceMethod(target: object, name: string, make: (original: Method) => Method): void {
  const original: unknown = Reflect.get(target, name);
  if (typeof original !== 'function') throw unknownVersion();
  Reflect.set(target, name, make(original as Method));
}

function unknownVersion(): RyeError {
  return new RyeError('fleet_unavailable', 'the installed version of DBOS is not supported', {
    hint: 'Install the supported one beside rye: npm install @dbos-inc/dbos-sdk@5.3',
  });
}

/** Returns how many workflows run in this process. */
function bodiesOf(system: object): number {
  const { runningWorkflowMap }: { readonly runningWorkflowMap?: unknown } = system;
  return runningWorkflowMap instanceof Map ? runningWorkflowMap.size : 0;
}

/** A leg that was brought forward has the priority of its row in the queue. */
function withPriority(row: unknown, started: unknown): unknown {
  if (!isRecord(row) || !isRecord(started)) return row;
  const { priority }: { readonly priority?: unknown } = started;
  return { ...row, priority: typeof row['priority'] === 'number' ? priority : row['priority'] };
}
