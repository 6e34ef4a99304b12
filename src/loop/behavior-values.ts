import { RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isRecord, type JsonObject, type JsonValue } from '../core/json.ts';

/** A member by its `snake_case` name, also where it is written in `camelCase`; null is as good as absent. */
export function member(raw: JsonObject, name: string): JsonValue | undefined {
  const camel = name.replaceAll(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
  return raw[name] ?? raw[camel] ?? undefined;
}

/** True or false, also as text. */
export function flagOf(raw: JsonObject, name: string, fallback: boolean): boolean {
  const value = member(raw, name) ?? fallback;
  if (value === true || value === 'true') return true;
  if (value === false || value === 'false') return false;
  throw bad(name, value, 'true or false');
}

/** A whole number from 0, also as text; undefined where it is not said. */
export function countOf(raw: JsonObject, name: string, shown = name): number | undefined {
  const value = member(raw, name);
  if (value === undefined) return undefined;
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number;
  throw bad(shown, value, 'a whole number of 0 or more');
}

/** One of a closed list of texts; undefined where it is not said. */
export function choiceOf<const T extends string>(
  raw: JsonObject,
  name: string,
  known: readonly T[],
): T | undefined {
  const value = member(raw, name);
  if (value === undefined) return undefined;
  const chosen = known.find((one) => one === value);
  if (chosen !== undefined) return chosen;
  throw bad(name, value, known.join(' or '));
}

/** Wire names of tools, given as a list or as text with spaces or commas; ids and wire names mean the same. */
export function toolsOf(raw: JsonObject, name: string): ReadonlySet<string> {
  const value = member(raw, name) ?? [];
  const listed = typeof value === 'string' ? value.split(/[\s,]+/).filter(Boolean) : value;
  if (Array.isArray(listed) && listed.every((one) => typeof one === 'string')) {
    return new Set(listed.map(wireName));
  }
  throw bad(name, value, 'a list of tools');
}

/** The members of a map by tool, by wire name. */
export function byTool(raw: JsonObject, name: string): readonly (readonly [string, JsonValue])[] {
  const value = member(raw, name) ?? {};
  if (!isRecord(value)) throw bad(name, value, 'a map by tool');
  return Object.entries(value).flatMap(([tool, one]) =>
    one === undefined || one === null ? [] : [[wireName(tool), one as JsonValue] as const],
  );
}

/** The error about a value that makes no sense. */
export function bad(name: string, value: JsonValue, expected: string): RyeError {
  const shown = JSON.stringify(value);
  return new RyeError(
    'directive_malformed',
    `behavior.${name} is ${shown.length > 200 ? `${shown.slice(0, 200)}…` : shown}, not ${expected}`,
    { hint: 'Correct it in the <behavior> of the directive, or in the options of the run.' },
  );
}
