import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson, toText } from '../core/json.ts';
import type { ValueType } from '../core/plan.ts';
import { nearNames } from '../core/text.ts';
import type { InputDeclaration } from './directive-ast.ts';

/** Checked inputs of one run. */
export interface ResolvedInputs {
  /** Every supplied or defaulted input in its declared type, including secret ones. */
  readonly values: JsonObject;
  /** Secret inputs that have a value; they must never be written or sent. */
  readonly secretNames: readonly string[];
}

export interface InputOptions {
  /** Returns true if the file of a `file` input is readable. Default: not checked. */
  readonly fileExists?: (path: string) => boolean;
}

/**
 * Checks raw inputs against their declarations, coerces text and applies defaults. Without declarations all inputs are
 * accepted unchanged. Reports all problems in one `invalid_input` error, separately in `details.problems`. Messages never
 * contain values of secret inputs.
 */
export function resolveInputs(
  declarations: readonly InputDeclaration[],
  raw: JsonObject,
  options: InputOptions = {},
): ResolvedInputs {
  const supplied = Object.entries(raw).filter(
    (entry): entry is [string, JsonValue] => entry[1] !== undefined,
  );
  if (declarations.length === 0) return { values: Object.fromEntries(supplied), secretNames: [] };
  const problems: string[] = unknownInputs(declarations, supplied);
  const values = new Map<string, JsonValue>();
  for (const declaration of declarations) {
    const written = supplied.find(([name]) => name === declaration.name)?.[1];
    const result = resolveOne(declaration, written, options);
    if ('problem' in result) problems.push(result.problem);
    else if (result.value !== undefined) values.set(declaration.name, result.value);
  }
  if (problems.length > 0) throw refusal(problems, declarations);
  const secretNames = declarations
    .filter(({ name, secret }) => secret && values.has(name))
    .map(({ name }) => name);
  return { values: Object.fromEntries(values), secretNames };
}

/**
 * Returns the inputs of a run that is not checked yet as the run will have them: in their types, with defaults, without secret
 * ones. A value that does not fit stays, because the check refuses it.
 */
export function likelyInputs(
  declarations: readonly InputDeclaration[],
  raw: JsonObject,
): JsonObject {
  const values = new Map(Object.entries(raw));
  for (const declaration of declarations) {
    const { name, secret } = declaration;
    const result = resolveOne({ ...declaration, required: false }, raw[name], {});
    if (secret || ('value' in result && result.value === undefined)) values.delete(name);
    else if ('value' in result) values.set(name, result.value);
  }
  return Object.fromEntries(values);
}

const MISSING = 'missing input';

type Resolution = { readonly value: JsonValue | undefined } | { readonly problem: string };

function resolveOne(
  declaration: InputDeclaration,
  raw: JsonValue | undefined,
  { fileExists }: InputOptions,
): Resolution {
  const { name, type, required, secret, values } = declaration;
  const quoted = JSON.stringify(name);
  const value = raw === undefined || raw === null ? declaration.default : raw;
  if (value === undefined)
    return required ? { problem: `${MISSING} ${quoted}` } : { value: undefined };
  if (required && typeof value === 'string' && value.trim() === '') {
    return { problem: `${MISSING} ${quoted}: it is empty` };
  }
  const shown = `input ${quoted}${secret ? '' : `: ${formatValue(value)}`}`;
  const result = coerce(value, type, values);
  if ('problem' in result) {
    return { problem: `${shown} ${result.problem}` };
  }
  if (type === 'file' && fileExists !== undefined && typeof result.value === 'string') {
    if (!fileExists(result.value)) {
      return { problem: `${shown} cannot be read` };
    }
  }
  return result;
}

/** Formats a value for a message; truncates long values. */
function formatValue(value: JsonValue): string {
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

function unknownInputs(
  declarations: readonly InputDeclaration[],
  supplied: readonly (readonly [string, JsonValue])[],
): string[] {
  const names = declarations.map(({ name }) => name);
  return supplied
    .filter(([name]) => !names.includes(name))
    .map(([name]) => {
      const [suggestion] = nearNames(name, names);
      return `unknown input ${JSON.stringify(name)}${suggestion === undefined ? '' : ` (did you mean ${suggestion}?)`}`;
    });
}

function refusal(problems: readonly string[], declarations: readonly InputDeclaration[]): RyeError {
  const missing = declarations.filter(({ name }) =>
    problems.some((problem) => problem.startsWith(`${MISSING} ${JSON.stringify(name)}`)),
  );
  const options = missing.map(({ name }) => ` --input ${name}=VALUE`).join('');
  const valid = declarations.map(
    ({ name, type, required }) => `${name} (${type}${required ? ', required' : ''})`,
  );
  return new RyeError('invalid_input', problems.join('; '), {
    hint: `${options === '' ? '' : `Pass${options}. `}Valid inputs: ${valid.join(', ')}.`,
    details: { problems, inputs: declarations.map(({ name }) => name) },
  });
}

/** A value of the requested type, or a problem that completes the sentence "the value …". */
export type Coercion = { readonly value: JsonValue } | { readonly problem: string };

const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;

/**
 * Converts a value to a declared type. Parses text, as a command line supplies it; other values must already fit.
 * `values` are the allowed values of an `enum`. A `file` is the path as text.
 */
export function coerce(raw: JsonValue, type: ValueType, values: readonly string[] = []): Coercion {
  return COERCERS[type](raw, values);
}

type Coercer = (raw: JsonValue, values: readonly string[]) => Coercion;

const COERCERS: Readonly<Record<ValueType, Coercer>> = {
  string: toString,
  file: toString,
  integer: (raw) => toNumber(raw, 'integer'),
  number: (raw) => toNumber(raw, 'number'),
  boolean: toBoolean,
  array: (raw) => toJson(raw, Array.isArray, 'a JSON array'),
  object: (raw) => toJson(raw, isJsonObject, 'a JSON object'),
  enum: toMember,
};

function toMember(raw: JsonValue, values: readonly string[]): Coercion {
  const text = toText(raw).trim();
  return values.includes(text)
    ? { value: text }
    : { problem: `is not one of ${values.join(', ')}` };
}

function toString(raw: JsonValue): Coercion {
  if (typeof raw === 'string') return { value: raw };
  if (typeof raw === 'number' || typeof raw === 'boolean') return { value: String(raw) };
  return { problem: `is ${nameOf(raw)}, not text` };
}

function toNumber(raw: JsonValue, type: 'integer' | 'number'): Coercion {
  const text = typeof raw === 'string' ? raw.trim() : undefined;
  const number = text === undefined ? raw : NUMBER.test(text) ? Number(text) : Number.NaN;
  if (typeof number !== 'number') return { problem: `is ${nameOf(raw)}, not a number` };
  if (!Number.isFinite(number)) return { problem: 'is not a number' };
  if (type === 'integer' && !Number.isSafeInteger(number))
    return { problem: 'is not a whole number' };
  return { value: number };
}

function toBoolean(raw: JsonValue): Coercion {
  if (typeof raw === 'boolean') return { value: raw };
  const text =
    typeof raw === 'string' || typeof raw === 'number' ? String(raw).trim().toLowerCase() : '';
  if (['true', 'yes', '1', 'on'].includes(text)) return { value: true };
  if (['false', 'no', '0', 'off'].includes(text)) return { value: false };
  return { problem: 'is not true or false' };
}

function toJson(raw: JsonValue, fits: (value: unknown) => boolean, expected: string): Coercion {
  const value = typeof raw === 'string' ? parseJson(raw) : raw;
  return value !== undefined && fits(value) ? { value } : { problem: `is not ${expected}` };
}

function nameOf(value: JsonValue): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}
