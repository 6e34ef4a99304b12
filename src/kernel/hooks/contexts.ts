import { HOOK_EVENTS, type HookEvent } from '../core/hook.ts';
import type { JsonObject } from '../core/json.ts';
import { eachLimit, LIMIT_NAMES, LIMITS } from '../core/limits.ts';
import { parsePath } from '../policy/interpolate.ts';
import {
  anything,
  choice,
  flag,
  integer,
  nullable,
  number,
  open,
  pathProblem,
  record,
  type TypeOf,
  text,
} from './schema.ts';

const cost = record(
  {
    turns: integer(),
    input_tokens: integer(),
    output_tokens: integer(),
    cache_read_tokens: integer(),
    cache_write_tokens: integer(),
    spend: number('USD'),
    elapsed_seconds: number(),
  },
  { estimated_spend_usd: number('USD') },
);

const limits = record(
  eachLimit((name) => (LIMITS[name].isWhole ? integer : number)(LIMITS[name].unit)),
  {},
);

const failure = record(
  { message: text() },
  {
    code: text('Stable error code'),
    type: text('The type that the provider gave'),
    status: integer('HTTP'),
  },
);

const inputs = open('Resolved inputs; secret ones are not in it');
const outputs = open('Structured outputs, where the directive returned some');

/** Members that every event of a registered thread may carry. */
const thread = {
  directive: text('Id of the directive'),
  model: text(),
  inputs,
  parent_thread_id: nullable(text()),
  project_path: text('Folder that contains .ai'),
  depth: integer('Levels of children that are left'),
} as const;

/** Members that every event inside a run carries. */
const run = { thread_id: text(), turn: integer('Counts from 1'), cost } as const;

const started = {
  directive: text('Id of the directive'),
  directive_body: text('Id, description and body of the directive'),
  model: text(),
  limits,
  inputs,
} as const;

const startedOptional = {
  thread_id: text(),
  project_path: text('Folder that contains .ai'),
  depth: integer('Levels of children that are left'),
  parent_thread_id: nullable(text()),
  spend_limit: number('USD'),
  max_turns: integer(),
  capabilities_summary: text(),
  category: text(),
} as const;

const call = {
  call_id: text(),
  tool: text('Canonical id of the tool that will run'),
  name: text('The name that the model used'),
  input: open('Arguments of the call'),
} as const;

const approval = {
  ...call,
  approval_id: text(),
  kind: text('call, question or limit'),
} as const;

const callOptional = {
  ...thread,
  primary: text('execute, fetch or sign'),
  item_type: text(),
  item_id: text(),
  risk: text(),
  reads_only: flag(),
  files: anything(
    'Files that a search opens; null: more than are listed; absent: no rule asks for them',
  ),
  commands: anything(
    'Commands of a shell line, each with its arguments; null: they cannot be known',
  ),
  run_tool_counts: open('Calls of each tool that this run let through before this batch'),
} as const;

/** The context type of each event. Members that not every occurrence has are optional. */
const CONTEXTS = {
  resolve_extends: record(
    {
      directive: text('Id of the directive'),
      has_extends: flag('Whether the directive declares a target itself'),
      category: text(),
      inputs,
      model: nullable(text('The model or tier that the directive asks for')),
    },
    {
      requested_model: record({}, { id: text(), tier: text(), provider: text() }),
    },
  ),
  thread_started: record(started, startedOptional),
  thread_continued: record({ ...started, previous_thread_id: text() }, startedOptional),
  after_step: record(run, { ...thread, limits, tool_calls: integer('Calls of this turn') }),
  after_complete: record(
    {
      thread_id: text(),
      cost,
      status: text('completed, error, cancelled, continued or suspended'),
    },
    {
      ...thread,
      turn: integer(),
      result: text(),
      outputs,
      error: failure,
      continuation_thread_id: nullable(text()),
    },
  ),
  error: record(
    {
      ...run,
      source: choice('model', 'tool', 'directive', 'loop'),
      error: failure,
      classification: record(
        { category: text(), retryable: flag() },
        { code: text(), policy: text('Name of the retry policy') },
      ),
    },
    { ...thread, attempt: integer('Failures of this call so far'), call_id: text(), tool: text() },
  ),
  limit: record(
    {
      ...run,
      limit_code: choice(...LIMIT_NAMES.map((name) => `limit_${name}` as const)),
      current_value: number(),
      current_max: number(),
    },
    { ...thread, limit_name: choice(...LIMIT_NAMES) },
  ),
  context_limit_reached: record(
    {
      ...run,
      usage_ratio: number('Share of the context window'),
      tokens_used: integer(),
      tokens_limit: integer(),
    },
    thread,
  ),
  directive_return: record(
    { ...run, outputs },
    {
      ...thread,
      result: text(),
      status: text('error when the directive could not be finished'),
      error_detail: text('Why not'),
    },
  ),
  rule_triggered: record(
    { thread_id: text(), rule: text('Name of the rule'), stream: text('text, thinking or tool') },
    {
      ...thread,
      turn: integer(),
      cost,
      match: text(),
      tool: text(),
      path: text(),
      interrupted: flag(),
      outcome: text('interrupted, reminded or recorded'),
    },
  ),
  before_compact: record(
    { thread_id: text(), tokens_before: integer() },
    {
      ...thread,
      turn: integer(),
      cost,
      tokens_limit: integer(),
      usage_ratio: number(),
      reason: text('threshold, context_exceeded, hook or manual'),
      first_kept_entry_id: text('The first entry that stays in full'),
      cut_points: anything('Entries that a hook may choose as the first one kept, oldest first'),
      messages: integer('Number of messages that the summary will replace'),
      split_turn: flag('Whether the cut lies inside a turn'),
      previous_summaries: anything('Summaries of earlier compactions, newest first'),
      files: anything('{read_files, changed_files}, carried forward'),
      instructions: text('What the summary was asked to attend to'),
    },
  ),
  tool_gate: record({ ...run, ...call }, callOptional),
  tool_after: record(
    { ...run, ...call, outcome: text('How the call ended'), is_error: flag() },
    {
      ...callOptional,
      output: text('What the model was told'),
      data: anything('Structured result'),
      duration_ms: number(),
      output_bytes: integer(),
      prior_content: anything('The first 256 KiB that a written file had before; null: it is new'),
      prior_bytes: integer('Bytes of the whole file before'),
      coerced: anything('Arguments whose type was corrected, by name; absent if none was'),
      artifact: text(),
    },
  ),
  child_finished: record(
    { thread_id: text(), child_thread_id: text(), status: text('How the child ended') },
    {
      ...thread,
      turn: integer(),
      cost,
      child_directive: text(),
      result: text(),
      outputs,
      child_cost: cost,
      error: failure,
    },
  ),
  approval_requested: record({ ...run, ...approval }, { ...thread, reason: text('Why it asks') }),
  approval_decided: record(
    { ...run, ...approval, outcome: text('approved, denied, answered, expired or withdrawn') },
    thread,
  ),
  delivery: record(
    { thread_id: text(), kind: text('steer, follow_up or child_result'), delivery_id: text() },
    {
      ...thread,
      from: nullable(text()),
      text: text(),
      state: text(),
      details: anything('Facts of the kind'),
    },
  ),
} as const satisfies Record<HookEvent, { readonly json: JsonObject }>;

/** The context of each event as a TypeScript type. */
export type HookContexts = { readonly [E in HookEvent]: TypeOf<(typeof CONTEXTS)[E]> };

/** Dispatch of an event's hooks. */
export type DispatchKind = 'routing' | 'context' | 'control' | 'observing';

const KINDS: Readonly<Record<HookEvent, DispatchKind>> = {
  resolve_extends: 'routing',
  thread_started: 'context',
  thread_continued: 'context',
  before_compact: 'context',
  error: 'control',
  limit: 'control',
  after_step: 'control',
  context_limit_reached: 'control',
  tool_gate: 'control',
  after_complete: 'observing',
  child_finished: 'observing',
  tool_after: 'observing',
  delivery: 'observing',
  directive_return: 'observing',
  rule_triggered: 'observing',
  approval_requested: 'observing',
  approval_decided: 'observing',
};

/** The kind of dispatch of an event. */
export function dispatchKind(event: HookEvent): DispatchKind {
  return KINDS[event];
}

/** JSON Schema (draft 2020-12) of an event's context, as `rye hooks schema` prints it. */
export function hookSchema(event: HookEvent): JsonObject {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: `Context of the hook event ${event}`,
    ...CONTEXTS[event].json,
  };
}

/** True if a text names an event. */
export function isHookEvent(name: unknown): name is HookEvent {
  return HOOK_EVENTS.some((event) => event === name);
}

/** Why an event's context can't have a dotted path, with the paths that may have been meant. */
export function contextPathProblem(
  event: HookEvent,
  path: string,
): { readonly message: string; readonly near: readonly string[] } | undefined {
  const segments = parsePath(path);
  if (segments === undefined) return { message: 'it is not a dotted path', near: [] };
  return pathProblem(CONTEXTS[event].json, segments);
}
