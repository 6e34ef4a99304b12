import { RyeError } from '../core/errors.ts';
import { isRecord, type JsonObject, type JsonValue, toText } from '../core/json.ts';

const EXPRESSION = /\$\{([^{}]*)\}/g;
const WHOLE = /^\$\{([^{}]*)\}$/;
const MAX_DEPTH = 32;
const MAX_CHARACTERS = 1_000_000;

/** A value after interpolation. */
export interface Interpolated {
  readonly value: JsonValue;
  /** Expressions without a value: null if an expression is the whole string, empty text inside a string. */
  readonly unresolved: readonly string[];
}

/**
 * Replaces `${path}` and `${a || b || 'text'}` (the first that is not missing and not null; after `||`, also a text in quotes, a
 * number, true or false) in every string of a value. A
 * string that is exactly one expression keeps the type of its value. Applied once: an inserted value is never
 * expanded. Text between `${` and `}` that is not a list of paths stays as it is. Member names are not touched.
 * `invalid_input` when the value is nested or grows past the bounds.
 */
export function interpolate(value: JsonValue, context: JsonObject): Interpolated {
  const unresolved: string[] = [];
  let characters = 0;

  const grow = (text: string): string => {
    characters += text.length;
    if (characters > MAX_CHARACTERS) throw tooLarge(`more than ${MAX_CHARACTERS} characters`);
    return text;
  };

  const lookUp = (alternatives: readonly Alternative[], expression: string): JsonValue => {
    for (const one of alternatives) {
      const found = 'literal' in one ? one.literal : valueAt(context, one.path);
      if (found !== undefined && found !== null) return found as JsonValue;
    }
    unresolved.push(expression.trim());
    return null;
  };

  const expand = (text: string): JsonValue => {
    const whole = WHOLE.exec(text)?.[1];
    const paths = whole === undefined ? undefined : alternativesOf(whole);
    if (whole !== undefined && paths !== undefined) {
      const found = lookUp(paths, whole);
      grow(toText(found));
      return found;
    }
    grow(text);
    return text.replaceAll(EXPRESSION, (written, expression: string) => {
      const parsed = alternativesOf(expression);
      if (parsed === undefined) return written;
      const found = lookUp(parsed, expression);
      return found === null ? '' : grow(toText(found));
    });
  };

  const walk = (node: JsonValue, depth: number): JsonValue => {
    if (depth > MAX_DEPTH) throw tooLarge(`more than ${MAX_DEPTH} levels`);
    if (typeof node === 'string') return expand(node);
    if (Array.isArray(node)) return node.map((item: JsonValue) => walk(item, depth + 1));
    if (typeof node !== 'object' || node === null) return node;
    const members = Object.entries(node).flatMap(([name, member]) =>
      member === undefined ? [] : [[name, walk(member, depth + 1)] as const],
    );
    return Object.fromEntries(members);
  };

  return { value: walk(value, 1), unresolved };
}

/** A path of an expression, or the value to use if the earlier ones are missing. */
type Alternative = { readonly path: readonly string[] } | { readonly literal: JsonValue };

const LITERAL = /^(?:'([^']*)'|"([^"]*)"|(-?\d+(?:\.\d+)?|true|false))$/;

function alternativesOf(expression: string): readonly Alternative[] | undefined {
  const parts = expression.split(/\|\|(?=(?:[^'"]|'[^']*'|"[^"]*")*$)/).map((part) => part.trim());
  const found = parts.map((part, at): Alternative | undefined => {
    const [whole, single, double, plain] = at === 0 ? [] : (LITERAL.exec(part) ?? []);
    if (whole !== undefined)
      return { literal: single ?? double ?? (JSON.parse(plain ?? 'null') as JsonValue) };
    const path = parsePath(part);
    return path && { path };
  });
  return found.every((one) => one !== undefined) ? found : undefined;
}

/** Returns the expressions of a value that look like alternatives and can't be read: they would stay in the text. */
export function brokenExpressions(value: JsonValue): readonly string[] {
  if (typeof value === 'string') {
    return [...value.matchAll(EXPRESSION)].flatMap(([whole, expression = '']) =>
      expression.includes('||') && alternativesOf(expression) === undefined ? [whole] : [],
    );
  }
  if (typeof value !== 'object' || value === null) return [];
  const parts: readonly (JsonValue | undefined)[] = Array.isArray(value)
    ? value
    : Object.values(value);
  return parts.flatMap((part) => (part === undefined ? [] : brokenExpressions(part)));
}

function tooLarge(what: string): RyeError {
  return new RyeError('invalid_input', `an interpolated value has ${what}`, {
    hint: 'Pass a path to the data, or less of it.',
  });
}

/** Every path named by an expression in a value, as written, for checks against a context's type. */
export function interpolationPaths(value: JsonValue): readonly string[] {
  if (typeof value === 'string') {
    return [...value.matchAll(EXPRESSION)].flatMap(([, expression = '']) =>
      (alternativesOf(expression) ?? []).flatMap((one) =>
        'path' in one ? [one.path.join('.')] : [],
      ),
    );
  }
  if (typeof value !== 'object' || value === null) return [];
  const parts: readonly (JsonValue | undefined)[] = Array.isArray(value)
    ? value
    : Object.values(value);
  return parts.flatMap((part) => (part === undefined ? [] : interpolationPaths(part)));
}

const SEGMENT = /^(?:[A-Za-z_$][\w$-]*|-?\d+)$/;
const MAX_SEGMENTS = 64;

/**
 * Splits a dotted path such as `steps.0.path` or `steps[0].path` into its segments, or undefined where `text` is
 * not one. Indexes count from 0, negative ones from the end.
 */
export function parsePath(text: string): readonly string[] | undefined {
  const segments = text.replaceAll(/\[(-?\d+)\]/g, '.$1').split('.');
  const fits =
    segments.length <= MAX_SEGMENTS && segments.every((segment) => SEGMENT.test(segment));
  return fits ? segments : undefined;
}

/** The value at a path, through own members and indexes only; undefined where anything on the way is missing. */
export function valueAt(root: unknown, path: readonly string[]): unknown {
  let value = root;
  for (const segment of path) {
    if (Array.isArray(value))
      value = /^-?\d+$/.test(segment) ? value.at(Number(segment)) : undefined;
    else if (isRecord(value) && Object.hasOwn(value, segment)) value = value[segment];
    else return undefined;
  }
  return value;
}
