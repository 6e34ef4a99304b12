import { join } from 'node:path';
import { hideEnvironment } from '../../kernel/app/hidden-environment.ts';
import { machineClock, systemClock, systemIds, systemSpacePath } from '../../kernel/app/system.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { SourceProtocol } from '../../kernel/core/plan.ts';
import type { LegSpec, QueueNotice, Worker } from '../../kernel/storage/fleet-queue.ts';
import { processOwners } from '../../kernel/storage/owners.ts';
import { parseCertificate } from '../../kernel/trust/certificates.ts';
import { keepCertificatesIn } from '../../kernel/trust/certificates-fs.ts';
import { openKeyring } from '../../kernel/trust/keyring-fs.ts';
import { readPrivateKey } from '../../kernel/trust/keys.ts';
import { connectFleet, type FleetConnection } from './connection.ts';
import type { LegOrder } from './leg-control.ts';
import { EXIT_OF_LEG } from './leg-outcome.ts';
import { LegProcesses } from './leg-processes.ts';
import { openWorkerLeases } from './postgres/open-postgres.ts';
import type { WorkerToken } from './token.ts';
import { WorkerLease } from './worker-lease.ts';
import { workerProof } from './worker-proof.ts';
import { WorkerReaper } from './worker-reaper.ts';

/** The duration of a lease. A worker that is gone is replaced after it and two beats of the others. */
export const LEASE_MS = 3000;
const BEAT_MS = 1000;
/** Interval of looks for threads that rest although what they wait for has come. */
const SWEEP_MS = 5000;
const SWEEP_COUNT = 200;
/** Interval in which ended legs are forgotten, and the time for which they are kept. */
const PRUNE_EACH_MS = 3_600_000;
const KEPT_LEGS_MS = 24 * PRUNE_EACH_MS;
/** The time that a removed worker has to end, in milliseconds. */
const REMOVED_MS = 5000;
/** The time that a worker which leaves waits for its own start, in milliseconds. */
const STARTING_MS = 5000;
/** Tries of a leg while the store is away. */
const TRIES = 1_000_000;
/** Hidden command of the process of a leg. */
const RUN_LEG = '__run-leg';

export interface WorkerOptions {
  readonly token: WorkerToken;
  readonly queues: readonly string[];
  readonly slots: number;
  readonly labels: readonly string[];
  readonly version: string;
  /** The folder in which the projects of threads are made. */
  readonly folder: string;
  readonly userSpacePath: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly configOverrides: readonly string[];
  readonly waitInlineMs: number;
  /** Protocols by which source trees may be fetched. */
  readonly sources: readonly SourceProtocol[];
  /** Milliseconds that legs have to reach a safe point once the worker leaves. */
  readonly drainMs: number;
  /** Receives what happens: a leg that starts or ends, and what a person should know. */
  readonly report: (line: WorkerReport) => void;
}

export interface WorkerReport {
  readonly kind: 'leg_started' | 'leg_ended' | 'takeover' | 'notice';
  readonly thread_id?: string;
  readonly message?: string;
}

/** Counts of a worker since it started. */
export interface WorkerCounts {
  legs_started: number;
  legs_ended: number;
  legs_crashed: number;
  takeovers: number;
}

/** A process that runs legs of a fleet, each in a separate process, until it is told to leave or has lost its lease. */
export class FleetWorker {
  readonly workerId: string;
  readonly counts: WorkerCounts = {
    legs_started: 0,
    legs_ended: 0,
    legs_crashed: 0,
    takeovers: 0,
  };
  readonly #options: WorkerOptions;
  readonly #connection: FleetConnection;
  readonly #leases: ReturnType<typeof openWorkerLeases>;
  readonly #lease: WorkerLease;
  readonly #stopped = new AbortController();
  readonly #legs: LegProcesses;
  readonly #sandbox: LegOrder['sandbox'];
  #starting: Promise<Worker | undefined> | undefined;
  /** Ends once it has left. */
  #background: Promise<unknown> | undefined;
  #worker: Worker | undefined;
  #leaving: Promise<void> | undefined;
  #prunedAt = 0;
  #left: ReadonlySet<string> = new Set();

  constructor(options: WorkerOptions) {
    const { token, labels, version, configOverrides, userSpacePath, folder, env, slots, report } =
      options;
    this.#options = options;
    this.workerId = `${token.label}-${systemIds.uuid().slice(0, 8)}`;
    this.#connection = connectFleet({
      url: token.url,
      clock: systemClock,
      ids: systemIds,
    });
    this.#leases = openWorkerLeases(token.url);
    this.#lease = new WorkerLease({
      leases: this.#leases,
      clock: systemClock,
      workerId: this.workerId,
      labels: [
        token.label,
        ...labels,
        workerProof(readPrivateKey(token.key, 'the key of the token'), this.workerId),
      ],
      version,
      leaseMs: LEASE_MS,
    });
    this.#sandbox = sandboxOf(configOverrides);
    this.#legs = new LegProcesses({
      command: process.execPath,
      args: [
        join(systemSpacePath(), 'bin', 'rye.js'),
        '--user-space',
        userSpacePath,
        ...configOverrides.flatMap((override) => ['--config', override]),
        RUN_LEG,
      ],
      cwd: folder,
      env: legEnvironment(env),
      slots,
      onLine: (threadId, message) =>
        report({ kind: 'notice', message, ...(threadId ? { thread_id: threadId } : {}) }),
    });
  }

  get running(): number {
    return this.#legs.running;
  }

  /** The state of the queues that it works on, for metrics. */
  async queues() {
    return await this.#connection.queue.queues();
  }

  /** Joins the fleet and runs legs. Resolves once the worker has left. Throws if it cannot join or has lost its lease. */
  async run(): Promise<void> {
    hideEnvironment(process.env);
    this.#starting = this.#start();
    try {
      this.#worker = await this.#starting;
      await this.#background;
    } catch (error) {
      // it was told to leave before it had joined, and has closed what it was using
      if (!this.#leaving || this.#lease.isRemoved) throw error;
    }
    await this.#leaving;
    if (!this.#lease.isRemoved) return;
    throw new RyeError('thread_locked', `worker ${this.workerId} was removed from the fleet`, {
      hint: 'It did not reach the store for longer than its lease. Start it again: rye worker',
    });
  }

  /** Joins the fleet and begins to work; undefined if it was told to leave meanwhile. */
  async #start(): Promise<Worker | undefined> {
    const isLeaving = (): boolean => this.#leaving !== undefined;
    await this.#join();
    if (!isLeaving()) await this.#lease.take();
    if (isLeaving()) return undefined;
    this.#legs.start();
    const reaper = new WorkerReaper({
      leases: this.#leases,
      clock: systemClock,
      isWatching: () => this.#lease.isWatching,
    });
    const others = Promise.all([
      this.#lease.keep(),
      reaper.watch(this.#stopped.signal, async (workerId) => await this.#takeOver(workerId)),
      this.#sweep(),
    ]);
    // one that was removed waits for nothing: what it asks of the store may never be answered
    this.#background = this.#beat().then(async () => !this.#lease.isRemoved && (await others));
    const { queues, slots } = this.#options;
    return await this.#connection.queue.work(
      {
        workerId: this.workerId,
        queues,
        slots,
        tries: TRIES,
        report: (notice) => this.#notice(notice),
      },
      async (leg, signal) => await this.#runLeg(leg, signal),
    );
  }

  /** Finishes or parks its legs, and leaves the fleet. */
  async leave(): Promise<void> {
    this.#leaving ??= this.#leave();
    await this.#leaving;
  }

  async #leave(): Promise<void> {
    const left = this.#departure();
    // it has nothing more to return; what it still asks of the store may never be answered
    await (this.#lease.isRemoved ? Promise.race([left, systemClock.sleep(REMOVED_MS)]) : left);
  }

  async #departure(): Promise<void> {
    // one that starts is drained too, unless the store is away
    const starting = this.#starting?.catch(() => undefined);
    const worker = await Promise.race([starting, systemClock.sleep(STARTING_MS)]);
    await worker?.drain(this.#options.drainMs);
    // legs that did not reach a safe point: another worker continues them
    this.#legs.kill();
    this.#legs.close();
    this.#stopped.abort();
    await this.#lease.release().catch(() => undefined);
    this.#leases.close();
    await this.#connection.close();
  }

  /** Trusts the root of the fleet for the keys of its workers, and makes its own certificate known. */
  async #join(): Promise<void> {
    const { token, userSpacePath, folder } = this.#options;
    const key = readPrivateKey(token.key, 'the key of the token');
    const certificate = parseCertificate(token.certificate, 'the certificate of the token');
    if (
      certificate.key.keyId !== key.keyId ||
      Date.parse(certificate.notAfter) < systemClock.now()
    ) {
      throw new RyeError('key_revoked', `the certificate of worker ${token.label} has expired`, {
        hint: `Enroll it again: rye fleet enroll --label ${token.label} > worker.token`,
      });
    }
    const keyring = openKeyring({
      userSpacePath,
      projectPath: folder,
      now: () => systemClock.now(),
      env: {},
    });
    const known = keyring.find(certificate.root);
    if (known.status === 'unknown') {
      await keyring.trust(token.root, { owner: 'fleet', purposes: ['certify'] });
    }
    const { threads } = this.#connection;
    await threads.addCertificate(key.keyId, token.certificate);
    keepCertificatesIn(userSpacePath, await threads.certificates());
    const { status } = keyring.find(key.keyId);
    if (status === 'trusted') return;
    throw new RyeError(
      status === 'revoked' ? 'key_revoked' : 'key_untrusted',
      `the key ${key.keyId} of worker ${token.label} is ${status}`,
      { hint: `Enroll it again: rye fleet enroll --label ${token.label} > worker.token` },
    );
  }

  async #takeOver(workerId: string): Promise<void> {
    const legs = await this.#connection.queue.redispatch(workerId);
    this.counts.takeovers += legs;
    this.#options.report({
      kind: 'takeover',
      message: `worker ${workerId} is gone; ${legs} of its legs continue elsewhere`,
    });
    await this.#wake();
  }

  /** Queues legs for threads whose worker is gone, or whose wait has ended, in case that nothing else has. */
  async #sweep(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      await systemClock.sleep(SWEEP_MS * (0.5 + Math.random()), this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
      // an outage is waited out
      await this.#wakeOwn().catch(() => undefined);
      if (!this.#lease.isWatching) continue;
      await this.#wake().catch(() => undefined);
      await this.#tidy().catch(() => undefined);
    }
  }

  /** Queues a leg for each thread that this worker runs by its row, while its process is gone and no leg of it runs. */
  async #wakeOwn(): Promise<void> {
    const { threads, fleet } = this.#connection;
    const served = new Set(this.#worker?.running().map(threadOfLeg));
    const owners = processOwners();
    const left = (await threads.runningOn(this.workerId)).filter((row) => {
      const owner = owners.ofRecord(row);
      const isGone = owner === undefined || owners.state(owner) === 'gone';
      return isGone && !served.has(row.thread_id);
    });
    const seen = this.#left;
    this.#left = new Set(left.map((row) => row.thread_id));
    // in the first look, a leg may just have begun or ended
    for (const threadId of this.#left) if (seen.has(threadId)) await fleet.resume(threadId);
  }

  /** Queues threads again whose leg was lost or damaged, and forgets legs that ended long ago. */
  async #tidy(): Promise<void> {
    const { threads, fleet, queue } = this.#connection;
    // a worker may have died between removing a dead one and returning its legs; each has its lease before a leg
    const owners = await queue.owners();
    const living = new Set((await this.#leases.list()).map((row) => row.worker_id));
    for (const owner of owners) if (!living.has(owner)) await queue.redispatch(owner);
    const unstarted = await threads.unstarted(SWEEP_COUNT);
    if (unstarted.length > 0) {
      for (const threadId of await queue.withoutLeg(unstarted, [...living]))
        await fleet.resume(threadId);
    }
    const now = systemClock.now();
    if (now - this.#prunedAt < PRUNE_EACH_MS) return;
    this.#prunedAt = now;
    await queue.prune(new Date(now - KEPT_LEGS_MS).toISOString());
  }

  async #wake(): Promise<void> {
    const { threads, fleet } = this.#connection;
    for (const threadId of await threads.resting(SWEEP_COUNT)) await fleet.resume(threadId);
    await threads.dropSealed();
  }

  /** Tells the processes of legs each second how long they may begin effects. */
  async #beat(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      await systemClock.sleep(BEAT_MS, signal);
      if (this.#lease.isRemoved) {
        // others run its threads now
        this.#legs.kill();
        void this.leave();
        return;
      }
      this.#legs.send({ kind: 'beat', until: this.#until() });
      if (this.#lease.isDraining) void this.leave();
    }
  }

  async #runLeg({ threadId }: LegSpec, signal: AbortSignal): Promise<void> {
    const { report } = this.#options;
    this.counts.legs_started += 1;
    report({ kind: 'leg_started', thread_id: threadId });
    const status = await this.#legs.run(this.#orderOf(threadId), signal);
    if (status === EXIT_OF_LEG.done) this.counts.legs_ended += 1;
    else if (status === EXIT_OF_LEG.refused) {
      report({
        kind: 'notice',
        thread_id: threadId,
        message: `the leg of ${threadId} was refused`,
      });
    } else {
      if (status !== EXIT_OF_LEG.again) this.counts.legs_crashed += 1;
      throw new Error(`the process of the leg ended with ${status ?? 'a signal'}`);
    }
    report({ kind: 'leg_ended', thread_id: threadId });
  }

  #orderOf(threadId: string): LegOrder {
    const { token, folder, waitInlineMs, sources } = this.#options;
    return {
      format: 1,
      url: token.url,
      workerId: this.workerId,
      key: token.key,
      root: parseCertificate(token.certificate, 'the certificate of the token').root,
      pool: token.pool ?? [],
      threadId,
      folder: join(folder, 'threads', threadId),
      waitInlineMs,
      sandbox: this.#sandbox,
      sources,
      until: this.#until(),
    };
  }

  /** The time until which legs may begin effects. */
  #until(): number {
    return machineClock.monotonic() + this.#lease.leftMs;
  }

  #notice({ legId, message }: QueueNotice): void {
    const thread = legId === null ? undefined : threadOfLeg(legId);
    this.#options.report({ kind: 'notice', message, ...(thread ? { thread_id: thread } : {}) });
  }
}

function threadOfLeg(legId: string): string {
  return legId.replace(/#[^#]*$/, '');
}

/** Commands on a worker run in the sandbox, unless its own options set another mode. */
function sandboxOf(overrides: readonly string[]): LegOrder['sandbox'] {
  const named = overrides.findLast((text) => text.startsWith('resilience.tools.sandbox='));
  const mode = named?.slice(named.indexOf('=') + 1) ?? 'required';
  return mode === 'off' || mode === 'auto' ? mode : 'required';
}

/** The environment of a leg is the worker's: it has the keys of the providers. */
function legEnvironment(env: WorkerOptions['env']): Record<string, string> {
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !NOT_PASSED.has(entry[0]),
  );
  return Object.fromEntries(kept);
}

/** Its own key comes through a pipe, and no thread has started it. */
const NOT_PASSED: ReadonlySet<string> = new Set([
  'RYE_SIGNING_KEY',
  'RYE_THREAD_ID',
  'RYE_PARENT_THREAD_ID',
  'RYE_PROJECT',
]);
