interface LimitRule {
  /** The unit, if the name does not state it. */
  readonly unit?: string;
  /** True if only whole numbers make sense. */
  readonly isWhole: boolean;
  /** The limit of a thread whose sources set none. */
  readonly shipped: number;
  /** A child gets at most its parent's limit minus this. Default: 0. */
  readonly lessForChild?: number;
  /** Begins the sentence that it is reached. */
  readonly title: string;
  /** One of it, if it is no money. */
  readonly one?: string;
  /** Names the rest of a limit that runs use up: a thread without any of it cannot continue. Absent: none uses it up. */
  readonly left?: string;
}

/**
 * Every limit, in the order in which they are checked. A new limit needs a row here, an error code `limit_<name>` and,
 * if it is used up, its count in `checkLimits`. Everything else derives from this table.
 */
const LIMIT_RULES = {
  turns: { isWhole: true, shipped: 25, title: 'Turn', one: 'turn', left: 'turns' },
  tokens: { isWhole: true, shipped: 1_000_000, title: 'Token', one: 'token', left: 'tokens' },
  spend: { unit: 'USD', isWhole: false, shipped: 5, title: 'Spend', left: 'budget' },
  duration_seconds: { isWhole: false, shipped: 1800, title: 'Time', one: 'second', left: 'time' },
  spawns: { isWhole: true, shipped: 50, title: 'Spawn', one: 'spawn' },
  depth: { isWhole: true, shipped: 10, title: 'Depth', one: 'level', lessForChild: 1 },
} as const satisfies Readonly<Record<string, LimitRule>>;

export type LimitName = keyof typeof LIMIT_RULES;
/** Limits that a run uses up. */
export type UsedLimitName = {
  [N in LimitName]: (typeof LIMIT_RULES)[N] extends { readonly left: string } ? N : never;
}[LimitName];

export const LIMITS: Readonly<Record<LimitName, LimitRule>> = LIMIT_RULES;
/** Names of the limits, in the order in which they are checked. */
export const LIMIT_NAMES = Object.keys(LIMIT_RULES) as readonly LimitName[];
export const USED_LIMIT_NAMES = LIMIT_NAMES.filter(
  (name): name is UsedLimitName => LIMITS[name].left !== undefined,
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
  return eachLimit((name) => parent[name] - (LIMITS[name].lessForChild ?? 0));
}

/** Returns stored limits with the default for each limit that did not exist when they were stored. */
export function completeLimits(stored: PartialLimits): Limits {
  return { ...stored, ...eachLimit((name) => stored[name] ?? LIMITS[name].shipped) };
}
