import { overReason } from '../core/clock.ts';
import type { EventPayloads } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { Classification } from '../policy/error-class.ts';
import { type PaceOptions, RetryPace } from '../policy/retry-pace.ts';
import type { ProviderFailure } from '../providers/provider.ts';
import type { AskedWait } from './provider-error.ts';
import type { Run } from './run.ts';
import { linkedTo } from './stop.ts';
import { recordTaken } from './taken.ts';

type RetryScheduled = EventPayloads['retry_scheduled'];

/** `retry.max_seconds` of plans of older versions. */
const RETRY_SECONDS = 300;
/** During a wait, messages to the thread are looked for so often. */
const LISTEN_MS = 1000;

/** Returns the bounds of retries in a thread. */
export function retriesOf({
  settings,
}: Pick<ThreadPlan, 'settings'>): Pick<PaceOptions, 'maxSeconds' | 'maxRetries'> {
  return {
    maxSeconds: settings.retry_seconds ?? RETRY_SECONDS,
    maxRetries: settings.max_retries,
  };
}

/** Returns the pace of the retries of one model call with the current model. */
export function paceOf({ plan, ports }: Run): RetryPace {
  return new RetryPace({
    ...retriesOf(plan),
    now: () => ports.clock.monotonic(),
    random: () => ports.random(),
  });
}

/** A failed attempt, and what was decided about it. */
export interface Failed {
  readonly failure: ProviderFailure;
  readonly classified: Classification;
  readonly decision: ControlAction | undefined;
  readonly pace: RetryPace;
}

/** Returns the wait before the next attempt; `stop`: this model is given up. */
export function nextTry(
  run: Run,
  { failure, classified, decision, pace }: Failed,
):
  | { readonly kind: 'wait'; readonly wait: RetryScheduled }
  | { readonly kind: 'stop'; readonly asked: AskedWait | undefined } {
  const { retry_after_ms: retryAfterMs, reset_ms: resetMs } = failure;
  const hookDelay = decision?.control === 'retry' ? decision.delay_seconds : undefined;
  const next = pace.next({
    classification: classified,
    retryAfterMs,
    resetMs,
    isForced: !classified.retryable,
    hookDelayMs: hookDelay === undefined ? undefined : hookDelay * 1000,
    hasFallback: run.models.hasFallback,
  });
  const asksFor = (ms: number): AskedWait => ({
    seconds: ms / 1000,
    isBeyondThread: ms / 1000 >= run.spend.secondsLeft(),
  });
  if (next.kind === 'stop') {
    return { kind: 'stop', asked: next.askedMs === undefined ? undefined : asksFor(next.askedMs) };
  }
  const { attempt, delayMs } = next;
  const isAsked = retryAfterMs !== undefined && classified.policy.kind === 'use_header';
  // if the provider asks for more time than the thread has, only a fallback model can answer
  if (hookDelay === undefined && isAsked && asksFor(retryAfterMs).isBeyondThread) {
    return { kind: 'stop', asked: asksFor(retryAfterMs) };
  }
  const policy = hookDelay === undefined ? classified.policy.kind : 'hook';
  const wait = { attempt, delay_ms: delayMs, policy, reason: reasonOf(failure, classified) };
  return { kind: 'wait', wait };
}

/** Records a wait and waits. A cancellation, a limit, a message to the thread or the end of its process ends it at once. */
export async function waitForRetry(run: Run, wait: RetryScheduled): Promise<void> {
  const { conversation, ports, stop } = run;
  await conversation.write({ event_type: 'retry_scheduled', payload: wait });
  const { controller, unlink } = linkedTo(stop.signal);
  const end = (): void => controller.abort(overReason());
  const { signal } = controller;
  const waited = ports.clock.sleep(wait.delay_ms, signal).finally(end);
  const mayEnd = ports.inbox?.isWaiting !== undefined || ports.parkReason !== undefined;
  const called = mayEnd && listen(run, signal).finally(end);
  await Promise.all([waited, called]).finally(unlink);
}

/**
 * Resolves once the next attempt has messages to take along, once another process is to continue the run, or when the
 * signal aborts.
 */
async function listen(run: Run, signal: AbortSignal): Promise<void> {
  const { ports } = run;
  const { inbox, clock } = ports;
  while (!signal.aborted && ports.parkReason?.() === undefined) {
    const isWaiting = await inbox?.isWaiting?.();
    const drafts = isWaiting === true ? await inbox?.take('before_turn') : undefined;
    await recordTaken(run, drafts ?? []);
    if (drafts && drafts.length > 0) return;
    await clock.sleep(LISTEN_MS, signal);
  }
}

/** Returns why the provider did not answer, in a word or two for people. */
export function reasonOf(
  { status = 0, phase, type }: ProviderFailure,
  { category }: Classification,
): string {
  if (category === 'rate_limited') return 'rate limited';
  if (status === 529 || status === 503 || type === 'overloaded_error') return 'overloaded';
  if (phase === 'connect') return 'unreachable';
  if (phase === 'stalled') return 'silent';
  if (phase === 'stream') return 'answer broke off';
  return status >= 500 ? `server error ${status}` : 'failed';
}
