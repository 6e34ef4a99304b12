import { isJsonObject, type JsonObject, type JsonValue } from './json.ts';

/** Maximum number of calls of one tool in a run. */
export type ToolBudgetOption = {
  readonly max: number;
  /** `block` (the default) refuses more calls; `steer` tells the model first and refuses after `grace` more. */
  readonly on_exceed?: 'block' | 'steer';
  /** Calls after the warning of `steer`; 2 by default. */
  readonly grace?: number;
  /** Message to the model that replaces the default one. */
  readonly message?: string;
};

/**
 * Behavior of the loop and the tools in a run: the members of `<behavior>`. A run's members replace the members of its directive and of the
 * configuration; null takes back what one of them sets.
 */
export type BehaviorOptions = {
  /** JSON Schema, of type object, that the result must match. */
  readonly schema?: JsonObject | null;
  /** Thinking effort of the model. */
  readonly thinking?: ThinkingOption | null;
  /**
   * Thinking goes down one level with each run after the first `after_runs`, or with each turn of a run after the first
   * `after_turns`, no lower than `floor`.
   */
  readonly thinking_decay?: {
    readonly after_runs?: number;
    readonly after_turns?: number;
    readonly floor?: ThinkingOption;
  } | null;
  /** Tokens of one answer, below what the model can. */
  readonly max_tokens?: number | null;
  /** Beta features of the provider's API, beside the betas of its file; Anthropic's only. */
  readonly betas?: readonly string[] | string | null;
  /** Has the server edit the context, as `context_management` of Anthropic's API. */
  readonly context_management?: JsonObject | null;
  /** Marks requests for the provider's prompt cache. */
  readonly cache?: boolean | null;
  /** `tail` leaves old tool results out of requests; `off` is the default. */
  readonly compact_strategy?: 'off' | 'tail' | null;
  /** Bytes of results above which `tail` begins; 131072 by default. */
  readonly compact_threshold?: number | null;
  /** Turns whose results `tail` always keeps; 4 by default. */
  readonly compact_keep_turns?: number | null;
  /** Omits the results of reads if their file has changed since. */
  readonly elide_stale_reads?: boolean | null;
  /** Reminds a model once that has used no tool; false by default. */
  readonly nudge?: boolean | null;
  /**
   * Skips the calls of an answer that have not begun when a person's message waits, so that the model reads it next; false
   * by default.
   */
  readonly steer_between_calls?: boolean | null;
  /** Calls of each tool in one run, by tool id: a number, or a number with what happens beyond it. */
  readonly tool_budgets?: Readonly<Record<string, number | ToolBudgetOption | null>> | null;
  /** Bytes of results in one turn above which the model is asked to summarize. */
  readonly tool_output_budget?: number | null;
  /** Tools that only read and whose last result is replayed for the same call. */
  readonly dedup_tools?: readonly string[] | string | null;
  /** Answers an identical read with a stub while its text is in view; true by default. */
  readonly dedup_reads?: boolean | null;
  /** Turns with the same calls and results that count as a loop: 3 or more, or 0 for off; 5 by default. */
  readonly loop_repeats?: number | null;
  /** Refuses edits of a file that was not read, or has changed since. */
  readonly require_read_before_edit?: boolean | null;
  /** Numbers the lines that a read returns; true by default. */
  readonly read_line_numbers?: boolean | null;
  /** Bytes above which a result goes to a file; 32768 by default, 0 for off. */
  readonly persist_threshold?: number | null;
  /** Tools whose results never go to a file. */
  readonly persist_exclude_tools?: readonly string[] | string | null;
  /** The name under which the model sees a tool, by tool id. */
  readonly tool_aliases?: Readonly<Record<string, string | null>> | null;
  /** Bytes of a command's output that are kept; 32768 by default, 0 for all. */
  readonly shell_max_output_bytes?: number | null;
  /** Ends a command's output with its exit status and time; true by default. */
  readonly shell_metadata?: boolean | null;
};

type ThinkingOption = 'off' | 'minimal' | 'low' | 'medium' | 'high';

/** Members that are maps by name: a later layer changes single names of them, not the whole. */
const NAMED_MAPS: ReadonlySet<string> = new Set(['tool_budgets', 'tool_aliases']);

/**
 * Behavior of several layers as one, the later above the earlier, member by member; of named maps name by name. Names may be
 * written `camelCase`, the result has them in `snake_case`. A null stays, so that it can unset a member of a layer
 * below: {@link withoutUnset} takes it out at the end.
 */
export function mergeBehavior(...layers: readonly JsonObject[]): JsonObject {
  const merged = new Map<string, JsonValue>();
  for (const layer of layers) {
    for (const [written, value] of Object.entries(layer)) {
      if (value === undefined) continue;
      const name = memberName(written);
      const below = merged.get(name);
      const isMap = NAMED_MAPS.has(name) && isJsonObject(value) && isJsonObject(below);
      merged.set(name, isMap ? { ...below, ...value } : value);
    }
  }
  return Object.fromEntries(merged);
}

/** The `snake_case` name of a member that may be written in `camelCase`. */
export function memberName(written: string): string {
  return written.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The behavior without what a null unset, in the maps by name too. */
export function withoutUnset(behavior: JsonObject): JsonObject {
  const kept = setMembers(behavior).map(([name, value]): [string, JsonValue] =>
    NAMED_MAPS.has(name) && isJsonObject(value)
      ? [name, Object.fromEntries(setMembers(value))]
      : [name, value],
  );
  return Object.fromEntries(kept);
}

function setMembers(object: JsonObject): [string, JsonValue][] {
  return Object.entries(object).flatMap(([name, value]): [string, JsonValue][] =>
    value === undefined || value === null ? [] : [[name, value]],
  );
}
