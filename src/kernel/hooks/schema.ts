import type { JsonObject, JsonValue } from '../core/json.ts';
import { nearNames } from '../core/text.ts';

/** A JSON Schema together with the TypeScript type of its values; `type` exists for the compiler only. */
export interface Schema<T> {
  readonly json: JsonObject;
  readonly type?: T;
}

/** The type that a schema describes. */
export type TypeOf<S> = S extends Schema<infer T> ? T : never;

type Members = Readonly<Record<string, Schema<unknown>>>;
type Present<M extends Members> = { readonly [K in keyof M]: TypeOf<M[K]> };
type Optional<M extends Members> = { readonly [K in keyof M]?: TypeOf<M[K]> };

/** Any text. */
export const text = (description?: string): Schema<string> => scalar('string', description);
/** Any JSON number. */
export const number = (description?: string): Schema<number> => scalar('number', description);
/** A whole number. */
export const integer = (description?: string): Schema<number> => scalar('integer', description);
/** True or false. */
export const flag = (description?: string): Schema<boolean> => scalar('boolean', description);

function scalar<T>(type: string, description: string | undefined): Schema<T> {
  return { json: description === undefined ? { type } : { type, description } };
}

/** One of some texts. */
export function choice<const T extends string>(...values: readonly T[]): Schema<T> {
  return { json: { type: 'string', enum: values } };
}

/** An object whose members are defined elsewhere: inputs, outputs, arguments of a tool. */
export function open(description: string): Schema<JsonObject> {
  return { json: { type: 'object', description, additionalProperties: true } };
}

/** Any JSON value. */
export function anything(description: string): Schema<JsonValue> {
  return { json: { description } };
}

/** The given schema, or null. */
export function nullable<T>(schema: Schema<T>): Schema<T | null> {
  return { json: { anyOf: [schema.json, { type: 'null' }] } };
}

/** An object with the given members and no others. */
export function record<R extends Members, O extends Members>(
  required: R,
  optional: O,
): Schema<Present<R> & Optional<O>> {
  const members = Object.entries({ ...required, ...optional });
  return {
    json: {
      type: 'object',
      properties: Object.fromEntries(members.map(([name, schema]) => [name, schema.json])),
      required: Object.keys(required),
      additionalProperties: false,
    },
  };
}

/** Why a value of this schema can't have a path; the path's segments come from `parsePath`. */
export function pathProblem(
  schema: JsonObject,
  path: readonly string[],
): { readonly message: string; readonly near: readonly string[] } | undefined {
  let here = schema;
  for (const [index, segment] of path.entries()) {
    const step = descend(here, segment);
    if (step === 'open') return undefined;
    if (step === 'none') {
      const parent = path.slice(0, index).join('.');
      const names = memberNames(here);
      const holder = parent === '' ? 'the context' : `"${parent}"`;
      const message = `${holder} has no "${segment}"${names.length === 0 ? '' : `, it has ${names.join(', ')}`}`;
      const prefix = parent === '' ? '' : `${parent}.`;
      return { message, near: nearNames(segment, names).map((name) => prefix + name) };
    }
    here = step;
  }
  return undefined;
}

function descend(schema: JsonObject, segment: string): JsonObject | 'open' | 'none' {
  const { type, properties, items } = concrete(schema);
  if (type === undefined) return 'open';
  if (type === 'array') return /^-?\d+$/.test(segment) ? asSchema(items) : 'none';
  if (type !== 'object') return 'none';
  if (properties === undefined) return 'open';
  const members = asSchema(properties);
  return Object.hasOwn(members, segment) ? asSchema(members[segment]) : 'none';
}

/** The schema without the alternative of being null. */
function concrete(schema: JsonObject): JsonObject {
  const { anyOf } = schema;
  return Array.isArray(anyOf) ? asSchema(anyOf[0]) : schema;
}

function memberNames(schema: JsonObject): readonly string[] {
  return Object.keys(asSchema(concrete(schema)['properties']));
}

function asSchema(value: JsonValue | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : {};
}
