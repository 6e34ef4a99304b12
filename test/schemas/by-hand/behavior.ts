import { RyeError } from '../../../src/kernel/core/errors.ts';
import { wireName } from '../../../src/kernel/core/ids.ts';
import {
  isJsonObject,
  isRecord,
  type JsonObject,
  type JsonValue,
  parseJson,
} from '../../../src/kernel/core/json.ts';
import type {
  Behavior,
  TailOptions,
  ThinkingDecay,
  ToolBudget,
} from '../../../src/kernel/loop/behavior.ts';
import { THINKING_LEVELS } from '../../../src/kernel/providers/provider.ts';

const DEFAULT_THRESHOLD_BYTES = 128 * 1024;
const DEFAULT_KEEP_TURNS = 4;
const DEFAULT_GRACE = 2;
const DEFAULT_LOOP_REPEATS = 5;
/** Fewer turns are no loop: a check that is made twice is usual. */
const MIN_LOOP_REPEATS = 3;
/** Tool names that the APIs accept. */
const TOOL_NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Reads the members that are known; {@link unknownBehavior} names the others. Names may be written `snake_case` or `camelCase`,
 * values as text, as directives have them. A value that makes no sense is `directive_malformed`.
 */
export function parseBehavior(raw: JsonObject): Behavior {
  return {
    schema: schemaOf(member(raw, 'schema')),
    thinking: choiceOf(raw, 'thinking', THINKING_LEVELS),
    thinkingDecay: decayOf(member(raw, 'thinking_decay')),
    maxTokens: countOf(raw, 'max_tokens'),
    betas: betasOf(member(raw, 'betas')),
    contextManagement: managementOf(member(raw, 'context_management')),
    cache: member(raw, 'cache') === undefined ? undefined : flagOf(raw, 'cache', true),
    tail: tailOf(raw),
    elideStaleReads: flagOf(raw, 'elide_stale_reads', false),
    nudge: flagOf(raw, 'nudge', false),
    steerBetweenCalls: flagOf(raw, 'steer_between_calls', false),
    toolBudgets: budgetsOf(raw),
    toolOutputBudget: countOf(raw, 'tool_output_budget'),
    dedupTools: toolsOf(raw, 'dedup_tools'),
    dedupReads: flagOf(raw, 'dedup_reads', true),
    loopRepeats: loopRepeatsOf(raw),
    requireReadBeforeEdit: flagOf(raw, 'require_read_before_edit', false),
    readLineNumbers: flagOf(raw, 'read_line_numbers', true),
    persistThreshold: countOf(raw, 'persist_threshold'),
    persistExcludeTools: toolsOf(raw, 'persist_exclude_tools'),
    toolAliases: aliasesOf(raw),
    shellMaxOutputBytes: countOf(raw, 'shell_max_output_bytes'),
    shellMetadata: flagOf(raw, 'shell_metadata', true),
  };
}

function betasOf(value: JsonValue | undefined): readonly string[] | undefined {
  if (value === undefined) return undefined;
  const listed = typeof value === 'string' ? value.split(/[\s,]+/).filter(Boolean) : value;
  const isBeta = (one: unknown): boolean =>
    typeof one === 'string' && /^[A-Za-z0-9._-]+$/.test(one);
  if (Array.isArray(listed) && listed.every(isBeta)) return listed as readonly string[];
  throw bad('betas', listed, 'a list of betas');
}

function managementOf(value: JsonValue | undefined): JsonObject | undefined {
  if (value === undefined || isJsonObject(value)) return value;
  throw bad('context_management', value, 'an object');
}

function loopRepeatsOf(raw: JsonObject): number {
  const repeats = countOf(raw, 'loop_repeats') ?? DEFAULT_LOOP_REPEATS;
  if (repeats === 0 || repeats >= MIN_LOOP_REPEATS) return repeats;
  throw bad('loop_repeats', repeats, `0 for off, or ${MIN_LOOP_REPEATS} and more`);
}

function tailOf(raw: JsonObject): TailOptions | undefined {
  const strategy = choiceOf(raw, 'compact_strategy', ['off', 'tail']) ?? 'off';
  if (strategy === 'off') return undefined;
  return {
    thresholdBytes: countOf(raw, 'compact_threshold') ?? DEFAULT_THRESHOLD_BYTES,
    keepTurns: countOf(raw, 'compact_keep_turns') ?? DEFAULT_KEEP_TURNS,
  };
}

function schemaOf(value: JsonValue | undefined): JsonObject | undefined {
  if (value === undefined) return undefined;
  const schema = typeof value === 'string' ? parseJson(value) : value;
  if (schema !== undefined && isJsonObject(schema) && schema['type'] === 'object') return schema;
  throw bad('schema', value, 'a JSON Schema of the type "object"');
}

function decayOf(value: JsonValue | undefined): ThinkingDecay | undefined {
  if (value === undefined) return undefined;
  if (!isRecord(value))
    throw bad('thinking_decay', value, 'an object with after_runs or after_turns, and floor');
  const floor = member(value, 'floor') ?? 'off';
  const known = THINKING_LEVELS.find((level) => level === floor);
  if (known === undefined) throw bad('thinking_decay.floor', floor, THINKING_LEVELS.join(', '));
  const afterRuns = countOf(value, 'after_runs', 'thinking_decay.after_runs');
  const afterTurns = countOf(value, 'after_turns', 'thinking_decay.after_turns');
  return {
    afterRuns: afterRuns ?? (afterTurns === undefined ? 1 : undefined),
    afterTurns,
    floor: known,
  };
}

/** `{"rye/bash": 5}` is short for `{"rye/bash": {"max": 5}}`. */
function budgetsOf(raw: JsonObject): ReadonlyMap<string, ToolBudget> {
  const budgets = byTool(raw, 'tool_budgets').map(([tool, value]) => {
    const name = `tool_budgets.${tool}`;
    const budget: JsonObject = isJsonObject(value) ? value : { max: value };
    const max = countOf(budget, 'max', `${name}.max`);
    if (max === undefined) throw bad(name, value, 'a number of calls, or an object with max');
    const message = member(budget, 'message');
    return [
      tool,
      {
        max,
        mode: choiceOf(budget, 'on_exceed', ['block', 'steer'], `${name}.on_exceed`) ?? 'block',
        grace: countOf(budget, 'grace', `${name}.grace`) ?? DEFAULT_GRACE,
        message: typeof message === 'string' ? message : undefined,
      },
    ] as const;
  });
  return new Map(budgets);
}

function aliasesOf(raw: JsonObject): ReadonlyMap<string, string> {
  const aliases = byTool(raw, 'tool_aliases').map(([tool, alias]) => {
    if (typeof alias === 'string' && TOOL_NAME.test(alias)) return [tool, alias] as const;
    throw bad(`tool_aliases.${tool}`, alias, 'up to 64 of A-Z a-z 0-9 _ -');
  });
  return new Map(aliases);
}

/** A member by its `snake_case` name, also where it is written in `camelCase`; null is as good as absent. */
function member(raw: JsonObject, name: string): JsonValue | undefined {
  const camel = name.replaceAll(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
  return raw[name] ?? raw[camel] ?? undefined;
}

/** True or false, also as text. */
function flagOf(raw: JsonObject, name: string, fallback: boolean): boolean {
  const value = member(raw, name) ?? fallback;
  if (value === true || value === 'true') return true;
  if (value === false || value === 'false') return false;
  throw bad(name, value, 'true or false');
}

/** Reads a whole number from 0, also written as text; undefined if absent. */
function countOf(raw: JsonObject, name: string, shown = name): number | undefined {
  const value = member(raw, name);
  if (value === undefined) return undefined;
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number;
  throw bad(shown, value, 'a whole number of 0 or more');
}

/** Reads one of a closed list of texts; undefined if absent. */
function choiceOf<const T extends string>(
  raw: JsonObject,
  name: string,
  known: readonly T[],
  shown = name,
): T | undefined {
  const value = member(raw, name);
  if (value === undefined) return undefined;
  const chosen = known.find((one) => one === value);
  if (chosen !== undefined) return chosen;
  throw bad(shown, value, known.join(' or '));
}

/** Wire names of tools, given as a list or as text with spaces or commas; ids and wire names mean the same. */
function toolsOf(raw: JsonObject, name: string): ReadonlySet<string> {
  const value = member(raw, name) ?? [];
  const listed = typeof value === 'string' ? value.split(/[\s,]+/).filter(Boolean) : value;
  if (Array.isArray(listed) && listed.every((one) => typeof one === 'string')) {
    return new Set(listed.map(wireName));
  }
  throw bad(name, value, 'a list of tools');
}

/** The members of a map by tool, by wire name. */
function byTool(raw: JsonObject, name: string): readonly (readonly [string, JsonValue])[] {
  const value = member(raw, name) ?? {};
  if (!isRecord(value)) throw bad(name, value, 'a map by tool');
  return Object.entries(value).flatMap(([tool, one]) =>
    one === undefined || one === null ? [] : [[wireName(tool), one as JsonValue] as const],
  );
}

/** The error about a value that makes no sense. */
function bad(name: string, value: JsonValue, expected: string): RyeError {
  const shown = JSON.stringify(value);
  return new RyeError(
    'directive_malformed',
    `behavior.${name} is ${shown.length > 200 ? `${shown.slice(0, 200)}…` : shown}, not ${expected}`,
    { hint: 'Correct it in the <behavior> of the directive, or in the options of the run.' },
  );
}
