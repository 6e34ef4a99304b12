import type { Message } from '../core/message.ts';
import { NO_USAGE, type Pricing, priceMicroUsd, totalTokens, type Usage } from '../core/usage.ts';
import { BYTES_PER_TOKEN, messageBytes } from '../log/summary-prompt.ts';
import type { ModelEvent, ToolList } from '../providers/provider.ts';

/**
 * Bytes of the shortest average token; for the worst case that money must be there for. Base64, hashes and IDs have 1.5
 * bytes a token, prose has four.
 */
export const BYTES_PER_TOKEN_WORST = 1.4;

/** Bytes that every request repeats before its messages: the system text and the tools. */
export class Preamble {
  #system = '';
  #systemBytes = 0;
  #tools: { readonly version: number; readonly bytes: number } | undefined;

  constructor(system: string) {
    this.system = system;
  }

  get system(): string {
    return this.#system;
  }

  /** Sets the system text of the next request. */
  set system(text: string) {
    if (text === this.#system) return;
    this.#system = text;
    this.#systemBytes = Buffer.byteLength(text);
  }

  /** Serializes each version of the list once, however often it is measured. */
  bytes({ version, tools }: ToolList): number {
    if (this.#tools?.version !== version) {
      this.#tools = { version, bytes: Buffer.byteLength(JSON.stringify(tools)) };
    }
    return this.#systemBytes + this.#tools.bytes;
  }
}

/**
 * Token count of a growing context in O(new bytes): what the provider counted for the last request, plus an
 * estimate of later additions.
 */
export class ContextMeter {
  #bytes = 0;
  #counted: { readonly tokens: number; readonly bytes: number } | undefined;

  add(message: Message): void {
    this.#bytes += messageBytes(message);
  }

  /** `inputTokens` is the provider's count for a request that held everything added so far. */
  calibrate(inputTokens: number, preamble: number): void {
    if (inputTokens > 0) this.#counted = { tokens: inputTokens, bytes: this.#bytes + preamble };
  }

  /** Starts over from `messages`, after a compaction. */
  reset(messages: readonly Message[]): void {
    this.#bytes = 0;
    this.#counted = undefined;
    for (const message of messages) this.add(message);
  }

  /** A fair estimate of the tokens of the next request. */
  likelyTokens(preamble: number): number {
    return this.#estimate(preamble, BYTES_PER_TOKEN);
  }

  /** An estimate on the high side, for spending caps. */
  worstTokens(preamble: number): number {
    return this.#estimate(preamble, BYTES_PER_TOKEN_WORST);
  }

  #estimate(preamble: number, bytesPerToken: number): number {
    const bytes = this.#bytes + preamble;
    if (!this.#counted) return Math.ceil(bytes / bytesPerToken);
    return (
      this.#counted.tokens + Math.ceil(Math.max(0, bytes - this.#counted.bytes) / bytesPerToken)
    );
  }
}

/** Tokens that `bytes` of text are likely to be. */
export function likelyTokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** The most bytes that a token of an answer is taken for; measured answers may have more by their wire format. */
const MAX_BYTES_PER_TOKEN = 8;

/**
 * Bytes of an answer's average token, learned from the answers that the provider counted. Never less than the usual
 * average: tokens of hidden reasoning count too, and would make each received byte look more expensive than it is.
 */
export class AnswerRatio {
  #bytes = 0;
  #tokens = 0;

  learn(bytes: number, tokens: number): void {
    if (bytes <= 0 || tokens <= 0) return;
    this.#bytes += bytes;
    this.#tokens += tokens;
  }

  /** Tokens that so many bytes of an answer are likely to be. */
  tokensOf(bytes: number): number {
    const measured = this.#tokens === 0 ? BYTES_PER_TOKEN : this.#bytes / this.#tokens;
    const ratio = Math.min(MAX_BYTES_PER_TOKEN, Math.max(BYTES_PER_TOKEN, measured));
    return Math.ceil(bytes / ratio);
  }
}

/**
 * A bound that stops an answer. `output`: the server exceeded `max_tokens`. `tokens`, `spend`: the thread's limit
 * is used up in the middle of the answer.
 */
export type Bound = 'output' | 'tokens' | 'spend';

/** Maximum usage of one answer. */
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
const MAX_AVERAGE_BYTES_PER_TOKEN = 8;
/** Short answers differ more from the average. */
const SPARE_BYTES = 1024;
/** An answer of this size is let through, even if its input alone used up the thread's tokens. */
const MIN_OUTPUT_TOKENS = 256;
/** Bytes of a call besides its name and arguments. */
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
    return this.#bytes > outputTokens * MAX_AVERAGE_BYTES_PER_TOKEN + SPARE_BYTES
      ? 'output'
      : undefined;
  }
}
