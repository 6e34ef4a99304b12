import { RyeError } from '../core/errors.ts';
import { LIMIT_NAMES, type LimitName, type Limits, type PartialLimits } from '../core/limits.ts';
import type { LimitSource, ResolvedLimits } from './limits.ts';

/** The limits of a thread. */
export interface GrantedLimits extends ResolvedLimits {
  /** The limits of a root without overrides; absent if there are none. */
  readonly granted?: Limits;
  /** The grant of each limit that was raised above it. */
  readonly raised?: PartialLimits;
}

/** Limits from outside of the signed files, and what bounds them. */
export interface LimitRequest {
  readonly directiveId: string;
  /** The grant of the directive and the configuration. */
  readonly granted: Limits;
  /** The place of each grant, for messages. */
  readonly origins: Readonly<Partial<Record<LimitName, string>>>;
  readonly wanted: PartialLimits;
  /** `limits.ceiling` of the signed configuration. */
  readonly ceiling: LimitSource;
  /** True if the caller asks to go above what is granted. */
  readonly mayRaise: boolean;
}

/**
 * Checks limits of the command line or the program: each may be lower than what is granted, higher up to the ceiling, or,
 * without a ceiling, higher with `mayRaise`. Returns what was granted for each limit that only `mayRaise` allowed. Throws
 * `ceiling_exceeded` or `raise_limits_required`.
 */
export function checkRaises(request: LimitRequest): PartialLimits {
  const { granted, wanted, ceiling, mayRaise } = request;
  const raised = LIMIT_NAMES.filter((name) => (wanted[name] ?? 0) > granted[name]);
  const free = raised.filter((name) => ceiling.limits[name] === undefined);
  for (const name of raised) assertBelowCeiling(name, request);
  const [first] = free;
  if (first !== undefined && !mayRaise) throw raiseRefused(first, request);
  return Object.fromEntries(free.map((name) => [name, granted[name]]));
}

function assertBelowCeiling(name: LimitName, { wanted, ceiling, directiveId }: LimitRequest): void {
  const [value, cap] = [wanted[name] ?? 0, ceiling.limits[name]];
  if (cap === undefined || value <= cap) return;
  const origin = ceiling.origins[name] ?? 'the configuration';
  throw new RyeError(
    'ceiling_exceeded',
    `${name}=${value} exceeds the ceiling of ${amount(name, cap)} (${origin})`,
    {
      hint: `Pass at most ${name}=${cap}. Only the signed configuration can raise a ceiling.`,
      details: { directive: directiveId, limit: name, requested: value, ceiling: cap, origin },
    },
  );
}

function raiseRefused(
  name: LimitName,
  { wanted, granted, origins, directiveId }: LimitRequest,
): RyeError {
  const value = wanted[name] ?? 0;
  const origin = origins[name] ?? 'the configuration';
  return new RyeError(
    'raise_limits_required',
    `${name}=${value} exceeds the ${amount(name, granted[name])} that ${directiveId} allows (${origin})`,
    {
      hint: `Pass at most ${name}=${granted[name]}, or add --raise-limits, which the log records.`,
      details: { directive: directiveId, limit: name, requested: value, granted: granted[name] },
    },
  );
}

/** Formats a limit for people: `$0.50`, `25`. */
function amount(name: LimitName, value: number): string {
  if (name !== 'spend') return String(value);
  return Number.isInteger(value * 100) ? `$${value.toFixed(2)}` : `$${value}`;
}
