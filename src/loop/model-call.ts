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
import { hiddenMessage } from './conversation.ts';
import { CALLS_AS_TEXT } from './finish.ts';
import { hookError } from './hooks.ts';
import { handleLimit, planCall } from './limits.ts';
import type { Ending, Interrupt } from './ports.ts';
import { beginTurn, type Run } from './run.ts';

/** The result of the model-call phase of a turn. `none`: no usable answer, but the run continues. */
export type Answer =
  | { readonly kind: 'answer'; readonly message: AssistantMessage }
  | { readonly kind: 'none' }
  | { readonly kind: 'ended'; readonly ending: Ending };

/** Attempts that this turn has made. */
interface Tries {
  /** Failed attempts with the current model. */
  failures: number;
  hasCompacted: boolean;
}

type Remedy = { readonly kind: 'retry' } | { readonly kind: 'ended'; readonly ending: Ending };
const RETRY: Remedy = { kind: 'retry' };
const NO_ANSWER: Answer = { kind: 'none' };

/**
 * Calls the model until there is a complete answer. A failed attempt is recorded, omitted from the context and retried
 * from scratch. `error` hooks, the error class and the limits decide how often, after what delay and with which model.
 */
export async function streamAnswer(run: Run): Promise<Answer> {
  const tries: Tries = { failures: 0, hasCompacted: false };
  let isBegun = false;
  for (;;) {
    const plan = await planCall(run);
    if (plan.kind === 'refused') return { kind: 'ended', ending: plan.ending };
    if (plan.kind === 'unaffordable') {
      const ending = await handleLimit(run, plan.reached);
      return ending ? { kind: 'ended', ending } : NO_ANSWER;
    }
    // messages that no request has carried yet must count as unseen
    if (!isBegun && run.stop.cause === 'cancelled') return NO_ANSWER;
    if (!isBegun) beginTurn(run);
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
    if (run.stop.signal.aborted) return NO_ANSWER;
  }
}

type Failure = Extract<Attempt, { kind: 'answered' | 'failed' }>;

/** Returns the answer of an attempt; undefined if the attempt failed and may be retried. */
async function answerOf(run: Run, attempt: Attempt): Promise<Answer | undefined> {
  switch (attempt.kind) {
    case 'answered':
      if (attempt.message.stop_reason === 'content_filtered') return undefined;
      run.conversation.watcher?.accept();
      return { kind: 'answer', message: attempt.message };
    case 'stopped':
      await recordPartial(run, attempt.partial, 'stopped');
      return NO_ANSWER;
    case 'interrupted':
      await interrupt(run, attempt.partial, attempt.by);
      return NO_ANSWER;
    case 'exceeded':
      return await exceeded(run, attempt);
    case 'failed':
      break;
  }
  return undefined;
}

/**
 * Writes that a model call follows, with the most that it may cost. The event is on the disk before the request is
 * sent: a crash must not forget what was paid for or what the model may have seen.
 */
async function announce(
  run: Run,
  request: RequestEstimate | undefined,
  isRetry: boolean,
): Promise<void> {
  const { turn } = run.spend;
  if (!isRetry) {
    await run.conversation.write({
      event_type: 'turn_started',
      payload: { turn, ...(request ? { request } : {}) },
      durable: true,
    });
  } else if (request) {
    const payload = { turn, purpose: 'retry', request } as const;
    await run.conversation.write({ event_type: 'request_started', payload, durable: true });
  }
}

/** Keeps the text of an answer that was stopped at a limit. The limit's hooks decide if the model may finish it. */
async function exceeded(
  run: Run,
  { limit: name, partial }: Extract<Attempt, { kind: 'exceeded' }>,
): Promise<Answer> {
  const message = withoutCalls(partial);
  run.progress.noteText(message);
  if (message.content.length > 0) {
    await run.conversation.record({
      event_type: 'message',
      payload: { message, turn: run.spend.turn },
    });
  }
  const current = name === 'spend' ? toUsd(run.spend.microUsd) : totalTokens(run.spend.cost());
  const reached = { name, current, max: run.spend.limits[name], in_answer: true };
  const ending = await handleLimit(run, reached);
  if (ending) return { kind: 'ended', ending };
  const text =
    'Your answer was cut at a limit, which was raised. Continue exactly where it stopped.';
  await run.conversation.record(hiddenMessage('continue_cut_answer', text));
  return NO_ANSWER;
}

/** Drops the calls of a cut answer: they are never run, so the model must not see them as made. */
function withoutCalls(partial: AssistantMessage): AssistantMessage {
  return { ...partial, content: partial.content.filter(({ type }) => type !== 'tool_call') };
}

async function attemptWith(
  run: Run,
  planned: Parameters<typeof attemptAnswer>[2],
): Promise<Attempt> {
  let provider: ReturnType<Run['ports']['provider']>;
  try {
    provider = run.ports.provider(run.models.current);
  } catch (error) {
    return { kind: 'failed', failure: setupFailure(error), partial: emptyAnswer(run) };
  }
  return attemptAnswer(run, provider, planned);
}

/** Describes a provider that cannot be set up, for example without a key. The failure is permanent for this model. */
function setupFailure(error: unknown): ProviderFailure {
  const type = error instanceof RyeError ? { type: error.code } : {};
  return { message: messageOf(error), phase: 'connect', ...type };
}

function emptyAnswer(run: Run): AssistantMessage {
  const { provider, id: model } = run.models.current;
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

/** Records the partial text of a failed answer for people, and omits it from the model's view. */
async function recordPartial(run: Run, partial: AssistantMessage, reason: string): Promise<void> {
  if (partial.content.length === 0) return;
  const [written] = await run.conversation.write({
    event_type: 'message',
    payload: { message: partial, turn: run.spend.turn },
  });
  if (written?.id === undefined) return;
  await run.conversation.write({
    event_type: 'context_edit',
    payload: { target_id: written.id, action: 'omit', reason },
  });
}

/** Records an answer that a stream rule cut. The partial answer is durable before any event that refers to it. */
async function interrupt(run: Run, partial: AssistantMessage, by: Interrupt): Promise<void> {
  if (by.keepPartial) {
    const message = withoutCalls(partial);
    if (message.content.length > 0) {
      await run.conversation.record({
        event_type: 'message',
        payload: { message, turn: run.spend.turn },
      });
    }
  } else {
    await recordPartial(run, partial, by.reason);
  }
  // a cancellation in the meantime wins
  if (run.stop.cause !== 'cancelled') await run.conversation.record(...by.drafts);
  await announceMatches(run);
}

/** Tells the hooks which rules matched, after the cut and its record, so that no hook delays them. */
async function announceMatches(run: Run): Promise<void> {
  for (const context of run.conversation.watcher?.takeTriggers() ?? []) {
    await run.hooks.observe('rule_triggered', context);
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
  const isUnrecorded = partial.content.length === 0 && totalTokens(partial.usage) > 0;
  const usage = isUnrecorded ? partial.usage : undefined;
  await run.conversation.write({
    event_type: 'error_classified',
    payload: compact({ category, retryable, message, status, usage }),
  });
  tries.failures += 1;
  const decision = await run.hooks.control('error', {
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
    // if the provider asks for more time than the thread has, only a fallback model can answer
    if (wait.policy !== 'use_header' || wait.delay_ms / 1000 < run.spend.secondsLeft()) {
      await run.conversation.write({ event_type: 'retry_scheduled', payload: wait });
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

/** Returns the ending that a hook decided. A `fail` without a text gives up on this model only: a fallback may answer. */
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

/** Returns the delay before the next attempt, and the policy or hook that set it. */
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
  const next = run.models.fallBack();
  if (!next) return { kind: 'ended', ending: { kind: 'error', error } };
  tries.failures = 0;
  const change: EventDraft = {
    event_type: 'model_change',
    payload: { provider: next.provider, model: next.id },
  };
  await run.conversation.record(change);
  return RETRY;
}

function failureError(
  run: Run,
  { failure, classified, waitSeconds }: Failed & { readonly waitSeconds?: number },
): ErrorInfo {
  const { provider, id } = run.models.current;
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

/** The message with which Ollama and others refuse tools for a model without tool support. */
const NO_TOOLS = /does not support (?:tools|function)/i;

const HINTS: Partial<Record<Classification['category'], string>> = {
  rate_limited: 'Wait and resume the thread, or configure a fallback model.',
  transient: 'Resume the thread when the provider can be reached again.',
  permanent: 'Check the model and its provider: rye models list',
  quota: 'Check the plan and billing of the provider account.',
  auth: 'Check the API key of the provider.',
  context_exceeded: 'Compact the thread, or choose a model with a larger context window.',
};
