import type { ErrorInfo } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadStatus } from '../../core/thread.ts';
import type { LaunchedThread } from '../../threads/ports.ts';
import type { DirectiveRequest } from '../../threads/prepare/request.ts';

/** The members of a run that a schedule can keep. */
export type ScheduledRun = Omit<
  DirectiveRequest,
  'parentThreadId' | 'onlyTools' | 'behavior' | 'system'
>;

export interface NewSchedule {
  /** Up to 64 small letters, digits, hyphens and underscores. */
  readonly name: string;
  /** Five fields, or six with seconds before them. */
  readonly cron: string;
  /** An IANA time zone. Default: UTC. */
  readonly timezone?: string;
  /** Times that no loop was there for. Default: `skip`. */
  readonly missed?: Missed;
  /** True to fire although the last thread of the schedule still runs. */
  readonly overlap?: boolean;
  readonly run: ScheduledRun;
}

/** The last firing of a schedule. */
export interface LastFiring {
  /** The time it was for (ISO 8601, UTC); null for one that a person asked for. */
  readonly at: string | null;
  /** When it fired. */
  readonly fired_at: string;
  /** Null if no thread could start. */
  readonly thread_id: string | null;
  /** The status of the thread; `crashed` if its process is gone, null if the registry does not list it. */
  readonly status: ThreadStatus | 'crashed' | null;
  /** Why no thread could start. */
  readonly error: ErrorInfo | null;
}

export interface ListedSchedule {
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly missed: Missed;
  readonly overlap: boolean;
  readonly paused: boolean;
  readonly directive: string;
  readonly inputs: JsonObject;
  /** The next time (ISO 8601, UTC); null while the schedule is paused. */
  readonly next_at: string | null;
  /** The next time as the clocks of the zone show it, such as `2026-12-01 03:00`. */
  readonly next_local: string | null;
  readonly last: LastFiring | null;
}

/** An act of the loop, as it happens. */
export type ServeEvent =
  | { readonly event: 'serving'; readonly schedules: number }
  | {
      readonly event: 'fired';
      readonly schedule: string;
      readonly at: string;
      readonly thread_id: string;
      /** `created`: it waits for a slot. */
      readonly status: LaunchedThread['status'];
    }
  /** Dropped, or put off: a thread of the schedule has not ended. */
  | {
      readonly event: 'skipped' | 'waiting';
      readonly schedule: string;
      readonly at: string;
      readonly thread_id: string;
      /** `suspended`: it waits for a person; `running`: also one that waits for a slot. */
      readonly status: 'running' | 'suspended';
    }
  /** Dropped: no loop was there for these times. */
  | {
      readonly event: 'missed';
      readonly schedule: string;
      readonly count: number;
      /** True if there were more than `count`. */
      readonly more: boolean;
      /** The newest of them; null if all of them are older than those that are made up. */
      readonly at: string | null;
    }
  | {
      readonly event: 'failed';
      readonly schedule: string;
      readonly at: string;
      readonly error: ErrorInfo;
    }
  /** Nothing fires: the file of the schedules does not count. */
  | { readonly event: 'refused'; readonly error: ErrorInfo };

export interface ServeOptions {
  /** Ends the loop; threads continue. */
  readonly signal: AbortSignal;
  readonly onEvent?: (event: ServeEvent) => void;
}

/** Directives that run at set times, in the signed `.ai/config/schedules.yaml` of the project. */
export interface SchedulesService {
  /**
   * Adds a schedule and signs the file. Throws `invalid_input` for its name, times or zone, `already_exists`, and the
   * error with which a run of the directive would be refused.
   */
  add(schedule: NewSchedule): Promise<ListedSchedule>;
  list(): Promise<readonly ListedSchedule[]>;
  /** Keeps a schedule from firing until it is resumed. Throws `item_not_found`. */
  pause(name: string): Promise<ListedSchedule>;
  /** Lets a paused schedule fire again, from now on. */
  resume(name: string): Promise<ListedSchedule>;
  remove(name: string): Promise<ListedSchedule>;
  /** Starts the directive of a schedule now, in a separate process. */
  run(name: string): Promise<LaunchedThread>;
  /** Returns the text with which a timer of the system runs a schedule that is not added. Writes nothing. */
  timer(schedule: NewSchedule, timer: Timer): Promise<string>;
  /** Fires the schedules of the project until the signal aborts. Throws `schedules_locked` if another process does. */
  serve(options: ServeOptions): Promise<void>;
}

/** Times that no loop was there for: `skip` drops them, `once` makes the last of them up, `all` each in order. */
export const MISSED = ['skip', 'once', 'all'] as const;

export type Missed = (typeof MISSED)[number];

/** Timers of a system that can run a schedule without rye's own loop. */
export const TIMERS = ['cron', 'systemd', 'actions'] as const;

export type Timer = (typeof TIMERS)[number];
