import type { JsonObject, JsonValue } from '../core/json.ts';
import type { OutputDeclaration, ValueType } from '../core/plan.ts';
import { coerceValue } from './coerce.ts';

/** JSON Schema type of each declared type; files are given as paths. */
const JSON_TYPES: Readonly<Record<ValueType, string>> = {
  string: 'string',
  integer: 'integer',
  number: 'number',
  boolean: 'boolean',
  array: 'array',
  object: 'object',
  file: 'string',
  enum: 'string',
};

const DIRECTIVE_RETURN_NAME = 'rye_directive_return';

/** By these a return reports that the directive could not be finished. An output of the same name replaces one. */
const ERROR_PROPERTIES: JsonObject = {
  status: { type: 'string', enum: ['completed', 'error'], description: 'Default: completed.' },
  error_detail: { type: 'string', description: 'Why you cannot finish, with status "error".' },
};

/** The tool by which a model ends a directive that declares outputs. The loop answers it, there is no Tool. */
export function directiveReturnDefinition(outputs: readonly OutputDeclaration[]): {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonObject;
} {
  return {
    name: DIRECTIVE_RETURN_NAME,
    description:
      'Ends the directive and returns its outputs. Call it once, when everything is done. If you are blocked and cannot finish, call it with status "error" and say why in error_detail; the outputs may then be missing.',
    input_schema: {
      type: 'object',
      properties: {
        ...ERROR_PROPERTIES,
        ...Object.fromEntries(
          outputs.map(({ name, type, description }) => [
            name,
            { type: JSON_TYPES[type], ...(description === '' ? {} : { description }) },
          ]),
        ),
      },
      required: outputs.filter(({ required }) => required).map(({ name }) => name),
    },
  };
}

export type OutputCheck =
  | { readonly ok: true; readonly outputs: JsonObject }
  | { readonly ok: false; readonly problems: readonly string[] };

/**
 * Checks returned outputs: every required one is present (false, 0 and empty values are present, null is not) and
 * each has its declared type, after the coercions of the argument table. Drops undeclared members.
 */
export function checkOutputs(
  declarations: readonly OutputDeclaration[],
  input: JsonObject,
): OutputCheck {
  const outputs: [string, JsonValue][] = [];
  const problems: string[] = [];
  for (const { name, type, required } of declarations) {
    const value = Object.hasOwn(input, name) ? input[name] : undefined;
    if (value === undefined || value === null) {
      if (required) problems.push(`${name}: is required (${type})`);
      continue;
    }
    const typed = coerceValue(value, JSON_TYPES[type]);
    if (typed === undefined) problems.push(`${name}: must be ${type}`);
    else outputs.push([name, typed]);
  }
  return problems.length === 0
    ? { ok: true, outputs: Object.fromEntries(outputs) }
    : { ok: false, problems };
}
