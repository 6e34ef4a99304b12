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

const isCount = (value: JsonValue): boolean => Number.isSafeInteger(value) && Number(value) >= 0;
const isNumber = (value: JsonValue): boolean => Number.isFinite(value);
const isText = (value: JsonValue): boolean => typeof value === 'string';
const isSchema = (value: JsonValue | undefined): boolean =>
  typeof value === 'boolean' || isJsonObject(value);

/** Keywords by the form of their value. One of another form is refused by APIs, and has no meaning. */
const KEYWORDS: readonly (readonly [string, (value: JsonValue) => boolean])[] = [
  ['minLength maxLength minItems maxItems minProperties maxProperties minContains', isCount],
  ['minimum maximum exclusiveMinimum exclusiveMaximum', isNumber],
  ['multipleOf', (value) => isNumber(value) && Number(value) > 0],
  ['title description format $ref $id $comment pattern', isText],
  ['uniqueItems readOnly writeOnly deprecated', (value) => typeof value === 'boolean'],
  ['required', (value) => Array.isArray(value) && value.every(isText)],
  ['examples', Array.isArray],
];
const FORMS = new Map(
  KEYWORDS.flatMap(([names, isOf]) => names.split(' ').map((name) => [name, isOf] as const)),
);
/** Levels of a schema that are kept; below them, everything is allowed. */
const MAX_DEPTH = 64;

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
 * `required` at the property. What is malformed or has no meaning there, and patterns that do not `compile`, are dropped.
 */
export function modernSchema(
  schema: JsonObject,
  compiles: (pattern: string) => boolean,
  depth = 0,
): JsonObject {
  if (depth > MAX_DEPTH) return {};
  const modern = (value: JsonValue): JsonValue =>
    isJsonObject(value) ? modernSchema(value, compiles, depth + 1) : value;
  const own = withoutForeign(withBounds(withTuple(withRequired(schema))), compiles);
  const members = Object.entries(own).flatMap(([key, value]): [string, JsonValue][] => {
    const kept = value === undefined ? undefined : keptValue(key, value, modern);
    return kept === undefined ? [] : [[key, kept]];
  });
  return Object.fromEntries(members);
}

/** The value of a keyword with what is usable of it; undefined for none. */
function keptValue(
  key: string,
  value: JsonValue,
  modern: (value: JsonValue) => JsonValue,
): JsonValue | undefined {
  if (ONE.has(key)) return isSchema(value) ? modern(value) : undefined;
  if (LISTS.has(key)) {
    const schemas = Array.isArray(value) ? value.filter(isSchema).map(modern) : [];
    return schemas.length === 0 ? undefined : schemas;
  }
  if (!MAPPINGS.has(key)) return FORMS.get(key)?.(value) === false ? undefined : value;
  if (!isJsonObject(value)) return undefined;
  const members = Object.entries(value).flatMap(([name, one]) =>
    one !== undefined && isSchema(one) ? [[name, modern(one)] as const] : [],
  );
  return Object.fromEntries(members);
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
