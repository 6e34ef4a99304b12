import type { ServeEvent, ServeOptions } from '../../kernel/app/api/schedules.ts';
import { threadChildren } from '../../kernel/app/children.ts';
import { threadEnv } from '../../kernel/app/thread-env.ts';
import { Workspace } from '../../kernel/app/workspace.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { toRyeError } from '../../kernel/core/errors.ts';
import type { ThreadRecord } from '../../kernel/core/thread.ts';
import { firingThreadId, type Schedule } from '../../kernel/schedules/schedule.ts';
import type { Lease } from '../../kernel/storage/files/lease.ts';
import { startQueued } from '../../kernel/threads/family/spawn.ts';
import { type Due, decideDue, dueTimes } from './due.ts';
import { FiringStates, type RecordedFiring } from './firing-state.ts';
import { loadSchedules } from './schedule-file.ts';
import { lockSchedules } from './schedule-locks.ts';
import { requestOf } from './scheduled-run.ts';

/** The loop looks at least this often: files change, and clocks jump. */
const LONGEST_WAIT_MS = 15_000;
/** A clock that goes back by less is corrected in the course of its work. */
const CLOCK_STEP_MS = 60_000;
/** The pause between two looks at a thread that the next one waits for. */
const BUSY_WAIT_MS = 1000;

/** Fires the schedules of a project until the signal aborts. */
export async function serveSchedules(base: Workspace, options: ServeOptions): Promise<void> {
  const lock = lockSchedules(base.options.projectPath, 'serve');
  try {
    await new Loop(base, lock, options).run();
  } finally {
    lock.release();
  }
}

class Loop {
  readonly #base: Workspace;
  readonly #lock: Lease;
  readonly #signal: AbortSignal;
  readonly #tell: (event: ServeEvent) => void;
  #watchedSince: number;
  /** The time that the round before took: schedules are taken one after the other. */
  #lastRoundMs = 0;
  /** The last event about each schedule, and about the file. */
  readonly #told = new Map<string, string>();

  constructor(base: Workspace, lock: Lease, { signal, onEvent }: ServeOptions) {
    this.#base = base;
    this.#lock = lock;
    this.#signal = signal;
    this.#tell = onEvent ?? (() => undefined);
    this.#watchedSince = base.clock.now();
  }

  async run(): Promise<void> {
    const { clock } = this.#base;
    while (!this.#signal.aborted) {
      this.#lock.assertHeld();
      const next = await this.#round();
      const wait = Math.max(0, Math.min(next - clock.now(), LONGEST_WAIT_MS));
      if (!this.#signal.aborted) await clock.sleep(wait, this.#signal);
    }
  }

  /** Fires what is due, with the files, configuration and keys of now. Returns when to look again. */
  async #round(): Promise<number> {
    const { options, clock } = this.#base;
    // a store that the program opened is not ours to close
    const isOwn = typeof options.store !== 'object';
    const workspace = isOwn ? new Workspace(options, { added: this.#base.added }) : this.#base;
    const begun = clock.now();
    // a clock that was ahead has been set right
    this.#watchedSince = Math.min(this.#watchedSince, begun);
    try {
      const schedules = await this.#schedules(workspace);
      const nexts: number[] = [];
      for (const schedule of schedules) {
        if (this.#signal.aborted) break;
        const next = await this.#turn(workspace, schedule, begun);
        if (next !== undefined) nexts.push(next);
      }
      return Math.min(clock.now() + LONGEST_WAIT_MS, ...nexts);
    } finally {
      this.#lastRoundMs = Math.max(0, clock.now() - begun);
      if (isOwn) workspace.close();
    }
  }

  /** Returns the schedules that may fire; none if the file does not count. */
  async #schedules(workspace: Workspace): Promise<readonly Schedule[]> {
    let event: ServeEvent;
    let active: readonly Schedule[] = [];
    try {
      active = (await loadSchedules(workspace)).filter(({ entry }) => entry.paused !== true);
      event = { event: 'serving', schedules: active.length };
    } catch (error) {
      event = { event: 'refused', error: toRyeError(error).toJSON() };
    }
    this.#tellOnce('', event);
    return active;
  }

  /** Takes the turn of one schedule. A failure that is no refusal, such as of the store, ends neither it nor the loop. */
  async #turn(
    workspace: Workspace,
    schedule: Schedule,
    begun: number,
  ): Promise<number | undefined> {
    const { name } = schedule;
    const options: TurnOptions = {
      watchedSince: this.#watchedSince,
      busyMs: this.#lastRoundMs + Math.max(0, workspace.clock.now() - begun),
      signal: this.#signal,
      assertHeld: () => this.#lock.assertHeld(),
      tell: (event) => this.#tellOnce(name, event),
    };
    try {
      return await new Turn(workspace, schedule, options).take();
    } catch (thrown) {
      const error = toRyeError(thrown);
      if (error.code === 'schedules_locked') throw error;
      this.#tellOnce(name, { event: 'refused', error: error.toJSON() });
      return undefined;
    }
  }

  /** Tells an event unless it is the same as the last one about the schedule. */
  #tellOnce(name: string, event: ServeEvent): void {
    const told = JSON.stringify(event);
    if (told !== this.#told.get(name)) this.#tell(event);
    this.#told.set(name, told);
  }
}

interface TurnOptions {
  readonly watchedSince: number;
  readonly busyMs: number;
  readonly signal: AbortSignal;
  readonly assertHeld: () => void;
  readonly tell: (event: ServeEvent) => void;
}

/** One look at one schedule. */
class Turn {
  readonly #workspace: Workspace;
  readonly #schedule: Schedule;
  readonly #options: TurnOptions;
  readonly #states: FiringStates;
  #last: RecordedFiring | null = null;
  #aheadUntil: number | undefined;

  constructor(workspace: Workspace, schedule: Schedule, options: TurnOptions) {
    this.#workspace = workspace;
    this.#schedule = schedule;
    this.#options = options;
    this.#states = new FiringStates(workspace);
  }

  /** Fires what is due. Returns when to look again; undefined if the schedule is never due again. */
  async take(): Promise<number | undefined> {
    const { times, entry } = this.#schedule;
    const now = this.#workspace.clock.now();
    const cursor = this.#cursor(now);
    const due = dueTimes(times, cursor, now);
    const { fire, dropped } = decideDue(due, entry.missed ?? 'skip', {
      now,
      watchedSince: this.#options.watchedSince,
      busyMs: this.#options.busyMs,
    });
    await this.#drop(due, dropped);
    for (const at of fire) {
      if (this.#options.signal.aborted) return undefined;
      if (!(await this.#fire(at))) return this.#workspace.clock.now() + BUSY_WAIT_MS;
    }
    return times.next(Math.max(cursor, now));
  }

  /** Returns the time up to which everything is done. */
  #cursor(now: number): number {
    const { name, entry } = this.#schedule;
    const state = this.#states.loop(name);
    this.#last = state?.last ?? null;
    const given = entry.since === undefined ? undefined : Date.parse(entry.since);
    const recorded = state && Date.parse(state.handled_until);
    this.#aheadUntil = state?.ahead_until === undefined ? undefined : Date.parse(state.ahead_until);
    const ahead = Math.max(given ?? 0, recorded ?? 0);
    if (ahead > now + CLOCK_STEP_MS) this.#resetFrom(ahead, now);
    // a file that a person wrote has no time from which on it counts: that is now
    else if (given === undefined && recorded === undefined) this.#done(now);
    const [since, handled] = [given, recorded].map((time) =>
      time !== undefined && time <= now + CLOCK_STEP_MS ? time : undefined,
    );
    return Math.max(since ?? handled ?? now, handled ?? 0);
  }

  /** Takes up the times after now again: the clock was ahead when they were recorded as done. */
  #resetFrom(ahead: number, now: number): void {
    if (ahead === this.#aheadUntil) return;
    this.#aheadUntil = ahead;
    this.#done(now);
    this.#workspace.notice(
      `schedule ${this.#schedule.name}: its times were done up to ${isoTime(ahead)}, which is in the future. The clock was ahead; times from now on fire.`,
    );
  }

  /** Drops missed times, except those that fired before a crash kept this loop from recording it. */
  async #drop({ times, isCut }: Due, dropped: readonly number[]): Promise<void> {
    const newest = dropped.at(-1);
    if (newest !== undefined && (await this.#isFired(newest))) {
      this.#noteFired(newest);
      if (dropped.length === 1) return;
    }
    const count =
      newest === undefined ? 0 : dropped.length - (this.#last?.at === isoTime(newest) ? 1 : 0);
    if (count === 0 && !isCut) return;
    // without a policy that drops them, only those are gone that are too old to be made up
    this.#done(newest ?? (times[0] ?? 0) - 1);
    const { name: schedule } = this.#schedule;
    const at = newest === undefined ? null : isoTime(newest);
    this.#options.tell({ event: 'missed', schedule, count, more: isCut, at });
  }

  /** Fires one time. Returns false if it has to wait. */
  async #fire(at: number): Promise<boolean> {
    const { tell, assertHeld } = this.#options;
    const { name: schedule, entry } = this.#schedule;
    if (await this.#isFired(at)) {
      this.#noteFired(at);
      return true;
    }
    const busy = entry.overlap === true ? undefined : await this.#busyThread();
    if (busy !== undefined) {
      const event = entry.missed === 'all' ? 'waiting' : 'skipped';
      if (event === 'skipped') this.#done(at);
      const { thread_id } = busy;
      const status = busy.status === 'suspended' ? 'suspended' : 'running';
      tell({ event, schedule, at: isoTime(at), thread_id, status });
      return event === 'skipped';
    }
    assertHeld();
    const threadId = this.#threadIdOf(at);
    try {
      const children = threadChildren(this.#workspace);
      const { status } = await children.launch({ ...requestOf(entry), threadId });
      this.#noteFired(at);
      tell({ event: 'fired', schedule, at: isoTime(at), thread_id: threadId, status });
    } catch (error) {
      await this.#failed(at, error);
    }
    return true;
  }

  async #failed(at: number, thrown: unknown): Promise<void> {
    // two loops at once, as after a lost lock: the other one has it
    if (TAKEN.has(toRyeError(thrown).code)) {
      this.#noteFired(at);
      return;
    }
    const error = toRyeError(thrown).toJSON();
    const isStarted = await this.#isFired(at);
    this.#note(at, {
      thread_id: isStarted ? this.#threadIdOf(at) : null,
      error,
    });
    const { name: schedule } = this.#schedule;
    this.#options.tell({ event: 'failed', schedule, at: isoTime(at), error });
  }

  /** True if the registry has the thread of a time. */
  async #isFired(at: number): Promise<boolean> {
    const threadId = this.#threadIdOf(at);
    return (await this.#workspace.store.registry.get(threadId)) !== undefined;
  }

  #threadIdOf(at: number): string {
    const threadId = firingThreadId(this.#schedule.name, at);
    return at <= (this.#aheadUntil ?? 0) ? `${threadId}-again` : threadId;
  }

  /** Returns a thread of the schedule that has not ended. */
  async #busyThread(): Promise<ThreadRecord | undefined> {
    const busy = await this.#states.living(this.#schedule.name);
    if (busy?.status !== 'created') return busy;
    // it is queued, and perhaps no other process will start it
    const env = await threadEnv(this.#workspace, { allowUnsigned: false });
    await startQueued(env);
    return busy;
  }

  #noteFired(at: number): void {
    this.#note(at, { thread_id: this.#threadIdOf(at), error: null });
  }

  #note(at: number, { thread_id, error }: Pick<RecordedFiring, 'thread_id' | 'error'>): void {
    const fired_at = isoTime(this.#workspace.clock.now());
    this.#last = { at: isoTime(at), fired_at, thread_id, error };
    this.#done(at);
  }

  #done(until: number): void {
    const handled_until = isoTime(until);
    const ahead = this.#aheadUntil;
    this.#states.record(this.#schedule.name, {
      format: 1,
      handled_until,
      last: this.#last,
      ...(ahead === undefined || ahead < until ? {} : { ahead_until: isoTime(ahead) }),
    });
  }
}

const TAKEN: ReadonlySet<string> = new Set(['thread_id_taken', 'thread_exists']);
