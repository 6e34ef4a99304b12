import * as z from 'zod';

const text = (member: string) =>
  z.string().meta({ problem: `its payload has no text in ${member}` });
const textOrNull = (member: string) =>
  z
    .string()
    .nullable()
    .meta({ problem: `its payload's ${member} is neither a string nor null` });
const content = z.array(
  z.union([
    z.object({ type: z.enum(['text', 'thinking']), text: z.string() }),
    z.object({
      type: z.literal('tool_call'),
      call_id: z.string(),
      name: z.string(),
      input: z.looseObject({}),
    }),
    z.object({ type: z.literal('image'), data: z.string(), media_type: z.string() }),
  ]),
);

/**
 * What the session tree and the folds read of the payload of each entry; more than that is carried and not judged. The
 * types are in `core/events.ts`.
 */
export const payloads = z.object({
  message: z.object({
    message: z.union([
      z.object({ role: z.enum(['assistant', 'user']), content }),
      z.object({ role: z.literal('tool_result'), content, call_id: z.string() }),
    ]),
  }),
  system_prompt: z
    .object({ text: z.string(), tools: z.array(z.unknown()) })
    .meta({ problem: 'its system prompt needs text and tools' }),
  model_change: z.object({ provider: text('provider'), model: text('model') }),
  thinking_change: z.object({ level: text('level') }),
  compaction: z.object({
    summary: text('summary'),
    first_kept_entry_id: textOrNull('first_kept_entry_id'),
    protected_entry_ids: z
      .array(z.string())
      .meta({ problem: "its payload's protected_entry_ids is not a list of ids" })
      .optional(),
  }),
  branch_summary: z.object({ from_id: text('from_id'), summary: text('summary') }),
  custom: z.object({ custom_type: text('custom_type') }),
  custom_message: z.object({
    custom_type: text('custom_type'),
    content: text('content'),
    images: z
      .array(
        z.union([
          z.object({ type: z.literal('text'), text: z.string() }),
          z.object({ type: z.literal('image'), data: z.string(), media_type: z.string() }),
        ]),
      )
      .meta({ problem: "its payload's images are not a list of images" })
      .optional(),
  }),
  label: z.object({ target_id: text('target_id'), label: textOrNull('label') }),
  title: z.object({ title: text('title') }),
  rule_injection: z.object({
    rules: z
      .array(z.object({ name: z.string() }))
      .meta({ problem: 'its rules are not a list of named ones' }),
  }),
  context_edit: z
    .union([
      z.object({ target_id: text('target_id'), action: z.literal('omit') }),
      z.object({
        target_id: text('target_id'),
        action: z.literal('replace'),
        content: z.string(),
      }),
    ])
    .meta({ problem: 'its context edit neither omits nor replaces with a text' }),
  leaf: z.object({ target_id: textOrNull('target_id') }),
});
