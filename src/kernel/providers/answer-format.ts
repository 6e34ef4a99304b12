import { compact, isJsonObject, isRecord, type JsonObject, type JsonValue } from '../core/json.ts';

/** An API can promise a schema only where every object lists all of its members and allows no others. */
export function isStrictSchema(value: unknown): boolean {
  if (Array.isArray(value)) return value.every(isStrictSchema);
  if (!isRecord(value)) return true;
  const { properties, required, additionalProperties, type } = value;
  if (type === 'object' || isRecord(properties)) {
    const names = isRecord(properties) ? Object.keys(properties) : [];
    const listed = Array.isArray(required) ? required : [];
    if (additionalProperties !== false || !names.every((name) => listed.includes(name))) {
      return false;
    }
  }
  return Object.values(value).every(isStrictSchema);
}

/** Keywords that a grammar of an answer can express. */
const KEPT = ['title', 'description', 'enum', 'const', 'default', 'format'] as const;
/** Keywords that narrow a value further. A grammar drops them: the loop validates the answer with the whole schema. */
const DROPPED =
  'minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern minItems maxItems uniqueItems minProperties maxProperties examples $schema $comment $id readOnly writeOnly deprecated required additionalProperties'.split(
    ' ',
  );
const KNOWN: ReadonlySet<string> = new Set([
  ...DROPPED,
  ...KEPT,
  'type',
  'properties',
  'items',
  'anyOf',
  'oneOf',
]);
const FORMATS: ReadonlySet<JsonValue | undefined> = new Set(
  'date-time time date duration email hostname uri ipv4 ipv6 uuid'.split(' '),
);

/**
 * Returns a schema from which an API can make a grammar: each value has one type, and objects have only the members that they
 * list. What matches it may still break a bound of the given schema, but nothing that the given schema needs is
 * excluded. Returns undefined for a schema that allows values of any form.
 */
export function closedSchema(schema: JsonObject): JsonObject | undefined {
  const { type, properties, items, anyOf, oneOf } = schema;
  const names = Object.keys(schema).filter((name) => schema[name] !== undefined);
  if (names.some((name) => !KNOWN.has(name))) return undefined;
  const kept = keptOf(schema);
  if (Array.isArray(type)) {
    const { type: _types, ...rest } = schema;
    return oneOfMany(type.map((one) => ({ ...narrowed(rest, one), type: one })));
  }
  const choices = anyOf ?? oneOf;
  if (choices !== undefined) {
    const isAlone = [type, properties, items].every((operand) => operand === undefined);
    const closed = Array.isArray(choices) && isAlone ? oneOfMany(choices) : undefined;
    return closed && compact({ ...kept, ...closed });
  }
  if (type === 'object') return closedObject(schema, kept);
  if (type === 'array') {
    const item = isJsonObject(items) ? closedSchema(items) : undefined;
    return item && compact({ ...kept, type, items: item });
  }
  const isValue = [type, schema['enum'], schema['const']].some((operand) => operand !== undefined);
  return isValue ? compact({ ...kept, type }) : undefined;
}

function keptOf(schema: JsonObject): JsonObject {
  const names = KEPT.filter((name) => name !== 'format' || FORMATS.has(schema[name]));
  return Object.fromEntries(names.map((name) => [name, schema[name]]));
}

function closedObject(schema: JsonObject, kept: JsonObject): JsonObject | undefined {
  const { properties, required, additionalProperties = false } = schema;
  if (!isJsonObject(properties) || additionalProperties !== false) return undefined;
  const members = Object.entries(properties).map(([name, member]) => [
    name,
    isJsonObject(member) ? closedSchema(member) : undefined,
  ]);
  if (members.some(([, member]) => member === undefined)) return undefined;
  return compact({
    ...kept,
    type: 'object',
    properties: Object.fromEntries(members) as JsonObject,
    required: required ?? [],
    additionalProperties: false,
  });
}

function oneOfMany(choices: readonly JsonValue[]): JsonObject | undefined {
  const closed = choices.map((choice) => (isJsonObject(choice) ? closedSchema(choice) : undefined));
  return closed.every((choice) => choice !== undefined) ? { anyOf: closed } : undefined;
}

/** Returns the keywords of a schema of several types that matter for one of them. */
function narrowed(schema: JsonObject, type: JsonValue): JsonObject {
  const { properties, required, additionalProperties, items, enum: values, ...rest } = schema;
  if (type === 'object') return compact({ ...rest, properties, required, additionalProperties });
  if (type === 'array') return compact({ ...rest, items });
  const own = Array.isArray(values) ? values.filter((value) => isOfType(value, type)) : undefined;
  return compact({ ...rest, enum: own });
}

function isOfType(value: JsonValue, type: JsonValue): boolean {
  if (type === 'null') return value === null;
  return type === 'integer' ? Number.isInteger(value) : typeof value === type;
}
