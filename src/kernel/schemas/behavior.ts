import * as z from 'zod';

const not = (expected: string) => ({ problem: `is {value}, not ${expected}` });
const count = z.int().min(0).meta(not('a whole number of 0 or more'));
const flag = z.boolean().meta(not('true or false')).optional();
const level = (expected: string) =>
  z.enum(['off', 'minimal', 'low', 'medium', 'high']).meta(not(expected));
const tools = z.array(z.string()).meta(not('a list of tools')).optional();

/** `<behavior>` as it is read: names in `snake_case`, numbers and lists not as text, no member null. */
export const behavior = z.object({
  schema: z
    .looseObject({ type: z.literal('object') })
    .meta(not('a JSON Schema of the type "object"'))
    .optional(),
  thinking: level('off or minimal or low or medium or high').optional(),
  thinking_decay: z
    .object({
      after_runs: count.optional(),
      after_turns: count.optional(),
      floor: level('off, minimal, low, medium, high').optional(),
    })
    .meta(not('an object with after_runs or after_turns, and floor'))
    .optional(),
  max_tokens: count.optional(),
  betas: z
    .array(z.string().regex(/^[A-Za-z0-9._-]+$/))
    .meta(not('a list of betas'))
    .optional(),
  context_management: z.looseObject({}).meta(not('an object')).optional(),
  cache: flag,
  compact_strategy: z.enum(['off', 'tail']).meta(not('off or tail')).optional(),
  compact_threshold: count.optional(),
  compact_keep_turns: count.optional(),
  elide_stale_reads: flag,
  nudge: flag,
  steer_between_calls: flag,
  tool_budgets: z
    .record(
      z.string(),
      z
        .object({
          max: count,
          on_exceed: z.enum(['block', 'steer']).meta(not('block or steer')).optional(),
          grace: count.optional(),
          message: z.unknown().optional(),
        })
        .meta(not('a number of calls, or an object with max')),
    )
    .meta(not('a map by tool'))
    .optional(),
  tool_output_budget: count.optional(),
  dedup_tools: tools,
  dedup_reads: flag,
  loop_repeats: count.optional(),
  require_read_before_edit: flag,
  read_line_numbers: flag,
  persist_threshold: count.optional(),
  persist_exclude_tools: tools,
  tool_aliases: z
    .record(
      z.string(),
      z
        .string()
        .regex(/^[A-Za-z0-9_-]{1,64}$/)
        .meta(not('up to 64 of A-Z a-z 0-9 _ -')),
    )
    .meta(not('a map by tool'))
    .optional(),
  shell_max_output_bytes: count.optional(),
  shell_metadata: flag,
});

export type BehaviorFile = z.infer<typeof behavior>;
