import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import { LIMIT_NAMES, type PartialLimits } from '../core/limits.ts';
import { didYouMean } from '../core/text.ts';
import { readTextSource } from './files.ts';
import type { Io } from './io.ts';

/** Splits `key=value` at the first equals sign. */
function splitPair(text: string, option: string): readonly [string, string] {
  const at = text.indexOf('=');
  if (at > 0) return [text.slice(0, at), text.slice(at + 1)];
  throw new RyeError('usage', `${option} ${JSON.stringify(text)} is not of the form key=value`, {
    hint: `Write it as ${option} name=value.`,
  });
}

export interface ValueOptions {
  /** Repeated `key=value` options; `key=@file` reads a file. */
  readonly pairs: readonly string[];
  /** One JSON object, `@file`, or `-` for standard input. */
  readonly document: string | undefined;
  /** Name of the two options, such as `--input` and `--inputs`, for messages. */
  readonly pairOption: string;
  readonly documentOption: string;
}

/** Named values from the command line. A pair wins over the document; the same name twice is refused. */
export async function readValues(options: ValueOptions, io: Io): Promise<JsonObject> {
  const { document } = options;
  // a map, not an object: a name such as __proto__ is a name like any other
  const values = new Map<string, JsonObject[string]>(
    document === undefined ? [] : Object.entries(await readDocument(options, document, io)),
  );
  const seen = new Set<string>();
  for (const pair of options.pairs) {
    const [name, value] = splitPair(pair, options.pairOption);
    if (seen.has(name)) {
      throw new RyeError('usage', `${options.pairOption} ${name} is given twice`, {
        hint: `Give a list as ${options.documentOption} '{"${name}": [...]}'.`,
      });
    }
    seen.add(name);
    const isFile = value.startsWith('@');
    values.set(
      name,
      isFile ? await readTextSource(value.slice(1), `${options.pairOption} ${name}`, io) : value,
    );
  }
  return Object.fromEntries(values);
}

async function readDocument(
  { documentOption }: ValueOptions,
  source: string,
  io: Io,
): Promise<JsonObject> {
  const isFile = source === '-' || source.startsWith('@');
  const text = isFile
    ? await readTextSource(source === '-' ? '-' : source.slice(1), documentOption, io)
    : source;
  const value = parseJson(text);
  if (value !== undefined && isJsonObject(value)) return value;
  throw new RyeError('invalid_input', `${documentOption} is not a JSON object`, {
    hint: `Write it as ${documentOption} '{"name": "value"}', @file or - for standard input.`,
  });
}

export interface LimitOptions {
  readonly pairs: readonly string[];
  readonly maxTurns: number | undefined;
  readonly maxBudgetUsd: number | undefined;
}

/** Limits of a call from `--limit name=number` and its two familiar spellings. */
export function readLimits({ pairs, maxTurns, maxBudgetUsd }: LimitOptions): PartialLimits {
  const limits: Record<string, number> = {};
  for (const pair of pairs) {
    const [name, text] = splitPair(pair, '--limit');
    if (!LIMIT_NAMES.some((known) => known === name)) {
      throw new RyeError('unknown_limit', `--limit ${name}: there is no such limit`, {
        hint: didYouMean(name, LIMIT_NAMES) ?? `Limits are: ${LIMIT_NAMES.join(', ')}.`,
      });
    }
    limits[name] = limitValue(name, text);
  }
  if (maxTurns !== undefined) limits['turns'] = limitValue('turns', String(maxTurns));
  if (maxBudgetUsd !== undefined) limits['spend'] = limitValue('spend', String(maxBudgetUsd));
  return limits;
}

function limitValue(name: string, text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new RyeError(
    'invalid_limit',
    `--limit ${name}: ${JSON.stringify(text)} is not a number ≥ 0`,
  );
}
