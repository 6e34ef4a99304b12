import { formatLocation, RyeError, type SourceLocation } from '../core/errors.ts';
import {
  eachLimit,
  LIMIT_NAMES,
  LIMITS,
  type LimitName,
  type Limits,
  limitsForChild,
  type PartialLimits,
  USED_LIMIT_NAMES,
  type UsedLimitName,
} from '../core/limits.ts';
import { didYouMean } from '../core/text.ts';
import {
  type Cost,
  type MicroUsd,
  NO_USAGE,
  type Pricing,
  priceMicroUsd,
  toMicroUsd,
  totalTokens,
} from '../core/usage.ts';

/** One limit as written. `name` may carry `max_`; numerals in text are accepted. */
export interface RawLimit {
  readonly name: string;
  readonly value: unknown;
  readonly location?: SourceLocation;
}

/** Limits of one source, and who set each one (`file:line` or an option). */
export interface LimitSource {
  readonly limits: PartialLimits;
  readonly origins: Readonly<Partial<Record<LimitName, string>>>;
}

/** The limits of a thread whose sources set none. */
export const SHIPPED_LIMITS: Limits = eachLimit((name) => LIMITS[name].shipped);

const NUMERAL = /^\d{1,15}(?:\.\d{1,9})?$/;

/**
 * Validates limits as written. `unknown_limit` for another name; `invalid_limit` for a value that is not a
 * non-negative finite number (whole but for spend and duration) and for a limit that is given twice.
 */
export function parseLimits(raw: readonly RawLimit[], source = 'limits'): LimitSource {
  const limits: Partial<Record<LimitName, number>> = {};
  const origins: Partial<Record<LimitName, string>> = {};
  for (const entry of raw) {
    const name = limitName(entry);
    if (limits[name] !== undefined) {
      throw new RyeError('invalid_limit', `the limit "${name}" is given twice`, {
        location: entry.location,
        hint: `Keep one of "${name}" and "max_${name}".`,
      });
    }
    limits[name] = limitValue(name, entry);
    origins[name] = entry.location === undefined ? source : formatLocation(entry.location);
  }
  return { limits, origins };
}

function limitName({ name, location }: RawLimit): LimitName {
  const bare = name.startsWith('max_') ? name.slice('max_'.length) : name;
  const known = LIMIT_NAMES.find((candidate) => candidate === bare);
  if (known !== undefined) return known;
  const valid = `Valid limits: ${LIMIT_NAMES.join(', ')}.`;
  const near = didYouMean(bare, LIMIT_NAMES);
  throw new RyeError('unknown_limit', `unknown limit "${name}"`, {
    location,
    hint: near === undefined ? valid : `${near} ${valid}`,
    details: { name, valid: [...LIMIT_NAMES] },
  });
}

function limitValue(name: LimitName, { value, location }: RawLimit): number {
  const number = typeof value === 'string' && NUMERAL.test(value) ? Number(value) : value;
  const problem = valueProblem(name, number);
  if (typeof number === 'number' && problem === undefined) return number;
  const shown = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? 'nothing');
  throw new RyeError('invalid_limit', `the limit "${name}" is ${shown}: ${problem ?? ''}`, {
    location,
    hint: `Give ${name} as a ${LIMITS[name].isWhole ? 'whole number' : 'number'} from 0 up.`,
  });
}

function valueProblem(name: LimitName, value: unknown): string | undefined {
  if (typeof value !== 'number') return 'it is not a number';
  if (!Number.isFinite(value)) return 'it is not finite';
  if (value < 0) return 'it is negative';
  if (LIMITS[name].isWhole && !Number.isInteger(value)) return 'it is not whole';
  const counted = name === 'spend' ? toMicroUsd(value) : value;
  return counted > Number.MAX_SAFE_INTEGER ? 'it is too large to be counted exactly' : undefined;
}

/** Sources that {@link resolveLimits} merges, weakest first; the parent caps. */
export interface LimitSources {
  readonly defaults: LimitSource;
  readonly directive: LimitSource;
  readonly overrides: LimitSource;
  /** Resolved limits from the parent's signed thread.json. */
  readonly parent?: { readonly thread_id: string; readonly limits: Limits };
}

/** Resolved limits, and for each one who set it. */
export interface ResolvedLimits {
  readonly limits: Limits;
  readonly origins: Readonly<Record<LimitName, string>>;
}

/**
 * Merges defaults → directive → overrides, then caps every limit by the parent's; depth by the parent's minus one.
 * `limit_depth` when the parent has no level left to give.
 */
export function resolveLimits(sources: LimitSources): ResolvedLimits {
  const { defaults, directive, overrides, parent } = sources;
  const limits: Record<LimitName, number> = { ...SHIPPED_LIMITS };
  const origins = Object.fromEntries(LIMIT_NAMES.map((name) => [name, 'shipped'])) as Record<
    LimitName,
    string
  >;
  for (const [layer, source] of Object.entries({ defaults, directive, overrides })) {
    for (const name of LIMIT_NAMES) {
      const value = source.limits[name];
      if (value === undefined) continue;
      limits[name] = value;
      origins[name] = source.origins[name] ?? layer;
    }
  }
  if (parent === undefined) return { limits, origins };
  for (const [name, cap] of parentCaps(parent.limits)) {
    if (cap < 0) {
      throw new RyeError(
        'limit_depth',
        `thread ${parent.thread_id} is at its depth limit and can't have children`,
        {
          hint: 'Raise the depth limit of the root thread, or let the parent do the work itself.',
          details: { name, current: 0, max: parent.limits.depth },
        },
      );
    }
    if (limits[name] <= cap) continue;
    limits[name] = cap;
    origins[name] = `parent ${parent.thread_id}`;
  }
  return { limits, origins };
}

function parentCaps(parent: Limits): readonly (readonly [LimitName, number])[] {
  return Object.entries(limitsForChild(parent)) as [LimitName, number][];
}

/** A limit that is used up. `spend` in USD. */
export interface LimitReached {
  readonly name: LimitName;
  readonly current: number;
  readonly max: number;
  /** USD that the cheapest next call may cost, and USD remaining for it: of the limit, or of a budget around it. */
  readonly short?: {
    readonly needed: number;
    readonly left: number;
    /** USD that running children hold, by thread. */
    readonly held?: readonly { readonly thread_id: string; readonly usd: number }[];
  };
  /** The limit was passed in the middle of an answer. */
  readonly in_answer?: boolean;
}

/** Returns the first limit, in the order of {@link LIMIT_NAMES}, that is used up before another turn. */
export function checkLimits(
  limits: Limits,
  used: { readonly cost: Cost; readonly elapsedSeconds: number },
): LimitReached | undefined {
  const current: Readonly<Record<UsedLimitName, number>> = {
    turns: used.cost.turns,
    tokens: totalTokens(used.cost),
    spend: used.cost.spend,
    duration_seconds: used.elapsedSeconds,
  };
  const name = USED_LIMIT_NAMES.find((limit) => current[limit] >= limits[limit]);
  return name && { name, current: current[name], max: limits[name] };
}

/**
 * Limits after a hook's escalation to `to`, which the parent's caps still bound. Undefined when that would leave no
 * more than there is now, so that an escalation can't loop without effect.
 */
export function escalateLimit(
  limits: Limits,
  request: { readonly name: LimitName; readonly to: number },
  parent?: Limits,
): Limits | undefined {
  const { name, to } = request;
  if (valueProblem(name, to) !== undefined) return undefined;
  const cap = parent === undefined ? to : new Map(parentCaps(parent)).get(name);
  const granted = Math.min(to, cap ?? to);
  return granted > limits[name] ? { ...limits, [name]: granted } : undefined;
}

/** Worst-case estimate of the next model call. */
export interface AffordableRequest {
  readonly remainingMicroUsd: MicroUsd;
  readonly inputTokens: number;
  readonly pricing: Pricing;
  /** Output tokens that the call would like to allow. */
  readonly wanted: number;
  /** Fewer output tokens than this are not worth a call. Default 256. */
  readonly minimum?: number;
}

/** Returns the maximum cost of a call: every input token at the highest of the input and cache prices. */
export function worstMicroUsd(
  { inputTokens, pricing }: Pick<AffordableRequest, 'inputTokens' | 'pricing'>,
  outputTokens: number,
): MicroUsd {
  const dearest = Math.max(pricing.input, pricing.cache_write ?? 0, pricing.cache_read ?? 0);
  return priceMicroUsd(
    { ...NO_USAGE, input_tokens: inputTokens, output_tokens: outputTokens },
    { input: dearest, output: pricing.output },
  );
}

/**
 * The `max_tokens` with which a call can't exceed the remaining budget, or undefined when not even the minimum
 * fits in the worst case.
 */
export function affordableMaxTokens(request: AffordableRequest): number | undefined {
  const { remainingMicroUsd, inputTokens, pricing, wanted, minimum = 256 } = request;
  const least = Math.min(minimum, wanted);
  const worst = (output: number): MicroUsd => worstMicroUsd({ inputTokens, pricing }, output);
  if (worst(wanted) <= remainingMicroUsd) return wanted;
  if (pricing.output <= 0) return undefined;
  const fitting = Math.floor((remainingMicroUsd - worst(0)) / pricing.output);
  // dividing may round one token up if the price is not exact in binary
  const affordable = worst(fitting) <= remainingMicroUsd ? fitting : fitting - 1;
  return affordable >= least ? affordable : undefined;
}
