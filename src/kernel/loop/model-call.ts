import { messageOf, RyeError } from '../core/errors.ts';
import type { RequestEstimate } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact } from '../core/json.ts';
import type { AssistantMessage } from '../core/message.ts';
import { toMicroUsd, totalTokens, toUsd } from '../core/usage.ts';
import { type InterruptionCause, interruptedDrafts, spokenPart } from '../log/interruption.ts';
import { type Classification, classify, failureCode } from '../policy/error-class.ts';
import type { RetryPace } from '../policy/retry-pace.ts';
import type { ProviderFailure } from '../providers/provider.ts';
import { type Attempt, attemptAnswer } from './answer.ts';
import { compactContext } from './compaction.ts';
import { renewKey } from './handlers.ts';
import { decidedEnding } from './hooks.ts';
import { type CallPlan, handleLimit, planCall } from './limits.ts';
import type { Ending, Interrupt } from './ports.ts';
import { type AskedWait, providerError } from './provider-error.ts';
import { nextTry, paceOf, waitForRetry } from './retry.ts';
import { beginTurn, type Run, tellOnce } from './run.ts';

/** The result of the model-call phase of a turn. `none`: no usable answer, but the run continues. */
export type Answer =
  | { readonly kind: 'answer'; readonly message: AssistantMessage }
  | { readonly kind: 'none' }
  | { readonly kind: 'ended'; readonly ending: Ending };

/** Attempts that this turn has made. */
interface Tries {
  /** Failed attempts with the current model. */
  pace: RetryPace;
  hasCompacted: boolean;
  hasRenewedKey: boolean;
}

const UNAUTHORIZED = 401;

type FailedAttempt = Extract<Attempt, { kind: 'failed' }>;
const NO_ANSWER: Answer = { kind: 'none' };

/**
 * Calls the model until there is a complete answer. A failed attempt is recorded, omitted from the context and retried
 * from scratch. `error` hooks, the error class and the limits decide how often, after what delay and with which model.
 */
export async function streamAnswer(run: Run): Promise<Answer> {
  const tries: Tries = { pace: paceOf(run), hasCompacted: false, hasRenewedKey: false };
  let isBegun = false;
  for (;;) {
    const plan = await planFundedCall(run);
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
    if (attempt.kind !== 'failed') return await answerOf(run, attempt);
    await recordFailed(run, attempt);
    const ending = await remedy(run, attempt, tries);
    if (ending) return { kind: 'ended', ending };
    if (run.stop.signal.aborted || run.ports.parkReason?.() !== undefined) return NO_ANSWER;
  }
}

/** Plans a call and has the budget set its money aside; plans again if another thread was faster, but not for ever. */
async function planFundedCall(run: Run): Promise<CallPlan> {
  for (let attempt = 1; attempt <= MAX_PLANS; attempt += 1) {
    const plan = await planCall(run);
    if (plan.kind !== 'ready') return plan;
    const { reserved_usd: mostUsd = 0 } = plan.estimate ?? {};
    if (await run.spend.hold(toMicroUsd(mostUsd))) return plan;
  }
  throw new RyeError('budget_insufficient', 'the budget has no money for the next call', {
    hint: `Wait for other threads of the family, then run: rye threads resume ${run.ports.threadId}`,
  });
}

/** Other threads can take the rest of a budget so often between the plan of a call and the call. */
const MAX_PLANS = 10;

async function answerOf(run: Run, attempt: Exclude<Attempt, FailedAttempt>): Promise<Answer> {
  switch (attempt.kind) {
    case 'answered':
      run.conversation.watcher?.accept();
      return { kind: 'answer', message: attempt.message };
    case 'stopped':
      await keepPartial(run, attempt.partial, stopCause(run));
      return NO_ANSWER;
    case 'interrupted':
      await interrupt(run, attempt.partial, attempt.by);
      return NO_ANSWER;
    case 'exceeded':
      return await exceeded(run, attempt);
  }
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

/** Keeps an answer that was stopped at a limit. The limit's hooks decide if the model may finish it. */
async function exceeded(
  run: Run,
  { limit: name, partial }: Extract<Attempt, { kind: 'exceeded' }>,
): Promise<Answer> {
  await keepPartial(run, partial, name);
  await run.spend.report();
  const current = name === 'spend' ? toUsd(run.spend.microUsd) : totalTokens(run.spend.cost());
  const reached = { name, current, max: run.spend.limits[name], in_answer: true };
  const ending = await handleLimit(run, reached);
  return ending ? { kind: 'ended', ending } : NO_ANSWER;
}

/**
 * Keeps the text of an answer that a person or a limit stopped: people have seen it, so the model has to know it. One without
 * text is recorded for people.
 */
async function keepPartial(
  run: Run,
  partial: AssistantMessage,
  cause: InterruptionCause,
): Promise<void> {
  const message = spokenPart(partial);
  if (!message) {
    await recordPartial(run, partial, 'stopped');
    return;
  }
  run.progress.noteText(message);
  await run.conversation.record(...interruptedDrafts(message, run.spend.turn, cause));
}

/** Records a failed answer. One that may be whole stays in the conversation, because it is paid for. */
async function recordFailed(run: Run, { partial, failure }: FailedAttempt): Promise<void> {
  if (failure.type !== UNKNOWN_END) {
    await recordPartial(run, partial, failure.message);
    return;
  }
  tellOnce(run, `${failure.message}: its text is kept, and it is no result`);
  await keepPartial(run, partial, UNKNOWN_END);
}

const UNKNOWN_END = 'unknown_stop_reason';

function stopCause({ stop }: Run): InterruptionCause {
  return stop.cause === 'duration' ? 'duration_seconds' : 'cancelled';
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
  await run.spend.report();
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

/** Prepares another attempt after a failed one; returns the ending if there is none. */
async function remedy(
  run: Run,
  { failure, partial }: FailedAttempt,
  tries: Tries,
): Promise<Ending | undefined> {
  const classified = classify(failure, run.ports.errorRules);
  const { category, retryable } = classified;
  const { message, status } = failure;
  const isUnrecorded = partial.content.length === 0 && totalTokens(partial.usage) > 0;
  const usage = isUnrecorded ? partial.usage : undefined;
  await run.conversation.write({
    event_type: 'error_classified',
    payload: compact({ category, retryable, message, status, usage }),
  });
  await run.spend.report();
  if (failure.status === UNAUTHORIZED && !tries.hasRenewedKey) {
    tries.hasRenewedKey = true;
    if (await renewKey(run)) return undefined;
  }
  tries.pace.note(classified, partial.content.length > 0);
  const decision = await run.hooks.control('error', {
    source: 'model',
    error: compact({
      message: failure.message,
      code: failureCode(category, failure.type),
      type: failure.type,
      status: failure.status,
    }),
    classification: { category, retryable, policy: classified.policy.kind },
    attempt: tries.pace.failures,
  });
  const ending = endingAfter(decision, failure, category);
  if (ending) return ending;
  if (category === 'context_exceeded' || decision?.control === 'compact') {
    if (await compactOnce(run, decision, tries)) return undefined;
  }
  let asked: AskedWait | undefined;
  if (wantsRetry(decision, classified)) {
    const next = nextTry(run, { failure, classified, decision, pace: tries.pace });
    if (next.kind === 'wait') {
      await waitForRetry(run, next.wait);
      return undefined;
    }
    ({ asked } = next);
  }
  const error = await providerError(run, { failure, classified, asked });
  const fallback = run.models.fallBack();
  if (!fallback) return { kind: 'error', error };
  tries.pace = paceOf(run);
  await run.conversation.record({
    event_type: 'model_change',
    payload: { provider: fallback.provider, model: fallback.id },
  });
  return undefined;
}

function wantsRetry(decision: ControlAction | undefined, { retryable }: Classification): boolean {
  if (decision?.control === 'retry') return true;
  return retryable && decision?.control !== 'fail';
}

/** Returns the ending that a hook decided. A `fail` without a text gives up on this model only: a fallback may answer. */
function endingAfter(
  decision: ControlAction | undefined,
  { message }: ProviderFailure,
  category: Classification['category'],
): Ending | undefined {
  if (decision?.control === 'fail' && decision.error === undefined) return undefined;
  if (decision?.control === 'abort' && category === 'cancelled') {
    return { kind: 'cancelled', reason: message };
  }
  return decidedEnding(decision, 'error', message);
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
