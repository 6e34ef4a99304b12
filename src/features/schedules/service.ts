import { assertOutsideThreads } from '../../kernel/app/ancestry.ts';
import type {
  ListedSchedule,
  NewSchedule,
  SchedulesService,
  ServeOptions,
  Timer,
} from '../../kernel/app/api/schedules.ts';
import { threadChildren } from '../../kernel/app/children.ts';
import { planDirective } from '../../kernel/app/thread-runs.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { JsonObject } from '../../kernel/core/json.ts';
import { parseCron } from '../../kernel/schedules/cron.ts';
import {
  assertScheduleName,
  firingPrefix,
  readSchedules,
  type Schedule,
} from '../../kernel/schedules/schedule.ts';
import type { LaunchedThread } from '../../kernel/threads/ports.ts';
import { FiringStates } from './firing-state.ts';
import { editSchedules, loadSchedules, scheduleNamed } from './schedule-file.ts';
import { assertKeepable, entryOf, requestOf } from './scheduled-run.ts';
import { timerText } from './system-timers.ts';

/** The schedules of a project on one machine: a signed file, and a loop that fires them. */
export class Schedules implements SchedulesService {
  readonly #workspace: Workspace;
  readonly #states: FiringStates;

  constructor(workspace: Workspace) {
    this.#workspace = workspace;
    this.#states = new FiringStates(workspace);
  }

  async add(given: NewSchedule): Promise<ListedSchedule> {
    const schedule = await this.#checked(given);
    await this.#asPerson();
    const { name, entry } = schedule;
    await editSchedules(this.#workspace, (document, schedules) => {
      if (schedules.some((one) => one.name === name)) {
        throw new RyeError('already_exists', `a schedule has the name ${name} already`, {
          hint: `Choose another name, or remove it first: rye schedule remove ${name}`,
        });
      }
      document.setIn(['schedules', name], document.createNode(entry));
      // an earlier schedule of this name
      this.#states.forget(name);
    });
    return await this.#listed(schedule);
  }

  async list(): Promise<readonly ListedSchedule[]> {
    const schedules = await loadSchedules(this.#workspace);
    return await Promise.all(schedules.map((schedule) => this.#listed(schedule)));
  }

  async pause(name: string): Promise<ListedSchedule> {
    return await this.#change(name, { paused: true });
  }

  async resume(name: string): Promise<ListedSchedule> {
    const since = isoTime(this.#workspace.clock.now());
    return await this.#change(name, { paused: undefined, since });
  }

  async remove(name: string): Promise<ListedSchedule> {
    const [removed] = await this.#schedules(name);
    await this.#asPerson();
    const listed = await this.#listed(removed);
    await editSchedules(this.#workspace, (document, schedules) => {
      scheduleNamed(schedules, name);
      document.deleteIn(['schedules', name]);
      this.#states.forget(name);
    });
    return listed;
  }

  async run(name: string): Promise<LaunchedThread> {
    const [{ entry }] = await this.#schedules(name);
    await this.#asPerson();
    const now = isoTime(this.#workspace.clock.now());
    const threadId = `${firingPrefix(name)}asked-${now.replaceAll(/[:.-]/g, '')}`;
    const request = { ...requestOf(entry), threadId };
    const launched = await threadChildren(this.#workspace).launch(request, { leaves: true });
    const fired = { at: null, fired_at: now, thread_id: launched.thread_id, error: null };
    this.#states.recordAsked(name, fired);
    return launched;
  }

  async timer(given: NewSchedule, timer: Timer): Promise<string> {
    const { projectPath } = this.#workspace.options;
    return timerText(timer, { ...(await this.#checked(given)), projectPath });
  }

  async serve(options: ServeOptions): Promise<void> {
    await this.#asPerson();
    const { serveSchedules } = await import('./loop.ts');
    await serveSchedules(this.#workspace, options);
  }

  /** A schedule outlives the limits of the thread that would make it. */
  async #asPerson(): Promise<void> {
    const { store, options } = this.#workspace;
    await assertOutsideThreads(store, options.env, 'change or start schedules');
  }

  /** Checks everything about a new schedule that is known before its first time. */
  async #checked(given: NewSchedule): Promise<Schedule> {
    const { name, run } = given;
    assertScheduleName(name);
    parseCron(given.cron, given.timezone ?? 'UTC');
    const entry = entryOf(given, isoTime(this.#workspace.clock.now()));
    const [schedule] = readSchedules({ schedules: { [name]: entry } }, name);
    if (!schedule) throw new RyeError('internal', `the schedule ${name} was not read`);
    const plan = await planDirective(this.#workspace, requestOf(entry));
    assertKeepable(plan, run);
    for (const warning of plan.warnings) this.#workspace.notice(`warning: ${warning}`);
    return schedule;
  }

  async #change(
    name: string,
    members: JsonObject | { paused: undefined },
  ): Promise<ListedSchedule> {
    // a name that is unknown changes nothing, not even a lock
    await this.#schedules(name);
    await this.#asPerson();
    await editSchedules(this.#workspace, (document, schedules) => {
      scheduleNamed(schedules, name);
      for (const [member, value] of Object.entries(members)) {
        const path = ['schedules', name, member];
        if (value === undefined) document.deleteIn(path);
        else document.setIn(path, value);
      }
    });
    const [schedule] = await this.#schedules(name);
    return await this.#listed(schedule);
  }

  async #schedules(name: string): Promise<readonly [Schedule]> {
    return [scheduleNamed(await loadSchedules(this.#workspace), name)];
  }

  async #listed({ name, entry, times }: Schedule): Promise<ListedSchedule> {
    const { missed = 'skip', overlap = false, paused = false, directive, inputs = {} } = entry;
    const now = this.#workspace.clock.now();
    const next = paused ? undefined : times.next(now);
    return {
      name,
      cron: times.cron,
      timezone: times.zone.name,
      missed,
      overlap,
      paused,
      directive,
      inputs: inputs as JsonObject,
      next_at: next === undefined ? null : isoTime(next),
      next_local: next === undefined ? null : localTime(times.zone.wallAt(next)),
      last: await this.#states.last(name),
    };
  }
}

/** Returns a wall time as `2026-12-01 03:00`, with seconds if there are some. */
function localTime(wall: number): string {
  return isoTime(wall).slice(0, 19).replace('T', ' ').replace(/:00$/, '');
}
