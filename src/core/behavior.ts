import { isJsonObject, type JsonObject, type JsonValue } from './json.ts';

/** Members that are maps by name: a later layer changes single names of them, not the whole. */
const NAMED_MAPS: ReadonlySet<string> = new Set(['tool_budgets', 'tool_aliases']);

/**
 * Behavior of several layers as one, the later above the earlier, member by member; of named maps name by name. Names may be
 * written `camelCase`, the result has them in `snake_case`. A null stays, so that it can unset a member of a layer
 * below: {@link withoutUnset} takes it out at the end.
 */
export function mergeBehavior(...layers: readonly JsonObject[]): JsonObject {
  const merged = new Map<string, JsonValue>();
  for (const layer of layers) {
    for (const [written, value] of Object.entries(layer)) {
      if (value === undefined) continue;
      const name = memberName(written);
      const below = merged.get(name);
      const isMap = NAMED_MAPS.has(name) && isJsonObject(value) && isJsonObject(below);
      merged.set(name, isMap ? { ...below, ...value } : value);
    }
  }
  return Object.fromEntries(merged);
}

/** The `snake_case` name of a member that may be written in `camelCase`. */
export function memberName(written: string): string {
  return written.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The behavior without what a null unset, in the maps by name too. */
export function withoutUnset(behavior: JsonObject): JsonObject {
  const kept = setMembers(behavior).map(([name, value]): [string, JsonValue] =>
    NAMED_MAPS.has(name) && isJsonObject(value)
      ? [name, Object.fromEntries(setMembers(value))]
      : [name, value],
  );
  return Object.fromEntries(kept);
}

function setMembers(object: JsonObject): [string, JsonValue][] {
  return Object.entries(object).flatMap(([name, value]): [string, JsonValue][] =>
    value === undefined || value === null ? [] : [[name, value]],
  );
}
