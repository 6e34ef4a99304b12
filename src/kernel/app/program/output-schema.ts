import { RyeError } from '../../core/errors.ts';
import { isJsonObject, isRecord, type JsonObject, parseJson } from '../../core/json.ts';
import type { DescribedSchema, OutputSchema } from '../api/output-schema.ts';

/** Returns a schema as JSON Schema; throws `usage` for a value that is none. `where` names the member that has it. */
export function jsonSchemaOf(schema: OutputSchema, where: string): JsonObject {
  if (isDescribed(schema)) return described(schema, where);
  if (isJsonObject(schema) && !('~standard' in schema)) return schema;
  throw unusable(where, 'is not a JSON Schema object, nor a schema that describes itself as one');
}

function described(schema: DescribedSchema, where: string): JsonObject {
  try {
    const { $schema: _dialect, ...own } = schema['~standard'].jsonSchema.input({
      target: 'draft-2020-12',
    });
    const value = parseJson(JSON.stringify(own));
    if (value !== undefined && isJsonObject(value)) return value;
  } catch (error) {
    throw unusable(where, error instanceof Error ? error.message : String(error));
  }
  throw unusable(where, 'does not describe itself as a JSON Schema object');
}

function isDescribed(schema: unknown): schema is DescribedSchema {
  if ((typeof schema !== 'object' && typeof schema !== 'function') || schema === null) return false;
  const standard: unknown = Reflect.get(schema, '~standard');
  const json: unknown = isRecord(standard) ? standard['jsonSchema'] : undefined;
  return isRecord(json) && typeof json['input'] === 'function';
}

function unusable(where: string, problem: string): RyeError {
  return new RyeError('usage', `${where} ${problem}`, {
    hint: 'Pass JSON Schema as an object, or a zod schema (zod 4.2 or newer).',
  });
}
