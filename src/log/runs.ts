import type { LogEvent, UnknownEvent } from '../core/events.ts';

/** True for the events that begin a run in a log that holds entries already: its own next run, or that of a successor. */
export function beginsRun({ event_type: type }: LogEvent | UnknownEvent): boolean {
  return type === 'run_started' || type === 'thread_continued';
}
