import {
  type CapabilityNeed,
  capabilityOf,
  capabilityProblem,
  VERBS,
  type Verb,
} from '../core/capability.ts';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { ITEM_TYPES, type ItemType } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';
import { globIntersection, globMatches } from './glob.ts';

const MAX_PATTERN_LENGTH = 256;
const MAX_STARS = 16;
const OPEN_END = '.*';

/**
 * Grants that lift the guard over what rye obeys. They are a separate class: no `*` of another grant reaches them,
 * so that a grant of "all tools" does not grant the removal of the guards.
 */
const GUARD_GRANT = /^rye\.execute\.tool\.rye\.file-system\.guarded(?:[.*]|$)/;

function isSameClass(one: string, other: string): boolean {
  return GUARD_GRANT.test(one) === GUARD_GRANT.test(other);
}

/** Replaces a pattern's `*` by a text that no literal of another pattern can match. */
type PlainGlob = string;

/**
 * Checks one written capability and gives its canonical form: `/` as `.`, no repeated `*`, no second `.*` at the
 * end. `permission_malformed` for an unknown verb or item type, `pattern_invalid` for the rest.
 */
export function parseCapability(text: string, location?: SourceLocation): string {
  const pattern = canonical(text.trim());
  const problem = capabilityProblem(pattern) ?? sizeProblem(pattern);
  if (problem === undefined) return pattern;
  const [root, verb = '', type = ''] = pattern.split('.');
  const misnamed =
    root !== 'rye' ||
    !['*', ...VERBS].includes(verb) ||
    (verb !== '*' && !['*', ...ITEM_TYPES].includes(type));
  const shown = JSON.stringify(text.length > MAX_PATTERN_LENGTH ? `${text.slice(0, 80)}…` : text);
  throw new RyeError(
    misnamed ? 'permission_malformed' : 'pattern_invalid',
    `${shown} is not a capability: ${problem}`,
    {
      hint:
        didYouMean(verb, VERBS) ??
        didYouMean(type, ITEM_TYPES) ??
        'Write it like rye.execute.tool.rye.bash.',
      location,
    },
  );
}

function sizeProblem(pattern: string): string | undefined {
  if (pattern.length > MAX_PATTERN_LENGTH)
    return `it is longer than ${MAX_PATTERN_LENGTH} characters`;
  const stars = pattern.split('*').length - 1;
  return stars > MAX_STARS ? `it has more than ${MAX_STARS} stars` : undefined;
}

/** Spellings that {@link canonical} replaces; a plan compares thousands of patterns that have none of them. */
const OTHER_SPELLING = /\/|\*\*|\*\.\*$/;

function canonical(pattern: string): string {
  if (!OTHER_SPELLING.test(pattern)) return pattern;
  const dotted = pattern.replaceAll('/', '.').replaceAll(/\*{2,}/g, '*');
  return dotted.replace(/\*(?:\.\*)+$/, '*');
}

/** The plain globs whose union a capability means: a trailing `.*` also covers the prefix itself. */
function plainGlobs(capability: string): readonly PlainGlob[] {
  const pattern = canonical(capability);
  return pattern.endsWith(OPEN_END) ? [pattern, pattern.slice(0, -OPEN_END.length)] : [pattern];
}

/** True if `wide` grants everything that `narrow` grants. */
export function includes(wide: string, narrow: string): boolean {
  if (!isSameClass(canonical(wide), canonical(narrow))) return false;
  const globs = plainGlobs(wide);
  return plainGlobs(narrow).every((text) => globs.some((glob) => globMatches(glob, text)));
}

/**
 * True if the grants allow a need. Holding `fetch` on anything of a type allows querying that type (the results are
 * filtered with {@link expandsTo}). A malformed grant allows nothing.
 */
export function covers(grants: readonly string[], need: CapabilityNeed): boolean {
  const wanted = capabilityOf(need);
  const isQuery = need.verb === 'fetch' && need.item_id === undefined;
  return grants.some((grant) => {
    if (!isCapability(grant)) return false;
    return coversText(grant, wanted) || (isQuery && meet(grant, `${wanted}.*`).length > 0);
  });
}

/** True if the grants allow to execute a tool. */
export function coversTool(grants: readonly string[], id: string): boolean {
  return covers(grants, { verb: 'execute', item_type: 'tool', item_id: id });
}

function isCapability(grant: string): boolean {
  return capabilityProblem(canonical(grant)) === undefined;
}

function coversText(grant: string, wanted: string): boolean {
  return (
    isSameClass(canonical(grant), wanted) &&
    plainGlobs(grant).some((glob) => globMatches(glob, wanted))
  );
}

/** Returns globs with no wildcard but `*`. A capability text is granted if it matches one of them. */
export function grantedGlobs(grants: readonly string[]): string[] {
  return grants.filter(isCapability).flatMap(plainGlobs);
}

/** The ids of `type` that `grants` allow `verb` on, in the order given. */
export function expandsTo(
  grants: readonly string[],
  verb: Verb,
  type: ItemType,
  ids: readonly string[],
): string[] {
  const usable = grants.filter(isCapability);
  return ids.filter((id) => {
    const wanted = capabilityOf({ verb, item_type: type, item_id: id });
    return usable.some((grant) => coversText(grant, wanted));
  });
}

/**
 * All maximal overlaps of two capabilities: their union grants exactly what both grant. Sorted. `pattern_invalid`
 * when two patterns with many `*` overlap in too many ways.
 */
export function meet(left: string, right: string): string[] {
  if (!isSameClass(canonical(left), canonical(right))) return [];
  if (includes(left, right)) return [canonical(right)];
  if (includes(right, left)) return [canonical(left)];
  const found = new Set<string>();
  for (const a of plainGlobs(left)) {
    for (const b of plainGlobs(right)) {
      // An overlap that ends in `.*` may be read as a capability again: its prefix is then granted by both sides.
      for (const overlap of globIntersection(a, b)) found.add(canonical(overlap));
    }
  }
  return maximal([...found]).toSorted();
}

/** Drops the patterns that another one includes; of equal ones the first stays. */
function maximal(patterns: readonly string[]): string[] {
  const kept: string[] = [];
  for (const pattern of patterns) {
    if (kept.some((other) => includes(other, pattern))) continue;
    const outer = kept.filter((other) => !includes(pattern, other));
    kept.splice(0, kept.length, ...outer, pattern);
  }
  return kept;
}

/**
 * Returns a child's capabilities: the intersection of its declared ones and its parent's. A parent with nothing gives
 * nothing. Malformed patterns on either side grant nothing.
 */
export function attenuate(
  childGrants: readonly string[],
  parentGrants: readonly string[],
): string[] {
  const parents = parentGrants.filter(isCapability);
  return maximal(
    childGrants
      .filter(isCapability)
      .flatMap((child) => parents.flatMap((parent) => meet(child, parent))),
  );
}

/** Returns the grants that exceed the ceilings. */
export function uncovered(grants: readonly string[], ceilings: readonly string[]): string[] {
  const bounds = ceilings.filter(isCapability);
  return grants.filter(
    (grant) =>
      !isCapability(grant) ||
      !plainGlobs(grant).every((part) => bounds.some((bound) => coversText(bound, part))),
  );
}

/**
 * Ranks a capability by how specific it is, larger is more specific: its literal characters, and among equals fewer `*`. It
 * agrees with inclusion: a pattern that another one includes is never less specific.
 */
export function specificity(capability: string): number {
  const pattern = canonical(capability);
  const stars = pattern.split('*').length - 1;
  const openEnd = pattern.endsWith(OPEN_END) ? 1 : 0;
  return (pattern.length - stars - openEnd) * (MAX_STARS + 1) - stars;
}

/** True if a capability names exactly one item, without any `*`. */
export function isExact(capability: string): boolean {
  return !capability.includes('*');
}

/** `mcp/<server>/…` of a capability. */
const SERVER_GRANT = /^rye\.execute\.tool\.mcp\.([^.*]+)\./;

/** Returns the MCP server that a capability names; undefined if it names none. */
export function namedServer(capability: string): string | undefined {
  return SERVER_GRANT.exec(capability)?.[1];
}
