import type { Clock } from '../../kernel/core/clock.ts';
import { messageOf } from '../../kernel/core/errors.ts';
import type {
  LegSpec,
  LegStop,
  QueueNotice,
  RunLeg,
  WorkOptions,
} from '../../kernel/storage/fleet-queue.ts';
import { legOfRow } from './leg-row.ts';

const TRIES = 3;
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 60_000;

/** Outcome of a dispatch: `returned` goes back to its queue, the others end the leg. */
export type LegEnd = 'done' | 'failed' | 'returned';

interface Running {
  readonly legId: string;
  readonly controller: AbortController;
  readonly end: Promise<LegEnd>;
}

/** Runs the legs that an engine dispatches to this worker: tries, pauses, signals and the drain. */
export class LegRunner {
  readonly #options: WorkOptions;
  readonly #run: RunLeg;
  readonly #clock: Clock;
  readonly #running = new Set<Running>();
  #isDraining = false;

  constructor(options: WorkOptions, run: RunLeg, clock: Clock) {
    this.#options = options;
    this.#run = run;
    this.#clock = clock;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  running(): readonly string[] {
    return [...this.#running].map(({ legId }) => legId);
  }

  /** Runs a stored leg to its end. Never rejects: a row that is no valid leg has failed. */
  async runRow(legId: string, row: unknown): Promise<LegEnd> {
    if (this.#isDraining) return 'returned';
    const leg = this.#parsed(legId, row);
    if (!leg) return 'failed';
    const controller = new AbortController();
    const end = this.#tries(leg, controller.signal);
    const running = { legId, controller, end };
    this.#running.add(running);
    try {
      return await end;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Asks a running leg to stop. */
  stop(legId: string, reason: LegStop): void {
    for (const running of this.#running)
      if (running.legId === legId) running.controller.abort(reason);
  }

  /** Asks all running legs to stop, and waits for them at most `graceMs`. Returns true if all have ended. */
  async drain(graceMs: number): Promise<boolean> {
    this.#isDraining = true;
    const legs = [...this.#running];
    for (const { controller } of legs) controller.abort('drain' satisfies LegStop);
    const timer = new AbortController();
    const ended = Promise.all(legs.map(async ({ end }) => await end));
    const isEnded = await Promise.race([
      ended.then(() => true),
      this.#clock.sleep(graceMs, timer.signal).then(() => false),
    ]);
    timer.abort();
    return isEnded;
  }

  #parsed(legId: string, row: unknown): LegSpec | undefined {
    try {
      const leg = legOfRow(row);
      if (leg.legId === legId) return leg;
      this.#report('leg_refused', legId, `the row of leg ${legId} holds another leg`);
    } catch (error) {
      this.#report('leg_refused', legId, messageOf(error));
    }
    return undefined;
  }

  async #tries(leg: LegSpec, signal: AbortSignal): Promise<LegEnd> {
    const { tries = TRIES, pauseMs = FIRST_PAUSE_MS } = this.#options;
    for (let count = 1; ; count += 1) {
      try {
        await this.#run(leg, signal);
        return 'done';
      } catch (error) {
        if (signal.aborted) return endOfStopped(signal);
        if (count >= tries) {
          this.#report('leg_failed', leg.legId, messageOf(error));
          return 'failed';
        }
      }
      const pause = Math.min(pauseMs * 2 ** (count - 1), LONGEST_PAUSE_MS);
      await this.#clock.sleep(pause, signal);
      if (signal.aborted) return endOfStopped(signal);
    }
  }

  #report(code: QueueNotice['code'], legId: string, message: string): void {
    this.#options.report?.({ code, legId, message });
  }
}

/** A leg that a drain interrupted did no lasting work: another worker runs it. */
function endOfStopped(signal: AbortSignal): LegEnd {
  return signal.reason === ('drain' satisfies LegStop) ? 'returned' : 'done';
}
