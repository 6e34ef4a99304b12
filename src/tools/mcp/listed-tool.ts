import { isJsonObject, isRecord, type JsonObject } from '../../core/json.ts';

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
/** Keywords that have no meaning where they are null. */
const NULLABLE: ReadonlySet<string> = new Set([
  'properties',
  'required',
  'description',
  'title',
  '$defs',
  'definitions',
]);

/**
 * Reads one tool of a server's list. What the protocol requires and many servers get wrong is taken as it is meant: no
 * schema, one without type, members that are null. The schema of its output is not used.
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

/** Returns the schema of an object; undefined if it is another one. */
function inputSchemaOf(value: unknown): JsonObject | undefined {
  const given = value ?? {};
  if (!isJsonObject(given)) return undefined;
  const schema = Object.fromEntries(
    Object.entries(given).filter(([key, member]) => member !== null || !NULLABLE.has(key)),
  );
  const { type = 'object', properties = {}, required = [] } = schema;
  if (![type].flat().includes('object')) return undefined;
  if (!isJsonObject(properties)) return undefined;
  if (!Array.isArray(required) || required.some((one) => typeof one !== 'string')) return undefined;
  const members = Object.entries(properties);
  if (members.some(([, member]) => !isSchema(member))) return undefined;
  // `true` allows everything, as `{}` does, which every model API takes
  const plain = members.map(([key, member]) => [key, member === true ? {} : member]);
  return {
    ...schema,
    type: 'object',
    ...('properties' in schema ? { properties: Object.fromEntries(plain) as JsonObject } : {}),
  };
}

function isSchema(value: unknown): boolean {
  return typeof value === 'boolean' || isRecord(value);
}
