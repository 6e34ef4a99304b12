import type { Spend } from './spend.ts';

/** Stops the clock of the duration while all that a run does is wait for people. */
export class IdleClock {
  readonly #spend: Pick<Spend, 'pause' | 'goOn'>;
  /** The calls that run, by id, with the number of waits for people inside each. */
  readonly #running = new Map<string, number>();
  /** Calls that wait for a decision before they start. */
  #undecided = 0;

  constructor(spend: Pick<Spend, 'pause' | 'goOn'>) {
    this.#spend = spend;
  }

  /** Runs a call. */
  async works<T>(callId: string, work: () => Promise<T>): Promise<T> {
    this.#running.set(callId, 0);
    this.#update();
    try {
      return await work();
    } finally {
      this.#running.delete(callId);
      this.#update();
    }
  }

  /** Waits for the decision about a call that has not started. */
  async waits<T>(wait: () => Promise<T>): Promise<T> {
    this.#undecided += 1;
    this.#update();
    try {
      return await wait();
    } finally {
      this.#undecided -= 1;
      this.#update();
    }
  }

  /** Waits for a person on behalf of a call that runs, which does nothing else meanwhile. */
  async waitsInside<T>(callId: string, wait: () => Promise<T>): Promise<T> {
    this.note(callId, true);
    try {
      return await wait();
    } finally {
      this.note(callId, false);
    }
  }

  /** Notes that a wait inside a call begins or ends. A call that has ended waits no more. */
  note(callId: string, isWaiting: boolean): void {
    const waits = this.#running.get(callId);
    if (waits === undefined) return;
    this.#running.set(callId, Math.max(0, waits + (isWaiting ? 1 : -1)));
    this.#update();
  }

  #update(): void {
    const counts = [...this.#running.values()];
    const isWaiting = this.#undecided > 0 || counts.length > 0;
    if (isWaiting && counts.every((waits) => waits > 0)) this.#spend.pause();
    else this.#spend.goOn();
  }
}
