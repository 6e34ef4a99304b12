import * as z from 'zod';
import { VERBS } from '../core/capability.ts';
import { HOOK_EVENTS } from '../core/hook.ts';
import { ITEM_TYPES } from '../core/ids.ts';

const oneOf = <const T extends string>(member: string, names: readonly T[]) =>
  z.enum(names).meta({
    problem: `unknown ${member} {value}`,
    missing: `"${member}" is missing`,
    hint: `Write one of ${names.join(', ')}.`,
  });
const flag = (member: string) =>
  z
    .boolean()
    .optional()
    .meta({ problem: `"${member}" is {value}, not true or false` });
const text = (member: string) =>
  z
    .string()
    .min(1)
    .meta({ problem: `"${member}" is not a text` });
const data = z.looseObject({}).optional().meta({ problem: '"data" of emit is not a mapping' });
const itemId = z.string().meta({
  problem: '{value} is not an item id',
  missing: 'nothing is not an item id',
});
const delay = z.number().min(0).meta({
  problem: '"delay" of retry is not a number of seconds from 0 up',
});
const unread = z.unknown().optional();

/** A hook of any source, without its condition and its actions. */
export const hook = z
  .strictObject({
    id: z.string().regex(/\S/).meta({ problem: 'it has no id', hint: 'Give each hook an id.' }),
    event: oneOf('event', HOOK_EVENTS),
    layer: unread,
    condition: unread,
    action: unread,
    actions: unread,
    position: oneOf('position', ['before', 'after']).optional(),
    wrap: flag('wrap'),
    enabled: flag('enabled'),
    timeout_seconds: z.number().positive().max(3600).optional().meta({
      problem: '"timeout_seconds" is {value}, not a number above 0 and up to 3600',
    }),
    on_error: oneOf('on_error', ['ignore', 'fail']).optional(),
    description: unread,
    capabilities: z
      .array(z.unknown())
      .optional()
      .meta({ problem: '"capabilities" is not a list of capabilities' }),
  })
  .meta({ problem: 'a hook is not a mapping', hint: 'Write a list of {id, event, action}.' });

/** The control actions, by the value of `control`. */
export const controls = z.object({
  continue: z.strictObject({ control: z.literal('continue') }),
  retry: z.strictObject({
    control: z.literal('retry'),
    delay: delay.optional(),
    delay_seconds: delay.nullish(),
  }),
  fail: z.strictObject({ control: z.literal('fail'), error: text('error').optional() }),
  abort: z.strictObject({ control: z.literal('abort') }),
  suspend: z.strictObject({ control: z.literal('suspend'), reason: text('reason').optional() }),
  ask: z.strictObject({
    control: z.literal('ask'),
    reason: text('reason').optional(),
    limit: text('limit').optional(),
    to: z.number().min(0).optional().meta({
      problem: '"to" of ask is not a number from 0 up',
      hint: 'Write {control: ask, to: 50}.',
    }),
  }),
  escalate: z.strictObject({
    control: z.literal('escalate'),
    limit: text('limit'),
    to: z.number().min(0).meta({
      problem: '"to" of escalate is not a number from 0 up',
      hint: 'Write {control: escalate, limit: turns, to: 50}.',
    }),
  }),
  handoff: z.strictObject({ control: z.literal('handoff') }),
  compact: z.strictObject({
    control: z.literal('compact'),
    instructions: text('instructions').optional(),
  }),
});

/** The forms of an action, by the member that only this form has. */
export const actions = z.object({
  primary: z.strictObject({
    primary: oneOf('primary', VERBS),
    item_type: oneOf('item_type', ITEM_TYPES),
    item_id: itemId,
    params: z.looseObject({}).optional().meta({ problem: '"params" is not a mapping' }),
    // a fetch or sign may have these here instead of in params
    query: unread,
    scope: unread,
    source: unread,
    destination: unread,
    limit: unread,
  }),
  set_extends: z.strictObject({ set_extends: itemId }),
  control: z.looseObject({ control: oneOf('control', controls.keyof().options) }),
  emit: z.strictObject({
    emit: z
      .union([z.string().min(1), z.strictObject({ custom_type: text('emit'), data })])
      .meta({ problem: '"emit" is not a text' }),
    data,
  }),
  inject: z.strictObject({ inject: text('inject') }),
});

const action = z.union([
  ...Object.values({ ...actions.shape, control: z.union(Object.values(controls.shape)) }),
  // {fetch: {…}} is short for {primary: fetch, …}
  ...VERBS.map((verb) => z.strictObject({ [verb]: actions.shape.primary.omit({ primary: true }) })),
]);

/** A hook with its actions. */
export const hookFile = hook.extend({
  action: action.optional(),
  actions: z.array(action).min(1).optional(),
});

/** The declarations that hooks are checked against at run time. */
export const hooks = z.object({ hook, actions, controls });
export type HookFile = z.infer<typeof hook>;
export type ActionFiles = z.infer<typeof actions>;
export type ControlFiles = z.infer<typeof controls>;
