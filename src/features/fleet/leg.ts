import { join } from 'node:path';
import type { OpenRyeOptions } from '../../kernel/app/api/rye.ts';
import { hideEnvironment } from '../../kernel/app/hidden-environment.ts';
import { systemClock, systemIds } from '../../kernel/app/system.ts';
import { threadEnv, threadPorts } from '../../kernel/app/thread-env.ts';
import { startedState } from '../../kernel/app/thread-process.ts';
import { Workspace } from '../../kernel/app/workspace.ts';
import { EXIT, RyeError, toRyeError } from '../../kernel/core/errors.ts';
import type { PlannedFleet } from '../../kernel/core/plan.ts';
import { isFinal, type ThreadRecord, type ThreadResult } from '../../kernel/core/thread.ts';
import { processOwners } from '../../kernel/storage/owners.ts';
import { SqliteSearchIndex } from '../../kernel/storage/sqlite/search-index.ts';
import { recordEnd } from '../../kernel/threads/end.ts';
import { areAtRest, resumeWaitingAncestors } from '../../kernel/threads/family/resume-process.ts';
import { endQueued } from '../../kernel/threads/family/spawn.ts';
import type { ThreadEnv, ThreadPorts } from '../../kernel/threads/ports.ts';
import { parkDead, recoverThread } from '../../kernel/threads/recovery/recover.ts';
import { runLaunched, runResumed } from '../../kernel/threads/run/lifecycle.ts';
import { isParked, isWaiting } from '../../kernel/threads/run/waiting.ts';
import { keepCertificatesIn } from '../../kernel/trust/certificates-fs.ts';
import { connectFleet, type FleetConnection } from './connection.ts';
import { unpackItems } from './items.ts';
import type { LegLease, LegOrder } from './leg-control.ts';
import type { LegOutcome } from './leg-outcome.ts';
import { closeSource, openSource, pusherTo } from './leg-source.ts';
import { openPostgresStore, PostgresDatabase } from './postgres/open-postgres.ts';
import { openSecrets } from './sealed-secrets.ts';

/** Times in a row that a thread is taken over from a worker that died in its leg. Then it ends as crashed. */
const MAX_TAKEOVERS = 5;
/** Time after which another worker may find a leg that this one cannot run. */
const ELSEWHERE_MS = 5000;
/** Time for which a leg waits while the store is away. Its worker's lease decides if it continues afterwards. */
const PATIENT_MS = 600_000;

export interface LegOptions
  extends Pick<OpenRyeOptions, 'env' | 'configOverrides' | 'features' | 'onNotice'> {
  readonly userSpacePath: string;
  readonly order: LegOrder;
  readonly link: LegLink;
  readonly lease: LegLease;
  readonly signal: AbortSignal;
}

/** The connections of a process of legs, which serve all its legs. */
export interface LegLink {
  readonly connection: FleetConnection;
  readonly database: PostgresDatabase;
  close(): Promise<void>;
}

/** Returns the connections to a store. Nothing is connected before its first use. */
export function openLegLink(url: string): LegLink {
  const database = new PostgresDatabase({ url, patientMs: PATIENT_MS });
  const connection = connectFleet({ url, clock: systemClock, ids: systemIds, database });
  const close = async (): Promise<void> => {
    await connection.close();
    database.close();
  };
  return { connection, database, close };
}

export interface LegResult {
  readonly outcome: LegOutcome;
  /** True if nothing of the leg remains in this process, so that it may run another one. */
  readonly isAtRest: boolean;
}

/** Runs one leg of a thread in this process. Never throws. */
export async function runLeg(options: LegOptions): Promise<LegResult> {
  hideEnvironment(process.env);
  const leg = new Leg(options);
  const isAsStarted = startedState();
  let result: LegResult;
  try {
    const outcome = await leg.run();
    const mayRest = outcome === 'done' && isAsStarted();
    // the leg has ended, also if the store cannot be asked now
    result = { outcome, isAtRest: mayRest && (await leg.isAtRest().catch(() => false)) };
  } catch (error) {
    const failure = toRyeError(error);
    options.onNotice?.(failure.message);
    result = { outcome: isTransient(failure) ? 'again' : 'refused', isAtRest: false };
  }
  leg.close(!result.isAtRest);
  return result;
}

class Leg {
  readonly #options: LegOptions;
  readonly #connection: FleetConnection;
  readonly #workspaces: Workspace[] = [];
  #secrets: Readonly<Record<string, string>> = {};
  #isDisplaced = false;

  constructor(options: LegOptions) {
    this.#options = options;
    this.#connection = options.link.connection;
  }

  close(exiting: boolean): void {
    for (const workspace of this.#workspaces) workspace.close({ exiting });
  }

  /** False if the thread still runs, here or elsewhere, or was taken from this process, or has secret inputs. */
  async isAtRest(): Promise<boolean> {
    if (this.#isDisplaced || Object.keys(this.#secrets).length > 0) return false;
    const record = await this.#workspaces[0]?.store.registry.get(this.#options.order.threadId);
    return record?.status !== 'running';
  }

  async run(): Promise<LegOutcome> {
    const { userSpacePath, order } = this.#options;
    const { threadId } = order;
    const { threads } = this.#connection;
    // an earlier leg may have run on a worker that joined after this one
    keepCertificatesIn(userSpacePath, await threads.certificates());
    const ports = await threadPorts(this.#open(), { allowUnsigned: false });
    const record = await ports.store.registry.get(threadId);
    if (!record || !(await this.#isNeeded(ports, record))) return 'done';
    let env: ThreadEnv;
    try {
      const place = await threads.placeOf(threadId);
      if (!place) {
        this.#notice(`${threadId} is not a thread of the fleet`);
        return 'done';
      }
      if (this.#isForeign(place.roots)) return await this.#putBack(threadId);
      const plan = await ports.files.readPlan(await ports.files.readDocument(threadId));
      if (plan.fleet === undefined || plan.fleet.bundle !== place.bundle) {
        throw new RyeError('thread_tampered', `the plan of ${threadId} names another bundle`);
      }
      if (this.#isForeign(plan.fleet.roots)) return await this.#putBack(threadId);
      const workspace = this.#open(plan.fleet);
      await unpackItems(workspace, plan.fleet);
      const secrets = await this.#secretsOf(ports, threadId, plan.fleet);
      if (!secrets) return await this.#leave(threadId);
      this.#secrets = secrets;
      const { source } = plan.fleet;
      if (source) await openSource(workspace, source, this.#options.order.sources);
      // the configuration is read once the items are there
      env = await threadEnv(this.#open(plan.fleet), { allowUnsigned: false });
    } catch (error) {
      return await this.#refuse(ports, record, toRyeError(error));
    }
    try {
      return await this.#continue(env, record);
    } catch (error) {
      const failure = toRyeError(error);
      this.#isDisplaced = true;
      if (QUIET.has(failure.code)) return 'done';
      return await this.#refuse(ports, record, failure);
    }
  }

  /** Opens the secret inputs of a thread; undefined if this worker has not the key. */
  async #secretsOf(
    { store }: ThreadPorts,
    threadId: string,
    fleet: PlannedFleet,
  ): Promise<Readonly<Record<string, string>> | undefined> {
    const { secrets: names = [] } = fleet;
    if (names.length === 0) return {};
    const chain = (await store.registry.chain(threadId)).map(({ thread_id: id }) => id);
    // a thread that continues another one has the secrets of that one
    for (const id of chain.slice(0, chain.indexOf(threadId) + 1).toReversed()) {
      const sealed = await this.#connection.threads.sealedOf(id);
      if (sealed === undefined) continue;
      return openSecrets(sealed, this.#options.order.pool, { threadId: id, fleet, names });
    }
    throw new RyeError('thread_tampered', `the store has no secret inputs of ${threadId}`, {
      hint: 'They are deleted when a thread has ended. Start it again with its secret inputs.',
    });
  }

  /** True for a thread whose submitter trusts none of the roots that certified this worker. */
  #isForeign(roots: readonly string[] | undefined): boolean {
    const own = this.#options.order.root;
    return roots !== undefined && own !== undefined && !roots.includes(own);
  }

  /** Leaves the leg of a stranger to a worker of theirs. It is never ended here. */
  async #putBack(threadId: string): Promise<LegOutcome> {
    this.#notice(`${threadId} is of another root's fleet: left to its workers`);
    await this.#resumeElsewhere(threadId);
    return 'done';
  }

  async #resumeElsewhere(threadId: string): Promise<void> {
    const later = new Date(systemClock.now() + ELSEWHERE_MS).toISOString();
    await this.#connection.resumeAt(threadId, later);
  }

  /** Leaves the leg to a worker with a newer token. */
  async #leave(threadId: string): Promise<LegOutcome> {
    this.#notice(
      `${threadId} has secret inputs that this worker cannot open. Enroll it again: rye fleet enroll --label NAME > worker.token`,
    );
    await this.#resumeElsewhere(threadId);
    return 'done';
  }

  /** True unless another worker runs the thread, or it has ended, or what it waits for has not come. */
  async #isNeeded({ store }: ThreadPorts, record: ThreadRecord): Promise<boolean> {
    const { status, thread_id: threadId } = record;
    if (isFinal(status)) return status === 'error' && record.error?.code === 'thread_crashed';
    if (status === 'suspended') {
      if (isWaiting(record)) return true;
      return isParked(record) && (await areAtRest(store.registry, record));
    }
    if (status !== 'running') return true;
    const worker = await this.#connection.threads.workerOf(threadId);
    if (!worker?.isLiving) return true;
    if (worker.workerId !== this.#options.order.workerId) return false;
    // of this worker, only the death of the earlier process lets the claim pass: a leg that came twice is no take-over
    const owner = store.owners.ofRecord(record);
    return owner === undefined || store.owners.state(owner) === 'gone';
  }

  async #continue(env: ThreadEnv, record: ThreadRecord): Promise<LegOutcome> {
    const { threads } = this.#connection;
    const { threadId } = this.#options.order;
    const { status } = record;
    if (status === 'created') return await this.#end(env, await this.#start(env));
    if (status === 'running') {
      const count = await threads.noteTakeover(threadId);
      if (count > MAX_TAKEOVERS) {
        await recoverThread(env, threadId);
        await resumeWaitingAncestors(env, threadId);
        return 'done';
      }
      const { status: now } = await parkDead(env, record);
      if (now !== 'suspended') {
        await resumeWaitingAncestors(env, threadId);
        return 'done';
      }
      // it may have been parked for threads that have not ended
      const parked = await env.store.registry.get(threadId);
      if (parked && !(await areAtRest(env.store.registry, parked))) return 'done';
    }
    const { signal } = this.#options;
    const runner = { allow_unsigned: false };
    const result = await runResumed(env, { threadId, secrets: this.#secrets, signal, runner });
    return await this.#end(env, result);
  }

  async #start(env: ThreadEnv): Promise<ThreadResult> {
    const { order, signal } = this.#options;
    const options = { allow_unsigned: false };
    const handover = { format: 1 as const, options, secrets: this.#secrets };
    return await runLaunched(env, order.threadId, { handover, signal });
  }

  /** Queues the next leg of a thread whose wait has ended meanwhile, or that was parked for nothing else. */
  async #end(env: ThreadEnv, result: ThreadResult): Promise<LegOutcome> {
    const { threads, fleet } = this.#connection;
    const { order } = this.#options;
    const { threadId } = order;
    await threads.forgetTakeovers(threadId);
    const record = await env.store.registry.get(result.thread_id);
    if (record && isParked(record) && (await areAtRest(env.store.registry, record)))
      await fleet.resume(record.thread_id);
    if (record && isFinal(record.status)) await closeSource(order.folder);
    return 'done';
  }

  /** Ends a thread that cannot be run here or anywhere else. What was signed of it stays as it is. */
  async #refuse(ports: ThreadPorts, record: ThreadRecord, error: RyeError): Promise<LegOutcome> {
    if (isTransient(error)) throw error;
    this.#notice(`thread ${record.thread_id} is refused: ${error.message} [${error.code}]`);
    const { registry } = ports.store;
    if (record.status === 'created') {
      await endQueued(ports, record.thread_id, error);
    } else {
      const now = new Date(systemClock.now()).toISOString();
      const { epoch, cost } = await registry.claim(record.thread_id, ports.owner, now);
      await recordEnd(ports, {
        threadId: record.thread_id,
        epoch,
        end: () => ({ status: 'error', cost, result: '', error: error.toJSON() }),
      });
    }
    return error.exitCode === EXIT.integrity ? 'refused' : 'done';
  }

  /** Opens the project of the thread; for a run of it with the place of its children. */
  #open(place?: PlannedFleet): Workspace {
    const { order, lease, link, env, userSpacePath, configOverrides, onNotice } = this.#options;
    const { features = [] } = this.#options;
    const { folder: projectPath, url, workerId, threadId, waitInlineMs, sandbox, sources } = order;
    const index = new SqliteSearchIndex({ path: join(projectPath, '.ai', 'state', 'index.db') });
    const store = openPostgresStore({
      url,
      clock: systemClock,
      ids: systemIds,
      owners: processOwners(),
      index,
      workerId,
      database: link.database,
    });
    const workspace: Workspace = new Workspace(
      {
        projectPath,
        userSpacePath,
        env: { ...env, RYE_SIGNING_KEY: order.key },
        configOverrides: configOverrides ?? [],
        features,
        ...(onNotice ? { onNotice } : {}),
        store,
      },
      {
        weakestSandbox: sandbox,
        fleet: {
          ...this.#connection.fleet,
          seal: async (sealed) => await this.#connection.sealing(workspace.keyring)(sealed),
          ...(place
            ? {
                leg: {
                  threadId,
                  // children start first, so that those that wait for them continue
                  place: { ...place, priority: Math.max(0, place.priority - 1) },
                  waitInlineMs,
                  parkReason: () => (lease.isDraining ? 'its worker leaves' : undefined),
                  mayStart: async (signal) => await lease.granted(signal),
                  worktrees: new Map(),
                  push: place.source && pusherTo(() => workspace, place.source, sources),
                },
              }
            : {}),
        },
      },
    );
    this.#workspaces.push(workspace);
    return workspace;
  }

  #notice(text: string): void {
    this.#options.onNotice?.(text);
  }
}

/** Another process was faster, or the wait continues. */
const QUIET: ReadonlySet<string> = new Set([
  'thread_locked',
  'approval_pending',
  'illegal_transition',
]);
/** True if the next try may succeed: the store was away, and did not refuse a value that its row holds. */
function isTransient({ code, details }: RyeError): boolean {
  const cause = details?.['code'];
  const isRefused = typeof cause === 'string' && cause.startsWith(DATA_EXCEPTION);
  return TRANSIENT.has(code) && !isRefused;
}

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const DATA_EXCEPTION = '22';
const TRANSIENT: ReadonlySet<string> = new Set([
  'storage_failed',
  'fleet_unavailable',
  'resource_exhausted',
]);
