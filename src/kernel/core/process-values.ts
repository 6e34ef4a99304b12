import { isJsonObject, type JsonObject, type JsonValue, toText } from './json.ts';

/** Applies `change` to every string of a JSON value; member names stay. */
export function mapTexts(value: JsonValue, change: (text: string) => JsonValue): JsonValue {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item: JsonValue) => mapTexts(item, change));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [
      key,
      member === undefined ? undefined : mapTexts(member, change),
    ]),
  );
}

/** The source of a pattern for the keys of `values`, the longest first; undefined if there are none. */
export function referencePattern(values: JsonObject): string | undefined {
  const keys = Object.keys(values).toSorted((a, b) => b.length - a.length);
  if (keys.length === 0) return undefined;
  return keys.map((key) => key.replaceAll(/[$(){}[\]|.?*+^\\/-]/g, String.raw`\$&`)).join('|');
}

/**
 * Replaces the keys of `values`, such as `{input:name}`, in every string of a process, for readers. A string that is
 * exactly one key takes its value. Replaces in one pass: values are never expanded.
 */
export function withProcessValues(value: JsonValue, values: JsonObject): JsonValue {
  const source = referencePattern(values);
  if (source === undefined) return value;
  const pattern = new RegExp(source, 'g');
  return mapTexts(value, (text) =>
    Object.hasOwn(values, text)
      ? (values[text] ?? null)
      : text.replaceAll(pattern, (key) => toText(values[key] ?? null)),
  );
}
