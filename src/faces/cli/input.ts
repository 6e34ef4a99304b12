import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { OpenRyeOptions } from '../../kernel/app/api/rye.ts';
import { messageOf, RyeError, systemCodeOf } from '../../kernel/core/errors.ts';
import { ITEM_TYPES, type SignableType } from '../../kernel/core/ids.ts';
import { isJsonObject, type JsonObject, parseGivenJson } from '../../kernel/core/json.ts';
import { LIMIT_NAMES, type PartialLimits } from '../../kernel/core/limits.ts';
import { didYouMean } from '../../kernel/core/text.ts';
import type { Io } from '../ui/io.ts';
import { type Shown, shown } from '../ui/visible.ts';
import type { Argument, Context } from './command.ts';
import { quietOptions } from './session.ts';

/** Declares an argument that names a type, in singular or plural. */
export function typeArgument<const T extends string>(
  choices: readonly T[],
  description: string,
): Argument<T> {
  return { description, choices, read: ([word = '']) => typeNamed(word, choices) };
}

export const ITEM_TYPE = typeArgument(
  ITEM_TYPES,
  'directive, tool, knowledge, rule or skill; plurals are accepted',
);

const SIGNABLE_TYPES = [...ITEM_TYPES, 'config', 'hook'] as const;

/** Declares an argument that names the type of a signed file, and may be absent. */
export const OPTIONAL_SIGNABLE: Argument<SignableType | 'hook' | undefined> = {
  description: 'An item type, config or hook; plurals are accepted',
  choices: SIGNABLE_TYPES,
  optional: true,
  read: ([word]) => (word === undefined ? undefined : typeNamed(word, SIGNABLE_TYPES)),
};

const SIGNED_TYPES = [...SIGNABLE_TYPES, 'thread'] as const;

/** Declares an argument that names what `rye sign` signs. */
export const OPTIONAL_SIGNED: Argument<SignableType | 'hook' | 'thread' | undefined> = {
  description: 'An item type, config, hook or thread; plurals are accepted',
  choices: SIGNED_TYPES,
  optional: true,
  read: ([word]) => (word === undefined ? undefined : typeNamed(word, SIGNED_TYPES)),
};

const MAX_QUESTION = 200;

/** Returns the ID of a directive as it is typed. Throws `invalid_item_id` for a question, with the command that answers it. */
export function directiveNamed(word: string): string {
  if (!/\s|[?!]$/.test(word.trim())) return word;
  const isLong = word.length > MAX_QUESTION || word.includes('\n');
  const question = isLong ? "'…'" : `'${word.replaceAll("'", String.raw`'\''`)}'`;
  throw new RyeError('invalid_item_id', `${JSON.stringify(word)} is not a directive id`, {
    hint: `To ask a question: rye ask ${question}`,
  });
}

/** Returns the type that a word names, in singular or plural. Throws `usage`. */
export function typeNamed<const T extends string>(text: string, types: readonly T[]): T {
  const name = text.toLowerCase();
  const found = types.find((type) => type === name || `${type}s` === name);
  if (found !== undefined) return found;
  throw new RyeError('usage', `unknown type ${JSON.stringify(text)}`, {
    hint: didYouMean(name, types) ?? `Use one of: ${types.join(', ')}.`,
  });
}

/**
 * Reads a file that the command line names, as bytes. `source` names the option or argument, for messages. Throws
 * `path_denied` for a link that leads out of the project, for a named pipe, and, if a model would see the text, for what
 * `tools.deny_read` covers.
 */
export async function readNamedFile(
  file: string,
  source: string,
  io: Io,
  model?: OpenRyeOptions,
): Promise<Buffer> {
  const absolute = path.resolve(io.cwd, file);
  const { readFileOfPerson } = await import('../../kernel/app/named-file.ts');
  try {
    return await readFileOfPerson(absolute, { cwd: io.cwd, home: io.env['HOME'], model });
  } catch (error) {
    if (error instanceof RyeError) {
      throw new RyeError(error.code, `${source}: ${file} ${error.message}`, { hint: error.hint });
    }
    const isMissing = systemCodeOf(error) === 'ENOENT';
    throw new RyeError(
      isMissing ? 'file_not_found' : 'invalid_input',
      isMissing ? `${source}: file not found: ${file}` : `${source}: ${messageOf(error)}`,
      { hint: `Paths are relative to ${io.cwd}.`, details: { path: absolute } },
    );
  }
}

/** Reads the text of a file, or of standard input if the name is `-`. */
export async function readTextSource(
  file: string,
  source: string,
  io: Io,
  model?: OpenRyeOptions,
): Promise<string> {
  if (file === '-') return io.readStdin();
  return (await readNamedFile(file, source, io, model)).toString('utf8');
}

/** Refuses a result file that can't be written, before money is spent on the result. */
export async function assertWritableTarget(option: string, file: string, io: Io): Promise<string> {
  const absolute = path.resolve(io.cwd, file);
  const folder = await stat(path.dirname(absolute)).catch(() => undefined);
  const target = await stat(absolute).catch(() => undefined);
  if (folder?.isDirectory() === true && target?.isDirectory() !== true) return absolute;
  throw new RyeError('invalid_input', `${option}: cannot write to ${file}`, {
    hint:
      target === undefined
        ? 'Create its folder first.'
        : 'It is a folder. Give the name of a file in it.',
  });
}

/** Splits `NAME=VALUE` at the first equals sign. */
function splitPair(text: string, option: string): readonly [string, string] {
  const at = text.indexOf('=');
  if (at > 0) return [text.slice(0, at), text.slice(at + 1)];
  throw new RyeError('usage', `${option} expects NAME=VALUE, got ${JSON.stringify(text)}`, {
    hint: `Pass a name and a value: ${option} NAME=VALUE`,
  });
}

export interface ValueOptions {
  /** Repeated `NAME=VALUE` options; `NAME=@FILE` reads a file, `NAME=-` standard input. */
  readonly pairs: readonly string[];
  readonly pairOption: string;
  /** One JSON object, `@FILE`, or `-` for standard input. */
  readonly document?: string | undefined;
  readonly documentOption?: string;
}

/** Reads named values from the command line. A pair overrides the document. A repeated name is refused. */
export async function readValues(options: ValueOptions, context: Context): Promise<JsonObject> {
  const { io } = context;
  const model = quietOptions(context);
  const { document, documentOption = '', pairs, pairOption } = options;
  // a map, not an object, so that a name such as __proto__ is safe
  const values = new Map<string, JsonObject[string]>(
    document === undefined
      ? []
      : Object.entries(await readObject(document, documentOption, { io, model })),
  );
  const seen = new Set<string>();
  for (const pair of pairs) {
    const [name, value] = splitPair(pair, pairOption);
    if (seen.has(name)) {
      throw new RyeError('usage', `${pairOption} ${name} is given twice`, {
        hint:
          documentOption === ''
            ? 'Remove one of them.'
            : `Pass a list as ${documentOption} '{"${name}": [...]}'.`,
      });
    }
    seen.add(name);
    const file = value === '-' ? value : value.startsWith('@') ? value.slice(1) : undefined;
    const source = `${pairOption} ${name}`;
    values.set(name, file === undefined ? value : await readTextSource(file, source, io, model));
  }
  return Object.fromEntries(values);
}

async function readObject(
  source: string,
  option: string,
  { io, model }: { readonly io: Io; readonly model: OpenRyeOptions },
): Promise<JsonObject> {
  const isFile = source === '-' || source.startsWith('@');
  const text = isFile
    ? await readTextSource(source === '-' ? '-' : source.slice(1), option, io, model)
    : source;
  const value = parseGivenJson(text);
  if (value !== undefined && isJsonObject(value)) return value;
  const kind = value === undefined ? 'valid JSON' : 'a JSON object';
  throw new RyeError('invalid_input', `${option} is not ${kind}`, {
    hint: `Pass ${option} '{"name": "value"}', @FILE, or - for standard input.`,
  });
}

/** Reads a JSON Schema from a file, standard input or the option itself. */
export async function readSchema(
  source: string | undefined,
  option: string,
  io: Io,
): Promise<JsonObject | undefined> {
  if (source === undefined) return undefined;
  const isInline = source.trimStart().startsWith('{');
  const schema = parseGivenJson(isInline ? source : await readTextSource(source, option, io));
  if (schema !== undefined && isJsonObject(schema)) return schema;
  throw new RyeError('invalid_input', `${option}: ${source} is not a JSON object`, {
    hint: `Pass a JSON Schema, such as ${option} '{"type": "object"}', or a file that contains one.`,
  });
}

/** Reads limits from `--limit NAME=N` and its two familiar spellings. */
export function readLimits(
  pairs: readonly string[],
  maxTurns?: number,
  maxBudgetUsd?: number,
): PartialLimits {
  const limits: Record<string, number> = {};
  const set = (name: string, text: string): void => {
    if (limits[name] !== undefined) {
      throw new RyeError('usage', `the limit ${name} is given twice`, {
        hint: '--max-turns and --max-budget-usd are --limit turns= and --limit spend=.',
      });
    }
    limits[name] = limitValue(name, text);
  };
  for (const pair of pairs) {
    const [name, text] = splitPair(pair, '--limit');
    if (!LIMIT_NAMES.some((known) => known === name)) {
      throw new RyeError('unknown_limit', `unknown limit ${JSON.stringify(name)}`, {
        hint: didYouMean(name, LIMIT_NAMES) ?? `Limits are: ${LIMIT_NAMES.join(', ')}.`,
      });
    }
    set(name, text);
  }
  if (maxTurns !== undefined) set('turns', String(maxTurns));
  if (maxBudgetUsd !== undefined) set('spend', String(maxBudgetUsd));
  return limits;
}

function limitValue(name: string, text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new RyeError(
    'invalid_limit',
    `--limit ${name}: expected a number ≥ 0, got ${JSON.stringify(text)}`,
    { hint: `Pass a number, such as --limit ${name}=10.` },
  );
}

/**
 * Asks a person at a terminal before a change that is hard to undo. Any answer but yes throws `cancelled`. Without a
 * terminal, or with --yes, running the command counts as yes.
 */
export async function confirm(
  { io, options }: Pick<Context, 'io'> & { readonly options: { readonly yes: boolean } },
  effects: readonly Shown[],
  question: Shown,
): Promise<void> {
  if (!io.stdinIsTty || !io.stderr.isTty || options.yes) return;
  for (const effect of effects) io.stderr.write(shown`${effect}\n`);
  const answer = await io.ask(shown`${question} [y/N] `);
  if (/^y(?:es)?$/i.test(answer.trim())) return;
  throw new RyeError('cancelled', 'nothing was changed', {
    hint: 'To confirm, answer y or use --yes.',
  });
}

/** Reports text on standard input that no option of a run takes. */
export function unusedInput(directiveId: string): RyeError {
  return new RyeError('usage', 'nothing uses the text that is piped to standard input', {
    hint: `Pass it as an input: rye run ${directiveId} --input NAME=- or ignore it: < /dev/null`,
  });
}
