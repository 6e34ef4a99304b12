import { type ErrorInfo, messageOf, RyeError } from '../core/errors.ts';
import type { EventDraft, EventPayloads, RequestEstimate } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact } from '../core/json.ts';
import type { AssistantMessage } from '../core/message.ts';
import { totalTokens, toUsd } from '../core/usage.ts';
import { type Classification, classify, failureCode, retryDelayMs } from '../policy/error-class.ts';
import type { ProviderFailure } from '../providers/provider.ts';
import { type Attempt, attemptAnswer } from './answer.ts';
import { compactContext } from './compaction.ts';
import { CALLS_AS_TEXT, noteText } from './finish.ts';
import { handleLimit, planCall } from './limits.ts';
import type { Ending, Interrupt } from './ports.ts';
import { hiddenMessage, hookError, type Run } from './run.ts';

/** What the model-call phase of a turn came to. `again`: nothing usable, but the run goes on. */
export type Answer =
  | { readonly kind: 'answer'; readonly message: AssistantMessage }
  | { readonly kind: 'again' }
  | { readonly kind: 'ended'; readonly ending: Ending };

/** What is left to try for this turn. */
interface Tries {
  /** Failed attempts with the current model. */
  failures: number;
  hasCompacted: boolean;
}

type Remedy = { readonly kind: 'retry' } | { readonly kind: 'ended'; readonly ending: Ending };
const RETRY: Remedy = { kind: 'retry' };
const AGAIN: Answer = { kind: 'again' };

/**
 * Asks the model until there is a whole answer. A failed attempt is recorded, taken out of the context and made
 * again from scratch: so often, so late and with that model as `error` hooks, the classification and the limits allow.
 */
export async function streamAnswer(run: Run): Promise<Answer> {
  const tries: Tries = { failures: 0, hasCompacted: false };
  let isBegun = false;
  for (;;) {
    const plan = await planCall(run);
    if (plan.kind === 'refused') return { kind: 'ended', ending: plan.ending };
    if (plan.kind === 'unaffordable') {
      const ending = await handleLimit(run, plan.reached);
      return ending ? { kind: 'ended', ending } : AGAIN;
    }
    // what only a request that is never made would have carried counts as unseen
    if (!isBegun && run.stop.cause === 'cancelled') return AGAIN;
    if (!isBegun) run.beginTurn();
    await announce(run, plan.estimate, isBegun);
    isBegun = true;
    const attempt = await attemptWith(run, plan);
    if (attempt.kind !== 'interrupted') await announceMatches(run);
    const answer = await answerOf(run, attempt);
    if (answer) return answer;
    const failed = failureOf(attempt as Failure);
    await recordPartial(run, failed.partial, failed.failure.message);
    const remedy = await remedyFor(run, failed, tries);
    if (remedy.kind === 'ended') return remedy;
    if (run.stop.signal.aborted) return AGAIN;
  }
}

type Failure = Extract<Attempt, { kind: 'answered' | 'failed' }>;

/** What an attempt came to; undefined for one that failed, which may be made again. */
async function answerOf(run: Run, attempt: Attempt): Promise<Answer | undefined> {
  switch (attempt.kind) {
    case 'answered':
      if (attempt.message.stop_reason === 'content_filtered') return undefined;
      run.watcher?.accept();
      return { kind: 'answer', message: attempt.message };
    case 'stopped':
      await recordPartial(run, attempt.partial, 'stopped');
      return AGAIN;
    case 'interrupted':
      await interrupt(run, attempt.partial, attempt.by);
      return AGAIN;
    case 'exceeded':
      return await exceeded(run, attempt);
    case 'failed':
      break;
  }
  return undefined;
}

/**
 * Writes that a model call is about to be made. The first of a turn is on the disk before it is sent, with what it may
 * cost: a crash must not forget what was paid for or what the model may have seen.
 */
async function announce(
  run: Run,
  request: RequestEstimate | undefined,
  isRetry: boolean,
): Promise<void> {
  const { turn } = run;
  if (!isRetry) {
    await run.write({
      event_type: 'turn_started',
      payload: { turn, ...(request ? { request } : {}) },
      durable: true,
    });
  } else if (request) {
    const payload = { turn, purpose: 'retry', request } as const;
    await run.write({ event_type: 'request_started', payload, durable: true });
  }
}

/** What was said stays in the conversation; the limit's hooks decide whether the model may finish it. */
async function exceeded(
  run: Run,
  { limit: name, partial }: Extract<Attempt, { kind: 'exceeded' }>,
): Promise<Answer> {
  const message = withoutCalls(partial);
  noteText(run, message);
  if (message.content.length > 0) {
    await run.record([{ event_type: 'message', payload: { message, turn: run.turn } }]);
  }
  const current = name === 'spend' ? toUsd(run.spentMicroUsd) : totalTokens(run.cost());
  const reached = { name, current, max: run.limits[name], in_answer: true };
  const ending = await handleLimit(run, reached);
  if (ending) return { kind: 'ended', ending };
  const text =
    'Your answer was cut at a limit, which was raised. Continue exactly where it stopped.';
  await run.record([hiddenMessage('continue_cut_answer', text)]);
  return AGAIN;
}

/** Calls of a cut answer are never run, so the model must not see them as made. */
function withoutCalls(partial: AssistantMessage): AssistantMessage {
  return { ...partial, content: partial.content.filter(({ type }) => type !== 'tool_call') };
}

async function attemptWith(
  run: Run,
  planned: Parameters<typeof attemptAnswer>[2],
): Promise<Attempt> {
  let provider: ReturnType<Run['ports']['provider']>;
  try {
    provider = run.ports.provider(run.model);
  } catch (error) {
    return { kind: 'failed', failure: setupFailure(error), partial: emptyAnswer(run) };
  }
  return attemptAnswer(run, provider, planned);
}

/** A provider that can't even be made, for want of a key, fails for good: another model may do. */
function setupFailure(error: unknown): ProviderFailure {
  const type = error instanceof RyeError ? { type: error.code } : {};
  return { message: messageOf(error), phase: 'connect', ...type };
}

function emptyAnswer(run: Run): AssistantMessage {
  const { provider, id: model } = run.model;
  const usage = { input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cache_write_tokens: 0 };
  return { role: 'assistant', content: [], provider, model, stop_reason: 'aborted', usage };
}

function failureOf(attempt: Failure): {
  readonly failure: ProviderFailure;
  readonly partial: AssistantMessage;
} {
  if (attempt.kind === 'failed') return attempt;
  const failure: ProviderFailure = {
    message: 'the provider filtered the answer',
    type: 'content_filtered',
    phase: 'response',
  };
  return { failure, partial: attempt.message };
}

/** Keeps what was said of a failed answer, for people and for the books, and out of the model's view. */
async function recordPartial(run: Run, partial: AssistantMessage, reason: string): Promise<void> {
  if (partial.content.length === 0) return;
  const [written] = await run.write({
    event_type: 'message',
    payload: { message: partial, turn: run.turn },
  });
  if (written?.id === undefined) return;
  await run.write({
    event_type: 'context_edit',
    payload: { target_id: written.id, action: 'omit', reason },
  });
}

/** A stream rule cut the answer: the partial is durable before anything that refers to it. */
async function interrupt(run: Run, partial: AssistantMessage, by: Interrupt): Promise<void> {
  if (by.keepPartial) {
    const message = withoutCalls(partial);
    if (message.content.length > 0) {
      await run.record([{ event_type: 'message', payload: { message, turn: run.turn } }]);
    }
  } else {
    await recordPartial(run, partial, by.reason);
  }
  // a cancellation in between wins
  if (run.stop.cause !== 'cancelled') await run.record(by.drafts);
  await announceMatches(run);
}

/** Tells hooks which rules were broken: after the cut and its record, so that no hook delays them. */
async function announceMatches(run: Run): Promise<void> {
  for (const context of run.watcher?.takeTriggers() ?? []) {
    await run.observe('rule_triggered', context);
  }
}

async function remedyFor(
  run: Run,
  { failure, partial }: ReturnType<typeof failureOf>,
  tries: Tries,
): Promise<Remedy> {
  const classified = classify(failure, run.ports.errorRules);
  const { category, retryable } = classified;
  const { message, status } = failure;
  const isUnsaid = partial.content.length === 0 && totalTokens(partial.usage) > 0;
  const usage = isUnsaid ? partial.usage : undefined;
  await run.write({
    event_type: 'error_classified',
    payload: compact({ category, retryable, message, status, usage }),
  });
  tries.failures += 1;
  const decision = await run.control('error', {
    source: 'model',
    error: compact({
      message: failure.message,
      code: failureCode(category, failure.type),
      type: failure.type,
      status: failure.status,
    }),
    classification: { category, retryable, policy: classified.policy.kind },
    attempt: tries.failures,
  });
  const stopped = decidedEnding(decision, failure, classified);
  if (stopped) return { kind: 'ended', ending: stopped };
  if (category === 'context_exceeded' || decision?.control === 'compact') {
    if (await compactOnce(run, decision, tries)) return RETRY;
  }
  if (wantsRetry(decision, classified) && tries.failures <= run.plan.settings.max_retries) {
    const wait = waitFor(run, { failure, classified, decision, attempt: tries.failures });
    // a provider may ask for more time than the thread has: another model may do, and else the failure is the end
    if (wait.policy !== 'use_header' || wait.delay_ms / 1000 < run.secondsLeft()) {
      await run.write({ event_type: 'retry_scheduled', payload: wait });
      await run.ports.clock.sleep(wait.delay_ms, run.stop.signal);
      return RETRY;
    }
    return fallBack(run, { failure, classified, tries, waitSeconds: wait.delay_ms / 1000 });
  }
  return fallBack(run, { failure, classified, tries });
}

function wantsRetry(decision: ControlAction | undefined, { retryable }: Classification): boolean {
  if (decision?.control === 'retry') return true;
  return retryable && decision?.control !== 'fail';
}

/**
 * The decisions that end the run. A `fail` without a text of its own only gives up on this model, so that a fallback
 * still has its chance.
 */
function decidedEnding(
  decision: ControlAction | undefined,
  failure: ProviderFailure,
  { category }: Classification,
): Ending | undefined {
  switch (decision?.control) {
    case 'abort':
      return category === 'cancelled'
        ? { kind: 'cancelled', reason: failure.message }
        : { kind: 'error', error: hookError(decision, 'error').toJSON() };
    case 'fail':
      return decision.error === undefined
        ? undefined
        : { kind: 'error', error: hookError(decision, 'error').toJSON() };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? failure.message };
    case 'handoff':
      return { kind: 'handoff' };
    case 'continue':
    case 'retry':
    case 'escalate':
    case 'compact':
    case undefined:
      break;
  }
  return undefined;
}

async function compactOnce(
  run: Run,
  decision: ControlAction | undefined,
  tries: Tries,
): Promise<boolean> {
  if (tries.hasCompacted) return false;
  tries.hasCompacted = true;
  if (decision?.control === 'compact') return compactContext(run, 'hook', decision.instructions);
  return compactContext(run, 'context_exceeded');
}

interface Failed {
  readonly failure: ProviderFailure;
  readonly classified: Classification;
}

/** How long to wait before the next attempt, and who says so. */
function waitFor(
  run: Run,
  failed: Failed & { readonly decision: ControlAction | undefined; readonly attempt: number },
): EventPayloads['retry_scheduled'] {
  const { failure, classified, decision, attempt } = failed;
  const asked = decision?.control === 'retry' ? decision.delay_seconds : undefined;
  const delayMs =
    asked === undefined
      ? retryDelayMs({
          policy: classified.policy,
          attempt,
          retryAfterMs: failure.retry_after_ms,
          random: () => run.ports.random(),
        })
      : asked * 1000;
  const policy = asked === undefined ? classified.policy.kind : 'hook';
  return { attempt, delay_ms: delayMs, policy };
}

async function fallBack(
  run: Run,
  failed: Failed & { readonly tries: Tries; readonly waitSeconds?: number },
): Promise<Remedy> {
  const { tries } = failed;
  const error = failureError(run, failed);
  const next = run.nextModel();
  if (!next) return { kind: 'ended', ending: { kind: 'error', error } };
  tries.failures = 0;
  const change: EventDraft = {
    event_type: 'model_change',
    payload: { provider: next.provider, model: next.id },
  };
  await run.record([change]);
  return RETRY;
}

function failureError(
  run: Run,
  { failure, classified, waitSeconds }: Failed & { readonly waitSeconds?: number },
): ErrorInfo {
  const { provider, id } = run.model;
  const { category } = classified;
  const code = failureCode(category, failure.type);
  const wait =
    waitSeconds === undefined
      ? ''
      : `; it asks to wait ${Math.ceil(waitSeconds)} s, which is longer than the thread may still run`;
  return new RyeError(code, `${provider}/${id}: ${failure.message}${wait}`, {
    hint: NO_TOOLS.test(failure.message) ? CALLS_AS_TEXT : HINTS[category],
    details: compact({
      retry_after_seconds: waitSeconds,
      category,
      status: failure.status,
      type: failure.type,
      request_id: failure.request_id,
    }),
  }).toJSON();
}

/** How Ollama and others refuse a request for a model that knows no tools. */
const NO_TOOLS = /does not support (?:tools|function)/i;

const HINTS: Partial<Record<Classification['category'], string>> = {
  rate_limited: 'Wait and resume the thread, or configure a fallback model.',
  transient: 'Resume the thread when the provider can be reached again.',
  permanent: 'Check the model and its provider: rye models list',
  quota: 'Check the plan and billing of the provider account.',
  auth: 'Check the API key of the provider.',
  context_exceeded: 'Compact the thread, or choose a model with a larger context window.',
};
