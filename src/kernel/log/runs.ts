import type { LogEvent, LogHeader, UnknownEvent } from '../core/events.ts';
import type { PartialLimits } from '../core/limits.ts';
import { headBytes } from '../core/text.ts';
import type { ThreadRun } from '../core/thread.ts';
import { addCost, type Cost, costSince, NO_COST } from '../core/usage.ts';
import { LOG_START, leafAfter } from './cursor.ts';
import { isKnown } from './tree.ts';

/** Maximum bytes of the result of a run in a list of runs. */
const RESULT_BYTES = 200;

/** True for the events that begin a run in a log that holds entries already: its own next run, or that of a successor. */
export function beginsRun({ event_type: type }: LogEvent | UnknownEvent): boolean {
  return type === 'run_started' || type === 'thread_continued';
}

/** Returns the limits that were raised under the plan of a log's last run, which the plan itself does not have. */
export function raisedLimits(events: readonly (LogEvent | UnknownEvent)[]): PartialLimits {
  let raised: PartialLimits = {};
  let plan: string | undefined;
  for (const event of events) {
    if (isKnown(event, 'limit_raised')) {
      raised = { ...raised, [event.payload.limit]: event.payload.to };
    } else if (isKnown(event, 'thread_started') || isKnown(event, 'run_started')) {
      const { plan_sha256: sha256 = plan } = event.payload;
      if (sha256 !== plan) raised = {};
      plan = sha256;
    }
  }
  return raised;
}

/** The end of a run; `cost` is the thread's whole cost then. */
export interface RunEnd {
  readonly status: ThreadRun['status'];
  readonly result: string;
  readonly error?: ThreadRun['error'] | undefined;
  readonly cost: Cost;
}

/** Returns the runs with the end of the last one. */
export function endRun(runs: readonly ThreadRun[], end: RunEnd, now: string): readonly ThreadRun[] {
  const last = runs.at(-1);
  if (!last || last.finished_at !== undefined) return runs;
  const { status, result, error, cost } = end;
  const { result: _result, error: _error, ...open } = last;
  const ended: ThreadRun = {
    ...open,
    finished_at: now,
    status,
    cost: costSince(usedBefore(runs), cost),
    ...(result === '' ? {} : { result: headBytes(result, RESULT_BYTES) }),
    ...(error ? { error } : {}),
  };
  return [...runs.slice(0, -1), ended];
}

function usedBefore(runs: readonly ThreadRun[]): Cost {
  return runs.slice(0, -1).reduce((sum, { cost }) => addCost(sum, cost), NO_COST);
}

/** Returns the runs that a log records, in order. The last one is `running` if its end is not in the log. */
export function runsOf(
  header: LogHeader,
  events: Iterable<LogEvent | UnknownEvent>,
): readonly ThreadRun[] {
  let runs: readonly ThreadRun[] = [begun('started', header.created_at)];
  let leafId = LOG_START.leafId;
  const begin = (run: ThreadRun): void => {
    runs = [...runs, { ...run, run: runs.length + 1 }];
  };
  for (const event of events) {
    if (event.id !== undefined) leafId = leafAfter(leafId, event);
    else if (isKnown(event, 'thread_started')) {
      const { provider, model, limits } = event.payload;
      runs = [...runs.slice(0, -1), { ...lastOf(runs), provider, model, limits }];
    } else if (isKnown(event, 'limit_raised')) {
      const { limit, to } = event.payload;
      const last = lastOf(runs);
      runs = [...runs.slice(0, -1), { ...last, limits: { ...last.limits, [limit]: to } }];
    } else if (isKnown(event, 'run_started')) {
      const { reason, from_entry, provider, model, limits } = event.payload;
      begin({ ...begun(reason, event.timestamp), from_entry, provider, model, limits });
    } else if (isKnown(event, 'thread_continued')) {
      // how older versions reopened a suspended thread
      if (event.payload.previous_thread_id !== header.thread_id || !hasEnded(runs)) continue;
      const { provider, model, limits } = lastOf(runs);
      const from_entry = leafId;
      begin({ ...begun('resumed', event.timestamp), from_entry, provider, model, limits });
    } else if (isKnown(event, 'thread_finished')) {
      runs = endRun(runs, event.payload, event.timestamp);
    }
  }
  return runs;
}

/** The part of a log that ends with one of its runs. */
export interface RunPart {
  /** Counts from 1. */
  readonly run: number;
  /** Seq of the event that began the run; 0 for the first. */
  readonly began: number;
  /** All events up to the end of the run. */
  readonly events: readonly (LogEvent | UnknownEvent)[];
}

/** Splits a log at the ends of its runs: what a run did is on the path to the head that its part has. */
export function partsOfRuns(
  { thread_id: threadId }: LogHeader,
  events: readonly (LogEvent | UnknownEvent)[],
): readonly RunPart[] {
  const parts: RunPart[] = [];
  let began = 0;
  let end: number | undefined;
  const close = (until: number): void => {
    parts.push({ run: parts.length + 1, began, events: events.slice(0, end ?? until) });
  };
  for (const [index, event] of events.entries()) {
    const isReopened =
      isKnown(event, 'thread_continued') &&
      event.payload.previous_thread_id === threadId &&
      end !== undefined;
    if (event.event_type === 'run_started' || isReopened) {
      close(index);
      began = event.seq;
      end = undefined;
    } else if (event.event_type === 'thread_finished') end ??= index + 1;
  }
  close(events.length);
  return parts;
}

function begun(reason: ThreadRun['reason'], now: string): ThreadRun {
  return {
    run: 1,
    reason,
    started_at: now,
    from_entry: null,
    provider: '',
    model: '',
    limits: {},
    cost: NO_COST,
    status: 'running',
  };
}

function lastOf(runs: readonly ThreadRun[]): ThreadRun {
  return runs.at(-1) ?? begun('started', '');
}

function hasEnded(runs: readonly ThreadRun[]): boolean {
  return lastOf(runs).finished_at !== undefined;
}
