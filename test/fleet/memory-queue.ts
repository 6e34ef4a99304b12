import {
  checkLimits,
  checkQueueName,
  checkSchedule,
  checkWork,
  legOfFiring,
  rowOfLeg,
  timeOf,
} from '../../src/features/fleet/leg-row.ts';
import { type LegEnd, LegRunner } from '../../src/features/fleet/leg-runner.ts';
import { type Clock, isoTime } from '../../src/kernel/core/clock.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
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
} from '../../src/kernel/storage/fleet-queue.ts';
import type { Transaction } from '../../src/kernel/storage/sql-work.ts';

const NO_LIMITS: QueueLimits = { global: null, partition: null, rate: null };

interface Entry {
  leg: LegSpec;
  /** As it would be stored; a test may replace it by a hostile one. */
  row: unknown;
  state: 'queued' | 'running' | 'done' | 'failed' | 'cancelled';
  readonly order: number;
  readonly queuedAt: number;
  endedAt: number;
  worker: MemoryWorker | undefined;
}

/** A queue in this process, for tests of workers without a server. Nothing is stored, and its schedules fire only by hand. */
export class MemoryQueue implements FleetQueue {
  readonly #clock: Clock;
  readonly #legs = new Map<string, Entry>();
  readonly #limits = new Map<string, QueueLimits>();
  readonly #starts = new Map<string, number[]>();
  readonly #schedules = new Map<string, { readonly spec: ScheduleSpec; paused: boolean }>();
  readonly #workers = new Set<MemoryWorker>();
  readonly #staged = new WeakMap<Transaction, LegSpec[]>();
  #timer = new AbortController();
  #order = 0;
  /** Ends with the last transaction: one follows the other. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `work` with a transaction of this queue: what it enqueues is queued when it resolves, and dropped if it rejects. */
  async transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const result = this.#last.then(async () => await this.#transact(work));
    this.#last = result.catch(() => undefined);
    return await result;
  }

  async #transact<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const tx: Transaction = { query: async () => ({ rows: [], rowCount: 0 }) };
    const staged: LegSpec[] = [];
    this.#staged.set(tx, staged);
    const result = await work(tx);
    for (const leg of staged) this.#add(leg);
    this.#dispatch();
    return result;
  }

  /** A transaction that `transaction()` did not make cannot be followed to its end: the leg is queued at once. */
  async enqueueLeg(tx: Transaction, leg: LegSpec): Promise<boolean> {
    rowOfLeg(leg);
    const staged = this.#staged.get(tx);
    if (!staged) {
      const isNew = this.#add(leg);
      this.#dispatch();
      return isNew;
    }
    const isKnown = this.#legs.has(leg.legId) || this.#waiting(leg.threadId) !== undefined;
    const isStaged = staged.some(
      ({ legId, threadId }) => legId === leg.legId || threadId === leg.threadId,
    );
    staged.push(leg);
    return !isKnown && !isStaged;
  }

  async cancelLeg(legId: string): Promise<void> {
    const entry = this.#legs.get(legId);
    if (entry?.state !== 'queued' && entry?.state !== 'running') return;
    this.#end(entry, 'cancelled');
    entry.worker?.runner.stop(legId, 'cancel');
    this.#dispatch();
  }

  async work(options: WorkOptions, run: RunLeg): Promise<Worker> {
    checkWork(options);
    for (const queue of options.queues) this.#queue(queue);
    const runner = new LegRunner(options, run, this.#clock);
    const worker: MemoryWorker = new MemoryWorker(options, runner, () => {
      this.#redispatch(worker);
      this.#workers.delete(worker);
    });
    this.#workers.add(worker);
    this.#dispatch();
    return worker;
  }

  async redispatch(workerId: string): Promise<number> {
    const owners = new Set(
      [...this.#legs.values()].flatMap(({ worker }) =>
        worker?.workerId === workerId ? [worker] : [],
      ),
    );
    return [...owners].reduce((count, owner) => count + this.#redispatch(owner), 0);
  }

  async owners(): Promise<readonly string[]> {
    const running = [...this.#legs.values()].filter(({ state }) => state === 'running');
    return [...new Set(running.flatMap(({ worker }) => worker?.workerId ?? []))];
  }

  async withoutLeg(
    threads: readonly Pick<LegSpec, 'threadId' | 'queue'>[],
    workers: readonly string[],
  ): Promise<readonly string[]> {
    const served = [...this.#legs.values()].filter(({ state, worker }) => {
      if (state === 'running') return worker !== undefined && workers.includes(worker.workerId);
      return state === 'queued';
    });
    const ids = new Set(served.map(({ leg }) => leg.threadId));
    return threads.map(({ threadId }) => threadId).filter((id) => !ids.has(id));
  }

  async schedule(spec: ScheduleSpec): Promise<void> {
    checkSchedule(spec);
    const paused = this.#schedules.get(spec.name)?.paused ?? false;
    this.#schedules.set(spec.name, { spec, paused });
  }

  async unschedule(name: string): Promise<boolean> {
    return this.#schedules.delete(name);
  }

  async pause(name: string, isPaused: boolean): Promise<boolean> {
    const known = this.#schedules.get(name);
    if (known) known.paused = isPaused;
    return known !== undefined;
  }

  async schedules(): Promise<readonly ScheduleState[]> {
    return [...this.#schedules].toSorted(byName).map(([name, known]) => ({ name, ...known }));
  }

  async fire(name: string): Promise<void> {
    const spec = this.#schedules.get(name)?.spec;
    if (!spec) throw new RyeError('item_not_found', `no schedule has the name ${name}`);
    this.#add(legOfFiring(spec, isoTime(this.#clock.now())));
    this.#dispatch();
  }

  async limit(queue: string, limits: QueueLimits): Promise<void> {
    checkQueueName(queue);
    checkLimits(limits);
    this.#limits.set(queue, limits);
    this.#dispatch();
  }

  async queues(): Promise<readonly QueueState[]> {
    const now = this.#clock.now();
    return [...this.#limits].toSorted(byName).map(([name, limits]) => {
      const legs = [...this.#legs.values()].filter(({ leg }) => leg.queue === name);
      const count = (isCounted: (entry: Entry) => boolean): number => legs.filter(isCounted).length;
      const ready = legs.filter((entry) => entry.state === 'queued' && startOf(entry) <= now);
      const oldest = Math.min(...ready.map(({ queuedAt }) => queuedAt));
      return {
        name,
        queued: ready.length,
        delayed: count((entry) => entry.state === 'queued' && startOf(entry) > now),
        running: count(({ state }) => state === 'running'),
        failed: count(({ state }) => state === 'failed'),
        oldestAt: ready.length === 0 ? null : isoTime(oldest),
        limits,
      };
    });
  }

  async prune(olderThan: string): Promise<number> {
    const before = timeOf(olderThan);
    const old = [...this.#legs].filter(
      ([, { state, endedAt }]) => state !== 'queued' && state !== 'running' && endedAt < before,
    );
    for (const [legId] of old) this.#legs.delete(legId);
    return old.length;
  }

  async close(): Promise<void> {
    this.#timer.abort();
    this.#workers.clear();
  }

  /** Forgets a worker as if its process had died: nothing that it still does is recorded. */
  kill(worker: Worker): void {
    for (const known of this.#workers) if (known === worker) this.#workers.delete(known);
  }

  /** Replaces the stored form of a queued leg, as another program could. */
  corrupt(legId: string, row: unknown): void {
    const entry = this.#legs.get(legId);
    if (entry) entry.row = row;
  }

  #queue(name: string): void {
    if (!this.#limits.has(name)) this.#limits.set(name, NO_LIMITS);
  }

  #waiting(threadId: string): Entry | undefined {
    return [...this.#legs.values()].find(
      ({ leg, state }) => leg.threadId === threadId && state === 'queued',
    );
  }

  #add(leg: LegSpec): boolean {
    if (this.#legs.has(leg.legId)) return false;
    const waiting = this.#waiting(leg.threadId);
    if (waiting) {
      const { notBefore, priority } = waiting.leg;
      waiting.leg = {
        ...waiting.leg,
        priority: Math.min(priority, leg.priority),
        notBefore: earlier(notBefore, leg.notBefore),
      };
      waiting.row = rowOfLeg(waiting.leg);
      return false;
    }
    this.#queue(leg.queue);
    this.#order += 1;
    this.#legs.set(leg.legId, {
      leg,
      row: rowOfLeg(leg),
      state: 'queued',
      order: this.#order,
      queuedAt: this.#clock.now(),
      endedAt: 0,
      worker: undefined,
    });
    return true;
  }

  #end(entry: Entry, state: 'done' | 'failed' | 'cancelled'): void {
    entry.state = state;
    entry.endedAt = this.#clock.now();
  }

  #redispatch(worker: MemoryWorker): number {
    const legs = [...this.#legs.values()].filter(
      (entry) => entry.worker === worker && entry.state === 'running',
    );
    let count = 0;
    for (const entry of legs) {
      entry.worker = undefined;
      if (this.#waiting(entry.leg.threadId)) {
        this.#end(entry, 'cancelled');
        continue;
      }
      entry.state = 'queued';
      count += 1;
    }
    this.#dispatch();
    return count;
  }

  #dispatch(): void {
    const now = this.#clock.now();
    const queued = [...this.#legs.values()].filter(({ state }) => state === 'queued');
    for (const entry of queued.toSorted(byUrgency)) {
      if (startOf(entry) > now || !this.#hasRoom(entry.leg, now)) continue;
      const worker = [...this.#workers].find((known) => known.takes(entry.leg.queue));
      if (worker) this.#start(entry, worker, now);
    }
    this.#wake(queued, now);
  }

  #start(entry: Entry, worker: MemoryWorker, now: number): void {
    entry.state = 'running';
    entry.worker = worker;
    worker.take();
    const starts = this.#starts.get(entry.leg.queue) ?? [];
    this.#starts.set(entry.leg.queue, [...starts, now]);
    // a leg never starts inside the call that dispatches it, as with a server
    void this.#finish(entry, worker);
  }

  async #finish(entry: Entry, worker: MemoryWorker): Promise<void> {
    await Promise.resolve();
    const end = await worker.run(entry.leg.legId, entry.row);
    // otherwise another worker has the leg, or it was cancelled
    const isOwn = entry.worker === worker && this.#workers.has(worker);
    if (isOwn && entry.state === 'running') {
      if (end === 'returned') this.#giveBack(entry);
      else this.#end(entry, end);
    }
    this.#dispatch();
  }

  #giveBack(entry: Entry): void {
    entry.worker = undefined;
    if (this.#waiting(entry.leg.threadId)) this.#end(entry, 'cancelled');
    else entry.state = 'queued';
  }

  #hasRoom({ queue, partition }: LegSpec, now: number): boolean {
    const limits = this.#limits.get(queue) ?? NO_LIMITS;
    const running = [...this.#legs.values()].filter(
      ({ leg, state }) => leg.queue === queue && state === 'running',
    );
    if (limits.global !== null && running.length >= limits.global) return false;
    const ofPartition = running.filter(({ leg }) => leg.partition === partition);
    if (limits.partition !== null && ofPartition.length >= limits.partition) return false;
    const { rate } = limits;
    if (rate === null) return true;
    const recent = (this.#starts.get(queue) ?? []).filter((at) => at > now - rate.seconds * 1000);
    this.#starts.set(queue, recent);
    return recent.length < rate.legs;
  }

  /** Dispatches again when a delayed leg or a rate may have its time. */
  #wake(queued: readonly Entry[], now: number): void {
    this.#timer.abort();
    this.#timer = new AbortController();
    const { signal } = this.#timer;
    const starts = queued.map(startOf).filter((at) => at > now);
    for (const [queue, { rate }] of this.#limits) {
      const [first] = this.#starts.get(queue) ?? [];
      if (rate !== null && first !== undefined) starts.push(first + rate.seconds * 1000 + 1);
    }
    const next = Math.min(...starts.filter((at) => at > now));
    if (!Number.isFinite(next) || this.#workers.size === 0) return;
    void this.#dispatchAfter(Math.min(next - now, 2 ** 30), signal);
  }

  async #dispatchAfter(ms: number, signal: AbortSignal): Promise<void> {
    await this.#clock.sleep(ms, signal);
    if (!signal.aborted) this.#dispatch();
  }
}

class MemoryWorker implements Worker {
  readonly runner: LegRunner;
  readonly #options: WorkOptions;
  readonly #leave: () => void;
  #taken = 0;
  #drained: Promise<void> | undefined;

  constructor(options: WorkOptions, runner: LegRunner, leave: () => void) {
    this.#options = options;
    this.runner = runner;
    this.#leave = leave;
  }

  get workerId(): string {
    return this.#options.workerId;
  }

  running(): readonly string[] {
    return this.runner.running();
  }

  takes(queue: string): boolean {
    const { queues, slots } = this.#options;
    return !this.runner.isDraining && this.#taken < slots && queues.includes(queue);
  }

  /** Fills a slot until the run of the leg ends. */
  take(): void {
    this.#taken += 1;
  }

  async run(legId: string, row: unknown): Promise<LegEnd> {
    try {
      return await this.runner.runRow(legId, row);
    } finally {
      this.#taken -= 1;
    }
  }

  async drain(graceMs: number): Promise<void> {
    this.#drained ??= this.#drain(graceMs);
    await this.#drained;
  }

  async #drain(graceMs: number): Promise<void> {
    await this.runner.drain(graceMs);
    // the ends of the legs are recorded first
    await new Promise((resolve) => setImmediate(resolve));
    this.#leave();
  }
}

function startOf({ leg }: Entry): number {
  return leg.notBefore === null ? 0 : Date.parse(leg.notBefore);
}

function byUrgency(one: Entry, two: Entry): number {
  return one.leg.priority - two.leg.priority || one.order - two.order;
}

function byName([one]: readonly [string, unknown], [two]: readonly [string, unknown]): number {
  return one < two ? -1 : 1;
}

/** Returns the earlier of two times; null is now. */
function earlier(one: string | null, two: string | null): string | null {
  if (one === null || two === null) return null;
  return Date.parse(one) <= Date.parse(two) ? one : two;
}
