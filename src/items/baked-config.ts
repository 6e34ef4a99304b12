import type { ConfigNode } from './config.ts';

/** A value with the line that it stands on: a scalar, a list of such values, or a map of them. */
export type BakedNode = readonly [
  line: number,
  value: string | number | boolean | null | readonly BakedNode[] | BakedMap,
];
interface BakedMap {
  readonly [name: string]: BakedNode;
}

/** Put in place of this name by the build and the test runner; see `scripts/define.mjs`. */
declare const __RYE_SYSTEM_CONFIG__: string;

let baked: Readonly<Record<string, BakedNode>> | undefined;

/**
 * What the file with this SHA-256 says, when it is a configuration file that rye ships: those are parsed when rye is
 * built, because parsing them is a large part of starting a thread. Undefined for all other bytes.
 */
export function bakedConfig(sha256: string, path: string): ConfigNode | undefined {
  if (typeof __RYE_SYSTEM_CONFIG__ === 'undefined') return undefined;
  baked ??= JSON.parse(__RYE_SYSTEM_CONFIG__) as Readonly<Record<string, BakedNode>>;
  const node = baked[sha256];
  return node === undefined ? undefined : thawConfig(node, path);
}

/** A parsed file as the build keeps it: without its path, which differs from one installation to the next. */
export function freezeConfig(node: ConfigNode, path: string): BakedNode {
  const line = Number(node.origin.slice(path.length + 1));
  if (node.kind === 'scalar') return [line, node.value];
  if (node.kind === 'list') return [line, node.items.map((item) => freezeConfig(item, path))];
  const members = [...node.members].map(([name, member]) => [name, freezeConfig(member, path)]);
  return [line, Object.fromEntries(members) as BakedMap];
}

function thawConfig([line, value]: BakedNode, path: string): ConfigNode {
  const origin = `${path}:${line}`;
  if (typeof value !== 'object' || value === null) return { kind: 'scalar', value, origin };
  if (isList(value)) {
    return { kind: 'list', items: value.map((item) => thawConfig(item, path)), origin };
  }
  const members = Object.entries(value).map(
    ([name, member]) => [name, thawConfig(member, path)] as const,
  );
  return { kind: 'map', members: new Map(members), origin };
}

function isList(value: readonly BakedNode[] | BakedMap): value is readonly BakedNode[] {
  return Array.isArray(value);
}
