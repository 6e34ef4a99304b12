import { createHash } from 'node:crypto';
import type { AskedPermission } from '../core/approval.ts';
import { type Acknowledgement, RISKS } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import { HOOK_EVENTS, type HookDeclaration } from '../core/hook.ts';
import { ISOLATION_RESULTS, type PlannedWorktree } from '../core/isolation.ts';
import { parseJson } from '../core/json.ts';
import { completeLimits } from '../core/limits.ts';
import {
  type ContextBlock,
  INTERRUPT_MODES,
  type ListedRule,
  type OutputDeclaration,
  type PlannedFleet,
  type PlannedModel,
  type PlannedRule,
  type PlannedRules,
  type PlannedSource,
  type PlannedTool,
  type PlanSource,
  type ProcessStep,
  type ProgramParts,
  REPEAT_MODES,
  type RequestedSettings,
  RULE_ENGINES,
  type RuleSettings,
  SOURCE_KINDS,
  SOURCE_RESULTS,
  type ThreadPlan,
  type ThreadSettings,
  VALUE_TYPES,
} from '../core/plan.ts';
import {
  BOOLEAN,
  listOf,
  mapOf,
  NUMBER,
  nullable,
  OBJECT,
  objectOf,
  oneOf,
  optional,
  TEXT,
} from '../core/shape.ts';
import { THINKING_LEVELS } from '../providers/provider.ts';

const planTexts = new WeakMap<ThreadPlan, string>();

/** Returns the stored text of a plan. Members keep their order through a JSON round trip. */
export function planText(plan: ThreadPlan): string {
  const known = planTexts.get(plan);
  if (known !== undefined) return known;
  const text = JSON.stringify(plan);
  planTexts.set(plan, text);
  return text;
}

/** Returns the SHA-256 hex of a plan's text. thread.json names it, so that no other plan is run or resumed. */
export function planHash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Reads a plan back; `log_malformed` names the first member that is missing or wrong. The hash doesn't prove the shape:
 * another version of rye may have written it. Limits that were unknown when the thread was planned get their default.
 */
export function parsePlan(text: string, threadId: string): ThreadPlan {
  const value: unknown = parseJson(text);
  if (PLAN.fits(value)) return { ...value, limits: completeLimits(value.limits) };
  const fault = PLAN.fault(value) ?? '';
  const member = fault === '' ? 'it is not an object' : `the member ${fault} is missing or wrong`;
  throw new RyeError('log_malformed', `plan.json of ${threadId} has an unknown format: ${member}`, {
    hint: 'Its hash is valid, so another version of rye may have written it. Update rye.',
    details: { thread_id: threadId, member: fault },
  });
}

const texts = listOf(TEXT);
const integrity = oneOf(['verified', 'unverified']);

const SOURCE = {
  type: TEXT,
  id: TEXT,
  space: TEXT,
  path: TEXT,
  sha256: TEXT,
  integrity,
  key_id: optional(TEXT),
} satisfies { [K in keyof PlanSource]-?: unknown };
const sources = listOf(objectOf<PlanSource>(SOURCE));

const model = objectOf<PlannedModel>({
  provider: TEXT,
  kind: TEXT,
  id: TEXT,
  tier: nullable(TEXT),
  context_window: NUMBER,
  max_output_tokens: NUMBER,
  pricing: nullable(mapOf(NUMBER)),
});

const process = listOf(
  objectOf<ProcessStep>({
    name: TEXT,
    description: TEXT,
    calls: listOf(
      objectOf<ProcessStep['calls'][number]>({
        primary: oneOf(['execute', 'fetch', 'sign']),
        item_type: TEXT,
        item_id: TEXT,
        params: OBJECT,
        options: optional(OBJECT),
      }),
    ),
    origin: TEXT,
    within: optional(listOf(OBJECT)),
  }),
);

const hooks = listOf(
  objectOf<HookDeclaration>({
    id: TEXT,
    event: oneOf(HOOK_EVENTS),
    layer: oneOf([0, 1, 2, 3, 4]),
    condition: optional(OBJECT),
    actions: listOf(OBJECT),
    position: oneOf(['before', 'after']),
    wrap: BOOLEAN,
    enabled: BOOLEAN,
    timeout_seconds: NUMBER,
    on_error: optional(oneOf(['ignore', 'fail'])),
    description: optional(TEXT),
    capabilities: optional(texts),
    origin: TEXT,
    shipped: optional(oneOf([true])),
    suppressed: optional(oneOf([true])),
  }),
);

const settings = objectOf<ThreadSettings>({
  tools_parallel: NUMBER,
  durability: oneOf(['turn', 'always', 'off']),
  token_deltas: oneOf(['every', 'coalesced', 'off']),
  max_retries: optional(NUMBER),
  retry_seconds: optional(NUMBER),
  stall_seconds: NUMBER,
  first_byte_seconds: optional(NUMBER),
  connect_seconds: optional(NUMBER),
  result_max_bytes: NUMBER,
  error_classification: listOf(OBJECT),
  cache: BOOLEAN,
  context_limit: objectOf<ThreadSettings['context_limit']>({
    threshold: NUMBER,
    mode: oneOf(['compact', 'handoff']),
    reserve_tokens: optional(NUMBER),
    keep_recent_tokens: optional(NUMBER),
  }),
  allow_paths: texts,
  deny_read: optional(texts),
  sandbox: optional(
    objectOf<NonNullable<ThreadSettings['sandbox']>>({
      mode: oneOf(['off', 'auto', 'required']),
      allow_domains: texts,
      allow_caches: optional(texts),
    }),
  ),
});

const rule = objectOf<PlannedRule>({
  name: TEXT,
  space: TEXT,
  path: TEXT,
  sha256: TEXT,
  conditions: texts,
  match: optional(OBJECT),
  scope: texts,
  globs: texts,
  interrupt: optional(oneOf(INTERRUPT_MODES)),
  repeat: optional(oneOf(REPEAT_MODES)),
  gap: optional(NUMBER),
  engine: oneOf(RULE_ENGINES),
  body: TEXT,
});

const rules = objectOf<PlannedRules>({
  settings: objectOf<RuleSettings>({
    enabled: BOOLEAN,
    context_mode: oneOf(['discard', 'keep']),
    interrupt_mode: oneOf(INTERRUPT_MODES),
    repeat_mode: oneOf(REPEAT_MODES),
    repeat_gap: NUMBER,
    builtin_rules: BOOLEAN,
    disabled_rules: texts,
    max_interrupts_per_run: NUMBER,
    buffer_limit: NUMBER,
  }),
  stream: listOf(rule),
  always: listOf(rule),
  rulebook: listOf(objectOf<ListedRule>({ id: TEXT, name: TEXT, description: TEXT })),
});

const PLAN = objectOf<ThreadPlan>({
  format: oneOf([1]),
  directive: objectOf<ThreadPlan['directive']>({
    ...SOURCE,
    name: TEXT,
    version: TEXT,
    description: TEXT,
    category: TEXT,
  }),
  chain: sources,
  context_sources: sources,
  parent_thread_id: nullable(TEXT),
  inputs: OBJECT,
  secret_inputs: texts,
  outputs: listOf(
    objectOf<OutputDeclaration>({
      name: TEXT,
      type: oneOf(VALUE_TYPES),
      required: BOOLEAN,
      description: TEXT,
      from: optional(TEXT),
      schema: optional(OBJECT),
      schema_id: optional(TEXT),
    }),
  ),
  prompt: TEXT,
  body: TEXT,
  context: listOf(
    objectOf<ContextBlock>({
      position: oneOf(['system', 'before', 'after']),
      id: TEXT,
      source: TEXT,
      content: TEXT,
    }),
  ),
  suppress: texts,
  process,
  process_values: optional(OBJECT),
  limits: mapOf(NUMBER),
  granted_limits: optional(mapOf(NUMBER)),
  raised_limits: optional(mapOf(NUMBER)),
  capabilities: texts,
  asks: optional(
    listOf(objectOf<AskedPermission>({ capability: TEXT, source: TEXT, reason: TEXT })),
  ),
  acknowledged: listOf(
    objectOf<Acknowledgement>({
      risk: oneOf(RISKS),
      tool: optional(TEXT),
      reason: TEXT,
      origin: TEXT,
    }),
  ),
  risks: listOf(objectOf<ThreadPlan['risks'][number]>({ capability: TEXT, risk: oneOf(RISKS) })),
  hooks,
  tools: listOf(
    objectOf<PlannedTool>({
      id: TEXT,
      name: TEXT,
      description: TEXT,
      input_schema: OBJECT,
      preloaded: BOOLEAN,
      risk: oneOf(RISKS),
    }),
  ),
  model,
  fallbacks: listOf(model),
  thinking: oneOf(THINKING_LEVELS),
  integrity,
  allow_unpriced: BOOLEAN,
  continuation_directive: nullable(TEXT),
  behavior: OBJECT,
  origins: mapOf(TEXT),
  warnings: texts,
  settings,
  rules: optional(rules),
  requested: optional(
    objectOf<RequestedSettings>({
      model: optional(TEXT),
      provider: optional(TEXT),
      system: optional(TEXT),
      limits: optional(mapOf(NUMBER)),
      raise_limits: optional(BOOLEAN),
      behavior: optional(OBJECT),
      only_tools: optional(texts),
      hook_capabilities: optional(texts),
    }),
  ),
  worktree: optional(
    objectOf<PlannedWorktree>({
      path: TEXT,
      prefix: TEXT,
      base: TEXT,
      result: oneOf(ISOLATION_RESULTS),
    }),
  ),
  work_path: optional(TEXT),
  label: optional(TEXT),
  fleet: optional(
    objectOf<PlannedFleet>({
      queue: TEXT,
      priority: NUMBER,
      partition: nullable(TEXT),
      bundle: TEXT,
      bundle_plan: TEXT,
      submitter: TEXT,
      roots: optional(texts),
      secrets: optional(texts),
      source: optional(
        objectOf<PlannedSource>({
          kind: oneOf(SOURCE_KINDS),
          commit: TEXT,
          prefix: TEXT,
          url: optional(TEXT),
          pack: optional(TEXT),
          results: oneOf(SOURCE_RESULTS),
        }),
      ),
    }),
  ),
  program: optional(
    objectOf<ProgramParts>({
      handlers: texts,
      tools: texts,
      directives: optional(texts),
      mcp_servers: optional(texts),
      skills: optional(texts),
    }),
  ),
});
