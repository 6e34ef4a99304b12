import { createHash } from 'node:crypto';
import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import type { ImageBlock } from '../core/message.ts';
import type { TextRule, WireRules } from './wire-rules.ts';

const HASH_CHARS = 12;

/** A name of the form that the API takes for tools. A long one is cut and ends with a hash of the whole. */
export function wireName(name: string, { toolName: rule }: WireRules): string {
  if (name === '') return 'unnamed';
  const clean = cleaned(name, rule);
  return rule.form.test(clean) ? clean : shortened(clean, name, rule);
}

/** An id of the form that the API takes. Different ids stay different. */
export function wireId(id: string, { callId }: WireRules): string {
  return distinct(id, callId);
}

function distinct(text: string, rule: TextRule): string {
  return rule.form.test(text) ? text : shortened(cleaned(text, rule), text, rule);
}

function cleaned(text: string, { other, filler, startsWithLetter }: TextRule): string {
  const clean = text.replaceAll(other, filler);
  return startsWithLetter && !/^[A-Za-z_]/.test(clean) ? `${filler || 'x'}${clean}` : clean;
}

/** The schema of a tool as its API takes it; {@link ownInput} undoes the new names of properties in a call. */
export function wireSchema(
  schema: JsonObject,
  rules: WireRules,
): JsonObject & { readonly type: 'object' } {
  const object = objectSchema(schema, rules);
  const made = rules.listItems ? withItems(object) : object;
  const { properties, required } = made;
  const renamed = renamedProperties(properties, rules);
  if (renamed.size === 0 || !isJsonObject(properties)) return made;
  const to = new Map([...renamed].map(([wire, own]) => [own, wire]));
  const entries = Object.entries(properties).map(([name, one]) => [to.get(name) ?? name, one]);
  return {
    ...made,
    properties: Object.fromEntries(entries) as JsonObject,
    ...(Array.isArray(required)
      ? { required: required.map((name) => (typeof name === 'string' && to.get(name)) || name) }
      : {}),
  };
}

/** The input of a call with the names of properties that its tool has. */
export function ownInput(input: JsonObject, schema: JsonObject, rules: WireRules): JsonObject {
  if (rules.propertyName === undefined) return input;
  const renamed = renamedProperties(objectSchema(schema, rules)['properties'], rules);
  if (renamed.size === 0) return input;
  return Object.fromEntries(
    Object.entries(input).map(([name, value]) => [renamed.get(name) ?? name, value]),
  );
}

/** Returns the own names of properties by those on the wire, for those that differ. */
function renamedProperties(
  properties: JsonValue | undefined,
  { propertyName: rule }: WireRules,
): ReadonlyMap<string, string> {
  const names = rule && isJsonObject(properties) ? Object.keys(properties) : [];
  const pairs = names.map((name) => [rule ? distinct(name, rule) : name, name] as const);
  return new Map(pairs.filter(([wire, own]) => wire !== own));
}

function shortened(clean: string, whole: string, rule: TextRule): string {
  const { length, exact, filler, startsWithLetter } = rule;
  const digest = createHash('sha256').update(whole).digest('hex');
  const hash = `${filler}${digest.slice(0, HASH_CHARS)}`;
  if (!exact && length > hash.length) return `${clean.slice(0, length - hash.length)}${hash}`;
  return `${startsWithLetter ? 'x' : ''}${digest}`.padEnd(length, '0').slice(0, length);
}

/** The first bytes of the types of images that vendors read, in hexadecimal. */
const MAGIC = [
  ['image/png', /^89504e470d0a1a0a/],
  ['image/jpeg', /^ffd8ff/],
  ['image/gif', /^474946383[79]61/],
  ['image/webp', /^52494646.{8}57454250/],
] as const;
const MAGIC_CHARS = 16;

export type WireImageType = (typeof MAGIC)[number][0];

/** The type of an image by its bytes, not by its label; undefined where no vendor reads it. */
export function imageTypeOf({ data }: Pick<ImageBlock, 'data'>): WireImageType | undefined {
  const head = Buffer.from(data.slice(0, MAGIC_CHARS), 'base64').toString('hex');
  return MAGIC.find(([, magic]) => magic.test(head))?.[0];
}

/** An image that the API reads: plain base64, and the type of its bytes. Servers put line feeds or a data URL around it. */
export function wireImage(
  { data: given }: Pick<ImageBlock, 'data'>,
  { images }: WireRules,
): { readonly type: WireImageType; readonly data: string } | undefined {
  const isPlain = BASE64.test(given);
  const data = isPlain ? given : given.replace(/^data:[^,]*,/, '').replaceAll(/\s/g, '');
  const type = isPlain || BASE64.test(data) ? imageTypeOf({ data }) : undefined;
  return type && images.includes(type) ? { type, data } : undefined;
}

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** True for a text that the API refuses. */
export function isRefusedText(text: string, { blankText }: WireRules): boolean {
  return blankText ? text === '' : text.trim() === '';
}

/** The text in place of an image that cannot be sent. */
export function imageNote({ media_type }: Pick<ImageBlock, 'media_type'>): string {
  return `[an image of the type ${media_type}]`;
}

/**
 * The schema of a tool as an object without alternatives at its top: the properties of all of them are offered, and only
 * those that each of them requires are required. The input is still checked against the whole schema.
 */
export function objectSchema(
  schema: JsonObject,
  { refusedAtTop }: WireRules,
): JsonObject & { readonly type: 'object' } {
  if (!refusedAtTop.some((name) => Object.hasOwn(schema, name))) {
    const { properties = {} } = schema;
    return { ...schema, type: 'object', properties };
  }
  const { properties, required } = membersOf(schema, schema, new Set());
  const rest = Object.fromEntries(
    Object.entries(schema).filter(([name]) => !refusedAtTop.includes(name)),
  );
  return {
    ...rest,
    type: 'object',
    properties,
    ...(required.length === 0 ? {} : { required: [...required] }),
  };
}

/** Members of a schema that hold a schema, or a list of them, and those that hold a mapping of them. */
const INNER = new Set('items additionalProperties anyOf oneOf allOf prefixItems not'.split(' '));
const NAMED = new Set(['properties', '$defs', 'definitions', 'patternProperties']);
const MAX_DEPTH = 40;

/** The schema with `items` in each list: chat completions refuse a list without. */
export function withItems<T extends JsonObject>(schema: T): T {
  return listed(schema, 0) as T;
}

function listed(schema: JsonValue, depth: number): JsonValue {
  if (depth > MAX_DEPTH) return schema;
  if (Array.isArray(schema)) return schema.map((one: JsonValue) => listed(one, depth + 1));
  if (!isJsonObject(schema)) return schema;
  const made: Record<string, JsonValue> = {};
  for (const [name, value] of Object.entries(schema)) {
    if (value === undefined) continue;
    if (INNER.has(name)) made[name] = listed(value, depth + 1);
    else made[name] = NAMED.has(name) ? eachListed(value, depth + 1) : value;
  }
  const { type, items, prefixItems } = made;
  const isList = type === 'array' || (Array.isArray(type) && type.includes('array'));
  if (isList && items === undefined && prefixItems === undefined) made['items'] = {};
  return made;
}

function eachListed(schemas: JsonValue, depth: number): JsonValue {
  if (!isJsonObject(schemas)) return schemas;
  const entries = Object.entries(schemas).flatMap(([name, one]) =>
    one === undefined ? [] : [[name, listed(one, depth)] as const],
  );
  return Object.fromEntries(entries);
}

interface Members {
  readonly properties: JsonObject;
  readonly required: readonly string[];
}

/** `seen`: each part is read once, because a server may refer to one part any number of times. */
function membersOf(
  schema: JsonValue | undefined,
  root: JsonObject,
  seen: Set<JsonObject>,
): Members {
  if (!isJsonObject(schema) || seen.has(schema)) return { properties: {}, required: [] };
  seen.add(schema);
  const { properties: own, required: needed, $ref: reference } = schema;
  const of = (name: string): readonly Members[] => {
    const parts = schema[name];
    return Array.isArray(parts) ? parts.map((part) => membersOf(part, root, seen)) : [];
  };
  const target = typeof reference === 'string' ? referred(root, reference) : undefined;
  const all = [...of('allOf'), membersOf(target, root, seen)];
  const choices = [of('anyOf'), of('oneOf')];
  const branches = [membersOf(schema['then'], root, seen), membersOf(schema['else'], root, seen)];
  const common = choices.flatMap(([first, ...others]) =>
    (first?.required ?? []).filter((name) => others.every((one) => one.required.includes(name))),
  );
  const properties: JsonObject = Object.assign(
    {},
    ...[...branches, ...choices.flat(), ...all].map((one) => one.properties),
    isJsonObject(own) ? own : {},
  );
  const required = [
    ...(Array.isArray(needed) ? needed : []),
    ...all.flatMap((one) => one.required),
    ...common,
  ].filter((name): name is string => typeof name === 'string' && Object.hasOwn(properties, name));
  return { properties, required: [...new Set(required)] };
}

/** The part of a schema that a local reference such as `#/$defs/a` names. */
function referred(root: JsonObject, reference: string): JsonValue | undefined {
  if (!reference.startsWith('#/')) return undefined;
  let at: JsonValue | undefined = root;
  for (const step of reference.slice(2).split('/')) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    at = isJsonObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  }
  return at;
}

/**
 * The text of a request without half surrogate pairs, which APIs refuse as malformed. `JSON.stringify` writes no other
 * escape of this form, so that one scan finds all of them, from any source.
 */
export function wellFormedJson(text: string): string {
  if (!text.includes('\\ud')) return text;
  return text.replaceAll(/\\(?:u(d[89a-f][0-9a-f]{2})|[^])/g, (escape, half?: string) =>
    half === undefined ? escape : '\\ufffd',
  );
}
