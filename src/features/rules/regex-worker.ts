import type * as Threads from 'node:worker_threads';
import type { Workspace } from '../../kernel/app/workspace.ts';
import type { Place } from './match/evaluate.ts';
import { javaScriptOf } from './stream/expression.ts';
import type { SlowMatcher } from './stream/session.ts';

/**
 * 250 ms in ticks of this process: while other processes use the processor, ticks hardly advance either. A rule that does
 * not fire on a busy machine is worse than a wait for an expression that never ends.
 */
const TICK_MS = 10;
const LIMIT_TICKS = 25;

/** Runs inside of the worker, so that an endless expression blocks nothing else. */
const SCRIPT = `
const { parentPort } = require('node:worker_threads');
parentPort.on('message', ({ source, flags, text, limit }) => {
  const places = [];
  for (const found of text.matchAll(new RegExp(source, flags + 'g'))) {
    places.push({ start: found.index, end: found.index + found[0].length });
    if (places.length === limit) break;
  }
  parentPort.postMessage(places);
});
parentPort.postMessage('ready');
`;

interface Job {
  readonly expression: string;
  readonly text: string;
  readonly limit: number;
  readonly settle: (found: readonly Place[] | 'timeout') => void;
}

/**
 * JavaScript expressions in one worker, one after the other. A check that takes longer than 250 ms is given up and its
 * worker ended; the time a worker takes to start is not counted. The worker does not keep the program alive.
 */
export class RegexWorker implements SlowMatcher {
  readonly #queue: Job[] = [];
  /** Loaded by the first check: hardly any thread has one. */
  #threads: typeof Threads | undefined;
  #worker: Threads.Worker | undefined;
  #running: { readonly job: Job; readonly timer: NodeJS.Timeout } | undefined;
  #isReady = false;

  async find(expression: string, text: string): Promise<boolean | 'timeout'> {
    const places = await this.places(expression, text, 1);
    return places === 'timeout' ? places : places.length > 0;
  }

  async places(
    expression: string,
    text: string,
    limit: number,
  ): Promise<readonly Place[] | 'timeout'> {
    this.#threads ??= await import('node:worker_threads');
    const { Worker } = this.#threads;
    return await new Promise((settle) => {
      this.#queue.push({ expression, text, limit, settle });
      this.#next(Worker);
    });
  }

  close(): void {
    void this.#worker?.terminate();
    this.#worker = undefined;
  }

  #next(Worker: typeof Threads.Worker): void {
    this.#worker ??= this.#start(Worker);
    const worker = this.#worker;
    if (this.#running || !this.#isReady) return;
    const job = this.#queue.shift();
    if (!job) {
      worker.unref();
      return;
    }
    let ticks = 0;
    const timer = setInterval(() => {
      ticks += 1;
      if (ticks === LIMIT_TICKS) this.#giveUp('timeout', Worker);
    }, TICK_MS);
    this.#running = { job, timer };
    const { expression, text, limit } = job;
    worker.postMessage({ ...javaScriptOf(expression), text, limit }, []);
  }

  #start(Worker: typeof Threads.Worker): Threads.Worker {
    this.#isReady = false;
    const worker = new Worker(SCRIPT, { eval: true, env: {}, stdin: false });
    worker.on('message', (found: readonly Place[] | 'ready') => {
      if (worker !== this.#worker) return;
      if (found === 'ready') this.#isReady = true;
      else this.#settle(found);
      this.#next(Worker);
    });
    worker.on('error', () => {
      if (worker === this.#worker) this.#giveUp([], Worker);
    });
    return worker;
  }

  #settle(found: readonly Place[] | 'timeout'): void {
    const running = this.#running;
    this.#running = undefined;
    clearInterval(running?.timer);
    running?.job.settle(found);
  }

  /** Ends a worker that hangs or died; the next check starts another. */
  #giveUp(verdict: readonly Place[] | 'timeout', Worker: typeof Threads.Worker): void {
    const worker = this.#worker;
    this.#worker = undefined;
    void worker?.terminate();
    this.#settle(verdict);
    if (this.#queue.length > 0) this.#next(Worker);
  }
}

const workers = new WeakMap<Workspace, RegexWorker>();

/** The worker of an opened rye. It starts with the first check, and ends when rye is closed. */
export function regexWorkerOf(workspace: Workspace): RegexWorker {
  const known = workers.get(workspace);
  if (known !== undefined) return known;
  const worker = new RegexWorker();
  workers.set(workspace, worker);
  workspace.onClose(() => worker.close());
  return worker;
}
