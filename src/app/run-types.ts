import { type ErrorInfo, RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import type { SentDelivery } from './api/threads.ts';
import type { ExecuteDirectiveRequest, Preset } from './presets.ts';

/** What to run. Its own members stand above those of its preset, and those above the preset that rye was opened with. */
export interface RunRequest extends ExecuteDirectiveRequest, Pick<Preset, 'handlers' | 'tools'> {
  /** Said in this order once the model has finished; the run then goes on. */
  readonly followUps?: readonly string[];
}

interface Ended {
  /** null: no thread came about. */
  readonly threadId: string | null;
  /** The last text that the model said. */
  readonly result: string;
  /** The whole result; null where no thread came about. */
  readonly thread: ThreadResult | null;
}

/** How a run ended, as a value. */
export type RunOutcome = Ended &
  (
    | { readonly kind: 'completed'; readonly outputs: JsonObject | null }
    | { readonly kind: 'aborted'; readonly reason: string; readonly error: ErrorInfo }
    | { readonly kind: 'limit'; readonly limit: string; readonly error: ErrorInfo }
    | { readonly kind: 'suspended' }
    | { readonly kind: 'failed'; readonly error: ErrorInfo }
  );

/**
 * A run in progress. `for await (const event of run)` iterates over the durable events of the run and its children from
 * the start of the iteration to the end of the run. Leaving the loop does not stop the run.
 */
export interface RunHandle extends AsyncIterable<LogEvent | UnknownEvent> {
  /** Resolves once the thread exists; to null where none comes about. Never rejects. */
  readonly threadId: Promise<string | null>;
  /** Never rejects. */
  readonly outcome: Promise<RunOutcome>;
  /** Stops the run and everything in it; the outcome says why. */
  abort(reason?: string): void;
  /** Says something to the model at the next safe point: after a whole batch of calls. null: no thread came about. */
  steer(message: string): Promise<SentDelivery | null>;
  /** Says something once the model has finished; the run then goes on. null: no thread came about. */
  followUp(message: string): Promise<SentDelivery | null>;
}

/** The outcome of a run that completed; throws a RyeError with the code of the failure for every other. */
export function completedOrThrow(outcome: RunOutcome): Extract<RunOutcome, { kind: 'completed' }> {
  if (outcome.kind === 'completed') return outcome;
  if (outcome.kind === 'suspended') {
    throw new RyeError('thread_error', `the thread ${outcome.threadId ?? ''} is suspended`, {
      hint: 'Resume it with rye.recovery.resume().',
    });
  }
  const { code, message, hint, details } = outcome.error;
  throw new RyeError(code, message, { hint, details });
}
