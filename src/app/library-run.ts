import { abortText } from '../core/clock.ts';
import type { DeliveryMode } from '../core/delivery.ts';
import { toRyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import type { RunEvent } from '../hooks/handlers.ts';
import type { OnApproval } from './api/approvals.ts';
import type { DeliveriesService, SentDelivery } from './api/threads.ts';
import { EventStream } from './event-stream.ts';
import { assertRunOptions } from './options.ts';
import { composePresets } from './presets.ts';
import { jsonSchemaOf } from './program/output-schema.ts';
import type { RunHandle, RunOutcome, RunRequest } from './run-types.ts';
import type { Workspace } from './workspace.ts';

/** Starts a run in this process. Every end is an outcome; nothing is thrown. */
export function startRun<O>(
  base: Workspace,
  deliveries: DeliveriesService,
  request: RunRequest,
): RunHandle<O> {
  const controller = new AbortController();
  const abort = (reason: string): void => controller.abort(reason);
  const ended = new AbortController();

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
      const { followUps: _said, preset = {}, handlers, tools, onApproval, ...others } = request;
      const { directive, directiveId, inputs, outputSchema: schema, ...rest } = others;
      const outputSchema = schema && jsonSchemaOf(schema, 'outputSchema');
      const directives = directive && [directive];
      const { executeDirective } = await import('./thread-runs.ts');
      const thread = await executeDirective(base, {
        ...rest,
        ...compact({ inputs, outputSchema }),
        ...(await attendantOf(base, onApproval)),
        directiveId: directive?.id ?? directiveId ?? '',
        preset: composePresets(preset, compact({ handlers, tools, directives })),
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
  };
}

/** Loads what a function that decides needs, and nothing without one. */
async function attendantOf(
  { notice }: Workspace,
  onApproval: OnApproval | undefined,
): Promise<Pick<RunRequest, 'attendant'>> {
  if (!onApproval) return {};
  const { functionAttendant } = await import('./approvals/attention.ts');
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
