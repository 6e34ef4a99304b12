import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';

/** Shows one run. `event` never throws: a run must not fail because nobody can watch it. */
export interface Renderer {
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Prints the result. Called at most once, and not when the run could not start. */
  readonly finish: (result: ThreadResult) => void;
  /** Leaves the terminal clean, whatever happened. */
  readonly close: () => void;
}
