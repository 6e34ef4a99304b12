/** A value that JSON can carry. */
export type JsonValue = string | number | boolean | null | readonly JsonValue[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: JsonValue | undefined;
}

/** True for plain objects: not null, not an array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** True for a JSON object; the check is shallow, the value is known to come from a JSON parser. */
export function isJsonObject(value: unknown): value is JsonObject {
  return isRecord(value);
}

/** Parses JSON text; undefined if it is not JSON. */
export function parseJson(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}

/** Levels of a value from outside. What walks a deeper one would use up the stack. */
const MAX_LEVELS = 1000;

/** Parses JSON that a person or a file of another program passes; undefined if it is not JSON, or nested more than 1,000 levels deep. */
export function parseGivenJson(text: string): JsonValue | undefined {
  const value = parseJson(text);
  return value !== undefined && levelsOf(text) > MAX_LEVELS ? undefined : value;
}

/** Returns the depth of valid JSON. */
function levelsOf(text: string): number {
  let level = 0;
  let deepest = 0;
  let isInString = false;
  // an expression that matches strings would use up its stack on a long one
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (isInString && char === '\\') at += 1;
    else if (char === '"') isInString = !isInString;
    else if (isInString) continue;
    else if (char === '[' || char === '{') {
      level += 1;
      deepest = Math.max(deepest, level);
    } else if (char === ']' || char === '}') level -= 1;
  }
  return deepest;
}

/** The text form that interpolation and prompts use: strings as they are, everything else as JSON. */
export function toText(value: JsonValue): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Deep equality of JSON values; object key order does not matter. */
export function jsonEquals(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left)) {
    return (
      Array.isArray(right) &&
      left.length === right.length &&
      left.every((item, index) => jsonEquals(item, right[index]))
    );
  }
  if (!isRecord(left) || !isRecord(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && jsonEquals(left[key], right[key]))
  );
}

/** Drops `undefined` members, so that optional fields can be written as plain object literals. */
export function compact<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}
