import type { JsonObject, JsonValue } from '../core/json.ts';
import { isJsonObject } from '../core/json.ts';
import { hasType } from '../tools/coerce.ts';

/** Answers `true` only where JSON Schema accepts the value; `false` leaves the question to the compiler. */
type Check = (value: JsonValue) => boolean;

const KEYWORDS: Readonly<
  Record<string, (operand: JsonValue, schema: JsonObject) => Check | undefined>
> = {
  title: annotation(isText),
  description: annotation(isText),
  $comment: annotation(isText),
  default: annotation(() => true),
  examples: annotation(Array.isArray),
  type: readType,
  enum: readEnum,
  const: (operand) => (isScalar(operand) ? (value) => value === operand : undefined),
  minimum: bound((value, limit) => value >= limit),
  maximum: bound((value, limit) => value <= limit),
  exclusiveMinimum: bound((value, limit) => value > limit),
  exclusiveMaximum: bound((value, limit) => value < limit),
  minLength: size(lengthOf, (length, limit) => length >= limit),
  maxLength: size(lengthOf, (length, limit) => length <= limit),
  minItems: size(itemsOf, (length, limit) => length >= limit),
  maxItems: size(itemsOf, (length, limit) => length <= limit),
  items: readItems,
  required: readRequired,
  properties: readProperties,
  additionalProperties: readAdditional,
};

const ACCEPT: Check = () => true;

/**
 * Makes a check for schemas of types, properties, lists, enumerations and bounds, as nearly all tools have: compiling them
 * takes longer than starting Node. Returns undefined for other keywords and for invalid schemas. The schema's depth
 * must be bounded.
 */
export function readPlainSchema(schema: JsonValue | undefined): Check | undefined {
  if (!isJsonObject(schema)) return undefined;
  const checks: Check[] = [];
  for (const [keyword, operand] of Object.entries(schema)) {
    const read = Object.hasOwn(KEYWORDS, keyword) ? KEYWORDS[keyword] : undefined;
    const check = operand === undefined ? undefined : read?.(operand, schema);
    if (check === undefined) return undefined;
    if (check !== ACCEPT) checks.push(check);
  }
  return (value) => checks.every((check) => check(value));
}

function annotation(isSound: (operand: JsonValue) => boolean) {
  return (operand: JsonValue): Check | undefined => (isSound(operand) ? ACCEPT : undefined);
}

function bound(holds: (value: number, limit: number) => boolean) {
  return (limit: JsonValue): Check | undefined =>
    isFiniteNumber(limit)
      ? (value) => typeof value !== 'number' || (isFiniteNumber(value) && holds(value, limit))
      : undefined;
}

function size(
  measure: (value: JsonValue) => number | undefined,
  holds: (length: number, limit: number) => boolean,
) {
  return (limit: JsonValue): Check | undefined => {
    if (!isFiniteNumber(limit) || !Number.isInteger(limit) || limit < 0) return undefined;
    return (value) => {
      const length = measure(value);
      return length === undefined || holds(length, limit);
    };
  };
}

/** Characters, not UTF-16 units. */
function lengthOf(value: JsonValue): number | undefined {
  return typeof value === 'string' ? Array.from(value).length : undefined;
}

function itemsOf(value: JsonValue): number | undefined {
  return Array.isArray(value) ? value.length : undefined;
}

const TYPES: ReadonlySet<JsonValue> = new Set([
  'null',
  'boolean',
  'integer',
  'number',
  'string',
  'array',
  'object',
]);

function readType(operand: JsonValue): Check | undefined {
  const types = Array.isArray(operand) ? operand : [operand];
  if (types.length === 0 || new Set(types).size < types.length) return undefined;
  if (!types.every((type) => isText(type) && TYPES.has(type))) return undefined;
  return (value) =>
    (typeof value !== 'number' || Number.isFinite(value)) &&
    types.some((type) => hasType(value, String(type)));
}

function readEnum(operand: JsonValue): Check | undefined {
  if (!Array.isArray(operand) || operand.length === 0 || !operand.every(isScalar)) return undefined;
  return (value) => operand.includes(value);
}

function readItems(operand: JsonValue): Check | undefined {
  const check = readPlainSchema(operand);
  return check && ((value) => !Array.isArray(value) || value.every(check));
}

function readRequired(operand: JsonValue): Check | undefined {
  if (!Array.isArray(operand) || new Set(operand).size < operand.length) return undefined;
  if (!operand.every(isText)) return undefined;
  return (value) =>
    !isJsonObject(value) || operand.every((name) => ownMember(value, name) !== undefined);
}

function readProperties(operand: JsonValue): Check | undefined {
  if (!isJsonObject(operand)) return undefined;
  const checks: [string, Check][] = [];
  for (const [name, schema] of Object.entries(operand)) {
    const check = readPlainSchema(schema);
    // the compiler finds members such as toString in every object
    if (check === undefined || name in {}) return undefined;
    checks.push([name, check]);
  }
  return (value) =>
    !isJsonObject(value) ||
    checks.every(([name, check]) => {
      const member = ownMember(value, name);
      return member === undefined || check(member);
    });
}

function readAdditional(operand: JsonValue, { properties }: JsonObject): Check | undefined {
  if (operand === true) return ACCEPT;
  const check = operand === false ? () => false : readPlainSchema(operand);
  const known = isJsonObject(properties) ? properties : {};
  return (
    check &&
    ((value) =>
      !isJsonObject(value) ||
      Object.entries(value).every(
        ([name, member]) => Object.hasOwn(known, name) || (member !== undefined && check(member)),
      ))
  );
}

function ownMember(value: JsonObject, name: string): JsonValue | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

function isText(value: JsonValue): value is string {
  return typeof value === 'string';
}

function isFiniteNumber(value: JsonValue): value is number {
  return Number.isFinite(value);
}

function isScalar(value: JsonValue): boolean {
  return value === null || typeof value !== 'object';
}
