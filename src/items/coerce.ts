import type { JsonValue } from '../core/json.ts';
import { isJsonObject, parseJson, toText } from '../core/json.ts';
import type { ValueType } from '../core/plan.ts';

/** A value of the wanted type, or why there is none; the problem completes the sentence "the value …". */
export type Coercion = { readonly value: JsonValue } | { readonly problem: string };

const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$/;

/**
 * Brings a value to a declared type. Text, as a command line gives it, is read as the type wants it; other
 * values must already fit. `values` are the allowed ones of an `enum`. A `file` is the path as text.
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

function toJson(raw: JsonValue, fits: (value: unknown) => boolean, wanted: string): Coercion {
  const value = typeof raw === 'string' ? parseJson(raw) : raw;
  return value !== undefined && fits(value) ? { value } : { problem: `is not ${wanted}` };
}

function nameOf(value: JsonValue): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}
