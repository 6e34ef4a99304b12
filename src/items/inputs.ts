import { RyeError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { nearNames } from '../core/text.ts';
import { coerce } from './coerce.ts';
import type { InputDeclaration } from './directive-ast.ts';

/** Checked inputs of one run. */
export interface ResolvedInputs {
  /** Every given or defaulted input in its declared type, secret ones included. */
  readonly values: JsonObject;
  /** Declared secret inputs that have a value: keep them out of everything that is written or sent. */
  readonly secretNames: readonly string[];
}

export interface InputOptions {
  /** Whether the file that a `file` input names exists and can be read. Default: not checked. */
  readonly fileExists?: (path: string) => boolean;
}

/**
 * Checks raw inputs against their declarations, coerces text, applies defaults. Without declarations everything is accepted as
 * it is. All problems are reported in one `invalid_input` error, `details.problems` has them one by one; values of
 * secret inputs never stand in messages.
 */
export function resolveInputs(
  declarations: readonly InputDeclaration[],
  raw: JsonObject,
  options: InputOptions = {},
): ResolvedInputs {
  const given = Object.entries(raw).filter(
    (entry): entry is [string, JsonValue] => entry[1] !== undefined,
  );
  if (declarations.length === 0) return { values: Object.fromEntries(given), secretNames: [] };
  const problems: string[] = unknownInputs(declarations, given);
  const values = new Map<string, JsonValue>();
  for (const declaration of declarations) {
    const written = given.find(([name]) => name === declaration.name)?.[1];
    const result = resolveOne(declaration, written, options);
    if ('problem' in result) problems.push(`${declaration.name} ${result.problem}`);
    else if (result.value !== undefined) values.set(declaration.name, result.value);
  }
  if (problems.length > 0) throw refusal(problems, declarations);
  const secretNames = declarations
    .filter(({ name, secret }) => secret && values.has(name))
    .map(({ name }) => name);
  return { values: Object.fromEntries(values), secretNames };
}

type Resolution = { readonly value: JsonValue | undefined } | { readonly problem: string };

function resolveOne(
  declaration: InputDeclaration,
  raw: JsonValue | undefined,
  { fileExists }: InputOptions,
): Resolution {
  const { type, required, secret, values } = declaration;
  const value = raw === undefined || raw === null ? declaration.default : raw;
  if (value === undefined) return required ? { problem: 'is required' } : { value: undefined };
  if (required && typeof value === 'string' && value.trim() === '') {
    return { problem: 'is required and must not be empty' };
  }
  const result = coerce(value, type, values);
  if ('problem' in result) {
    return { problem: secret ? result.problem : `= ${shown(value)} ${result.problem}` };
  }
  if (type === 'file' && fileExists !== undefined && typeof result.value === 'string') {
    if (!fileExists(result.value)) {
      return { problem: secret ? 'cannot be read' : `= ${shown(value)} cannot be read` };
    }
  }
  return result;
}

/** Long values are cut: a message names the input, it does not repeat a document. */
function shown(value: JsonValue): string {
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

function unknownInputs(
  declarations: readonly InputDeclaration[],
  given: readonly (readonly [string, JsonValue])[],
): string[] {
  const names = declarations.map(({ name }) => name);
  return given
    .filter(([name]) => !names.includes(name))
    .map(([name]) => {
      const [near] = nearNames(name, names);
      return `${name} is not an input${near === undefined ? '' : ` (did you mean ${near}?)`}`;
    });
}

function refusal(problems: readonly string[], declarations: readonly InputDeclaration[]): RyeError {
  const valid = declarations.map(
    ({ name, type, required }) => `${name} (${type}${required ? ', required' : ''})`,
  );
  return new RyeError('invalid_input', problems.join('; '), {
    hint: `Inputs are ${valid.join(', ')}.`,
    details: { problems, inputs: declarations.map(({ name }) => name) },
  });
}
