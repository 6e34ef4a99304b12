import { type Clock, overReason } from '../../core/clock.ts';
import { RyeError, toRyeError } from '../../core/errors.ts';
import type { RequestEstimate } from '../../core/events.ts';
import { textOf, userText } from '../../core/message.ts';
import type { PlannedModel } from '../../core/plan.ts';
import { addUsage, type MicroUsd, NO_USAGE, priceMicroUsd, type Usage } from '../../core/usage.ts';
import { SUMMARY_SYSTEM } from '../../log/summary-prompt.ts';
import { estimateOf } from '../../loop/limits.ts';
import { AnswerRatio, likelyTokensOf, StreamBound } from '../../loop/meters.ts';
import {
  type Classification,
  classify,
  type ErrorRule,
  failureCode,
  retryDelayMs,
} from '../../policy/error-class.ts';
import { affordableMaxTokens } from '../../policy/limits.ts';
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
  /** Longest answer in tokens. */
  readonly maxTokens: number;
  readonly remainingMicroUsd: MicroUsd;
  readonly allowUnpriced: boolean;
  /** Maximum retries of a transient failure. */
  readonly maxRetries: number;
  /** Called before each request with what it may use at most. */
  readonly onRequest?: ((estimate: RequestEstimate) => void | Promise<void>) | undefined;
}

/** A summary, or why there is none; the usage was paid for in both cases. */
export type SummaryAnswer =
  | { readonly text: string; readonly usage: Usage }
  | { readonly error: RyeError; readonly usage: Usage };

/** Bytes of the shortest average token, to bound the tokens of a text. */
export const BYTES_PER_TOKEN_WORST = 3;

/**
 * Asks the model for one summary and retries transient failures. An answer that is cut off, calls tools or is empty is
 * no summary. Never rejects.
 */
export async function summarize(
  summarizer: Summarizer,
  prompt: string,
  signal: AbortSignal,
): Promise<SummaryAnswer> {
  let usage: Usage = NO_USAGE;
  for (let attempt = 1; ; attempt += 1) {
    const request = requestFor(summarizer, prompt, usage);
    if (request instanceof RyeError) return { error: request, usage };
    const inputTokens = inputTokensOf(prompt);
    if (!summarizer.traits(summarizer.model).embedded) {
      await summarizer.onRequest?.(estimateOf(summarizer.model, inputTokens, request.max_tokens));
    }
    const answer = await ask(summarizer, { request, inputTokens }, signal);
    usage = addUsage(usage, answer.usage);
    if ('text' in answer) return { text: answer.text, usage };
    if (signal.aborted) return { error: cancelled(), usage };
    if (!('failure' in answer)) return { error: answer.error, usage };
    const classified = classify(answer.failure, summarizer.errorRules);
    const { retryable, policy } = classified;
    if (!retryable || attempt > summarizer.maxRetries) {
      return { error: failed(answer.failure, classified), usage };
    }
    const { clock, random } = summarizer;
    const retryAfterMs = answer.failure.retry_after_ms;
    await clock.sleep(retryDelayMs({ policy, attempt, retryAfterMs, random }), signal);
  }
}

function cancelled(): RyeError {
  return new RyeError('cancelled', 'the summary was cancelled');
}

function failed({ message, type }: ProviderFailure, { category }: Classification): RyeError {
  const code = failureCode(category, type);
  return new RyeError(code, `the summary could not be made: ${message}`, {
    hint: 'The thread is unchanged.',
  });
}

function inputTokensOf(prompt: string): number {
  return Math.ceil(Buffer.byteLength(prompt + SUMMARY_SYSTEM) / BYTES_PER_TOKEN_WORST);
}

/** Builds the request if its worst case fits the remaining budget. */
function requestFor(
  { model, maxTokens, remainingMicroUsd, allowUnpriced }: Summarizer,
  prompt: string,
  used: Usage,
): ModelRequest | RyeError {
  let affordable: number | undefined = Math.min(maxTokens, model.max_output_tokens);
  if (model.pricing) {
    affordable = affordableMaxTokens({
      remainingMicroUsd: remainingMicroUsd - priceMicroUsd(used, model.pricing),
      inputTokens: inputTokensOf(prompt),
      pricing: model.pricing,
      wanted: affordable,
    });
  } else if (!allowUnpriced) {
    return new RyeError('model_unpriced', `no price is known for ${model.provider}/${model.id}`);
  }
  if (affordable === undefined) {
    return new RyeError(
      'budget_insufficient',
      'a summary might cost more than the budget has left',
    );
  }
  return {
    model: model.id,
    system: SUMMARY_SYSTEM,
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
  { provider, model }: Summarizer,
  { request, inputTokens }: { readonly request: ModelRequest; readonly inputTokens: number },
  signal: AbortSignal,
): Promise<Asked> {
  const call = new AbortController();
  const onStop = (): void => call.abort(signal.reason);
  let stream: AsyncIterable<ModelEvent>;
  try {
    stream = provider().stream(request, call.signal);
  } catch (error) {
    return { error: toRyeError(error, 'provider_rejected'), usage: NO_USAGE };
  }
  if (signal.aborted) onStop();
  else signal.addEventListener('abort', onStop, { once: true });
  const heard = new HeardSummary(request, model, inputTokens);
  try {
    for await (const event of stream) {
      const passed = heard.take(event);
      if (event.type === 'error') return { failure: event.failure, usage: heard.usage };
      if (event.type === 'finish') return { ...verdictOn(event), usage: heard.usage };
      if (passed)
        return { error: noSummary('the server continued after max_tokens'), usage: heard.usage };
    }
  } finally {
    signal.removeEventListener('abort', onStop);
    call.abort(overReason());
  }
  return { error: noSummary('its answer has no end'), usage: heard.usage };
}

/** The usage of an answer so far: the provider's count, and never less than what was received. */
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

  get usage(): Usage {
    const { bytes } = this.#bound;
    if (this.#counted && this.#isFinished) return this.#counted;
    if (!this.#counted && bytes === 0) return NO_USAGE;
    const counted = this.#counted ?? { ...NO_USAGE, input_tokens: this.#inputTokens };
    return { ...counted, output_tokens: Math.max(counted.output_tokens, likelyTokensOf(bytes)) };
  }
}

function verdictOn({
  reason,
  content,
}: Extract<ModelEvent, { type: 'finish' }>): { text: string } | { error: RyeError } {
  const calls = content.filter(({ type }) => type === 'tool_call');
  if (calls.length > 0) return { error: noSummary('it called a tool') };
  if (reason !== 'end') return { error: noSummary(`its answer ended with ${reason}`) };
  const text = textOf(content).trim();
  return text === '' ? { error: noSummary('its answer is empty') } : { text };
}

function noSummary(why: string): RyeError {
  return new RyeError('provider_rejected', `the model wrote no summary: ${why}`);
}
