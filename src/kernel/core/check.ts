import { RyeError, type SourceLocation } from './errors.ts';
import { isRecord } from './json.ts';
import { didYouMean } from './text.ts';

/**
 * The JSON Schema that {@link findProblem} reads. `problem` words a failure of this value, and of each part that has
 * no `problem`; `{value}` in it is replaced by the value as JSON.
 */
export interface CheckedSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly CheckedSchema[];
  readonly properties?: Readonly<Record<string, CheckedSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | CheckedSchema;
  readonly propertyNames?: CheckedSchema;
  readonly items?: CheckedSchema;
  readonly minItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly problem?: string;
  /** Words the failure of an absent value instead. */
  readonly missing?: string;
  readonly hint?: string;
}

/** The first part of a value that does not match its schema. */
export interface Problem {
  readonly path: readonly (string | number)[];
  /** Follows the name of the part, such as `is 7, not a text`. */
  readonly text: string;
  /** The names that may have been meant, else the declared hint. */
  readonly hint?: string | undefined;
  /** Members that the object may have, if the part is one that it may not have. */
  readonly known?: readonly string[];
}

/** A problem that a schema around it may still word. */
type Found = Omit<Problem, 'text'> & { readonly text?: string };

const HERE: Found = { path: [] };
const MAX_SHOWN = 200;

/**
 * Returns the first part of a value that does not match, or undefined. In an object unknown members come first, then the
 * members in the order of the schema; an undefined member is absent. Of alternatives, only those for the value's type count, and of these the closest match.
 */
export function findProblem(schema: CheckedSchema, value: unknown): Problem | undefined {
  const found = check(schema, value);
  return found && { ...found, text: found.text ?? 'is not valid' };
}

/** Throws `config_invalid` for the first part of a value that does not match. `name` is that of the whole value. */
export function assertConfig(
  schema: CheckedSchema,
  value: unknown,
  name: string,
  location?: SourceLocation,
): void {
  const problem = findProblem(schema, value);
  if (!problem) return;
  const { known, text, hint } = problem;
  const path = known ? problem.path.slice(0, -1) : problem.path;
  const part = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('');
  const what = known ? `has the unknown key ${problem.path.at(-1)}` : text;
  throw new RyeError('config_invalid', `${name}${part} ${what}`, {
    location,
    hint: hint ?? (known && `Known: ${known.join(', ')}.`),
  });
}

/** Returns the value as JSON, cut to 200 characters. */
export function shown(value: unknown): string {
  const text = (JSON.stringify(value) as string | undefined) ?? String(value);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}

function check(schema: CheckedSchema, value: unknown): Found | undefined {
  const found = schema.anyOf ? checkUnion(schema.anyOf, value) : checkOne(schema, value);
  if (!found || found.text !== undefined || schema.problem === undefined) return found;
  const names = schema.enum?.filter((name) => typeof name === 'string') ?? [];
  const near = typeof value === 'string' ? didYouMean(value, names) : undefined;
  const problem = value === undefined ? (schema.missing ?? schema.problem) : schema.problem;
  const text = problem.replaceAll('{value}', () => shown(value));
  return { path: [], text, hint: near ?? schema.hint };
}

function checkUnion(branches: readonly CheckedSchema[], value: unknown): Found | undefined {
  const fitting = branches.filter(({ type }) => type === undefined || hasType(type, value));
  let furthest: Found | undefined;
  for (const branch of fitting.length > 0 ? fitting : branches) {
    const found = check(branch, value);
    if (!found) return undefined;
    if (!furthest || reach(found) > reach(furthest)) furthest = found;
  }
  return furthest;
}

function reach({ path, text }: Found): number {
  return 2 * path.length + (text === undefined ? 0 : 1);
}

function checkOne(schema: CheckedSchema, value: unknown): Found | undefined {
  const { type, enum: names, const: only } = schema;
  if (type !== undefined && !hasType(type, value)) return HERE;
  if (names && !names.includes(value)) return HERE;
  if (only !== undefined && value !== only) return HERE;
  if (typeof value === 'number') return isWithin(schema, value) ? undefined : HERE;
  if (typeof value === 'string') return isText(schema, value) ? undefined : HERE;
  if (Array.isArray(value)) return checkItems(schema, value);
  return isRecord(value) ? checkMembers(schema, value) : undefined;
}

function hasType(type: string | readonly string[], value: unknown): boolean {
  return typeof type === 'string' ? isType(type, value) : type.some((one) => isType(one, value));
}

function isType(type: string, value: unknown): boolean {
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isRecord(value);
  if (type === 'integer') return Number.isSafeInteger(value);
  return type === 'number' ? Number.isFinite(value) : typeof value === type;
}

function isWithin(
  { minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity }: CheckedSchema,
  value: number,
): boolean {
  return value >= minimum && value <= maximum && value > exclusiveMinimum;
}

function isText({ minLength = 0, maxLength, pattern }: CheckedSchema, value: string): boolean {
  if (value.length < minLength || value.length > (maxLength ?? Infinity)) return false;
  return pattern === undefined || new RegExp(pattern).test(value);
}

function checkItems({ items, minItems = 0 }: CheckedSchema, value: unknown[]): Found | undefined {
  if (value.length < minItems) return HERE;
  return items && firstOf(value, (item, index) => within(index, check(items, item)));
}

function checkMembers(
  { properties = {}, required = [], additionalProperties = true, propertyNames }: CheckedSchema,
  value: Record<string, unknown>,
): Found | undefined {
  const known = Object.keys(properties);
  // most objects of a log are open, and their other members are not looked at
  const isOpen = additionalProperties === true && !propertyNames;
  const others = isOpen
    ? []
    : Object.keys(value).filter(
        (name) => !Object.hasOwn(properties, name) && value[name] !== undefined,
      );
  const [unknown] = others;
  if (additionalProperties === false && unknown !== undefined) {
    const hint = didYouMean(unknown, known);
    return { path: [unknown], text: 'is not a known key', hint, known };
  }
  const wrong = firstOf(known, (name) => {
    const schema = properties[name];
    const isAsked = value[name] !== undefined || required.includes(name);
    return schema && isAsked ? within(name, check(schema, value[name])) : undefined;
  });
  if (wrong || isOpen) return wrong;
  return firstOf(others, (name) => {
    const found = propertyNames && check(propertyNames, name);
    if (found || typeof additionalProperties !== 'object') return within(name, found);
    return within(name, check(additionalProperties, value[name]));
  });
}

function within(name: string | number, found: Found | undefined): Found | undefined {
  return found && { ...found, path: [name, ...found.path] };
}

function firstOf<T>(
  list: readonly T[],
  find: (one: T, index: number) => Found | undefined,
): Found | undefined {
  let index = 0;
  for (const one of list) {
    const found = find(one, index);
    if (found) return found;
    index += 1;
  }
  return undefined;
}
