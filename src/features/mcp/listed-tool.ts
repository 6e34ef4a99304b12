import { isDeepStrictEqual } from 'node:util';
import { isJsonObject, isRecord, type JsonObject } from '../../kernel/core/json.ts';
import { modernSchema } from '../../kernel/tools/schema-dialect.ts';

/** A tool as a server lists it, without what can't be read. */
export interface ListedTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly inputSchema: JsonObject;
  readonly annotations: Readonly<Record<(typeof HINTS)[number], boolean | undefined>>;
}

/** A tool that can't be used. */
export interface UnusableTool {
  readonly name: string;
  /** Why, as the end of a sentence that begins with the tool. */
  readonly reason: string;
}

const HINTS = ['readOnlyHint', 'idempotentHint', 'openWorldHint'] as const;
/**
 * Reads one tool of a server's list. What the protocol requires and many servers get wrong is taken as it is meant: no
 * schema, one without type, of an older draft or of OpenAPI, malformed keywords. The schema of its output is not used.
 */
export function readListedTool(value: unknown): ListedTool | UnusableTool {
  if (!isRecord(value) || typeof value['name'] !== 'string') {
    return { name: '', reason: 'has no name' };
  }
  const { name, description, title, annotations, execution } = value;
  const schema = inputSchemaOf(value['inputSchema']);
  if (schema === undefined) return { name, reason: 'has an inputSchema that describes no object' };
  if (isRecord(execution) && execution['taskSupport'] === 'required') {
    return { name, reason: 'runs only as a task, which rye does not support' };
  }
  return {
    name,
    description: [description, title].find((text) => typeof text === 'string'),
    inputSchema: schema,
    annotations: hintsOf(isRecord(annotations) ? annotations : {}),
  };
}

function hintsOf(annotations: Readonly<Record<string, unknown>>): ListedTool['annotations'] {
  const hint = (name: (typeof HINTS)[number]): boolean | undefined => {
    const value = annotations[name];
    return typeof value === 'boolean' ? value : undefined;
  };
  return {
    readOnlyHint: hint('readOnlyHint'),
    idempotentHint: hint('idempotentHint'),
    openWorldHint: hint('openWorldHint'),
  };
}

/** Returns the schema of an object without what is malformed in it; undefined if it is another one. */
function inputSchemaOf(value: unknown): JsonObject | undefined {
  const given = value ?? {};
  if (!isJsonObject(given)) return undefined;
  const types = [given['type'] ?? 'object'].flat();
  if (!types.includes('object')) return undefined;
  // patterns are the server's to check
  const schema = { ...modernSchema(given, () => true), type: 'object' };
  const { properties } = schema as JsonObject;
  const made = isJsonObject(properties)
    ? { ...schema, properties: withoutTrue(properties) }
    : schema;
  // unchanged schemas keep the order of their members
  return isDeepStrictEqual(made, given) ? given : made;
}

/** `true` allows everything, as `{}` does, which every model API takes. */
function withoutTrue(properties: JsonObject): JsonObject {
  const members = Object.entries(properties);
  return Object.fromEntries(members.map(([key, member]) => [key, member === true ? {} : member]));
}
