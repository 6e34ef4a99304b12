interface LimitRule {
  /** The unit, if the name does not state it. */
  readonly unit?: string;
  /** True if only whole numbers make sense. */
  readonly isWhole: boolean;
  /** The limit of a thread whose sources set none. */
  readonly shipped: number;
  /** True if a run uses the limit up, so that a thread without any of it left cannot continue. */
  readonly isUsedUp: boolean;
  /** A child gets at most its parent's limit minus this. */
  readonly lessForChild: number;
}

/**
 * Every limit, in the order in which they are checked. A new limit needs a row here, an error code `limit_<name>` and,
 * if it is used up, its count in `checkLimits`. Everything else derives from this table.
 */
const LIMIT_RULES = {
  turns: { isWhole: true, shipped: 25, isUsedUp: true, lessForChild: 0 },
  tokens: { isWhole: true, shipped: 1_000_000, isUsedUp: true, lessForChild: 0 },
  spend: { unit: 'USD', isWhole: false, shipped: 5, isUsedUp: true, lessForChild: 0 },
  duration_seconds: { isWhole: false, shipped: 1800, isUsedUp: true, lessForChild: 0 },
  spawns: { isWhole: true, shipped: 50, isUsedUp: false, lessForChild: 0 },
  depth: { isWhole: true, shipped: 10, isUsedUp: false, lessForChild: 1 },
} as const satisfies Readonly<Record<string, LimitRule>>;

export type LimitName = keyof typeof LIMIT_RULES;
/** Limits that a run uses up. */
export type UsedLimitName = {
  [N in LimitName]: (typeof LIMIT_RULES)[N]['isUsedUp'] extends true ? N : never;
}[LimitName];

export const LIMITS: Readonly<Record<LimitName, LimitRule>> = LIMIT_RULES;
/** Names of the limits, in the order in which they are checked. */
export const LIMIT_NAMES = Object.keys(LIMIT_RULES) as readonly LimitName[];
export const USED_LIMIT_NAMES = LIMIT_NAMES.filter(
  (name): name is UsedLimitName => LIMITS[name].isUsedUp,
);

/** Resolved limits of a thread. `spend` is USD. */
export type Limits = Readonly<Record<LimitName, number>>;

/** Limits as one source declares them; absent means that the next source decides. */
export type PartialLimits = Readonly<Partial<Record<LimitName, number>>>;

/** Builds a value for each limit. */
export function eachLimit<T>(make: (name: LimitName) => T): Readonly<Record<LimitName, T>> {
  return Object.fromEntries(LIMIT_NAMES.map((name) => [name, make(name)])) as Record<LimitName, T>;
}

/** Returns the most that a child of a thread with these limits may get. */
export function limitsForChild(parent: Limits): Limits {
  return eachLimit((name) => parent[name] - LIMITS[name].lessForChild);
}

/** Returns stored limits with the default for each limit that did not exist when they were stored. */
export function completeLimits(stored: PartialLimits): Limits {
  return { ...stored, ...eachLimit((name) => stored[name] ?? LIMITS[name].shipped) };
}
