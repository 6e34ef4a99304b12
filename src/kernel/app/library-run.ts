import { abortText } from '../core/clock.ts';
import type { DeliveryMode } from '../core/delivery.ts';
import { toRyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import { AddedHandlers, type RunEvent } from '../hooks/handlers.ts';
import type { OnApproval } from './api/approvals.ts';
import type { DeliveriesService, SentDelivery } from './api/threads.ts';
import { assertRunOptions } from './options.ts';
import { composePresets } from './presets.ts';
import { jsonSchemaOf } from './program/output-schema.ts';
import type { RunHandle, RunOutcome, RunRequest } from './run-types.ts';
import type { Workspace } from './workspace.ts';
/** Values for any number of iterations. Each iteration gets the values that are pushed after its start. */
export class EventStream<T> {
  readonly #readers = new Set<Reader<T>>();
  #isEnded = false;

  push(value: T): void {
    for (const reader of this.#readers) {
      reader.queue.push(value);
      reader.wake();
    }
  }

  /** Ends all iterations after what they have not read yet. */
  end(): void {
    this.#isEnded = true;
    for (const reader of this.#readers) reader.wake();
  }

  iterate(): AsyncGenerator<T, void> {
    const reader: Reader<T> = { queue: [], wake: () => undefined };
    this.#readers.add(reader); // now, not with the first `next()`: no value may be lost in between
    const values = this.#values(reader);
    const end = values.return.bind(values);
    // a generator that has not begun runs no `finally`
    values.return = async (value) => {
      this.#readers.delete(reader);
      return await end(value);
    };
    return values;
  }

  async *#values(reader: Reader<T>): AsyncGenerator<T, void> {
    try {
      for (;;) {
        const values = reader.queue.splice(0);
        yield* values;
        if (reader.queue.length > 0) continue;
        if (this.#isEnded) return;
        await new Promise<void>((resolve) => {
          reader.wake = resolve;
        });
      }
    } finally {
      this.#readers.delete(reader);
    }
  }
}

interface Reader<T> {
  readonly queue: T[];
  wake: () => void;
}

/** Starts a run in this process. Every end is an outcome; nothing is thrown. */
export function startRun<O>(
  base: Workspace,
  deliveries: DeliveriesService,
  request: RunRequest,
): RunHandle<O> {
  const controller = new AbortController();
  const abort = (reason: string): void => controller.abort(reason);
  const ended = new AbortController();

  const added = new AddedHandlers();
  const events = new EventStream<RunEvent>();
  const { promise: threadId, resolve: isThere } = deferred<string | null>();
  const send = async (message: string, mode: DeliveryMode): Promise<SentDelivery | null> => {
    const id = await threadId;
    return id === null ? null : await deliveries.send(id, message, { mode });
  };
  const onStarted = async ({ thread_id: id }: { readonly thread_id: string }): Promise<void> => {
    for (const message of request.followUps ?? []) {
      await deliveries.send(id, message, { mode: 'follow-up' });
    }
    isThere(id);
  };
  const run = async (): Promise<RunOutcome<O>> => {
    try {
      assertRunOptions(request);
      const { signal: outer } = request;
      if (outer?.aborted) abort(reasonOf(outer));
      outer?.addEventListener('abort', () => abort(reasonOf(outer)), { signal: ended.signal });
      const { followUps: _said, preset = {}, handlers, tools, onApproval, ...own } = request;
      const { mcpServers, skills, ...others } = own;
      const { directive, directiveId, inputs, outputSchema: schema, ...rest } = others;
      const outputSchema = schema && jsonSchemaOf(schema, 'outputSchema');
      const directives = directive && [directive];
      const { executeDirective } = await import('./thread-runs.ts');
      const thread = await executeDirective(base, {
        ...rest,
        ...compact({ inputs, outputSchema }),
        ...(await attendantOf(base, onApproval)),
        directiveId: directive?.id ?? directiveId ?? '',
        preset: composePresets(
          preset,
          compact({ handlers, tools, directives, mcpServers, skills }),
        ),
        added,
        onStarted,
        onEvent: (event) => {
          // only logs of other versions have events of unknown types
          events.push(event as RunEvent);
          request.onEvent?.(event);
        },
        signal: controller.signal,
      });
      return outcomeOf(thread, controller.signal);
    } catch (error) {
      const info = toRyeError(error).toJSON();
      const nothing = { error: info, threadId: null, result: '', thread: null };
      if (info.code !== 'cancelled') return { ...nothing, kind: 'failed' };
      return { ...nothing, kind: 'aborted', reason: reasonOf(controller.signal) };
    } finally {
      ended.abort();
      events.end();
      isThere(null);
    }
  };
  return {
    threadId,
    outcome: run(),
    [Symbol.asyncIterator]: () => events.iterate(),
    abort: (reason = 'aborted') => abort(reason),
    steer: async (message) => await send(message, 'auto'),
    followUp: async (message) => await send(message, 'follow-up'),
    addHandlers: (handlers) => added.add(handlers),
  };
}

/** Loads what a function that decides needs, and nothing without one. */
async function attendantOf(
  { notice }: Workspace,
  onApproval: OnApproval | undefined,
): Promise<Pick<RunRequest, 'attendant'>> {
  if (!onApproval) return {};
  const { functionAttendant } = await import('./attendant.ts');
  return { attendant: functionAttendant(onApproval, notice) };
}

function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let settle: ((value: T) => void) | undefined;
  const promise = new Promise<T>((resolve) => {
    settle = resolve;
  });
  return { promise, resolve: (value) => settle?.(value) };
}

function reasonOf(signal: AbortSignal): string {
  return abortText(signal.reason) ?? 'aborted';
}

function outcomeOf<O>(thread: ThreadResult, signal: AbortSignal): RunOutcome<O> {
  const { thread_id: threadId, result, status, outputs, error } = thread;
  const ended = { threadId, result, thread };
  // the loop has checked the outputs by their declaration
  if (status === 'completed') {
    return { ...ended, kind: 'completed', outputs: (outputs ?? null) as O };
  }
  if (status === 'suspended') return { ...ended, kind: 'suspended' };
  const info = error ?? { code: 'thread_error', message: `the thread ended as ${status}` };
  if (status === 'cancelled') {
    const reason = signal.aborted ? reasonOf(signal) : info.message;
    return { ...ended, kind: 'aborted', reason, error: info };
  }
  if (info.code.startsWith('limit_')) {
    return { ...ended, kind: 'limit', limit: info.code.slice('limit_'.length), error: info };
  }
  return { ...ended, kind: 'failed', error: info };
}
