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
  /** USD, rounded to micro-dollars: all that counts against the limit. */
  readonly spend: number;
  /** The part of `spend` that no provider counted: an upper bound for calls that a crash cut. Absent: none. */
  readonly estimated_spend_usd?: number;
  readonly elapsed_seconds: number;
}

/** The part of a cost that adds up over threads. */
export interface CostShare {
  /** USD, rounded to micro-dollars. */
  readonly spend: number;
  /** The part of `spend` that is an upper bound instead of a count. Absent: none. */
  readonly estimated_spend_usd?: number;
  readonly tokens: number;
  readonly turns: number;
}

/** The cost of a thread, and of all threads that it started, directly or through others. */
export interface FamilyCost extends Cost {
  readonly own: CostShare;
  /** `own` and every child as far as it is known: one that still runs adds to it later. */
  readonly total: CostShare;
}

/** Adds what a thread used itself to the totals of its children: the one sum of a family. */
export function familyCostOf(cost: Cost, children: readonly CostShare[]): FamilyCost {
  const own = shareOf(cost);
  return { ...cost, own, total: children.reduce(addShare, own) };
}

function shareOf(cost: Cost): CostShare {
  return { ...spendOf(cost), tokens: totalTokens(cost), turns: cost.turns };
}

/** USD, and the part of it that is an upper bound. */
export type Spent = Pick<CostShare, 'spend' | 'estimated_spend_usd'>;

function spendOf({ spend, estimated_spend_usd: estimate }: Spent): Spent {
  return { spend, ...estimatedSpend(toMicroUsd(estimate ?? 0)) };
}

/** Returns the member of a cost that holds an estimate; nothing if there is none. */
export function estimatedSpend(micro: MicroUsd): Pick<Spent, 'estimated_spend_usd'> {
  return micro > 0 ? { estimated_spend_usd: toUsd(micro) } : {};
}

/** Adds money exactly. */
export function addSpend(left: Spent, right: Spent): Spent {
  const [one, other] = [left.estimated_spend_usd ?? 0, right.estimated_spend_usd ?? 0];
  return {
    spend: toUsd(toMicroUsd(left.spend) + toMicroUsd(right.spend)),
    ...estimatedSpend(toMicroUsd(one) + toMicroUsd(other)),
  };
}

function addShare(left: CostShare, right: CostShare): CostShare {
  return {
    ...addSpend(left, right),
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

/**
 * Returns the later of two counts of one answer. Counts are cumulative, and a smaller one erases none. The tokens of a prompt
 * are one count: what was first counted as new may later be known as read from a cache.
 */
export function laterUsage(before: Usage, later: Usage): Usage {
  const prompt = promptTokens(later) < promptTokens(before) ? before : later;
  return { ...prompt, output_tokens: Math.max(before.output_tokens, later.output_tokens) };
}

/** All tokens of a prompt. */
export function promptTokens({
  input_tokens,
  cache_read_tokens,
  cache_write_tokens,
}: Omit<Usage, 'output_tokens'>): number {
  return input_tokens + cache_read_tokens + cache_write_tokens;
}

/** Adds the costs of two threads or runs. */
export function addCost(left: Cost, right: Cost): Cost {
  return {
    ...addUsage(left, right),
    turns: left.turns + right.turns,
    ...addSpend(left, right),
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
    ...estimatedSpend(
      toMicroUsd(total.estimated_spend_usd ?? 0) - toMicroUsd(before.estimated_spend_usd ?? 0),
    ),
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
  if (usd === 0) return '$0.00';
  if (usd > 0 && usd < 0.000_000_5) return '< $0.000001';
  // by the rounded value: 0.99996 is $1.00, not $1.0000
  if (Math.round(usd * 1_000_000) < 100) return `$${usd.toFixed(6)}`;
  return `$${usd.toFixed(Math.round(usd * 10_000) < 10_000 ? 4 : 2)}`;
}

/** Formats money, with `≤` if a part of it is an upper bound. */
export function formatSpend(
  { spend, estimated_spend_usd: estimate = 0 }: Spent,
  format: (usd: number) => string = formatUsd,
): string {
  return `${estimate > 0 ? '≤ ' : ''}${format(spend)}`;
}

/** Seconds as `850ms`, `4.2s`, `3m 05s` or `25h 01m`. */
export function formatSeconds(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  if (milliseconds < 1000) return `${milliseconds}ms`;
  const tenths = Math.round(seconds * 10);
  if (tenths < 600) return `${(tenths / 10).toFixed(1)}s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m ${String(whole % 60).padStart(2, '0')}s`;
  return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, '0')}m`;
}

/** Token counts as `950`, `12.3k`, `1.2M` or `3.4B`. */
export function formatTokens(tokens: number): string {
  if (tokens < 1000) return String(tokens);
  const units = { k: 1000, M: 1_000_000, B: 1_000_000_000 };
  for (const [unit, size] of Object.entries(units)) {
    const tenths = Math.round((tokens / size) * 10);
    if (tenths < 10_000 || unit === 'B') return `${(tenths / 10).toFixed(1)}${unit}`;
  }
  return String(tokens);
}

/**
 * `2 turns, 12.3k tokens, $0.0310, 4.2s`; without the time if it is unknown. With children that cost something:
 * `$0.0310, $0.0520 with children`.
 */
export function formatCost(cost: SessionCost & Partial<FamilyCost>): string {
  return costFacts(cost).join(', ');
}

/** Returns the parts of {@link formatCost}. */
export function costFacts(cost: SessionCost & Partial<FamilyCost>): readonly string[] {
  const { total } = cost;
  return [
    `${cost.turns} turn${cost.turns === 1 ? '' : 's'}`,
    `${formatTokens(totalTokens(cost))} tokens`,
    formatSpend(cost),
    ...(total === undefined || total.spend === cost.spend
      ? []
      : [`${formatSpend(total)} with children`]),
    ...(cost.elapsed_seconds === undefined ? [] : [formatSeconds(cost.elapsed_seconds)]),
  ];
}
