import { memberName } from '../core/behavior.ts';
import { type CheckedSchema, findProblem, shown } from '../core/check.ts';
import { RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { THINKING_LEVELS, type ThinkingLevel } from '../providers/provider.ts';
import schema from '../schemas/behavior.json' with { type: 'json' };
import type { BehaviorFile } from '../schemas/behavior.ts';

/** Behavior of the loop and the tools in one thread, from `<behavior>` and the options of a run. Tools have wire names. */
export interface Behavior {
  /** JSON Schema that the result must match. */
  readonly schema: JsonObject | undefined;
  /** Thinking effort that replaces the directive's. */
  readonly thinking: ThinkingLevel | undefined;
  readonly thinkingDecay: ThinkingDecay | undefined;
  /** Tokens of one answer, below what the model can. */
  readonly maxTokens: number | undefined;
  /** Beta features of the provider's API. */
  readonly betas: readonly string[] | undefined;
  /** Has the server edit the context. */
  readonly contextManagement: JsonObject | undefined;
  /** Prompt-cache marks; replaces the configured value. */
  readonly cache: boolean | undefined;
  readonly tail: TailOptions | undefined;
  /** Omit the results of reads if their file has changed since. */
  readonly elideStaleReads: boolean;
  /** Remind a model once that has not used any tool. */
  readonly nudge: boolean;
  /** Skip the calls of an answer that have not begun when a person's message waits. */
  readonly steerBetweenCalls: boolean;
  readonly toolBudgets: ReadonlyMap<string, ToolBudget>;
  /** Bytes of results in one turn above which the model is asked to summarize. */
  readonly toolOutputBudget: number | undefined;
  /** Tools whose last result is replayed when they are called alike again. */
  readonly dedupTools: ReadonlySet<string>;
  readonly dedupReads: boolean;
  /** Turns with the same calls and results that count as a loop; 0: none do. */
  readonly loopRepeats: number;
  readonly requireReadBeforeEdit: boolean;
  readonly readLineNumbers: boolean;
  /** Bytes above which a result goes to a file; replaces the configured value. */
  readonly persistThreshold: number | undefined;
  /** Tools whose results never do. */
  readonly persistExcludeTools: ReadonlySet<string>;
  /** Names that tools have for the model alone. */
  readonly toolAliases: ReadonlyMap<string, string>;
  /** Bytes of a command's output that are kept, 0 for all. */
  readonly shellMaxOutputBytes: number | undefined;
  /** End a command's output with its exit status and time. */
  readonly shellMetadata: boolean;
}

/** Maximum number of calls of a tool in one run, and the reaction to more. */
export interface ToolBudget {
  readonly max: number;
  /** `steer`: tell the model, and refuse only after `grace` more. */
  readonly mode: 'block' | 'steer';
  readonly grace: number;
  /** Message to the model. */
  readonly message: string | undefined;
}

/** Thinking goes down one level with each run after the first `afterRuns` and each turn of a run after `afterTurns`, no lower than `floor`. */
export interface ThinkingDecay {
  readonly afterRuns: number | undefined;
  readonly afterTurns: number | undefined;
  readonly floor: ThinkingLevel;
}

/** Bounds above which tool results are omitted from requests, except results of the last turns. */
export interface TailOptions {
  readonly thresholdBytes: number;
  readonly keepTurns: number;
}

const DEFAULTS = {
  compact_threshold: 128 * 1024,
  compact_keep_turns: 4,
  elide_stale_reads: false,
  nudge: false,
  steer_between_calls: false,
  tool_budgets: {},
  dedup_tools: [],
  dedup_reads: true,
  loop_repeats: 5,
  require_read_before_edit: false,
  read_line_numbers: true,
  persist_exclude_tools: [],
  tool_aliases: {},
  shell_metadata: true,
} satisfies BehaviorFile;
const DEFAULT_GRACE = 2;
/** Fewer turns are no loop: a check that is made twice is usual. */
const MIN_LOOP_REPEATS = 3;

type SetBehavior = BehaviorFile & {
  readonly [Name in keyof typeof DEFAULTS]: NonNullable<BehaviorFile[Name]>;
};

/**
 * Reads the members that are known; {@link unknownBehavior} names the others. Names may be written `snake_case` or `camelCase`,
 * values as text, as directives have them. A value that makes no sense is `directive_malformed`. The behavior of a plan
 * never changes, so that each is read once.
 */
export function parseBehavior(raw: JsonObject): Behavior {
  const known = behaviors.get(raw);
  if (known) return known;
  const behavior = readBehavior(raw);
  behaviors.set(raw, behavior);
  return behavior;
}

const behaviors = new WeakMap<JsonObject, Behavior>();

function readBehavior(raw: JsonObject): Behavior {
  const set = behaviorFile(raw);
  const { loop_repeats: repeats, thinking_decay: decay } = set;
  if (repeats !== 0 && repeats < MIN_LOOP_REPEATS) {
    throw bad(`loop_repeats is ${repeats}, not 0 for off, or ${MIN_LOOP_REPEATS} and more`);
  }
  const budgets = Object.entries(set.tool_budgets).map(
    ([tool, { max, on_exceed: mode = 'block', grace = DEFAULT_GRACE, message }]) =>
      [
        tool,
        { max, mode, grace, message: typeof message === 'string' ? message : undefined },
      ] as const,
  );
  return {
    schema: set.schema as JsonObject | undefined,
    thinking: set.thinking,
    thinkingDecay: decay && {
      afterRuns: decay.after_runs ?? (decay.after_turns === undefined ? 1 : undefined),
      afterTurns: decay.after_turns,
      floor: decay.floor ?? 'off',
    },
    maxTokens: set.max_tokens,
    betas: set.betas,
    contextManagement: set.context_management as JsonObject | undefined,
    cache: set.cache,
    tail:
      set.compact_strategy === 'tail'
        ? { thresholdBytes: set.compact_threshold, keepTurns: set.compact_keep_turns }
        : undefined,
    elideStaleReads: set.elide_stale_reads,
    nudge: set.nudge,
    steerBetweenCalls: set.steer_between_calls,
    toolBudgets: new Map(budgets),
    toolOutputBudget: set.tool_output_budget,
    dedupTools: new Set(set.dedup_tools.map(wireName)),
    dedupReads: set.dedup_reads,
    loopRepeats: repeats,
    requireReadBeforeEdit: set.require_read_before_edit,
    readLineNumbers: set.read_line_numbers,
    persistThreshold: set.persist_threshold,
    persistExcludeTools: new Set(set.persist_exclude_tools.map(wireName)),
    toolAliases: new Map(Object.entries(set.tool_aliases)),
    shellMaxOutputBytes: set.shell_max_output_bytes,
    shellMetadata: set.shell_metadata,
  };
}

/** Returns the known members in their usual form, with defaults. Throws for one that does not match its declaration. */
function behaviorFile(raw: JsonObject): SetBehavior {
  const members = normalized(raw, schema.properties);
  const problem = findProblem(schema, members);
  if (problem) {
    const path = problem.path.filter((step) => typeof step === 'string');
    throw bad(`${path.join('.')} ${problem.text}`);
  }
  return { ...DEFAULTS, ...members };
}

type Members = NonNullable<CheckedSchema['properties']>;

/** The members by their `snake_case` names, also where they are written in `camelCase`; null is as good as absent. */
function normalized(raw: JsonObject, members: Members): JsonObject {
  const set: [string, JsonValue][] = [];
  for (const [name, member] of Object.entries(members)) {
    const camel = camelOf(name);
    const value = raw[name] ?? raw[camel] ?? undefined;
    if (value !== undefined) set.push([name, typed(value, member, name)]);
  }
  return Object.fromEntries(set);
}

const camels = new Map<string, string>();

/** The names come from the schema, so there are few. */
function camelOf(name: string): string {
  const known = camels.get(name);
  if (known !== undefined) return known;
  const camel = name.replaceAll(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
  camels.set(name, camel);
  return camel;
}

/** Objects that rye passes on as they are. */
const RAW: ReadonlySet<string> = new Set(['schema', 'context_management']);

/** A value that a directive may have as text, or as the short form of an object. Leaves one that makes no sense. */
function typed(value: JsonValue, member: CheckedSchema, path: string): JsonValue {
  const { type, properties, additionalProperties: byTool } = member;
  if (typeof value === 'string') return fromText(value, member);
  if (type !== 'object' || !isJsonObject(value) || RAW.has(path)) return value;
  if (typeof byTool !== 'object') return normalized(value, properties ?? {});
  const tools = Object.entries(value).flatMap(([tool, one]): [string, JsonValue][] => {
    if (one === undefined || one === null) return [];
    const name = `${path}.${wireName(tool)}`;
    return [[wireName(tool), byTool.properties ? budget(one, byTool, name) : one]];
  });
  return Object.fromEntries(tools);
}

/** `{"rye/bash": 5}` is short for `{"rye/bash": {"max": 5}}`. */
function budget(value: JsonValue, { properties = {} }: CheckedSchema, path: string): JsonObject {
  const members = normalized(isJsonObject(value) ? value : { max: value }, properties);
  if (members['max'] !== undefined) return members;
  throw bad(`${path} is ${shown(value)}, not a number of calls, or an object with max`);
}

function fromText(text: string, { type }: CheckedSchema): JsonValue {
  if (type === 'boolean') return text === 'true' || (text === 'false' ? false : text);
  if (type === 'array') return text.split(/[\s,]+/).filter(Boolean);
  if (type === 'integer') {
    const number = Number(text);
    return text.trim() !== '' && Number.isSafeInteger(number) && number >= 0 ? number : text;
  }
  const object = type === 'object' ? parseJson(text) : undefined;
  return isJsonObject(object) && object['type'] === 'object' ? object : text;
}

/** One sentence for each unknown member, with the known member that may be meant. */
export function unknownBehavior(raw: JsonObject): readonly string[] {
  return Object.keys(raw)
    .filter((name) => !Object.hasOwn(schema.properties, memberName(name)))
    .map((name) => {
      const near = didYouMean(name, Object.keys(schema.properties));
      return `behavior.${name} means nothing${near === undefined ? '' : `. ${near}`}`;
    });
}

/** The level of the run with this number, the first is 1. A run keeps its cache. */
export function thinkingOfRun(
  base: ThinkingLevel,
  run: number,
  decay: ThinkingDecay | undefined,
): ThinkingLevel {
  return decay?.afterRuns === undefined ? base : lowered(base, run - decay.afterRuns, decay);
}

/** The level of a turn of a run, the first is 1. Each change costs the cached messages. */
export function thinkingOfTurn(
  base: ThinkingLevel,
  turn: number,
  decay: ThinkingDecay | undefined,
): ThinkingLevel {
  return decay?.afterTurns === undefined ? base : lowered(base, turn - decay.afterTurns, decay);
}

function lowered(base: ThinkingLevel, steps: number, { floor }: ThinkingDecay): ThinkingLevel {
  const from = THINKING_LEVELS.indexOf(base);
  const lowest = Math.min(from, THINKING_LEVELS.indexOf(floor));
  return THINKING_LEVELS[Math.max(lowest, from - Math.max(0, steps))] ?? base;
}

/** The error about a member; the text names it. */
function bad(text: string): RyeError {
  return new RyeError('directive_malformed', `behavior.${text}`, {
    hint: 'Correct it in the <behavior> of the directive, or in the options of the run.',
  });
}
