import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import type { ContentBlock } from '../core/message.ts';
import { proxySecrets } from '../core/proxy-secrets.ts';
import { propertySchema } from './coerce.ts';
import type { Tool, ToolOutput } from './tool.ts';

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
      entries.push([name, await fill(name, value, resolve, secrets)]);
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
  name: string,
  text: string,
  resolve: ResolveSecret,
  secrets: Set<string>,
): Promise<string> {
  const values = new Map<string, string>();
  for (const [, secretName = ''] of text.matchAll(HANDLE)) {
    const value = await resolve(secretName);
    if (value === undefined) {
      throw new RyeError('invalid_input', `${name}: unknown secret ${JSON.stringify(secretName)}`, {
        hint: 'Use a handle exactly as it was given in the inputs.',
      });
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
  for (const form of formsOf(secrets)) scrubbed = scrubbed.replaceAll(form, '***');
  return scrubbed;
}

/** The spellings of frozen lists of secrets: an output has hundreds of texts, and to make them takes longer than to look for them. */
const spellings = new WeakMap<readonly string[], readonly string[]>();

function formsOf(secrets: readonly string[]): readonly string[] {
  const known = spellings.get(secrets);
  if (known) return known;
  // the longest first, so that a secret which contains another one is removed whole
  const forms = secrets
    .toSorted((a, b) => b.length - a.length)
    .flatMap((secret) => {
      const escaped = JSON.stringify(secret).slice(1, -1);
      const ascii = escaped.replaceAll(
        /[^ -~]/g,
        (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
      return [...new Set([secret, escaped, ascii, encodeURIComponent(secret)])];
    });
  if (Object.isFrozen(secrets)) spellings.set(secrets, forms);
  return forms;
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

const SECRET_VARIABLE =
  /(?:(?:^|_)(?:(?:API|ACCESS|PRIVATE)?KEY|TOKEN|SECRET|CREDENTIALS?)|PASSWORD|PASSWD|PASSPHRASE)(?:_|$)/i;
/** A random part as long as that is no name of a folder: keys of AWS may begin with a slash. */
const RANDOM = /(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*\d)[^/]{16,}|[+=]/;
/** Minimum characters: shorter values would match ordinary text by chance. */
const MIN_SECRET_LENGTH = 12;

/** Returns the values of environment variables with a secret's name, except for paths and words, and the credentials of proxies. */
export function environmentSecrets(
  env: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  const named = Object.entries(env).flatMap(([name, value = '']) =>
    SECRET_VARIABLE.test(name) && value.length >= MIN_SECRET_LENGTH && !isPathOrWords(value)
      ? [value]
      : [],
  );
  return [...named, ...proxySecrets(env)];
}

function isPathOrWords(value: string): boolean {
  return /\s/.test(value) || (value.startsWith('/') && !RANDOM.test(value));
}

/**
 * The tool with every known secret replaced by `***` in what leaves it: results, data, live output and errors. So
 * a key that a command prints reaches neither the model nor the log, nor anything that is made of the log.
 */
export function withoutSecrets(tool: Tool, secrets: readonly string[]): Tool {
  if (secrets.length === 0) return tool;
  return {
    ...tool,
    async execute(input, context) {
      const live = scrubbedStream(secrets, (text) => context.progress(text));
      try {
        const output = await tool.execute(input, {
          ...context,
          progress: (text) => live.push(text),
        });
        return withoutSecretsInOutput(output, secrets);
      } catch (error) {
        throw withoutSecretsIn(error, secrets);
      } finally {
        live.end();
      }
    },
  };
}

/**
 * Scrubs a text that arrives in pieces. Holds back an end that could begin a secret until the next piece, so that no
 * secret passes in two halves.
 */
function scrubbedStream(
  secrets: readonly string[],
  show: (text: string) => void,
): { push(text: string): void; end(): void } {
  let waiting = '';
  return {
    push(text) {
      const clean = scrubText(waiting + text, secrets);
      const begun = Math.max(...secrets.map((secret) => beginningAtEnd(clean, secret)));
      waiting = clean.slice(clean.length - begun);
      if (begun < clean.length) show(clean.slice(0, clean.length - begun));
    },
    end() {
      if (waiting !== '') show(waiting);
      waiting = '';
    },
  };
}

/** Length of the longest end of `text` that begins `secret` without being all of it. */
function beginningAtEnd(text: string, secret: string): number {
  for (let length = Math.min(text.length, secret.length - 1); length > 0; length -= 1) {
    if (text.endsWith(secret.slice(0, length))) return length;
  }
  return 0;
}

function withoutSecretsInOutput(
  { content, data, ...output }: ToolOutput,
  secrets: readonly string[],
): ToolOutput {
  const clean = data === undefined ? undefined : scrubValue(data, secrets);
  return {
    ...output,
    content: content.map(
      (block): ContentBlock =>
        block.type === 'text' ? { ...block, text: scrubText(block.text, secrets) } : block,
    ),
    ...(clean === undefined ? {} : { data: clean as NonNullable<ToolOutput['data']> }),
  };
}

/** The error with every known secret in its message replaced. */
export function withoutSecretsIn(error: unknown, secrets: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const message = scrubText(error.message, secrets);
  if (!(error instanceof RyeError)) return message === error.message ? error : new Error(message);
  const hint = error.hint === undefined ? undefined : scrubText(error.hint, secrets);
  if (message === error.message && hint === error.hint) return error;
  return new RyeError(error.code, message, { hint });
}
