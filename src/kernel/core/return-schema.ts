import { compact, isJsonObject, type JsonObject, jsonEquals } from './json.ts';
import type { OutputDeclaration, ValueType } from './plan.ts';

/** Wire name of the tool by which a model returns from a directive. The loop answers it. */
export const DIRECTIVE_RETURN = 'rye_directive_return';

/** JSON Schema type of each declared type; files are given as paths. */
export const JSON_TYPES: Readonly<Record<ValueType, string>> = {
  string: 'string',
  integer: 'integer',
  number: 'number',
  boolean: 'boolean',
  array: 'array',
  object: 'object',
  file: 'string',
  enum: 'string',
};

/** The result that a run owes: the outputs of its directive and the schema of its behavior. Both must hold. */
export interface ResultShape {
  readonly outputs: readonly OutputDeclaration[];
  readonly schema?: JsonObject | undefined;
}

/** True if the model can return a result. */
export function hasResult({ outputs, schema }: ResultShape): boolean {
  return outputs.length > 0 || schema !== undefined;
}

/** True if a JSON Schema describes the result or one of its outputs. */
export function hasSchema({ outputs, schema }: ResultShape): boolean {
  return schema !== undefined || outputs.some((output) => output.schema !== undefined);
}

/** Returns true if the shape has an output of that name, from the directive or from the schema. */
export function declaresOutput({ outputs, schema }: ResultShape, name: string): boolean {
  return outputs.some((output) => output.name === name) || propertiesOf(schema).has(name);
}

/** Returns the one JSON Schema of the whole result. It requires what the directive or the schema requires. */
export function resultSchema({ outputs, schema = {} }: ResultShape): JsonObject {
  const properties = new Map(outputs.map((output) => [output.name, schemaOf(output)] as const));
  for (const [name, member] of propertiesOf(schema)) {
    const declared = properties.get(name);
    properties.set(name, declared === undefined ? member : both(declared, member));
  }
  const listed = schema['required'];
  const required = [
    ...outputs.filter(({ required: isRequired }) => isRequired).map(({ name }) => name),
    ...(Array.isArray(listed) ? listed : []),
  ];
  const { type: _type, properties: _properties, required: _required, ...others } = schema;
  return {
    type: 'object',
    properties: Object.fromEntries(properties),
    required: [...new Set(required)],
    ...others,
  };
}

/** Returns the schemas of the members that an object schema describes, by name. */
export function propertiesOf(schema: JsonObject | undefined): ReadonlyMap<string, JsonObject> {
  const properties = schema?.['properties'];
  const entries = isJsonObject(properties) ? Object.entries(properties) : [];
  return new Map(
    entries.map(([name, member]) => [name, isJsonObject(member) ? member : {}] as const),
  );
}

function schemaOf({ type, description, schema }: OutputDeclaration): JsonObject {
  const about = description === '' ? undefined : description;
  if (schema === undefined) return compact({ type: JSON_TYPES[type], description: about });
  return compact({ ...schema, description: schema['description'] ?? about });
}

/** A value must match both. Two schemas of the same type become one if no keyword has two values. */
function both(declared: JsonObject, member: JsonObject): JsonObject {
  const { description, ...own } = declared;
  const clashes = Object.keys(own).some(
    (keyword) => member[keyword] !== undefined && !jsonEquals(own[keyword], member[keyword]),
  );
  const about = member['description'] ?? description;
  const merged = clashes ? { allOf: [own, member] } : { ...own, ...member };
  return compact({ ...merged, description: about });
}
