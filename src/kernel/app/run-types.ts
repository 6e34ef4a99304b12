import { type ErrorInfo, RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import type { HandlerMap, RunEvent } from '../hooks/handlers.ts';
import type { OnApproval } from './api/approvals.ts';
import type { DefinedDirective } from './api/directives.ts';
import type { OutputSchema } from './api/output-schema.ts';
import type { SentDelivery } from './api/threads.ts';
import type { ExecuteDirectiveRequest, Preset } from './presets.ts';

export interface RunOptions
  extends Omit<ExecuteDirectiveRequest, 'directiveId' | 'inputs' | 'outputSchema'>,
    Pick<Preset, 'handlers' | 'tools' | 'mcpServers' | 'skills'> {
  /** Messages that are sent in this order, each once the model has finished. */
  readonly followUps?: readonly string[];
  /** Asked about each call that needs a decision; undefined leaves it to people, and the thread is suspended. */
  readonly onApproval?: OnApproval;
  /** JSON Schema or a zod schema of an object that the outputs must match; they have its type. */
  readonly outputSchema?: OutputSchema;
}

/** Inputs that a directive from code declares; required if one of them is. */
export type RunInputs<I> =
  Partial<I> extends I
    ? { readonly inputs?: NoInfer<I> | undefined }
    : { readonly inputs: NoInfer<I> };

/**
 * A directive to run. Its own members override its preset, which overrides the preset that rye was opened
 * with.
 */
export type RunRequest<I extends object = JsonObject, O = JsonObject | null> = RunOptions &
  (
    | {
        /** A directive in a file. */
        readonly directiveId: string;
        readonly directive?: undefined;
        readonly inputs?: JsonObject;
      }
    | ({
        /** A directive from code. */
        readonly directive: DefinedDirective<I, O>;
        readonly directiveId?: undefined;
      } & RunInputs<I>)
  );

interface Ended {
  /** Null if no thread was created. */
  readonly threadId: string | null;
  /** The model's last text. */
  readonly result: string;
  /** The whole result; null if no thread was created. */
  readonly thread: ThreadResult | null;
}

/** The end of a run, as a value. `O` is the type of its outputs; null if the directive returned none. */
export type RunOutcome<O = JsonObject | null> = Ended &
  (
    | { readonly kind: 'completed'; readonly outputs: O }
    | { readonly kind: 'aborted'; readonly reason: string; readonly error: ErrorInfo }
    | { readonly kind: 'limit'; readonly limit: string; readonly error: ErrorInfo }
    | { readonly kind: 'suspended' }
    | { readonly kind: 'failed'; readonly error: ErrorInfo }
  );

/**
 * A run in progress. `for await (const event of run)` iterates over the durable events of the run and its children from
 * the start of the iteration to the end of the run. Leaving the loop does not stop the run.
 */
export interface RunHandle<O = JsonObject | null> extends AsyncIterable<RunEvent> {
  /** Resolves once the thread exists; to null if no thread is created. Never rejects. */
  readonly threadId: Promise<string | null>;
  /** Never rejects. */
  readonly outcome: Promise<RunOutcome<O>>;
  /** Stops the run and everything in it; the outcome has the reason. */
  abort(reason?: string): void;
  /**
   * Sends a message that the model sees at the next safe point, after a whole batch of calls. Resolves to null if there
   * is no thread.
   */
  steer(message: string): Promise<SentDelivery | null>;
  /** Sends a message that the model sees once it has finished. Resolves to null if there is no thread. */
  followUp(message: string): Promise<SentDelivery | null>;
  /** Adds handlers for the rest of this run, as `rye.addHandlers()` does for all. Returns the function that removes them. */
  addHandlers(handlers: HandlerMap): () => void;
}

/** The outcome of a run that completed; throws a RyeError with the code of the failure for every other. */
export function completedOrThrow<O>(
  outcome: RunOutcome<O>,
): Extract<RunOutcome<O>, { kind: 'completed' }> {
  if (outcome.kind === 'completed') return outcome;
  if (outcome.kind === 'suspended') {
    throw new RyeError('thread_error', `the thread ${outcome.threadId ?? ''} is suspended`, {
      hint: 'Resume it with rye.recovery.resume().',
    });
  }
  const { code, message, hint, details } = outcome.error;
  throw new RyeError(code, message, { hint, details });
}
