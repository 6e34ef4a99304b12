import { type ErrorInfo, messageOf, RyeError } from '../core/errors.ts';
import type { EventPayloads, RequestEstimate } from '../core/events.ts';
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
import { decidedEnding } from './hooks.ts';
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

type FailedAttempt = Extract<Attempt, { kind: 'failed' }>;
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
    if (attempt.kind !== 'failed') return await answerOf(run, attempt);
    await recordPartial(run, attempt.partial, attempt.failure.message);
    const ending = await remedy(run, attempt, tries);
    if (ending) return { kind: 'ended', ending };
    if (run.stop.signal.aborted) return NO_ANSWER;
  }
}

async function answerOf(run: Run, attempt: Exclude<Attempt, FailedAttempt>): Promise<Answer> {
  switch (attempt.kind) {
    case 'answered':
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
  const ending = endingAfter(decision, failure, category);
  if (ending) return ending;
  if (category === 'context_exceeded' || decision?.control === 'compact') {
    if (await compactOnce(run, decision, tries)) return undefined;
  }
  let waitSeconds: number | undefined;
  if (wantsRetry(decision, classified) && tries.failures <= run.plan.settings.max_retries) {
    const wait = waitFor(run, failure, classified, decision, tries.failures);
    // if the provider asks for more time than the thread has, only a fallback model can answer
    if (wait.policy !== 'use_header' || wait.delay_ms / 1000 < run.spend.secondsLeft()) {
      await run.conversation.write({ event_type: 'retry_scheduled', payload: wait });
      await run.ports.clock.sleep(wait.delay_ms, run.stop.signal);
      return undefined;
    }
    waitSeconds = wait.delay_ms / 1000;
  }
  const error = failureError(run, failure, classified, waitSeconds);
  const next = run.models.fallBack();
  if (!next) return { kind: 'error', error };
  tries.failures = 0;
  await run.conversation.record({
    event_type: 'model_change',
    payload: { provider: next.provider, model: next.id },
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

/** Returns the delay before the next attempt, and the policy or hook that set it. */
function waitFor(
  run: Run,
  { retry_after_ms: retryAfterMs }: ProviderFailure,
  { policy }: Classification,
  decision: ControlAction | undefined,
  attempt: number,
): EventPayloads['retry_scheduled'] {
  if (decision?.control === 'retry' && decision.delay_seconds !== undefined) {
    return { attempt, delay_ms: decision.delay_seconds * 1000, policy: 'hook' };
  }
  const random = (): number => run.ports.random();
  const delayMs = retryDelayMs({ policy, attempt, retryAfterMs, random });
  return { attempt, delay_ms: delayMs, policy: policy.kind };
}

function failureError(
  run: Run,
  failure: ProviderFailure,
  { category }: Classification,
  waitSeconds: number | undefined,
): ErrorInfo {
  const { provider, id } = run.models.current;
  const code = failureCode(category, failure.type);
  const isStep = code === 'tool_failed'; // only a step of the literal provider fails so
  const source = isStep ? '' : `${provider}/${id}: `;
  const wait =
    waitSeconds === undefined
      ? ''
      : `; it asks to wait ${Math.ceil(waitSeconds)} s, which is longer than the thread may still run`;
  const hook = isStep ? run.hooks.refusalIn(failure.message) : undefined;
  const by = hook === undefined ? '' : ` (hook ${hook})`;
  return new RyeError(code, `${source}${failure.message}${by}${wait}`, {
    hint: hook
      ? HOOK_HINT
      : isStep
        ? STEP_HINT
        : NO_TOOLS.test(failure.message)
          ? CALLS_AS_TEXT
          : HINTS[category],
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

const STEP_HINT =
  "Correct the step or the directive's <permissions>, sign the directive and run it again.";

const HOOK_HINT =
  'See where the hook is: rye hooks list. Change the hook or the step, sign it and run it again.';

const HINTS: Partial<Record<Classification['category'], string>> = {
  rate_limited: 'Wait and resume the thread, or configure a fallback model.',
  transient: 'Resume the thread when the provider can be reached again.',
  permanent: 'Check the model and its provider: rye models list',
  quota: 'Check the plan and billing of the provider account.',
  auth: 'Check the API key of the provider.',
  context_exceeded: 'Compact the thread, or choose a model with a larger context window.',
};
