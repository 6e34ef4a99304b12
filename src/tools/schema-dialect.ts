import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';

const TYPES = new Set(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);
/** Keywords whose value is a schema, a list of schemas, or a mapping of schemas. */
const ONE = new Set([
  'additionalProperties',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
]);
const LISTS = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems']);
const MAPPINGS = new Set([
  '$defs',
  'definitions',
  'dependentSchemas',
  'patternProperties',
  'properties',
]);

/** Schemas of tools that others wrote and whose server checks the input itself. */
const foreign = new WeakSet<JsonObject>();

/** Notes that a schema belongs to a server: parts that cannot be compiled are left to its check. */
export function markForeign(schema: JsonObject): JsonObject {
  foreign.add(schema);
  return schema;
}

export function isForeign(schema: JsonObject): boolean {
  return foreign.has(schema);
}

/** True for a schema that names a draft before 2019-09. */
export function isOldDialect({ $schema: dialect }: JsonObject): boolean {
  return typeof dialect === 'string' && /\/draft-0[3-7]\//.test(dialect);
}

/**
 * Returns a schema of an older draft, or of the dialect of OpenAPI, as one of draft 2020-12: tuples, bounds that exclude,
 * `required` at the property. What has no meaning there, and patterns that do not `compile`, are dropped.
 */
export function modernSchema(
  schema: JsonObject,
  compiles: (pattern: string) => boolean,
): JsonObject {
  const modern = (value: JsonValue | undefined): JsonValue | undefined =>
    isJsonObject(value) ? modernSchema(value, compiles) : value;
  const all = (value: JsonValue): JsonValue =>
    Array.isArray(value) ? value.map((one: JsonValue) => modern(one) ?? one) : value;
  const own = withoutForeign(withBounds(withTuple(withRequired(schema))), compiles);
  return Object.fromEntries(
    Object.entries(own).map(([key, value]) => {
      if (value === undefined) return [key, value];
      if (ONE.has(key)) return [key, modern(value)];
      if (LISTS.has(key)) return [key, all(value)];
      if (!MAPPINGS.has(key) || !isJsonObject(value)) return [key, value];
      return [
        key,
        Object.fromEntries(Object.entries(value).map(([name, one]) => [name, modern(one)])),
      ];
    }),
  );
}

/** Lists the properties that declare themselves as required, as in draft 3. */
function withRequired(schema: JsonObject): JsonObject {
  const { required, properties, ...rest } = schema;
  const listed = Array.isArray(required) ? required : [];
  const named = Object.entries(isJsonObject(properties) ? properties : {}).flatMap(([name, one]) =>
    isJsonObject(one) && one['required'] === true ? [name] : [],
  );
  const all = [...new Set([...listed, ...named])];
  return {
    ...rest,
    ...(properties === undefined ? {} : { properties }),
    ...(all.length === 0 ? {} : { required: all }),
  };
}

/** Before 2020-12 a list of schemas in `items` was a tuple. */
function withTuple(schema: JsonObject): JsonObject {
  const { items, additionalItems, ...rest } = schema;
  if (items === undefined) return rest;
  if (!Array.isArray(items)) return { ...rest, items };
  const more = additionalItems === undefined ? {} : { items: additionalItems };
  return { ...rest, ...(items.length === 0 ? {} : { prefixItems: items }), ...more };
}

/** Draft 4: `exclusiveMinimum: true` makes `minimum` exclude itself. */
function withBounds(schema: JsonObject): JsonObject {
  const next: Record<string, JsonValue | undefined> = { ...schema };
  for (const [bound, exclusive] of [
    ['minimum', 'exclusiveMinimum'],
    ['maximum', 'exclusiveMaximum'],
  ] as const) {
    const flag = next[exclusive];
    if (typeof flag !== 'boolean') continue;
    delete next[exclusive];
    if (!flag || typeof next[bound] !== 'number') continue;
    next[exclusive] = next[bound];
    delete next[bound];
  }
  return next;
}

function withoutForeign(schema: JsonObject, compiles: (pattern: string) => boolean): JsonObject {
  const { type, id, nullable, pattern, patternProperties, enum: listed, ...rest } = schema;
  const types = [type].flat().filter((one) => typeof one === 'string' && TYPES.has(one));
  const isAny = types.length === 0 || types.length < [type].flat().length;
  const known = isJsonObject(patternProperties)
    ? Object.entries(patternProperties).filter(([key]) => compiles(key))
    : [];
  return {
    ...rest,
    ...(typeof id === 'string' || id === undefined ? {} : { id }),
    ...(isAny ? {} : { type: (Array.isArray(type) ? types : type) as JsonValue }),
    ...(isAny || nullable !== true ? {} : { nullable: true }),
    ...(typeof pattern === 'string' && compiles(pattern) ? { pattern } : {}),
    ...(known.length === 0 ? {} : { patternProperties: Object.fromEntries(known) }),
    ...(Array.isArray(listed) && listed.length > 0 ? { enum: listed } : {}),
  };
}
