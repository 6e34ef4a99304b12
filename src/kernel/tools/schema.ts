import type { Ajv2020, ErrorObject, ValidateFunction } from 'ajv/dist/2020.js';
import { messageOf, RyeError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { isJsonObject } from '../core/json.ts';
import { didYouMean, headChars } from '../core/text.ts';
import { readPlainSchema } from '../startup/plain-schema.ts';
import { coerceInput, propertySchema } from './coerce.ts';
import { isForeign, isOldDialect, modernSchema } from './schema-dialect.ts';

/** The outcome of checking a call's arguments: what to run with, or text that tells the model what to fix. */
export type Validation =
  | { readonly ok: true; readonly input: JsonObject; readonly coerced: readonly string[] }
  | { readonly ok: false; readonly problems: string };

/** Bounds on a schema, so that a hostile tool cannot make the compiler or a validation run away. */
const SCHEMA_BOUNDS: Bounds = { depth: 64, nodes: 10_000, characters: 256 * 1024 };
/** Bounds on a call's arguments. */
const INPUT_BOUNDS: Bounds = { depth: 64, nodes: 20_000, characters: 16 * 1024 * 1024 };
const MAX_PROBLEMS = 8;

const compiled = new WeakMap<JsonObject, Promise<ValidateFunction>>();
const plain = new WeakMap<JsonObject, ReturnType<typeof readPlainSchema>>();

/**
 * Coerces the arguments by the table of {@link coerceInput}, then validates them against a JSON Schema of draft
 * 2020-12 without formats. What is made of a schema is kept per schema object. Throws `tool_malformed` for a schema
 * that does not compile, is out of bounds or uses a pattern that needs backtracking.
 */
export async function validateInput(schema: JsonObject, input: JsonObject): Promise<Validation> {
  const excess = excessOf(input, INPUT_BOUNDS);
  if (excess !== undefined) return { ok: false, problems: `The arguments are ${excess}.` };
  const fits = plainCheckOf(schema);
  const coercion = coerceInput(schema, input);
  if (fits?.(coercion.input) === true) return { ok: true, ...coercion };
  const validate = await compileSchema(schema);
  if (validate(coercion.input)) return { ok: true, ...coercion };
  return { ok: false, problems: describeErrors(schema, coercion.input, validate.errors ?? []) };
}

/** The check that needs no compiler, for schemas that have one. */
function plainCheckOf(schema: JsonObject): ReturnType<typeof readPlainSchema> {
  if (plain.has(schema)) return plain.get(schema);
  const { $schema: _dialect, ...own } = schema;
  const isTooBig = excessOf(schema, SCHEMA_BOUNDS) !== undefined;
  const isOfObject = own['type'] === undefined || own['type'] === 'object';
  const check = isTooBig || !isOfObject ? undefined : readPlainSchema(own);
  plain.set(schema, check);
  return check;
}

/** Compiles a tool's input schema; throws `tool_malformed` with the reason if it is unusable. */
export function compileSchema(schema: JsonObject): Promise<ValidateFunction> {
  const known = compiled.get(schema);
  if (known) return known;
  const compiling = compile(schema);
  compiled.set(schema, compiling);
  return compiling;
}

async function compile(schema: JsonObject): Promise<ValidateFunction> {
  const excess = excessOf(schema, SCHEMA_BOUNDS);
  if (excess !== undefined) throw malformed(`it is ${excess}`);
  if (schema['$async'] === true) throw malformed('asynchronous schemas are not supported');
  if (schema['type'] !== undefined && schema['type'] !== 'object') {
    throw malformed(`its type is ${JSON.stringify(schema['type'])}, not "object"`);
  }
  const { metaSchema, make, compiles } = await (engine ??= loadEngine());
  const isTheirs = isForeign(schema);
  const { $schema: _dialect, ...own } =
    isTheirs || isOldDialect(schema) ? modernSchema(schema, compiles) : schema;
  try {
    if (metaSchema.validateSchema(own) !== true) {
      const problems = (metaSchema.errors ?? []).map((error) =>
        metaSchema.errorsText([error], { dataVar: 'schema' }),
      );
      throw malformed([...new Set(problems)].join(', '));
    }
    return make().compile(own);
  } catch (error) {
    // the server checks the input by itself
    if (isTheirs) return make().compile({ type: 'object' });
    throw error instanceof RyeError ? error : malformed(messageOf(error));
  }
}

interface Engine {
  /** Checks schemas; its compiled metaschema is the expensive part and is shared. */
  readonly metaSchema: Ajv2020;
  /** One compiler per schema: two tools may carry the same $id, and a dropped schema must be collectable. */
  readonly make: () => Ajv2020;
  /** True for a pattern that can be compiled. */
  readonly compiles: (pattern: string) => boolean;
}

let engine: Promise<Engine> | undefined;

async function loadEngine(): Promise<Engine> {
  const { Ajv2020: Compiler, RE2JS } = await import('./json-schema.ts');
  // A pattern of a tool meets text of a model: only a linear-time engine is safe on the main thread.
  const regExp = (pattern: string) => {
    const expression = RE2JS.compile(RE2JS.translateRegExp(pattern));
    // ajv shares compiled patterns by this text.
    return { test: (text: string) => expression.test(text), toString: () => `/${pattern}/` };
  };
  regExp.code = '';
  const options = {
    strict: false,
    allErrors: true,
    validateFormats: false,
    logger: false,
    code: { regExp },
  } as const;
  return {
    metaSchema: new Compiler(options),
    make: () => new Compiler({ ...options, meta: false, validateSchema: false }),
    compiles: (pattern) => {
      try {
        return regExp(pattern) !== undefined;
      } catch {
        return false;
      }
    },
  };
}

function malformed(reason: string): RyeError {
  return new RyeError('tool_malformed', `the input schema cannot be used: ${reason}`, {
    hint: 'Use JSON Schema 2020-12 of type object, patterns without look-around and back-references.',
  });
}

interface Bounds {
  readonly depth: number;
  readonly nodes: number;
  readonly characters: number;
}

/** Describes which bound a value exceeds, or returns undefined. Uses no recursion, so depth cannot exhaust the stack. */
function excessOf(root: JsonObject, bounds: Bounds): string | undefined {
  let nodes = 0;
  let characters = 0;
  const pending: { value: JsonValue; depth: number }[] = [{ value: root, depth: 1 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { value, depth } = next;
    nodes += 1;
    if (depth > bounds.depth) return `nested deeper than ${bounds.depth} levels`;
    if (nodes > bounds.nodes) return `larger than ${bounds.nodes} values`;
    if (typeof value === 'string') characters += value.length;
    if (typeof value === 'object' && value !== null) {
      for (const [key, member] of Object.entries(value)) {
        characters += key.length;
        if (member !== undefined) pending.push({ value: member, depth: depth + 1 });
      }
    }
    if (characters > bounds.characters) return `longer than ${bounds.characters} characters`;
  }
  return undefined;
}

function describeErrors(
  schema: JsonObject,
  input: JsonObject,
  errors: readonly ErrorObject[],
): string {
  const lines = [...new Set(errors.map((error) => describeError(schema, input, error)))];
  const shown = lines.slice(0, MAX_PROBLEMS).map((line) => `- ${line}`);
  if (lines.length > shown.length) shown.push(`- and ${lines.length - shown.length} more`);
  return [...shown, `Parameters: ${describeParameters(schema)}`].join('\n');
}

function describeError(schema: JsonObject, input: JsonObject, error: ErrorObject): string {
  const where = error.instancePath.slice(1).replaceAll('/', '.') || 'input';
  const params: Readonly<Record<string, unknown>> = error.params;
  switch (error.keyword) {
    case 'required': {
      const path = `${error.instancePath}/${String(params['missingProperty'])}`;
      return `${path.slice(1).replaceAll('/', '.')}: is required`;
    }
    case 'additionalProperties': {
      const name = String(params['additionalProperty']);
      const near = error.instancePath === '' ? didYouMean(name, propertyNames(schema)) : undefined;
      return `${where === 'input' ? '' : `${where}.`}${name}: is not a parameter${near === undefined ? '' : `. ${near}`}`;
    }
    case 'enum':
      return `${where}: must be one of ${JSON.stringify(params['allowedValues'])}${got(input, error)}`;
    case 'type':
      return `${where}: must be ${String(params['type']).replaceAll(',', ' or ')}${got(input, error)}`;
    default:
      return `${where}: ${error.message ?? `fails ${error.keyword}`}`;
  }
}

/** `, got string "abc"`: the kind of the wrong value and a short form of it. */
function got(input: JsonObject, error: ErrorObject): string {
  let value: JsonValue | undefined = input;
  for (const part of error.instancePath.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(value)) value = value[Number(key)];
    else if (isJsonObject(value)) value = value[key];
  }
  if (value === undefined || value === null) return ', got null';
  if (Array.isArray(value)) return ', got array';
  if (typeof value === 'object') return ', got object';
  const text = JSON.stringify(value);
  return `, got ${typeof value} ${text.length > 60 ? `${headChars(text, 57)}…` : text}`;
}

function describeParameters(schema: JsonObject): string {
  const required = schema['required'];
  const names = propertyNames(schema).slice(0, 40);
  if (names.length === 0) return 'none.';
  const parts = names.map((name) => {
    const type = propertySchema(schema, name)?.['type'];
    const kind = typeof type === 'string' ? type : Array.isArray(type) ? type.join(' or ') : 'any';
    const must = Array.isArray(required) && required.includes(name) ? ', required' : '';
    return `${name} (${kind}${must})`;
  });
  return `${parts.join(', ')}.`;
}

function propertyNames(schema: JsonObject): string[] {
  const properties = schema['properties'];
  return isJsonObject(properties) ? Object.keys(properties) : [];
}
