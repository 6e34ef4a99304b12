import type { RequestEstimate } from '../core/events.ts';
import {
  type MicroUsd,
  NO_USAGE,
  type Pricing,
  priceMicroUsd,
  toMicroUsd,
  type Usage,
} from '../core/usage.ts';
import { worstMicroUsd } from './limits.ts';

/** A part of an answer as the log has it. */
export interface HeardPiece {
  /** When it was written, in milliseconds since 1970. */
  readonly ms: number;
  /** The most tokens that it may be. */
  readonly tokens: number;
  /** Providers may bill more thinking than they show. */
  readonly isThinking: boolean;
}

/** A model call whose end the log does not have. */
export interface CutCall {
  readonly request: RequestEstimate;
  /** When it was announced, in milliseconds since 1970. */
  readonly startedMs: number;
  /** The count with which the provider began its answer, and when it came, in milliseconds since 1970. */
  readonly counted?: { readonly usage: Usage; readonly ms: number };
  /** The pieces of its answer that arrived, in order. */
  readonly heard: readonly HeardPiece[];
}

/** The connection of a cut call: until when the provider may have written, and how fast it can. */
export interface CutConnection {
  /** The latest possible end, in milliseconds since 1970. Infinity: it may be open still. */
  readonly endMs: number;
  readonly tokensPerSecond: number;
}

/** Text that arrives at least this often leaves a provider no time to write something else. */
const FLOW_MS = 1000;
/** A provider notices this much later that its connection has ended. */
const NOTICE_MS = 50;
/** Times of one machine differ by this much without a change of its clock. */
const CLOCK_MS = 1000;
/** Pieces of text that show how late a process reads its provider. */
const SHOWING_PIECES = 3;

/**
 * Returns the most output tokens that a provider may bill for a cut call: the text that arrived, and for the time without
 * text what the provider can write in it. Never more than `max_tokens`.
 */
export function outputBound(call: CutCall, { endMs, tokensPerSecond }: CutConnection): number {
  const { request, startedMs, counted, heard } = call;
  const { max_tokens: max } = request;
  const text = heard.filter(({ isThinking }) => !isThinking);
  const isShowing = text.length >= SHOWING_PIECES;
  // a process that was busy saw the first count late: what the provider wrote since is in no piece yet
  const beginMs = isShowing ? Math.max(startedMs, counted?.ms ?? 0) : startedMs;
  const times = [beginMs, ...text.map(({ ms }) => ms), endMs];
  const gaps = times.slice(1).map((ms, index) => ms - (times[index] ?? ms));
  // a clock that was set back proves nothing
  if (!gaps.every((gap) => Number.isFinite(gap) && gap >= -CLOCK_MS)) return max;
  const between = gaps.slice(1, -1);
  const lagMs = isShowing ? Math.min(FLOW_MS, Math.max(0, ...between)) : 0;
  const edges = [gaps[0] ?? 0, ...(gaps.length > 1 ? [gaps.at(-1) ?? 0] : [])];
  const silent = [...edges, ...between.filter((gap) => gap > FLOW_MS)];
  const silentMs = silent.reduce((sum, gap) => sum + Math.max(0, gap), lagMs + NOTICE_MS);
  const thought = heard.reduce((sum, one) => sum + (one.isThinking ? one.tokens : 0), 0);
  const shown = text.reduce((sum, { tokens }) => sum + tokens, counted?.usage.output_tokens ?? 0);
  const unseen = (silentMs / 1000) * tokensPerSecond;
  return Math.min(max, Math.ceil(shown + Math.max(thought, unseen)));
}

/** The price of a cut call, and the part of it that is an upper bound. */
export interface CutPrice {
  readonly price: MicroUsd;
  readonly estimated: MicroUsd;
}

/**
 * Returns the price of a cut call with so much output, never above its reservation. Its input costs what the provider
 * counted, or else all of it the highest price.
 */
export function cutPrice(
  { request, counted }: Pick<CutCall, 'request' | 'counted'>,
  outputTokens: number,
  pricing: Pricing | null,
): CutPrice {
  const { input_tokens: inputTokens, max_tokens: max, reserved_usd: usd = 0 } = request;
  const reserved = toMicroUsd(usd);
  if (!pricing) return { price: reserved, estimated: reserved };
  const whole = Math.max(worstMicroUsd({ inputTokens, pricing }, max), reserved);
  if (counted) {
    const { usage } = counted;
    const input = priceMicroUsd({ ...usage, output_tokens: 0 }, pricing);
    const price = priceMicroUsd({ ...usage, output_tokens: outputTokens }, pricing);
    const capped = Math.max(input, Math.min(whole, price));
    return { price: capped, estimated: capped - input };
  }
  const spared = { ...NO_USAGE, output_tokens: Math.max(0, max - outputTokens) };
  // both are rounded up, so the difference could undercut the price
  const price = Math.max(0, Math.min(whole, whole - priceMicroUsd(spared, pricing) + 1));
  return { price, estimated: price };
}

/** Bytes of a token in words and the spaces between them, in numbers, and in the densest texts, such as base64. */
const WORD_BYTES = 3;
const DIGIT_BYTES = 2;
const DENSE_BYTES = 1.4;
const RUNS = /((?<![A-Za-z\d])[A-Z]?[a-z]{3,}(?![A-Za-z])| )|(\d+)/g;

/** Returns the most tokens that a text may be, as a fraction: sum up first, then round. */
export function mostTokensOf(text: string): number {
  let [words, digits] = [0, 0];
  for (const [, word = '', number = ''] of text.matchAll(RUNS)) {
    words += word.length;
    digits += number.length;
  }
  const dense = Buffer.byteLength(text) - words - digits;
  return words / WORD_BYTES + digits / DIGIT_BYTES + dense / DENSE_BYTES;
}
