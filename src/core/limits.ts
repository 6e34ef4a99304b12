/** Names of the limits, in the order in which they are checked. */
export const LIMIT_NAMES = [
  'turns',
  'tokens',
  'spend',
  'duration_seconds',
  'spawns',
  'depth',
] as const;
export type LimitName = (typeof LIMIT_NAMES)[number];

/** Resolved limits of a thread. `spend` is USD. */
export type Limits = Readonly<Record<LimitName, number>>;

/** Limits as one source declares them; absent means that the next source decides. */
export type PartialLimits = Readonly<Partial<Record<LimitName, number>>>;
