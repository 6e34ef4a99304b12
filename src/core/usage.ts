/** Tokens of one or more model calls, as the provider counted them. */
export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_tokens: number;
  readonly cache_write_tokens: number;
}

/** Price of a model in USD per million tokens. */
export interface Pricing {
  readonly input: number;
  readonly output: number;
  readonly cache_read?: number;
  readonly cache_write?: number;
}

/** Total usage of a thread; the `cost` of thread.json, the registry and the ThreadResult. */
export interface Cost extends Usage {
  readonly turns: number;
  /** USD, rounded to micro-dollars. */
  readonly spend: number;
  readonly elapsed_seconds: number;
}

/** The part of a cost that adds up over threads. */
export interface CostShare {
  /** USD, rounded to micro-dollars. */
  readonly spend: number;
  readonly tokens: number;
  readonly turns: number;
}

/** The cost of a thread, and of all threads that it started, directly or through others. */
export interface FamilyCost extends Cost {
  readonly own: CostShare;
  /** `own` and every child as far as it is known: one that still runs adds to it later. */
  readonly total: CostShare;
}

/** Returns what a thread used itself. */
export function shareOf(cost: Cost): CostShare {
  return { spend: cost.spend, tokens: totalTokens(cost), turns: cost.turns };
}

export function addShare(left: CostShare, right: CostShare): CostShare {
  return {
    spend: toUsd(toMicroUsd(left.spend) + toMicroUsd(right.spend)),
    tokens: left.tokens + right.tokens,
    turns: left.turns + right.turns,
  };
}

/** Adds the costs of two threads of a chain. */
export function addFamilyCost(left: FamilyCost, right: FamilyCost): FamilyCost {
  return {
    ...addCost(left, right),
    own: addShare(left.own, right.own),
    total: addShare(left.total, right.total),
  };
}

/** Cost of a session that another program ran: its working time is unknown. */
export type SessionCost = Omit<Cost, 'elapsed_seconds'>;

export const NO_USAGE: Usage = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
};

export const NO_COST: Cost = { ...NO_USAGE, turns: 0, spend: 0, elapsed_seconds: 0 };

export function addUsage(left: Usage, right: Usage): Usage {
  return {
    input_tokens: left.input_tokens + right.input_tokens,
    output_tokens: left.output_tokens + right.output_tokens,
    cache_read_tokens: left.cache_read_tokens + right.cache_read_tokens,
    cache_write_tokens: left.cache_write_tokens + right.cache_write_tokens,
  };
}

/** Adds the costs of two threads or runs. */
export function addCost(left: Cost, right: Cost): Cost {
  return {
    ...addUsage(left, right),
    turns: left.turns + right.turns,
    spend: toUsd(toMicroUsd(left.spend) + toMicroUsd(right.spend)),
    elapsed_seconds: Math.round((left.elapsed_seconds + right.elapsed_seconds) * 1000) / 1000,
  };
}

/** Returns what was used between two totals. */
export function usageSince(before: Usage, total: Usage): Usage {
  return {
    input_tokens: total.input_tokens - before.input_tokens,
    output_tokens: total.output_tokens - before.output_tokens,
    cache_read_tokens: total.cache_read_tokens - before.cache_read_tokens,
    cache_write_tokens: total.cache_write_tokens - before.cache_write_tokens,
  };
}

/** Returns what was used between two totals of one thread. */
export function costSince(before: Cost, total: Cost): Cost {
  return {
    ...usageSince(before, total),
    turns: total.turns - before.turns,
    spend: toUsd(toMicroUsd(total.spend) - toMicroUsd(before.spend)),
    elapsed_seconds: Math.round((total.elapsed_seconds - before.elapsed_seconds) * 1000) / 1000,
  };
}

/** All tokens that count against a `tokens` limit. */
export function totalTokens(usage: Usage): number {
  return (
    usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens
  );
}

/** Money inside rye is an integer number of micro-dollars, so that sums are exact. */
export type MicroUsd = number;

const MICRO = 1_000_000;

export function toMicroUsd(usd: number): MicroUsd {
  return Math.round(usd * MICRO);
}

export function toUsd(micro: MicroUsd): number {
  return micro / MICRO;
}

/**
 * Price of a usage in micro-dollars, rounded up so that a cap is never undershot by rounding. USD per million
 * tokens is micro-dollars per token. Cache reads and writes fall back to the input price.
 */
export function priceMicroUsd(usage: Usage, pricing: Pricing): MicroUsd {
  return Math.ceil(
    usage.input_tokens * pricing.input +
      usage.output_tokens * pricing.output +
      usage.cache_read_tokens * (pricing.cache_read ?? pricing.input) +
      usage.cache_write_tokens * (pricing.cache_write ?? pricing.input) -
      1e-9, // a float sum that should be whole must not be lifted to the next micro-dollar
  );
}

/** USD with the digits that matter: four below a dollar, two above. */
export function formatUsd(usd: number): string {
  if (usd !== 0 && usd < 0.0001) return `$${usd.toFixed(6)}`;
  return `$${usd.toFixed(usd !== 0 && usd < 1 ? 4 : 2)}`;
}

/** Seconds as `850ms`, `4.2s` or `3m 05s`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 60) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, '0')}s`;
}

/** Token counts as `950`, `12.3k` or `1.2M`. */
export function formatTokens(tokens: number): string {
  if (tokens < 1000) return String(tokens);
  if (tokens < 1_000_000) return `${(tokens / 1000).toFixed(1)}k`;
  return `${(tokens / 1_000_000).toFixed(1)}M`;
}

/**
 * `2 turns, 12.3k tokens, $0.0310, 4.2s`; without the time if it is unknown. With children that cost something:
 * `$0.0310, $0.0520 with children`.
 */
export function formatCost(cost: SessionCost & Partial<FamilyCost>): string {
  const { total } = cost;
  return [
    `${cost.turns} turn${cost.turns === 1 ? '' : 's'}`,
    `${formatTokens(totalTokens(cost))} tokens`,
    formatUsd(cost.spend),
    ...(total === undefined || total.spend === cost.spend
      ? []
      : [`${formatUsd(total.spend)} with children`]),
    ...(cost.elapsed_seconds === undefined ? [] : [formatSeconds(cost.elapsed_seconds)]),
  ].join(', ');
}
