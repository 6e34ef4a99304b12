import type { JsonObject, JsonValue } from '../core/json.ts';
import { isJsonObject, parseJson } from '../core/json.ts';

export interface Coercion {
  readonly input: JsonObject;
  /** One line per change, such as `limit: "5" → 5`, without the text of long values. */
  readonly coerced: readonly string[];
}

/**
 * Turns what models commonly write into what the schema declares, by a fixed table: "true/yes/1" and "false/no/0"
 * to booleans, numeric text to numbers, JSON text to arrays and objects, numbers and booleans to text, and null
 * for an optional property to its absence. Only top-level properties with a `type`; a value that already has a
 * declared type is never touched, and a missing or null required property is left for validation to refuse.
 */
export function coerceInput(schema: JsonObject, input: JsonObject): Coercion {
  const coerced: string[] = [];
  const entries: [string, JsonValue][] = [];
  for (const [name, value] of Object.entries(input)) {
    if (value === undefined) continue;
    const types = declaredTypes(propertySchema(schema, name));
    if (types.length === 0 || types.some((type) => hasType(value, type))) {
      entries.push([name, value]);
      continue;
    }
    if (value === null && !isRequired(schema, name)) {
      coerced.push(`${name}: null → absent`);
      continue;
    }
    const better = firstCoercion(value, types);
    entries.push([name, better ?? value]);
    if (better !== undefined) coerced.push(`${name}: ${describe(value)} → ${describe(better)}`);
  }
  return { input: Object.fromEntries(entries), coerced };
}

/** Returns the value as `type`; undefined if the table has no conversion for it. */
export function coerceValue(value: JsonValue, type: string): JsonValue | undefined {
  if (hasType(value, type)) return value;
  switch (type) {
    case 'boolean':
      return typeof value === 'string' ? BOOLEANS.get(value.trim().toLowerCase()) : undefined;
    case 'number':
    case 'integer':
      return typeof value === 'string' ? numberOf(value.trim(), type) : undefined;
    case 'array':
    case 'object':
      return typeof value === 'string' ? containerOf(value, type) : undefined;
    case 'string':
      return typeof value === 'number' || typeof value === 'boolean' ? String(value) : undefined;
    default:
      return undefined;
  }
}

/** Returns true if a JSON value is of a JSON Schema type; whole numbers are both `integer` and `number`. */
export function hasType(value: JsonValue, type: string): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return isJsonObject(value);
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

/** The schema of a top-level property, or undefined. */
export function propertySchema(schema: JsonObject, name: string): JsonObject | undefined {
  const properties = schema['properties'];
  if (!isJsonObject(properties) || !Object.hasOwn(properties, name)) return undefined;
  const property = properties[name];
  return isJsonObject(property) ? property : undefined;
}

const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['yes', true],
  ['1', true],
  ['false', false],
  ['no', false],
  ['0', false],
]);

const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function numberOf(text: string, type: 'number' | 'integer'): number | undefined {
  if (!JSON_NUMBER.test(text)) return undefined;
  const value = Number(text);
  if (!Number.isFinite(value)) return undefined;
  // A whole number past 2^53 would silently become another one.
  if (type === 'integer' || !/[.eE]/.test(text))
    return Number.isSafeInteger(value) ? value : undefined;
  return value;
}

function containerOf(text: string, type: 'array' | 'object'): JsonValue | undefined {
  const value = parseJson(text);
  return value !== undefined && hasType(value, type) ? value : undefined;
}

function firstCoercion(value: JsonValue, types: readonly string[]): JsonValue | undefined {
  for (const type of types) {
    const better = coerceValue(value, type);
    if (better !== undefined) return better;
  }
  return undefined;
}

function declaredTypes(property: JsonObject | undefined): readonly string[] {
  const type = property?.['type'];
  if (typeof type === 'string') return [type];
  return Array.isArray(type) ? type.filter((name) => typeof name === 'string') : [];
}

function isRequired(schema: JsonObject, name: string): boolean {
  const required = schema['required'];
  return Array.isArray(required) && required.includes(name);
}

function describe(value: JsonValue): string {
  const text = JSON.stringify(value);
  return text.length <= 60 ? text : `${typeof value} of ${text.length} characters`;
}
