import * as z from 'zod';
import { RISKS } from '../core/capability.ts';

const not = (expected: string) => ({ problem: `is {value}, not ${expected}` });
const amount = z.number().min(0).nullish().meta(not('a number of 0 or more'));
const flag = z.boolean().nullish().meta(not('true or false'));
const texts = z.array(z.string()).nullish().meta(not('a list of texts'));
const hookList = z.array(z.unknown()).nullish().meta({ problem: 'is not a list of hooks' });
const oneOf = <const T extends string>(...names: readonly T[]) =>
  z
    .enum(names)
    .nullish()
    .meta(not(`one of ${names.join(', ')}`));
const map = z.record(z.string(), z.unknown()).nullish().meta(not('a mapping'));
const group = <T extends z.core.$ZodShape>(members: T) =>
  z.object(members).nullish().meta(not('a mapping'));
const childPolicy = oneOf('cancel', 'keep');

const agent = z.object({
  provider: group({
    default: z.string().nullish().meta(not('the name of a provider')),
    model: z.string().nullish().meta(not('the ID of a model')),
    order: texts,
  }),
  skills: group({
    compat: flag,
    max_active: z.int().min(1).nullish().meta(not('a whole number above 0')),
  }),
  chat: group({ history: flag }),
});

const coordination = z.object({
  continuation: group({ mode: oneOf('compact', 'handoff'), trigger_threshold: amount }),
  compaction: group({ reserve_tokens: amount, keep_recent_tokens: amount }),
  concurrency: group({ max_children: amount, max_total: amount }),
  child_policy: group({
    on_parent_cancel: childPolicy,
    on_parent_error: childPolicy,
    on_parent_complete: childPolicy,
  }),
  deliveries: group({ on_finished: oneOf('hold', 'resume') }),
  steer: group({
    active_turn: oneOf('enabled', 'disabled'),
    min_interval_seconds: amount,
    proof_seconds: amount,
  }),
  recovery: group({ mode: oneOf('fail', 'resume'), stale_seconds: amount }),
  fleet: group({
    source: oneOf('auto', 'none', 'git', 'bundle'),
    results: oneOf('push', 'patch'),
  }),
  transcript_integrity: oneOf('strict', 'lenient'),
});

const resilience = z.object({
  limits: map,
  retry: group({
    max_seconds: amount,
    max_retries: amount,
    connect_seconds: amount,
    first_byte_seconds: amount,
    idle_seconds: amount,
    stall_seconds: amount,
  }),
  tools: group({
    parallel: amount,
    result_max_bytes: amount,
    allow_paths: texts,
    deny_read: texts,
    sandbox: oneOf('off', 'auto', 'required'),
    allow_domains: texts,
    allow_caches: texts,
  }),
  tool_preload: group({ max_tokens: amount }),
  transcript: group({
    token_deltas: oneOf('every', 'coalesced', 'off'),
    durability: oneOf('turn', 'always', 'off'),
  }),
  cache: flag,
  behavior: map,
});

const rules = z.object({
  enabled: flag,
  context_mode: oneOf('discard', 'keep'),
  interrupt_mode: oneOf('never', 'prose-only', 'tool-only', 'always'),
  repeat_mode: oneOf('once', 'after-gap'),
  repeat_gap: amount,
  builtin_rules: flag,
  disabled_rules: texts,
  max_interrupts_per_run: amount,
  buffer_limit: amount,
});

const hooks = z.strictObject({
  hooks: hookList,
  capabilities: texts,
  project_capabilities: texts,
  // these describe the file and change nothing
  schema_version: z.unknown().optional(),
  category: z.unknown().optional(),
  description: z.unknown().optional(),
});

const name = z.string().min(1);
const names = z
  .union([name, z.array(name).min(1)])
  .meta({ problem: 'is {value}, not a name or a list of names', missing: 'is missing' });
const duration = z
  .union([z.number().min(0), z.string().regex(/^\d{1,6}(?:\.\d{1,3})?(?:ms|[smhdw])$/)])
  .meta({ problem: 'is {value}, not a time such as 30s, 24h or 7d' });
const approvalScope = z
  .enum(['once', 'arguments', 'tool'])
  .meta({ problem: 'is {value}, not one of once, arguments, tool' });

const approver = z
  .strictObject({
    key: z
      .string()
      .regex(/^[0-9a-f]{16}$/)
      .meta({
        problem:
          'is {value}, not a key id of 16 hexadecimal characters (put one of digits into quotes)',
        missing: 'is missing',
      }),
    may: z.array(name).optional().meta({ problem: 'is not a list of capability patterns' }),
    four_eyes: z.boolean().optional().meta({ problem: 'is not true or false' }),
  })
  .meta({ problem: 'is not a mapping with a key', missing: 'is missing' });

const approvalRule = z
  .strictObject({
    tool: name.optional().meta({ problem: 'is {value}, not a tool or a pattern of tools' }),
    capability: name.optional().meta({ problem: 'is {value}, not a capability pattern' }),
    risk: z
      .enum(RISKS)
      .optional()
      .meta({ problem: `is {value}, not one of ${RISKS.join(', ')}` }),
    // a condition, which is checked by itself
    when: z.unknown().optional(),
    spend_above: z.number().min(0).optional().meta({ problem: 'is {value}, not an amount in USD' }),
    ask: names,
    reason: z.string().optional().meta({ problem: 'is not a text' }),
    scope: z
      .union([approvalScope, z.array(approvalScope).min(1)])
      .optional()
      .meta({ problem: 'is {value}, not once, arguments, tool or a list of them' }),
    quorum: z.int().min(1).optional().meta({ problem: 'is {value}, not a whole number above 0' }),
    expires: duration.optional(),
    on_expiry: z
      .enum(['deny', 'end'])
      .optional()
      .meta({ problem: 'is {value}, not one of deny, end' }),
  })
  .meta({ problem: 'is not a mapping' });

const notification = z
  .union([
    z.strictObject({ command: z.union([name, z.array(name).min(1)]) }),
    z.strictObject({ webhook: name, secret: name.optional() }),
  ])
  .meta({ problem: 'is neither {command} nor {webhook, secret}' });

const approvals = z.strictObject({
  approvers: z.record(z.string(), approver).optional().meta({ problem: 'is not a mapping' }),
  rules: z.array(approvalRule).optional().meta({ problem: 'is not a list of rules' }),
  expires: duration.optional(),
  wait_inline: duration.optional(),
  notify: z.array(notification).optional().meta({ problem: 'is not a list' }),
  schema_version: z.unknown().optional(),
  category: z.unknown().optional(),
  description: z.unknown().optional(),
});

/** Files of `.ai/config/` by name. */
export const settings = z.object({
  'agent/agent': agent,
  'agent/approvals': approvals,
  'agent/coordination': coordination,
  'agent/error_classification': z.object({
    patterns: z.array(z.unknown()).nullish().meta(not('a list')),
  }),
  'agent/hook_conditions': z.object({
    builtin_hooks: hookList,
    infra_hooks: hookList,
  }),
  'agent/hooks': hooks,
  'agent/resilience': resilience,
  'agent/rules': rules,
  interpolation: z.object({ env_allow: texts }),
  // the value may hold a password, so a problem does not quote it
  store: z.object({ url: z.string().nullish().meta({ problem: 'is not a text' }) }),
});

export type SettingsFiles = z.infer<typeof settings>;
