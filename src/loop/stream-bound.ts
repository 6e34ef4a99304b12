import { NO_USAGE, type Pricing, priceMicroUsd, totalTokens, type Usage } from '../core/usage.ts';
import type { ModelEvent } from '../providers/provider.ts';
import type { AnswerRatio } from './context.ts';

/**
 * What stops a running answer. `output`: the server went on after `max_tokens`. `tokens`, `spend`: the thread's limit
 * is used up in the middle of the answer.
 */
export type Bound = 'output' | 'tokens' | 'spend';

/** What one answer may use at most. */
export interface Allowance {
  /** `max_tokens` of the request. */
  readonly outputTokens: number;
  /** Tokens that the thread has left, the input of this call included. */
  readonly tokensLeft: number;
  /** Money that the call may cost with its input; undefined for a model without a price. */
  readonly microUsdLeft: number | undefined;
  /** Estimate of the input, until the provider counts it. */
  readonly inputTokens: number;
}

/** An answer may pass the thread's own limits by this factor, because its tokens are estimated from its bytes. */
const TOLERANCE = 1.1;
/** A server that obeys `max_tokens` never sends more than this many bytes a token, averaged over an answer. */
const MAX_BYTES_PER_TOKEN = 8;
/** Short answers differ more from the average. */
const SPARE_BYTES = 1024;
/** An answer of this size is let through, even if its input alone used up the thread's tokens. */
const MIN_OUTPUT_TOKENS = 256;
/** What a call costs beside its name and arguments. */
const CALL_BYTES = 16;

/** UTF-8 bytes that an event adds to an answer: text, reasoning, names and arguments of calls count alike. */
function heardBytes(event: ModelEvent): number {
  switch (event.type) {
    case 'text_delta':
    case 'thinking_delta':
      return Buffer.byteLength(event.text);
    case 'toolcall_delta':
      return Buffer.byteLength(event.json);
    case 'toolcall_start':
      return Buffer.byteLength(event.name) + CALL_BYTES;
    case 'start':
    case 'toolcall_end':
    case 'usage':
    case 'finish':
    case 'error':
      break;
  }
  return 0;
}

/** Watches what one answer uses while it streams. Costs O(1) per event. */
export class StreamBound {
  readonly #allowance: Allowance;
  readonly #pricing: Pricing | undefined;
  readonly #ratio: AnswerRatio;
  #bytes = 0;
  #usage: Usage | undefined;

  constructor(allowance: Allowance, pricing: Pricing | null | undefined, ratio: AnswerRatio) {
    this.#allowance = allowance;
    this.#pricing = pricing ?? undefined;
    this.#ratio = ratio;
  }

  /** Bytes that were heard so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Takes an event of the answer; the bound that the answer has passed with it. */
  take(event: ModelEvent): Bound | undefined {
    if (event.type === 'usage') this.#usage = event.usage;
    const bytes = heardBytes(event);
    if (bytes === 0) return undefined;
    this.#bytes += bytes;
    return this.#passed();
  }

  #passed(): Bound | undefined {
    const { outputTokens, tokensLeft, microUsdLeft, inputTokens } = this.#allowance;
    const counted = this.#usage ?? { ...NO_USAGE, input_tokens: inputTokens };
    const output = Math.max(counted.output_tokens, this.#ratio.tokensOf(this.#bytes));
    const used: Usage = { ...counted, output_tokens: output };
    if (microUsdLeft !== undefined && this.#pricing) {
      if (priceMicroUsd(used, this.#pricing) > microUsdLeft * TOLERANCE) return 'spend';
    }
    const mayAnswer = Math.max(MIN_OUTPUT_TOKENS, tokensLeft - totalTokens(used) + output);
    if (output > mayAnswer * TOLERANCE) return 'tokens';
    return this.#bytes > outputTokens * MAX_BYTES_PER_TOKEN + SPARE_BYTES ? 'output' : undefined;
  }
}
