import { RyeError } from '../core/errors.ts';
import {
  isJsonObject,
  isRecord,
  type JsonObject,
  type JsonValue,
  parseJson,
} from '../core/json.ts';
import { THINKING_LEVELS, type ThinkingLevel } from '../providers/provider.ts';

/** How the loop treats one thread, from `<behavior>` and the options of a run. */
export interface Behavior {
  /** JSON Schema that the result must match. */
  readonly schema: JsonObject | undefined;
  readonly thinkingDecay: ThinkingDecay | undefined;
  readonly tail: TailOptions | undefined;
  /** Leave out the results of reads whose file was changed since. */
  readonly elideStaleReads: boolean;
  /** Remind a model once that has not used any tool. */
  readonly nudge: boolean;
}

/** Thinking goes down one level with each run after the first `afterRuns`, no lower than `floor`. */
export interface ThinkingDecay {
  readonly afterRuns: number;
  readonly floor: ThinkingLevel;
}

/** When tool results are left out of requests: above so many bytes, all but those of the last turns. */
export interface TailOptions {
  readonly thresholdBytes: number;
  readonly keepTurns: number;
}

const DEFAULT_THRESHOLD_BYTES = 128 * 1024;
const DEFAULT_KEEP_TURNS = 4;

/**
 * Reads the members that the loop knows; others are somebody else's. Names may be written `snake_case` or `camelCase`, values
 * as text, as directives have them. A value that makes no sense is `directive_malformed`.
 */
export function parseBehavior(raw: JsonObject): Behavior {
  const strategy = member(raw, 'compact_strategy') ?? 'off';
  if (strategy !== 'off' && strategy !== 'tail')
    throw bad('compact_strategy', strategy, 'off or tail');
  return {
    schema: schemaOf(member(raw, 'schema')),
    thinkingDecay: decayOf(member(raw, 'thinking_decay')),
    tail: strategy === 'off' ? undefined : tailOf(raw),
    elideStaleReads: flag(raw, 'elide_stale_reads', false),
    nudge: flag(raw, 'nudge', true),
  };
}

function tailOf(raw: JsonObject): TailOptions {
  return {
    thresholdBytes: count(raw, 'compact_threshold', DEFAULT_THRESHOLD_BYTES),
    keepTurns: count(raw, 'compact_keep_turns', DEFAULT_KEEP_TURNS),
  };
}

function schemaOf(value: JsonValue | undefined): JsonObject | undefined {
  if (value === undefined || value === null) return undefined;
  const schema = typeof value === 'string' ? parseJson(value) : value;
  if (schema !== undefined && isJsonObject(schema) && schema['type'] === 'object') return schema;
  throw bad('schema', value, 'a JSON Schema of the type "object"');
}

function decayOf(value: JsonValue | undefined): ThinkingDecay | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isRecord(value)) throw bad('thinking_decay', value, 'an object with after_runs and floor');
  const floor = member(value, 'floor') ?? 'off';
  const known = THINKING_LEVELS.find((level) => level === floor);
  if (known === undefined) throw bad('thinking_decay.floor', floor, THINKING_LEVELS.join(', '));
  return { afterRuns: count(value, 'after_runs', 1), floor: known };
}

function member(raw: JsonObject, name: string): JsonValue | undefined {
  const camel = name.replaceAll(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
  return raw[name] ?? raw[camel];
}

function flag(raw: JsonObject, name: string, fallback: boolean): boolean {
  const value = member(raw, name) ?? fallback;
  if (value === true || value === 'true') return true;
  if (value === false || value === 'false') return false;
  throw bad(name, value, 'true or false');
}

function count(raw: JsonObject, name: string, fallback: number): number {
  const value = member(raw, name) ?? fallback;
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number;
  throw bad(name, value, 'a whole number of 0 or more');
}

function bad(name: string, value: JsonValue, expected: string): RyeError {
  const shown = JSON.stringify(value);
  return new RyeError(
    'directive_malformed',
    `behavior.${name} is ${shown.length > 200 ? `${shown.slice(0, 200)}…` : shown}, not ${expected}`,
    { hint: 'Correct it in the <behavior> of the directive, or in the options of the run.' },
  );
}

/** The level of the run with this number, the first is 1. Changes between runs only, so that a run keeps its cache. */
export function thinkingOfRun(
  base: ThinkingLevel,
  run: number,
  decay: ThinkingDecay | undefined,
): ThinkingLevel {
  if (!decay) return base;
  const from = THINKING_LEVELS.indexOf(base);
  const floor = Math.min(from, THINKING_LEVELS.indexOf(decay.floor));
  const steps = Math.max(0, run - decay.afterRuns);
  return THINKING_LEVELS[Math.max(floor, from - steps)] ?? base;
}
