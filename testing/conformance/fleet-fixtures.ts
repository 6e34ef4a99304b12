import { expect, vi } from 'vitest';
import type {
  FleetQueue,
  LegSpec,
  QueueState,
  RunLeg,
  Worker,
  WorkOptions,
} from '../../src/kernel/storage/fleet-queue.ts';
import type { Transaction } from '../../src/kernel/storage/sql-work.ts';

/** A queue with what the suite needs beside the port. */
export interface OpenedQueue {
  readonly queue: FleetQueue;
  /** Runs `work` in a transaction that commits when it resolves and rolls back when it rejects. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Starts a worker that can die: a process, if the queue has a server. */
  elsewhere(options: WorkOptions, run: RunLeg): Promise<MortalWorker>;
  /** Replaces the stored form of a queued leg. */
  corrupt(legId: string, row: unknown): Promise<void>;
}

export interface MortalWorker {
  readonly worker: Worker;
  /** Ends the worker at once: it records nothing more. */
  kill(): Promise<void>;
}

/** A slow machine with other work: conditions are polled this long, in milliseconds. */
const PATIENCE_MS = 60_000;
const LOOK_MS = 25;

let houses = 0;

/** One test's part of a queue: its names occur in no other test. */
export class House {
  readonly opened: OpenedQueue;
  readonly #suffix: string;
  readonly #workers: Worker[] = [];
  readonly #mortal: MortalWorker[] = [];
  readonly #gates: (() => void)[] = [];

  constructor(opened: OpenedQueue) {
    houses += 1;
    this.opened = opened;
    this.#suffix = `${houses}-${process.pid}`;
  }

  get queue(): FleetQueue {
    return this.opened.queue;
  }

  /** Returns a name that only this test uses. */
  name(base: string): string {
    return `${base}.${this.#suffix}`;
  }

  leg(legId: string, changes: Partial<LegSpec> = {}): LegSpec {
    const [thread = legId] = legId.split('#');
    return {
      legId: this.name(legId),
      threadId: this.name(thread),
      queue: this.name('main'),
      priority: 5,
      notBefore: null,
      partition: null,
      payload: { text: `ü of ${legId}` },
      ...changes,
    };
  }

  async enqueue(legId: string, changes: Partial<LegSpec> = {}): Promise<boolean> {
    const leg = this.leg(legId, changes);
    return await this.opened.transaction(async (tx) => await this.queue.enqueueLeg(tx, leg));
  }

  options(changes: Partial<WorkOptions> = {}): WorkOptions {
    return {
      workerId: this.name('worker'),
      queues: [this.name('main'), this.name('other')],
      slots: 8,
      pollMs: 50,
      pauseMs: 1,
      ...changes,
    };
  }

  async work(run: RunLeg, changes: Partial<WorkOptions> = {}): Promise<Worker> {
    const worker = await this.queue.work(this.options(changes), run);
    this.#workers.push(worker);
    return worker;
  }

  async elsewhere(run: RunLeg, changes: Partial<WorkOptions> = {}): Promise<MortalWorker> {
    const mortal = await this.opened.elsewhere(this.options(changes), run);
    this.#mortal.push(mortal);
    return mortal;
  }

  async state(queue = 'main'): Promise<QueueState | undefined> {
    const name = this.name(queue);
    return (await this.queue.queues()).find((state) => state.name === name);
  }

  async becomes(state: Partial<QueueState>, queue = 'main'): Promise<void> {
    await eventually(async () => expect(await this.state(queue)).toMatchObject(state));
  }

  /** Makes a gate that opens at the latest when the test ends. */
  gate(): Gate {
    const { promise, resolve } = defer();
    this.#gates.push(resolve);
    return { passed: promise, open: resolve };
  }

  async close(): Promise<void> {
    for (const open of this.#gates) open();
    for (const { kill } of this.#mortal) await kill();
    for (const worker of this.#workers) await worker.drain(PATIENCE_MS);
    await this.queue.close();
  }
}

export interface Gate {
  readonly passed: Promise<void>;
  open(): void;
}

function defer(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** Repeats the check until it passes. */
export async function eventually(check: () => unknown): Promise<void> {
  await vi.waitFor(check, { timeout: PATIENCE_MS, interval: LOOK_MS });
}

/** A run that notes the legs which it got, and then runs `then`. */
export function noting(then: RunLeg = async () => {}): {
  readonly started: string[];
  readonly legs: LegSpec[];
  readonly run: RunLeg;
} {
  const started: string[] = [];
  const legs: LegSpec[] = [];
  const run: RunLeg = async (leg, signal) => {
    started.push(leg.legId);
    legs.push(leg);
    await then(leg, signal);
  };
  return { started, legs, run };
}

/** Resolves with the reason when the signal aborts. */
export async function aborted(signal: AbortSignal): Promise<unknown> {
  if (!signal.aborted)
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  return signal.reason;
}
