import { RyeError } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import { isJsonObject } from '../../core/json.ts';
import { propertySchema } from '../coerce.ts';

/** Looks up a secret of the thread by name; undefined when there is none. Called at execution time only. */
export type ResolveSecret = (name: string) => Promise<string | undefined> | string | undefined;

export interface ResolvedInput {
  readonly input: JsonObject;
  /** Values that must not appear in anything that leaves the call. */
  readonly secrets: readonly string[];
}

const HANDLE = /\{secret:([A-Za-z0-9_.-]+)\}/g;

/**
 * Replaces `{secret:NAME}` handles by their values, in the properties that the schema marks `writeOnly: true`, at
 * any depth of nested objects. Handles elsewhere stay text. Throws `invalid_input` for an unknown name.
 */
export async function resolveSecrets(
  schema: JsonObject,
  input: JsonObject,
  resolve: ResolveSecret,
): Promise<ResolvedInput> {
  const secrets = new Set<string>();
  const entries: [string, JsonValue][] = [];
  for (const [name, value] of Object.entries(input)) {
    if (value === undefined) continue;
    const property = propertySchema(schema, name);
    if (typeof value === 'string' && property?.['writeOnly'] === true) {
      entries.push([name, await fill(value, { name, resolve, secrets })]);
    } else if (isJsonObject(value) && property !== undefined) {
      const nested = await resolveSecrets(property, value, resolve);
      for (const secret of nested.secrets) secrets.add(secret);
      entries.push([name, nested.input]);
    } else {
      entries.push([name, value]);
    }
  }
  return { input: Object.fromEntries(entries), secrets: [...secrets] };
}

async function fill(
  text: string,
  { name, resolve, secrets }: { name: string; resolve: ResolveSecret; secrets: Set<string> },
): Promise<string> {
  const values = new Map<string, string>();
  for (const [, secretName = ''] of text.matchAll(HANDLE)) {
    const value = await resolve(secretName);
    if (value === undefined) {
      throw new RyeError(
        'invalid_input',
        `${name}: there is no secret named ${JSON.stringify(secretName)}`,
        {
          hint: 'Use a handle exactly as it was given in the inputs.',
        },
      );
    }
    values.set(secretName, value);
    if (value !== '') secrets.add(value);
  }
  // A plain value in a secret parameter is a secret as well.
  if (values.size === 0 && text !== '') secrets.add(text);
  return text.replaceAll(HANDLE, (_handle, secretName: string) => values.get(secretName) ?? '');
}

/** Replaces every secret in a text by `***`, also where JSON escaped it. */
export function scrubText(text: string, secrets: readonly string[]): string {
  let scrubbed = text;
  // The longest first, so that a secret which contains another one is removed whole.
  for (const secret of secrets.toSorted((a, b) => b.length - a.length)) {
    const escaped = JSON.stringify(secret).slice(1, -1);
    const ascii = escaped.replaceAll(
      /[^ -~]/g,
      (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
    for (const form of new Set([secret, escaped, ascii]))
      scrubbed = scrubbed.replaceAll(form, '***');
  }
  return scrubbed;
}

/** Replaces every secret in the strings and member names of a JSON value. */
export function scrubValue(value: JsonValue, secrets: readonly string[]): JsonValue {
  if (secrets.length === 0) return value;
  if (typeof value === 'string') return scrubText(value, secrets);
  if (typeof value === 'number') return secrets.includes(String(value)) ? '***' : value;
  if (Array.isArray(value)) return value.map((item: JsonValue) => scrubValue(item, secrets));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]) =>
      member === undefined ? [] : [[scrubText(key, secrets), scrubValue(member, secrets)]],
    ),
  );
}
