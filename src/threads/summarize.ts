import type { Clock } from '../core/clock.ts';
import { RyeError, toRyeError } from '../core/errors.ts';
import { textOf, userText } from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import { addUsage, type MicroUsd, NO_USAGE, priceMicroUsd, type Usage } from '../core/usage.ts';
import { SUMMARY_SYSTEM } from '../log/summary-prompt.ts';
import {
  type Classification,
  classify,
  type ErrorRule,
  failureCode,
  retryDelayMs,
} from '../policy/error-class.ts';
import { affordableMaxTokens } from '../policy/limits.ts';
import type {
  ModelEvent,
  ModelProvider,
  ModelRequest,
  ProviderFailure,
} from '../providers/provider.ts';

/** A model that writes summaries, and what it may cost. */
export interface Summarizer {
  readonly model: PlannedModel;
  readonly provider: () => ModelProvider;
  readonly clock: Clock;
  readonly errorRules: readonly ErrorRule[];
  readonly random: () => number;
  /** Longest answer in tokens. */
  readonly maxTokens: number;
  readonly remainingMicroUsd: MicroUsd;
  readonly allowUnpriced: boolean;
  /** How often a failure that may pass is tried again. */
  readonly maxRetries: number;
}

/** A summary, or why there is none; the usage was paid for in both cases. */
export type SummaryAnswer =
  | { readonly text: string; readonly usage: Usage }
  | { readonly error: RyeError; readonly usage: Usage };

const BYTES_PER_TOKEN_WORST = 3;

/**
 * One summary by the model; failures that may pass are tried again. An answer that was cut off, that calls tools or
 * that says nothing is no summary. Never rejects.
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
    const answer = await ask(summarizer, request, signal);
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
    hint: 'The thread is as it was.',
  });
}

/** A call is made only if its worst case fits what is left. */
function requestFor(
  { model, maxTokens, remainingMicroUsd, allowUnpriced }: Summarizer,
  prompt: string,
  used: Usage,
): ModelRequest | RyeError {
  let affordable: number | undefined = Math.min(maxTokens, model.max_output_tokens);
  if (model.pricing) {
    affordable = affordableMaxTokens({
      remainingMicroUsd: remainingMicroUsd - priceMicroUsd(used, model.pricing),
      inputTokens: Math.ceil(Buffer.byteLength(prompt + SUMMARY_SYSTEM) / BYTES_PER_TOKEN_WORST),
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
  { provider }: Summarizer,
  request: ModelRequest,
  signal: AbortSignal,
): Promise<Asked> {
  let usage: Usage = NO_USAGE;
  let stream: AsyncIterable<ModelEvent>;
  try {
    stream = provider().stream(request, signal);
  } catch (error) {
    return { error: toRyeError(error, 'provider_rejected'), usage };
  }
  for await (const event of stream) {
    if (event.type === 'usage') usage = event.usage;
    if (event.type === 'error') return { failure: event.failure, usage };
    if (event.type === 'finish') return { ...verdictOn(event), usage };
  }
  return { error: noSummary('its answer has no end'), usage };
}

function verdictOn({
  reason,
  content,
}: Extract<ModelEvent, { type: 'finish' }>): { text: string } | { error: RyeError } {
  const calls = content.filter(({ type }) => type === 'tool_call');
  if (calls.length > 0) return { error: noSummary('it called a tool') };
  if (reason !== 'end') return { error: noSummary(`its answer ended with ${reason}`) };
  const text = textOf(content).trim();
  return text === '' ? { error: noSummary('it said nothing') } : { text };
}

function noSummary(why: string): RyeError {
  return new RyeError('provider_rejected', `the model wrote no summary: ${why}`);
}
