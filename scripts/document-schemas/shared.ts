// Parts of documents, and the two forms of a document that `--output json` prints.
import { z } from 'zod';
import type { RecoveredThread } from '../../src/kernel/app/api/threads.ts';
import type { ActiveTurn, Delivery } from '../../src/kernel/core/delivery.ts';
import type { ErrorInfo } from '../../src/kernel/core/errors.ts';
import type { HookDeclaration } from '../../src/kernel/core/hook.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { PlannedModel, PlanSource } from '../../src/kernel/core/plan.ts';
import type { CostedThread, ThreadResult } from '../../src/kernel/core/thread.ts';
import type { Cost, CostShare, FamilyCost } from '../../src/kernel/core/usage.ts';
import type { Problem } from '../../src/kernel/items/signing-fs.ts';
import type { GuardChange, Pin } from '../../src/kernel/trust/lock.ts';

const PROMISE = 'Members are added within a major version, never renamed.';

const warnings = z.array(z.string()).describe('Warnings of the call; empty if there are none.');

/** Describes the document of `command`; it may have more members than those listed. */
export function openDocument(command: string, purpose: string, members: z.ZodRawShape) {
  return described(z.object({ success: z.boolean(), warnings, ...members }), command, purpose);
}

/** Describes the document of `command`, which has no members but those listed. */
export function closedDocument(command: string, purpose: string, members: z.ZodRawShape) {
  return described(
    z.strictObject({ success: z.boolean(), warnings, ...members }),
    command,
    purpose,
  );
}

function described(schema: z.ZodObject, command: string, purpose: string): z.ZodType {
  return schema.meta({ title: `${command} --json`, description: `${purpose} ${PROMISE}` });
}

/**
 * Returns the members of a document or of a part of one. They must accept every value of type `T` and name each member
 * that it always has; the compiler checks both.
 */
export function membersOf<T>() {
  return <S extends z.ZodRawShape>(members: S & Accepting<T, S>): S => members;
}

type Accepting<T, S extends z.ZodRawShape> = [Exclude<RequiredKey<T>, keyof S>] extends [never]
  ? Writable<T> extends z.input<z.ZodObject<S>>
    ? unknown
    : { readonly 'does not accept': T }
  : { readonly 'does not name': Exclude<RequiredKey<T>, keyof S> };

type RequiredKey<T> = { [Key in keyof T]-?: undefined extends T[Key] ? never : Key }[keyof T];

/** The same type without `readonly`, as zod infers types. */
type Writable<T> = JsonObject extends T
  ? Exclude<T, object> | Record<string, unknown>
  : { -readonly [Key in keyof T]: Writable<T[Key]> };

/** Any object: its members are not described. */
export const anyObject = z.record(z.string(), z.unknown());

export const errorInfo = z.object(
  membersOf<ErrorInfo>()({
    code: z.string(),
    message: z.string(),
    hint: z.string().optional(),
    details: anyObject.optional(),
  }),
);

export const plainError = z.object({
  code: z.string(),
  message: z.string(),
});

export const cost = z.object(
  membersOf<Cost>()({
    input_tokens: z.int(),
    output_tokens: z.int(),
    cache_read_tokens: z.int(),
    cache_write_tokens: z.int(),
    turns: z.int(),
    spend: z.number(),
    estimated_spend_usd: z.number().optional(),
    elapsed_seconds: z.number(),
  }),
);

const costShare = z.object(
  membersOf<CostShare>()({
    spend: z.number(),
    estimated_spend_usd: z.number().optional(),
    tokens: z.int(),
    turns: z.int(),
  }),
);

/** `own` is the thread's, `total` that and all threads below it. */
export const familyCost = z.object(
  membersOf<FamilyCost>()({ ...cost.shape, own: costShare, total: costShare }),
);

export const threadPaths = z.object(
  membersOf<ThreadResult['paths']>()({
    thread: z.string(),
    transcript: z.string(),
    knowledge: z.string(),
  }),
);

export const threadFailure = z.object({
  thread_id: z.string(),
  error: errorInfo,
});

export const recovery = z.object(
  membersOf<RecoveredThread>()({
    thread_id: z.string(),
    status: z.string(),
    action: z.string(),
    reason: z.string(),
    unverified_bytes: z.int().optional(),
    estimated_spend_usd: z.number().optional(),
  }),
);

export const activeTurn = z.object(
  membersOf<ActiveTurn>()({
    thread_id: z.string(),
    epoch: z.int(),
    active_run_id: z.string(),
    active_run_kind: z.enum(['regular', 'delivery', 'compact', 'unknown']),
    requires_approval: z.boolean().nullable(),
    requires_network: z.boolean().nullable(),
    requires_write_access: z.boolean().nullable(),
    risk_class: z.enum(['read_only_low_risk', 'elevated', 'unknown']),
    steerable: z.boolean().nullable(),
    revision: z.int(),
    observed_at: z.string(),
    valid_until: z.string(),
    answer_boundary_passed: z.boolean(),
    after_tool_batch: z.boolean(),
    pending_approvals: z.int(),
    open_tool_calls: z.int(),
  }),
);

export const threadRecord = z.object(
  membersOf<CostedThread>()({
    thread_id: z.string(),
    directive: z.string(),
    parent_id: z.string().nullable(),
    status: z.string(),
    created_at: z.string(),
    updated_at: z.string(),
    completed_at: z.string().nullable(),
    pid: z.int().nullable(),
    process_start: z.string().nullable(),
    host: z.string().nullable(),
    epoch: z.int(),
    heartbeat_at: z.string().nullable(),
    model: z.string().nullable(),
    cost: familyCost,
    label: z.string().optional(),
    working_since: z
      .string()
      .describe(
        'ISO time from which the working time of a running thread counts; absent: its creation',
      )
      .optional(),
    process_gone: z
      .literal(true)
      .optional()
      .describe('Its process has ended without finishing it; `rye threads recover` does.'),
    spawn_count: z.int(),
    result: z.string().nullable(),
    outputs: anyObject.nullable(),
    error: anyObject.nullable(),
    continuation_of: z.string().nullable(),
    continuation_thread_id: z.string().nullable(),
    chain_root_id: z.string().nullable(),
    cancel_requested: z.string().nullable(),
    worker: z
      .string()
      .nullable()
      .meta({ description: 'Worker of a fleet that runs the thread, or ran it last' }),
  }),
);

export const hook = z.object(
  membersOf<HookDeclaration>()({
    id: z.string(),
    layer: z.int(),
    origin: z.string(),
    enabled: z.boolean(),
    position: z.string(),
    wrap: z.boolean(),
    timeout_seconds: z.number(),
    on_error: z.enum(['ignore', 'fail']).optional(),
    description: z.string().optional(),
    capabilities: z.array(z.string()).optional(),
    event: z.string(),
    condition: anyObject.optional(),
    actions: z.array(anyObject),
  }),
);

export const pin = z.object(
  membersOf<Pin>()({
    type: z.string(),
    id: z.string(),
    sha256: z.string(),
    key_id: z.string(),
  }),
);

export const guardChange = z.object(
  membersOf<GuardChange>()({
    type: z.string().nullable(),
    id: z.string().nullable(),
    change: z.enum([
      'changed',
      'added',
      'gone',
      'unsigned',
      'untrusted',
      'damaged',
      'lock_gone',
      'lock_changed',
      'lock_rolled_back',
      'lock_damaged',
    ]),
    detail: z.string(),
  }),
);

export const itemSource = z.object(
  membersOf<PlanSource>()({
    type: z.string(),
    id: z.string(),
    space: z.string(),
    path: z.string(),
    sha256: z.string(),
    integrity: z.string(),
  }),
);

export const plannedModel = z.object(
  membersOf<PlannedModel>()({
    provider: z.string(),
    kind: z
      .string()
      .describe("The provider's kind: one that is part of rye, or the program's own."),
    id: z.string(),
    tier: z.string().nullable(),
    context_window: z.int(),
    max_output_tokens: z.int(),
    pricing: anyObject.nullable(),
  }),
);

export const problem = z.object(
  membersOf<Problem>()({
    severity: z.string(),
    code: z.string(),
    message: z.string(),
    path: z.string(),
    line: z.int().nullable(),
    hint: z.string().optional(),
    column: z.int().nullable(),
  }),
);

export const verified = z
  .boolean()
  .nullable()
  .describe('True if the log is what was signed; null if it was not checked.');

export const unverifiedFrom = z
  .int()
  .optional()
  .describe('Byte offset of the first part of the log that no good signature covers.');

export const delivery = z.object(
  membersOf<Delivery & { source_key: string | null }>()({
    seq: z.int(),
    delivery_id: z.string(),
    thread_id: z.string(),
    sent_to: z.string(),
    class: z.enum(['person', 'background']),
    kind: z.enum(['steer', 'message', 'child_result']),
    mode: z.enum(['auto', 'idle', 'active', 'follow-up']),
    source: z.string(),
    source_key: z.string().nullable(),
    text: z.string(),
    requires_artifact: z.boolean(),
    state: z.enum(['queued', 'manual', 'closed']),
    close_reason: z.string().nullable(),
    manual_reason: z.string().nullable(),
    attempts: z.int(),
    max_attempts: z.int(),
    created_at: z.string(),
    closed_at: z.string().nullable(),
    entry_id: z.string().nullable(),
    answer_id: z.string().nullable(),
  }),
);
