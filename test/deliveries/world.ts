import { appendFileSync, mkdirSync, readFileSync, truncateSync } from 'node:fs';
import path from 'node:path';
import type { DeliveryReport, RunTraits } from '../../src/kernel/core/delivery.ts';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';

export const THREAD = 'sim/thread-1';

/** Lehmer generator: the same seed does the same work. */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed * 7_919 + 1) % 2_147_483_647;
    for (let n = 0; n < 10; n += 1) this.below(2);
  }

  below(limit: number): number {
    this.#state = (this.#state * 48_271) % 2_147_483_647;
    return this.#state % limit;
  }

  /** True `part` times in a thousand. */
  happens(part: number): boolean {
    return this.below(1000) < part;
  }

  pick<T>(choices: readonly [T, ...T[]]): T {
    return choices[this.below(choices.length)] ?? choices[0];
  }
}

/** A thread's log as a file of JSON lines, without seal: what is tested here is what is in it. */
export class SimLog {
  readonly #path: string;
  #serial: number;

  constructor(folder: string) {
    this.#path = path.join(folder, 'log.jsonl');
    appendFileSync(this.#path, '');
    this.#serial = this.read().length;
  }

  append(drafts: readonly EventDraft[]): readonly LogEvent[] {
    const events = drafts.map((draft): LogEvent => {
      this.#serial += 1;
      const id = draft.id ?? `${process.pid}-${this.#serial}`;
      const envelope = { seq: this.#serial, timestamp: '', thread_id: THREAD, id };
      return { ...envelope, ...draft };
    });
    appendFileSync(this.#path, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    return events;
  }

  /** Takes a few bytes from the end, as a crash in the middle of a write does. */
  tear(bytes: number): void {
    const size = readFileSync(this.#path).length;
    truncateSync(this.#path, Math.max(0, size - bytes));
  }

  /** Whole lines; a torn one at the end is cut off, as a repair does. */
  repair(): void {
    const text = readFileSync(this.#path, 'utf8');
    truncateSync(this.#path, Buffer.byteLength(text.slice(0, text.lastIndexOf('\n') + 1)));
  }

  read(): readonly LogEvent[] {
    const text = readFileSync(this.#path, 'utf8');
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    return whole
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as LogEvent);
  }
}

export const READS: RunTraits = {
  requires_approval: false,
  requires_network: false,
  requires_write_access: false,
};

/** The oracle's knowledge of a steer beside the tables: the traits of the run when it was admitted. */
export interface Admitted {
  readonly marker: string;
  readonly tools: Tools;
}

export type Tools = 'reads' | 'writes';

/** Everything that outlives a process. */
export class World {
  readonly folder: string;
  readonly store: Store;
  /** Milliseconds since 1970; rises with every action. */
  now = 1_700_000_000_000;
  tools: Tools = 'reads';
  readonly admitted: Admitted[] = [];
  #serial = 0;

  constructor(folder: string) {
    mkdirSync(folder, { recursive: true });
    this.folder = folder;
    this.store = openStore({
      projectPath: folder,
      clock: {
        now: () => this.now,
        monotonic: () => this.now,
        sleep: () => Promise.resolve(),
      },
      ids: { entryId: () => this.id('e'), uuid: () => this.id('u') },
    });
  }

  id(prefix: string): string {
    this.#serial += 1;
    return `${prefix}${process.pid}.${this.#serial}`;
  }

  get time(): string {
    return new Date(this.now).toISOString();
  }

  async register(threadId: string, parentId: string | null): Promise<void> {
    const { registry } = this.store;
    const now = this.time;
    await registry.register({
      threadId,
      directive: 'sim',
      parentId,
      model: 'm',
      now,
      owner: this.store.owners.self(),
    });
  }

  async deliveries(): Promise<readonly DeliveryReport[]> {
    return await this.store.deliveries.list(THREAD);
  }
}
