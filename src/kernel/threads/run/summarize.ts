import { type Clock, overReason } from '../../core/clock.ts';
import { RyeError, toRyeError } from '../../core/errors.ts';
import type { EventPayloads, RequestEstimate } from '../../core/events.ts';
import { textOf, userText } from '../../core/message.ts';
import type { PlannedModel } from '../../core/plan.ts';
import {
  addUsage,
  type MicroUsd,
  NO_USAGE,
  priceMicroUsd,
  totalTokens,
  type Usage,
} from '../../core/usage.ts';
import { SUMMARY_SYSTEM } from '../../log/summary-prompt.ts';
import { mayBeBilled } from '../../loop/answer.ts';
import { estimateOf } from '../../loop/limits.ts';
import {
  AnswerRatio,
  BYTES_PER_TOKEN_WORST,
  likelyTokensOf,
  StreamBound,
} from '../../loop/meters.ts';
import { reasonOf } from '../../loop/retry.ts';
import {
  type Classification,
  classify,
  type ErrorRule,
  failureCode,
} from '../../policy/error-class.ts';
import { affordableMaxTokens } from '../../policy/limits.ts';
import { type ProviderFacts, providerHint } from '../../policy/provider-hint.ts';
import { type PaceOptions, RetryPace } from '../../policy/retry-pace.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
  ProviderTraits,
} from '../../providers/provider.ts';

/** A model that writes summaries, and what it may cost. */
export interface Summarizer {
  readonly model: PlannedModel;
  readonly traits: (model: PlannedModel) => ProviderTraits;
  readonly provider: () => ModelProvider;
  readonly clock: Clock;
  readonly errorRules: readonly ErrorRule[];
  readonly random: () => number;
  /** Another question than for a summary; the noun names its answer in errors. */
  readonly question?: { readonly system: string; readonly noun: string };
  /** Longest answer in tokens. */
  readonly maxTokens: number;
  readonly remainingMicroUsd: MicroUsd;
  readonly allowUnpriced: boolean;
  /** Bounds of the retries. */
  readonly retries: Pick<PaceOptions, 'maxSeconds' | 'maxRetries'>;
  /** Sets aside what a request may use at most, before it is sent; false if the budget does not have it any more. */
  readonly hold?: ((estimate: RequestEstimate) => Promise<boolean>) | undefined;
  /** Called before each request with what it may use at most. */
  readonly onRequest?: ((estimate: RequestEstimate) => void | Promise<void>) | undefined;
  /** Called before each wait. */
  readonly onRetry?: ((wait: EventPayloads['retry_scheduled']) => void | Promise<void>) | undefined;
  /** Returns what is known of the model's provider, for the hint of a failure. */
  readonly about?: ((model: PlannedModel) => Promise<ProviderFacts>) | undefined;
}

/** A summary, or why there is none; the usage was paid for in both cases. */
export type SummaryAnswer =
  | { readonly text: string; readonly usage: Usage }
  | { readonly error: RyeError; readonly usage: Usage };

/**
 * Asks the model for one summary and retries transient failures. An answer that is cut off, calls tools or is empty is
 * no summary. Never rejects.
 */
export async function summarize(
  summarizer: Summarizer,
  prompt: string,
  signal: AbortSignal,
): Promise<SummaryAnswer> {
  const { clock, random, retries } = summarizer;
  const pace = new RetryPace({ ...retries, now: () => clock.monotonic(), random });
  let usage: Usage = NO_USAGE;
  for (;;) {
    const request = requestFor(summarizer, prompt, usage);
    if (request instanceof RyeError) return { error: request, usage };
    const inputTokens = inputTokensOf(prompt, summarizer);
    const refused = await announce(summarizer, inputTokens, request.max_tokens);
    if (refused) return { error: refused, usage };
    const answer = await ask(summarizer, { request, inputTokens }, signal);
    usage = addUsage(usage, answer.usage);
    if ('text' in answer) return { text: answer.text, usage };
    if (signal.aborted) return { error: cancelled(summarizer), usage };
    if (!('failure' in answer)) return { error: answer.error, usage };
    const { failure } = answer;
    const classification = classify(failure, summarizer.errorRules);
    pace.note(classification, totalTokens(answer.usage) > 0);
    const { retry_after_ms: retryAfterMs, reset_ms: resetMs } = failure;
    const next = classification.retryable
      ? pace.next({ classification, retryAfterMs, resetMs })
      : undefined;
    if (next?.kind !== 'wait') {
      return { error: await failed(summarizer, failure, classification), usage };
    }
    const { attempt, delayMs } = next;
    await summarizer.onRetry?.({
      attempt,
      delay_ms: delayMs,
      policy: classification.policy.kind,
      reason: reasonOf(failure, classification),
      purpose: 'summary',
    });
    await clock.sleep(delayMs, signal);
  }
}

/** Sets the money for a request aside and announces it; an error if that is not possible. */
async function announce(
  summarizer: Summarizer,
  inputTokens: number,
  maxTokens: number,
): Promise<RyeError | undefined> {
  const { model, traits, hold, onRequest } = summarizer;
  if (traits(model).embedded) return undefined;
  const most = estimateOf(model, inputTokens, maxTokens);
  try {
    if (hold && !(await hold(most))) return tooDear(summarizer);
    await onRequest?.(most);
    return undefined;
  } catch (error) {
    return toRyeError(error);
  }
}

function nounOf({ question }: Pick<Summarizer, 'question'>): string {
  return question?.noun ?? 'summary';
}

function systemOf({ question }: Pick<Summarizer, 'question'>): string {
  return question?.system ?? SUMMARY_SYSTEM;
}

function tooDear(summarizer: Summarizer): RyeError {
  const message = `a ${nounOf(summarizer)} might cost more than the budget has left`;
  return new RyeError('budget_insufficient', message);
}

function cancelled(summarizer: Summarizer): RyeError {
  return new RyeError('cancelled', `the ${nounOf(summarizer)} was cancelled`);
}

async function failed(
  summarizer: Summarizer,
  { message, type, status }: ProviderFailure,
  { category }: Classification,
): Promise<RyeError> {
  const { model, about } = summarizer;
  const code = failureCode(category, type);
  const facts = await about?.(model);
  return new RyeError(code, `the ${nounOf(summarizer)} could not be made: ${message}`, {
    hint: `The thread is unchanged. ${providerHint({ category, message, type, status, facts })}`,
  });
}

/** Returns the most that a prompt can be: a server refuses what its window has no room for, and bills nothing. */
function inputTokensOf(prompt: string, summarizer: Summarizer): number {
  const { context_window: window } = summarizer.model;
  const bytes = Buffer.byteLength(prompt + systemOf(summarizer));
  const worst = Math.ceil(bytes / BYTES_PER_TOKEN_WORST);
  return window > 0 ? Math.min(worst, window) : worst;
}

/** Builds the request if its worst case fits the remaining budget. */
function requestFor(summarizer: Summarizer, prompt: string, used: Usage): ModelRequest | RyeError {
  const { model, maxTokens, remainingMicroUsd, allowUnpriced } = summarizer;
  let affordable: number | undefined = Math.min(maxTokens, model.max_output_tokens);
  if (model.pricing) {
    affordable = affordableMaxTokens({
      remainingMicroUsd: remainingMicroUsd - priceMicroUsd(used, model.pricing),
      inputTokens: inputTokensOf(prompt, summarizer),
      pricing: model.pricing,
      wanted: affordable,
    });
  } else if (!allowUnpriced) {
    return new RyeError('model_unpriced', `no price is known for ${model.provider}/${model.id}`);
  }
  if (affordable === undefined) return tooDear(summarizer);
  return {
    model: model.id,
    system: systemOf(summarizer),
    messages: [userText(prompt)],
    tools: [],
    max_tokens: affordable,
    thinking: 'off',
    cache: false,
  };
}

type Asked =
  | { readonly text: string; readonly usage: Usage }
  | { readonly failure: ProviderFailure; readonly usage: Usage }
  | { readonly error: RyeError; readonly usage: Usage };

async function ask(
  summarizer: Summarizer,
  { request, inputTokens }: { readonly request: ModelRequest; readonly inputTokens: number },
  signal: AbortSignal,
): Promise<Asked> {
  const { provider, model } = summarizer;
  const noun = nounOf(summarizer);
  if (signal.aborted) return { error: cancelled(summarizer), usage: NO_USAGE };
  const call = new AbortController();
  const onStop = (): void => call.abort(signal.reason);
  let stream: AsyncIterable<ModelEvent>;
  try {
    stream = provider().stream(request, call.signal);
  } catch (error) {
    return { error: toRyeError(error, 'provider_rejected'), usage: NO_USAGE };
  }
  signal.addEventListener('abort', onStop, { once: true });
  const heard = new HeardSummary(request, model, inputTokens);
  try {
    for await (const event of stream) {
      const passed = heard.take(event);
      if (event.type === 'error') {
        const { failure } = event;
        return { failure, usage: heard.usageIf(mayBeBilled(failure)) };
      }
      if (event.type === 'finish') return { ...verdictOn(event, noun), usage: heard.usageIf(true) };
      if (passed) {
        const error = noAnswer(noun, 'the server continued after max_tokens');
        return { error, usage: heard.usageIf(true) };
      }
    }
  } catch (error) {
    return { error: toRyeError(error, 'provider_rejected'), usage: heard.usageIf(true) };
  } finally {
    signal.removeEventListener('abort', onStop);
    call.abort(overReason());
  }
  return { error: noAnswer(noun, 'its answer has no end'), usage: heard.usageIf(true) };
}

/**
 * The usage of an answer so far: the provider's count, and never less than what was received. A server that may have read the
 * request bills its input, even without an answer.
 */
class HeardSummary {
  readonly #inputTokens: number;
  readonly #bound: StreamBound;
  #counted: Usage | undefined;
  #isFinished = false;

  constructor(request: ModelRequest, { pricing }: PlannedModel, inputTokens: number) {
    this.#inputTokens = inputTokens;
    const allowance = {
      outputTokens: request.max_tokens,
      tokensLeft: Number.POSITIVE_INFINITY,
      microUsdLeft: undefined,
      inputTokens,
    };
    this.#bound = new StreamBound(allowance, pricing, new AnswerRatio());
  }

  take(event: ModelEvent): boolean {
    if (event.type === 'usage') this.#counted = event.usage;
    if (event.type === 'finish') this.#isFinished = true;
    return this.#bound.take(event) !== undefined;
  }

  usageIf(isBilled: boolean): Usage {
    const { bytes } = this.#bound;
    if (this.#counted && this.#isFinished) return this.#counted;
    if (!this.#counted && bytes === 0 && !isBilled) return NO_USAGE;
    const counted = this.#counted ?? { ...NO_USAGE, input_tokens: this.#inputTokens };
    return { ...counted, output_tokens: Math.max(counted.output_tokens, likelyTokensOf(bytes)) };
  }
}

function verdictOn(
  { reason, content }: Extract<ModelEvent, { type: 'finish' }>,
  noun: string,
): { text: string } | { error: RyeError } {
  const calls = content.filter(({ type }) => type === 'tool_call');
  if (calls.length > 0) return { error: noAnswer(noun, 'it called a tool') };
  if (reason !== 'end') return { error: noAnswer(noun, `its answer ended with ${reason}`) };
  const text = textOf(content).trim();
  return text === '' ? { error: noAnswer(noun, 'its answer is empty') } : { text };
}

function noAnswer(noun: string, why: string): RyeError {
  return new RyeError('provider_rejected', `the model wrote no ${noun}: ${why}`);
}
