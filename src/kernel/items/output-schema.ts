import { itemIdProblem } from '../core/ids.ts';
import { isJsonObject, isRecord, type JsonObject, type JsonValue } from '../core/json.ts';
import { VALUE_TYPES, type ValueType } from '../core/plan.ts';
import { JSON_TYPES } from '../core/return-schema.ts';
import { type DirectiveDraft, malformed } from './directive-ast.ts';
import { Locator } from './source.ts';
import { childElements, textOf, type XmlElement } from './xml.ts';

/** Bounds on a schema after its references are resolved, which can multiply its size. */
const MAX_VALUES = 10_000;
const MAX_DEPTH = 64;

/** A schema of an output as its element gives it: the schema itself, or the id of the knowledge entry that contains it. */
export interface WrittenSchema {
  readonly schema?: JsonObject;
  readonly schema_id?: string;
}

/** Reads the `<schema>` of an `<output>`; reports what is wrong with it at its place. */
export function readSchemaElement(output: XmlElement, draft: DirectiveDraft): WrittenSchema {
  const [element, second] = childElements(output, 'schema');
  if (element === undefined) return {};
  if (second !== undefined) malformed(draft, second, 'an output has one <schema>');
  const id = element.attributes.get('id')?.trim();
  const text = textOf(element);
  if (id !== undefined) {
    const problem = text === '' ? itemIdProblem(id) : 'it has a text too';
    if (problem === undefined) return { schema_id: id };
    malformed(draft, element, `<schema id="${id}"> cannot be used: ${problem}`);
    return {};
  }
  try {
    return { schema: parseSchema(text) };
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    const start = element.raw.indexOf(text.split('\n', 1)[0] ?? '');
    const { path, line = 1, column = 1 } = element.location;
    const at = new Locator({ path, text: element.raw, line, column });
    draft.problems.error({
      code: 'directive_malformed',
      message: `the schema of the output "${output.attributes.get('name') ?? ''}" cannot be used: ${error.message}`,
      location: at.at(Math.max(0, start) + error.offset),
      hint: 'Write a JSON Schema object, such as {"type": "array", "items": {"type": "string"}}; put text with < or & into <![CDATA[…]]>.',
    });
    return {};
  }
}

/** Why a text is no usable schema, and the offset in it. */
export class SchemaProblem extends Error {
  readonly offset: number;

  constructor(message: string, offset = 0) {
    super(message);
    this.offset = offset;
  }
}

/** Parses a JSON Schema without references; throws a {@link SchemaProblem}. */
export function parseSchema(text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new SchemaProblem(`it is not JSON: ${message}`, faultOffset(text, message));
  }
  if (!isJsonObject(value)) throw new SchemaProblem('it is not a JSON object');
  return withoutReferences(value);
}

/** Returns the offset that a message of JSON.parse means: newer versions of Node state it, others quote the text around it. */
function faultOffset(text: string, message: string): number {
  const position = /position (\d+)/.exec(message)?.[1];
  if (position !== undefined) return Math.min(Number(position), text.length);
  const [, token = '', dots, quoted = ''] =
    /^Unexpected token '(.)', (\.\.\.)?"([^]*?)"(?:\.\.\.)? is not/.exec(message) ?? [];
  if (quoted === '') return text.length;
  const within = dots === undefined ? quoted.indexOf(token) : QUOTED_BEFORE;
  return Math.max(0, text.indexOf(quoted)) + Math.max(0, within);
}

/** Characters that Node quotes before the fault. */
const QUOTED_BEFORE = 10;

/**
 * Replaces each `$ref` with its target, so that the schema can become part of another one. Throws a {@link SchemaProblem} for a
 * reference that is recursive or leaves the schema, and for a schema that is too large.
 */
export function withoutReferences(root: JsonObject): JsonObject {
  let values = 0;
  const visit = (value: JsonValue, depth: number, open: readonly string[]): JsonValue => {
    values += 1;
    if (values > MAX_VALUES) throw new SchemaProblem(`it is larger than ${MAX_VALUES} values`);
    if (depth > MAX_DEPTH) throw new SchemaProblem(`it is nested deeper than ${MAX_DEPTH} levels`);
    if (Array.isArray(value)) return value.map((item: JsonValue) => visit(item, depth + 1, open));
    if (!isJsonObject(value)) return value;
    const { $ref: reference } = value;
    // a property may have that name too: its value is a schema then
    const isReference = typeof reference === 'string';
    const members = Object.entries(value).flatMap(([name, member]) =>
      member === undefined ||
      (isReference && name === '$ref') ||
      (depth === 1 && DEFINITIONS.has(name))
        ? []
        : [[name, visit(member, depth + 1, open)] as const],
    );
    const resolved = Object.fromEntries(members);
    if (!isReference) return resolved;
    if (open.includes(reference)) throw new SchemaProblem(`"$ref": "${reference}" is recursive`);
    const target = visit(targetOf(root, reference), depth + 1, [...open, reference]);
    if (Object.keys(resolved).length === 0) return target;
    const isPlain = isJsonObject(target) && !Object.keys(resolved).some((name) => name in target);
    return isPlain ? { ...target, ...resolved } : { ...resolved, allOf: [target] };
  };
  return visit(root, 1, ['#']) as JsonObject;
}

const DEFINITIONS: ReadonlySet<string> = new Set(['$defs', 'definitions']);

function targetOf(root: JsonObject, reference: string): JsonValue {
  if (!reference.startsWith('#')) {
    throw new SchemaProblem(`"$ref": "${reference}" leaves the schema; use "#/$defs/NAME"`);
  }
  let at: unknown = root;
  for (const part of reference.slice(1).split('/').slice(1)) {
    const key = decodePart(part);
    if (Array.isArray(at)) at = at[Number(key)];
    else at = isRecord(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  if (isJsonObject(at)) return at;
  throw new SchemaProblem(`"$ref": "${reference}" names nothing in the schema`);
}

function decodePart(part: string): string {
  return part.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** Returns the declared type that is nearest to a schema; `object` if it names none. */
export function typeOfSchema({ type, enum: values }: JsonObject): ValueType {
  const named = [type].flat().find((one) => one !== 'null');
  const found = VALUE_TYPES.find((known) => known === named);
  if (found !== undefined) return found;
  const isText = Array.isArray(values) && values.every((value) => typeof value === 'string');
  return isText ? 'string' : 'object';
}

/** Returns true unless the schema names other types only. */
export function mayHaveType({ type }: JsonObject, declared: ValueType): boolean {
  const types: readonly JsonValue[] = type === undefined ? [] : [type].flat();
  return types.length === 0 || types.includes(JSON_TYPES[declared]);
}
