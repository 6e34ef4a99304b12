import type { JsonObject, JsonValue } from '../core/json.ts';
import { LIMIT_NAMES, LIMITS } from '../core/limits.ts';
import { didYouMean } from '../core/text.ts';

/** A configuration value in which every node has its origin (`file:line`). */
export type ConfigNode =
  | {
      readonly kind: 'map';
      readonly members: ReadonlyMap<string, ConfigNode>;
      readonly origin: string;
    }
  | { readonly kind: 'list'; readonly items: readonly ConfigNode[]; readonly origin: string }
  | {
      readonly kind: 'scalar';
      readonly value: string | number | boolean | null;
      readonly origin: string;
    };

/** A merged configuration. `origins` maps the dotted path of every leaf to its `file:line`. */
export interface LoadedConfig {
  readonly value: JsonObject;
  readonly origins: ReadonlyMap<string, string>;
  /** True for a file that rye ships and that nothing changes here: the build has checked it. */
  readonly isShipped?: boolean;
}

export const EMPTY_MAP: ConfigNode = { kind: 'map', members: new Map(), origin: 'default' };

/**
 * Lays `upper` over `lower`: maps merge by member; a list whose first element has an `id` merges by it, replacing
 * whole elements in place and appending new ones; everything else is replaced.
 */
export function mergeConfig(lower: ConfigNode, upper: ConfigNode): ConfigNode {
  if (lower.kind === 'map' && upper.kind === 'map') {
    const members = new Map(lower.members);
    for (const [name, node] of upper.members) {
      const below = members.get(name);
      members.set(name, below === undefined ? node : mergeConfig(below, node));
    }
    return { kind: 'map', members, origin: upper.origin };
  }
  if (lower.kind === 'list' && upper.kind === 'list' && idOf(upper.items[0]) !== undefined) {
    return { kind: 'list', items: mergeById(lower.items, upper.items), origin: upper.origin };
  }
  return upper;
}

function mergeById(
  lower: readonly ConfigNode[],
  upper: readonly ConfigNode[],
): readonly ConfigNode[] {
  const merged = [...lower];
  for (const item of upper) {
    const id = idOf(item);
    const index = id === undefined ? -1 : merged.findIndex((below) => idOf(below) === id);
    if (index === -1) merged.push(item);
    else merged[index] = item;
  }
  return merged;
}

function idOf(node: ConfigNode | undefined): string | undefined {
  const id = node?.kind === 'map' ? node.members.get('id') : undefined;
  return id?.kind === 'scalar' && typeof id.value === 'string' ? id.value : undefined;
}

/**
 * Returns `upper` without its sections that have no value, such as one whose last line was commented out: it changes nothing of the one
 * below.
 */
export function withoutEmptySections(lower: ConfigNode, upper: ConfigNode): ConfigNode {
  if (lower.kind !== 'map' || upper.kind !== 'map') return upper;
  const members = [...upper.members].flatMap(([name, node]) => {
    const below = lower.members.get(name);
    if (below === undefined || below.kind === 'scalar') return [[name, node] as const];
    const isEmpty = node.kind === 'scalar' && node.value === null;
    return isEmpty ? [] : [[name, withoutEmptySections(below, node)] as const];
  });
  return { ...upper, members: new Map(members) };
}

const CLASSIFICATIONS = 'classifications';

/**
 * Puts the rows of the lower risk table after the rows of the upper one, without the patterns that the upper one classifies: a
 * table of one row must not make everything else unclassified.
 */
export function withLowerRows(lower: ConfigNode, upper: ConfigNode): ConfigNode {
  const below = membersOf(lower).get(CLASSIFICATIONS);
  const above = membersOf(upper).get(CLASSIFICATIONS);
  if (upper.kind !== 'map' || below?.kind !== 'list' || above?.kind !== 'list') return upper;
  const known = new Set(above.items.flatMap(patternsOf));
  const rest = below.items.flatMap((row): readonly ConfigNode[] => {
    const patterns = membersOf(row).get('patterns');
    if (row.kind !== 'map' || patterns?.kind !== 'list') return [row];
    const items = patterns.items.filter((one) => one.kind !== 'scalar' || !known.has(one.value));
    const members = new Map(row.members).set('patterns', { ...patterns, items });
    return items.length === 0 ? [] : [{ ...row, members }];
  });
  const rows: ConfigNode = { ...above, items: [...above.items, ...rest] };
  return { ...upper, members: new Map(upper.members).set(CLASSIFICATIONS, rows) };
}

function patternsOf(row: ConfigNode) {
  const patterns = membersOf(row).get('patterns');
  return patterns?.kind === 'list'
    ? patterns.items.flatMap((one) => (one.kind === 'scalar' ? [one.value] : []))
    : [];
}

/** Converts a node to a JSON value and the origins of its leaves; empty lists and maps are leaves too. */
export function flattenConfig(root: ConfigNode): LoadedConfig {
  const origins = new Map<string, string>();
  const toJson = (node: ConfigNode, path: string): JsonValue => {
    const below = (name: string | number): string =>
      path === '' ? String(name) : `${path}.${name}`;
    if (node.kind === 'map' && (node.members.size > 0 || path === '')) {
      return Object.fromEntries(
        [...node.members].map(([name, member]) => [name, toJson(member, below(name))]),
      );
    }
    if (node.kind === 'list' && node.items.length > 0) {
      return node.items.map((item, index) => toJson(item, below(index)));
    }
    origins.set(path, node.origin);
    if (node.kind === 'scalar') return node.value;
    return node.kind === 'list' ? [] : {};
  };
  const value = root.kind === 'map' ? (toJson(root, '') as JsonObject) : {};
  return { value, origins };
}

/** Converts a value that does not come from a file to a node; every leaf has the same origin. */
export function configNodeOf(value: JsonValue | undefined, origin: string): ConfigNode {
  if (Array.isArray(value)) {
    return {
      kind: 'list',
      items: value.map((item: JsonValue) => configNodeOf(item, origin)),
      origin,
    };
  }
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(
      ([name, member]) => [name, configNodeOf(member, origin)] as const,
    );
    return { kind: 'map', members: new Map(members), origin };
  }
  return { kind: 'scalar', value: value ?? null, origin };
}

/** Returns a map that contains one node at a path. */
export function nestConfig(path: readonly string[], node: ConfigNode): ConfigNode {
  return path.reduceRight<ConfigNode>(
    (inner, name) => ({ kind: 'map', members: new Map([[name, inner]]), origin: inner.origin }),
    node,
  );
}

/** Lowers the limits of a configuration to the limits in a file that is otherwise ignored. Ignores what would raise one. */
export function lowerLimits(config: ConfigNode, ignored: ConfigNode): ConfigNode {
  const limits = membersOf(membersOf(config).get('limits'));
  const lower = LIMIT_NAMES.flatMap((name): readonly (readonly [string, ConfigNode])[] => {
    const given = membersOf(membersOf(ignored).get('limits'));
    const node = given.get(name) ?? given.get(`max_${name}`);
    const amount = amountOf(node);
    const value = LIMITS[name].isWhole ? Math.floor(amount) : amount;
    if (node === undefined || !(value >= 0 && value < amountOf(limits.get(name)))) return [];
    return [[name, { kind: 'scalar', value, origin: node.origin }]];
  });
  if (lower.length === 0) return config;
  const members = new Map(lower);
  return mergeConfig(config, nestConfig(['limits'], { kind: 'map', members, origin: 'limits' }));
}

/** Returns the members of a map; none for another node. */
export function membersOf(node: ConfigNode | undefined): ReadonlyMap<string, ConfigNode> {
  return node?.kind === 'map' ? node.members : new Map();
}

/** Returns the number in a node; NaN if it has none. */
export function amountOf(node: ConfigNode | undefined): number {
  if (node?.kind !== 'scalar' || node.value === null || node.value === '') return Number.NaN;
  return Number(node.value);
}

/** One `key=value` of the command line. */
export interface ConfigOverride {
  readonly key: string;
  readonly value: string;
}

/**
 * Returns the path of the member that an override sets; undefined if the override is for another file. A key is the path
 * of the file and of the member with dots: `agent.resilience.limits.turns`. The folder `agent` is optional.
 */
export function overridePath(name: string, key: string): readonly string[] | undefined {
  const prefix = overridePrefix(name, key);
  return prefix === undefined ? undefined : key.slice(prefix.length + 1).split('.');
}

/** Returns the name of the file that a key belongs to: of several, the one with the longest name. */
export function overriddenFile(names: readonly string[], key: string): string | undefined {
  return names
    .filter((name) => overridePrefix(name, key) !== undefined)
    .toSorted((one, other) => one.length - other.length)
    .at(-1);
}

function overridePrefix(name: string, key: string): string | undefined {
  const file = name.replaceAll('/', '.');
  const short = file.startsWith('agent.') ? file.slice('agent.'.length) : file;
  return [file, short].find(
    (prefix) => key.startsWith(`${prefix}.`) && key.length > prefix.length + 1,
  );
}

/** Files that count only as they are signed: no option changes who is trusted, who decides, and what guards. */
export const SIGNED_ONLY: ReadonlySet<string> = new Set([
  'agent/approvals',
  'agent/hooks',
  'plugins',
  'schedules',
  'trust',
]);

const POWER_FILES = new Set([
  'agent/approvals',
  'agent/hooks',
  'agent/hook_conditions',
  'agent/mcp',
  'agent/capability_risk',
  'agent/resilience',
  'agent/coordination',
  'agent/prices',
  'agent/rules',
  'agent/tools',
  'interpolation',
  'mcp',
  'plugins',
  'schedules',
  'store',
  'tools',
  'trust',
]);

/**
 * True for files that can send secrets elsewhere, start programs or loosen a bound: providers (base URL, headers, key
 * name), hooks, MCP servers, risk, limits, transcript strictness, sandbox, readable environment variables, plug-ins, schedules, the store,
 * trust. In a project they count only if a key that the user trusts signed them.
 */
export function isPowerFile(name: string): boolean {
  return POWER_FILES.has(name) || name.startsWith('agent/providers/') || name.startsWith('mcp/');
}

/** Files whose shipped version lists every setting, with the mappings in them that other code validates. */
const CLOSED_FILES: Readonly<Record<string, readonly string[]>> = {
  'agent/agent': [],
  'agent/coordination': [],
  'agent/resilience': ['limits', 'behavior'],
  'agent/rules': [],
  interpolation: [],
  store: [],
  trust: [],
};

/** A setting that rye does not know. */
export interface UnknownSetting {
  readonly path: string;
  readonly origin: string;
  readonly hint: string | undefined;
}

/**
 * Returns the members of `layer` that the shipped file does not have, because a misspelled limit would not be enforced.
 * Returns none for files with free member names.
 */
export function unknownSettings(
  name: string,
  shipped: ConfigNode,
  layer: ConfigNode,
): readonly UnknownSetting[] {
  const open = Object.hasOwn(CLOSED_FILES, name) ? CLOSED_FILES[name] : undefined;
  if (open === undefined) return [];
  const found: UnknownSetting[] = [];
  const find = (known: ConfigNode, node: ConfigNode, path: string): void => {
    if (known.kind !== 'map' || node.kind !== 'map' || open.includes(path)) return;
    for (const [key, member] of node.members) {
      const full = path === '' ? key : `${path}.${key}`;
      const below = known.members.get(key);
      if (below !== undefined) find(below, member, full);
      else {
        const hint = didYouMean(key, known.members.keys());
        found.push({ path: full, origin: member.origin, hint });
      }
    }
  };
  find(shipped, layer, '');
  return found;
}

/** A value with its line: a scalar, a list of such values, or a map of them. */
export type KeptNode = readonly [
  line: number,
  value: string | number | boolean | null | readonly KeptNode[] | KeptMap,
];
interface KeptMap {
  readonly [name: string]: KeptNode;
}

/** The meaning of a configuration file: its value, and the same with the line of each part. */
export interface ConfigMeaning {
  readonly value: JsonObject;
  readonly node: KeptNode;
}

/** Returns the meaning of a file that was read from this path. */
export function configMeaning(node: ConfigNode, path: string): ConfigMeaning {
  return { value: flattenConfig(node).value, node: freezeConfig(node, path) };
}

/** Returns a file that rye ships as it is in effect with nothing over it. */
export function shippedConfig({ value, node }: ConfigMeaning, path: string): LoadedConfig {
  let origins: LoadedConfig['origins'] | undefined;
  return {
    value,
    isShipped: true,
    // only messages about a mistake need them
    get origins() {
      origins ??= flattenConfig(thawConfig(node, path)).origins;
      return origins;
    },
  };
}

/** A parsed file as it is kept: without its path, which differs from one project to the next. The line is 0 for a file without members. */
function freezeConfig(node: ConfigNode, path: string): KeptNode {
  const line = Number(node.origin.slice(path.length + 1));
  if (node.kind === 'scalar') return [line, node.value];
  if (node.kind === 'list') return [line, node.items.map((item) => freezeConfig(item, path))];
  const members = [...node.members].map(([name, member]) => [name, freezeConfig(member, path)]);
  return [line, Object.fromEntries(members) as KeptMap];
}

/** Returns the parsed file, as if it was read from this path. */
export function thawConfig([line, value]: KeptNode, path: string): ConfigNode {
  const origin = line === 0 ? path : `${path}:${line}`;
  if (typeof value !== 'object' || value === null) return { kind: 'scalar', value, origin };
  if (isList(value)) {
    return { kind: 'list', items: value.map((item) => thawConfig(item, path)), origin };
  }
  const members = Object.entries(value).map(
    ([name, member]) => [name, thawConfig(member, path)] as const,
  );
  return { kind: 'map', members: new Map(members), origin };
}

function isList(value: readonly KeptNode[] | KeptMap): value is readonly KeptNode[] {
  return Array.isArray(value);
}
