import type { AssistantBlock, Message } from '../core/message.ts';
import { BYTES_PER_TOKEN, messageBytes } from '../log/size.ts';
import type { ToolDefinition } from '../providers/provider.ts';

/** Bytes of a short token; for the worst case that money must be there for. */
const BYTES_PER_TOKEN_WORST = 3;

/** Who is to read a context. */
export interface Reader {
  readonly provider: string;
  readonly model: string;
}

/**
 * The messages as `reader` may get them: answers that say nothing are left out, and so is reasoning that another
 * provider or model signed, since only its author takes it back.
 */
export function projectContext(messages: readonly Message[], reader: Reader): readonly Message[] {
  return messages.flatMap((message): readonly Message[] => {
    if (message.role !== 'assistant') return [message];
    const foreign = message.provider !== reader.provider || message.model !== reader.model;
    const content = message.content.filter(
      (block) => !(isEmptyText(block) || (foreign && block.type === 'thinking')),
    );
    if (content.every((block) => block.type === 'thinking')) return [];
    return [content.length === message.content.length ? message : { ...message, content }];
  });
}

function isEmptyText(block: AssistantBlock): boolean {
  return block.type === 'text' && block.text.trim() === '';
}

/** The same list is asked about four times a turn, and does not change. */
const bytesOfTools = new WeakMap<readonly ToolDefinition[], number>();

/** Bytes of what every request repeats. */
export function preambleBytes(system: string, tools: readonly ToolDefinition[]): number {
  let bytes = bytesOfTools.get(tools);
  if (bytes === undefined) {
    bytes = Buffer.byteLength(JSON.stringify(tools));
    bytesOfTools.set(tools, bytes);
  }
  return Buffer.byteLength(system) + bytes;
}

/**
 * Token count of a growing context in O(new bytes): what the provider counted for the last request, plus an
 * estimate of what was added since.
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
 * average: tokens of hidden reasoning are counted too, and would make each heard byte look dearer than it is.
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
