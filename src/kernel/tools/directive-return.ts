import type { JsonObject, JsonValue } from '../core/json.ts';
import {
  DIRECTIVE_RETURN,
  declaresOutput,
  hasResult,
  JSON_TYPES,
  type ResultShape,
  resultSchema,
} from '../core/return-schema.ts';
import { coerceValue } from './coerce.ts';

/** By these a return reports that the directive could not be finished. An output of the same name replaces one. */
const ERROR_PROPERTIES: JsonObject = {
  status: { type: 'string', enum: ['completed', 'error'], description: 'Default: completed.' },
  error_detail: { type: 'string', description: 'Why you cannot finish, with status "error".' },
};

/** Returns the tool by which a model ends a directive; undefined if there is nothing to return. The loop answers it. */
export function directiveReturnDefinition(shape: ResultShape):
  | {
      readonly name: string;
      readonly description: string;
      readonly input_schema: JsonObject;
    }
  | undefined {
  if (!hasResult(shape)) return undefined;
  const { properties, ...schema } = resultSchema(shape);
  return {
    name: DIRECTIVE_RETURN,
    description:
      'Ends the directive and returns its outputs. Call it once, when everything is done. If you are blocked and cannot finish, call it with status "error" and say why in error_detail; the outputs may then be missing.',
    input_schema: {
      ...schema,
      properties: { ...ERROR_PROPERTIES, ...(properties as JsonObject) },
    },
  };
}

export type OutputCheck =
  | { readonly ok: true; readonly outputs: JsonObject }
  | { readonly ok: false; readonly problems: readonly string[] };

/**
 * Checks returned outputs: every required one is present (false, 0 and empty values are present, null is not) and
 * each has its declared type, after the coercions of the argument table. Drops members that neither the directive nor the
 * schema knows. A value with its own schema is left to the caller, who validates the whole.
 */
export function checkOutputs(shape: ResultShape, input: JsonObject): OutputCheck {
  const problems: string[] = [];
  const outputs = new Map<string, JsonValue>(others(shape, input));
  for (const { name, type, required, schema } of shape.outputs) {
    const value = Object.hasOwn(input, name) ? input[name] : undefined;
    if (value === undefined || (value === null && schema === undefined)) {
      if (required) problems.push(`${name}: is required (${type})`);
      continue;
    }
    const typed = schema === undefined ? coerceValue(value, JSON_TYPES[type]) : value;
    if (typed === undefined) problems.push(`${name}: must be ${type}`);
    else outputs.set(name, typed);
  }
  return problems.length === 0
    ? { ok: true, outputs: Object.fromEntries(outputs) }
    : { ok: false, problems };
}

/** Members that the directive does not declare: the schema's members, or all if there is only a schema. */
function others(shape: ResultShape, input: JsonObject): readonly (readonly [string, JsonValue])[] {
  return Object.entries(input).flatMap(([name, value]) => {
    if (value === undefined || shape.outputs.some((output) => output.name === name)) return [];
    const isError = Object.hasOwn(ERROR_PROPERTIES, name);
    const isKept = declaresOutput(shape, name) || (shape.outputs.length === 0 && !isError);
    return isKept ? [[name, value] as const] : [];
  });
}
