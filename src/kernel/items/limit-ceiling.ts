import { RyeError } from '../core/errors.ts';
import { LIMIT_NAMES } from '../core/limits.ts';
import { amountOf, type ConfigNode, membersOf } from './config.ts';

/** The configuration file that has the limits. */
export const LIMITS_FILE = 'agent/resilience';
const LIMITS = 'limits';
const CEILING = 'ceiling';

/** Returns a limits file without its ceilings: only a trusted signature makes them count. */
export function withoutCeiling(file: ConfigNode): ConfigNode {
  const limits = membersOf(file).get(LIMITS);
  if (file.kind !== 'map' || limits?.kind !== 'map' || !limits.members.has(CEILING)) return file;
  const members = new Map(limits.members);
  members.delete(CEILING);
  return { ...file, members: new Map(file.members).set(LIMITS, { ...limits, members }) };
}

export function hasCeiling(file: ConfigNode): boolean {
  return membersOf(membersOf(file).get(LIMITS)).has(CEILING);
}

/**
 * Returns a limits file with one spelling of each limit, and without the limits that have no value: such a line lifts nothing. A
 * limit that is written twice stays so, which is an error later.
 */
export function withPlainLimits(file: ConfigNode): ConfigNode {
  const limits = membersOf(file).get(LIMITS);
  if (file.kind !== 'map' || limits?.kind !== 'map') return file;
  const members = new Map(plainMembers(limits));
  const ceiling = members.get(CEILING);
  if (ceiling?.kind === 'map') {
    members.set(CEILING, { ...ceiling, members: new Map(plainMembers(ceiling)) });
  }
  return { ...file, members: new Map(file.members).set(LIMITS, { ...limits, members }) };
}

function plainMembers({
  members,
}: Extract<ConfigNode, { kind: 'map' }>): readonly (readonly [string, ConfigNode])[] {
  return [...members].flatMap(([name, node]) => {
    if (node.kind === 'scalar' && node.value === null) return [];
    const bare = name.replace(/^max_/, '');
    const isAlias = LIMIT_NAMES.some((one) => one === bare) && !members.has(bare);
    return [[isAlias ? bare : name, node]] as const;
  });
}

/** Returns the upper file with, for each limit, the lower one of both ceilings. */
export function withLowestCeiling(lower: ConfigNode, upper: ConfigNode): ConfigNode {
  const below = ceilingOf(lower);
  const above = ceilingOf(upper);
  const limits = membersOf(upper).get(LIMITS);
  const isBoth = upper.kind === 'map' && limits?.kind === 'map' && below.size > 0 && above.size > 0;
  if (!isBoth) return upper;
  const members = new Map(above);
  for (const [name, node] of below) {
    const other = above.get(name);
    if (other !== undefined && amountOf(other) > amountOf(node)) members.set(name, node);
  }
  const ceiling: ConfigNode = { kind: 'map', members, origin: upper.origin };
  const inner: ConfigNode = { ...limits, members: new Map(limits.members).set(CEILING, ceiling) };
  return { ...upper, members: new Map(upper.members).set(LIMITS, inner) };
}

function ceilingOf(file: ConfigNode): ReadonlyMap<string, ConfigNode> {
  return membersOf(membersOf(membersOf(file).get(LIMITS)).get(CEILING));
}

/**
 * Refuses a `-c` that would loosen a limit: the command line is not signed. It may lower default limits; raising one takes
 * `--limit` with `--raise-limits`, and no option sets a ceiling. Throws `raise_limits_required`.
 */
export function assertOnlyLowers(
  file: ConfigNode,
  key: string,
  [first, name = '']: readonly string[],
  value: ConfigNode,
): void {
  if (first !== LIMITS) return;
  if (name === '' && value.kind !== 'map') {
    throw new RyeError('usage', `-c ${key} has no limits`, {
      hint: `Name one: -c ${key}.turns=10`,
    });
  }
  const given = name === '' ? membersOf(value) : new Map([[name, value]]);
  for (const [written, node] of given) {
    const bare = written.replace(/^max_/, '');
    if (bare === CEILING) {
      throw new RyeError('raise_limits_required', `-c ${key}: an option can't set a ceiling`, {
        hint: `Write it to .ai/config/${LIMITS_FILE}.yaml and sign it: rye sign config ${LIMITS_FILE}`,
      });
    }
    const limit = LIMIT_NAMES.find((one) => one === bare);
    const now = limit && amountOf(membersOf(membersOf(file).get(LIMITS)).get(limit));
    if (now === undefined || !(amountOf(node) > now)) continue;
    throw new RyeError('raise_limits_required', `-c ${key} exceeds the configured ${bare}=${now}`, {
      hint: `Pass --limit ${bare}=N with --raise-limits, which the log records.`,
    });
  }
}
