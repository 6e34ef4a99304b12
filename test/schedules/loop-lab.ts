import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { NewSchedule, ServeEvent } from '../../src/kernel/app/api/schedules.ts';
import type { Clock } from '../../src/kernel/core/clock.ts';
import { directive, type Lab, lab } from '../threads/lab.ts';

/** A clock that a test moves. A sleep beyond its time waits for the next move. */
export class LoopClock implements Clock {
  #now: number;
  #until: number;
  /** Milliseconds by which the clock went back: a sleep is as long as before. */
  #back = 0;
  #wake: (() => void) | undefined;
  #idle: (() => void) | undefined;

  constructor(start: string) {
    this.#now = Date.parse(start);
    this.#until = this.#now;
  }

  now = (): number => this.#now;
  monotonic = (): number => this.#now;

  sleep = async (ms: number, signal?: AbortSignal): Promise<void> => {
    const begun = this.#back;
    const target = this.#now + ms;
    const isOver = (): boolean =>
      target - (this.#back - begun) <= this.#until || signal?.aborted === true;
    while (!isOver()) {
      this.#now = this.#until;
      this.#idle?.();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        signal?.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    const end = target - (this.#back - begun);
    this.#now = Math.max(this.#now, Math.min(end, this.#until));
  };

  /** Moves on while the loop does not sleep, or back at any time. */
  jump(to: string): void {
    this.#back += Math.max(0, this.#now - Date.parse(to));
    this.#now = Date.parse(to);
    this.#until = this.#now;
  }

  /** Moves on, and resolves when the loop has done everything up to then. */
  async reach(to: string): Promise<void> {
    this.#until = Date.parse(to);
    await this.settled();
  }

  async settled(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#idle = resolve;
      this.#wake?.();
    });
    this.#idle = undefined;
  }
}

const MARK = `import { appendFileSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Leave a mark.';
export const __traits__ = { reads_only: false, idempotent: false, network: false, risk: 'safe' };
export const CONFIG_SCHEMA = { type: 'object', properties: {}, additionalProperties: false };
appendFileSync('marks', 'mark\\n');
process.stdout.write('{}');
`;

export interface LoopLab extends Lab {
  readonly clock: LoopClock;
  readonly notices: readonly string[];
  /** A library on the project with the clock. */
  readonly desk: Rye;
  add(schedule: Partial<NewSchedule>): Promise<void>;
  /** Starts a loop. It ends with the test at the latest. */
  serve(rye?: Rye): Promise<Served>;
  /** Threads of schedules, by ID. */
  threads(): Promise<readonly string[]>;
  /** Returns the number of effects of `team/mark`. */
  marks(): number;
}

export interface Served {
  readonly events: ServeEvent[];
  /** Lines such as `fired 03:00`, in order, without the first. */
  told(): readonly string[];
  stop(): Promise<void>;
  /** Resolves when the loop ends. */
  readonly ended: Promise<void>;
}

/** A project with `team/job`, which waits for its gate, and `team/mark`, which has an effect. */
export async function loopLab(start: string): Promise<LoopLab> {
  const base = await lab();
  base.write('.ai/tools/team/mark.mjs', MARK);
  const steps = '<step name="mark"><execute item_type="tool" item_id="team/mark"></execute></step>';
  base.write(
    '.ai/directives/team/mark.md',
    directive('team/mark', { tools: ['team/mark'], steps }),
  );
  await base.sign();
  const clock = new LoopClock(start);
  const notices: string[] = [];
  const desk = base.open({ clock, onNotice: (notice) => notices.push(notice) });
  return {
    ...base,
    clock,
    notices,
    desk,
    add: async (schedule) => {
      const inputs = { name: 'nightly' };
      await desk.schedules.add({
        name: 'nightly',
        cron: '0 * * * *',
        run: { directiveId: 'team/job', inputs, raiseLimits: true },
        ...schedule,
      });
    },
    serve: async (rye = desk) => {
      const events: ServeEvent[] = [];
      const controller = new AbortController();
      const { signal } = controller;
      const idle = clock.settled();
      const ended = rye.schedules.serve({ signal, onEvent: (event) => events.push(event) });
      const stop = async (): Promise<void> => {
        controller.abort();
        await ended;
      };
      onTestFinished(async () => await stop().catch(() => undefined));
      await Promise.race([idle, ended]);
      return {
        events,
        stop,
        ended,
        told: () =>
          events
            .filter(({ event }) => event !== 'serving')
            .map((event) => {
              const at = 'at' in event ? (event.at?.slice(11, 16) ?? 'all') : codeOf(event);
              return `${event.event} ${at}`;
            }),
      };
    },
    threads: async () =>
      (await base.store.registry.findIds('schedule/', -1)).toSorted((one, two) =>
        one < two ? -1 : 1,
      ),
    marks: () => {
      const file = path.join(base.project, 'marks');
      return existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0;
    },
  };
}

function codeOf(event: ServeEvent): string {
  return 'error' in event ? event.error.code : '';
}
