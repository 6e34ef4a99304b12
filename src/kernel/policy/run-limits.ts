import {
  eachLimit,
  type LimitName,
  type Limits,
  limitsForChild,
  type PartialLimits,
} from '../core/limits.ts';
import { type Cost, toMicroUsd, totalTokens, toUsd } from '../core/usage.ts';

/** The use of all runs of a thread together. */
export interface UsedLimits {
  readonly cost: Cost;
  /** USD that the thread and all below it spent, and that those below still hold. */
  readonly subtreeSpend: number;
  readonly spawns: number;
}

/** The limits of one more run. */
export interface RunLimits {
  /** The thread's limits from now on, as totals over its runs. */
  readonly total: Limits;
  /** The limits of this run. */
  readonly run: Limits;
}

/**
 * Returns the limits of the next run of a thread: the rest of its totals, or exactly the grant of a person, within
 * the parent's limits. Depth is not used up.
 */
export function limitsOfRun(
  limits: Limits,
  used: UsedLimits,
  grants: PartialLimits = {},
  parent?: Limits,
): RunLimits {
  const caps = parent && limitsForChild(parent);
  const before = amountsOf(used);
  const run = eachLimit((name) => {
    const left = Math.max(0, exact(name, limits[name] - before[name]));
    return Math.min(grants[name] ?? left, caps?.[name] ?? Number.POSITIVE_INFINITY);
  });
  return { total: eachLimit((name) => exact(name, before[name] + run[name])), run };
}

function amountsOf({ cost, subtreeSpend, spawns }: UsedLimits): Limits {
  return {
    turns: cost.turns,
    tokens: totalTokens(cost),
    spend: subtreeSpend,
    duration_seconds: cost.elapsed_seconds,
    spawns,
    depth: 0,
  };
}

/** Rounds a sum to the unit in which the limit is counted: micro-dollars, milliseconds, or one. */
function exact(name: LimitName, sum: number): number {
  if (name === 'spend') return toUsd(toMicroUsd(sum));
  return name === 'duration_seconds' ? Math.round(sum * 1000) / 1000 : sum;
}
