import type { Verb } from './capability.ts';
import type { ItemType } from './ids.ts';
import type { JsonObject, JsonValue } from './json.ts';

export const HOOK_EVENTS = [
  'resolve_extends',
  'thread_started',
  'thread_continued',
  'after_step',
  'after_complete',
  'error',
  'limit',
  'context_limit_reached',
  'directive_return',
  'rule_triggered',
  'before_compact',
  'tool_gate',
  'tool_after',
  'child_finished',
  'approval_requested',
  'approval_decided',
  'delivery',
] as const;
export type HookEvent = (typeof HOOK_EVENTS)[number];

/** 0 user, 1 directive, 2 builtin, 3 project, 4 infra; lower runs first. */
export type HookLayer = 0 | 1 | 2 | 3 | 4;

export type ConditionOperator =
  | 'eq'
  | 'ne'
  | 'gt'
  | 'gte'
  | 'lt'
  | 'lte'
  | 'in'
  | 'contains'
  | 'regex'
  | 'exists';

/** A validated condition; an absent condition is true. */
export type Condition =
  | { readonly path: string; readonly op: ConditionOperator; readonly value?: JsonValue }
  | { readonly any: readonly Condition[] }
  | { readonly all: readonly Condition[] }
  | { readonly not: Condition };

/** Every path that a condition reads, but for comparisons with `except`, for checks against a context's type. */
export function conditionPaths(
  condition: Condition,
  except?: ConditionOperator,
): readonly string[] {
  const pathsOf = (part: Condition): readonly string[] => conditionPaths(part, except);
  if ('any' in condition) return condition.any.flatMap(pathsOf);
  if ('all' in condition) return condition.all.flatMap(pathsOf);
  if ('not' in condition) return pathsOf(condition.not);
  return condition.op === except ? [] : [condition.path];
}

/** A decision of a control hook. A closed union. */
export type ControlAction =
  | { readonly control: 'continue' }
  | { readonly control: 'retry'; readonly delay_seconds?: number }
  | { readonly control: 'fail'; readonly error?: string }
  | { readonly control: 'abort' }
  | { readonly control: 'suspend'; readonly reason?: string }
  /** A person decides: about a call, or whether a limit is raised to `to`. */
  | {
      readonly control: 'ask';
      readonly reason?: string;
      readonly limit?: string;
      readonly to?: number;
    }
  | { readonly control: 'escalate'; readonly limit: string; readonly to: number }
  | { readonly control: 'handoff' }
  | { readonly control: 'compact'; readonly instructions?: string };

/** One step of a hook. Strings in `item_id` and `params` are interpolated with the event's context. */
export type HookAction =
  | {
      readonly kind: 'item';
      readonly primary: Verb;
      readonly item_type: ItemType;
      readonly item_id: string;
      readonly params: JsonObject;
    }
  | { readonly kind: 'set_extends'; readonly target: string }
  | { readonly kind: 'control'; readonly action: ControlAction }
  | { readonly kind: 'emit'; readonly custom_type: string; readonly data: JsonObject }
  | { readonly kind: 'inject'; readonly text: string };

/** One hook of the merged table. */
export interface HookDeclaration {
  readonly id: string;
  readonly event: HookEvent;
  readonly layer: HookLayer;
  readonly condition?: Condition;
  readonly actions: readonly HookAction[];
  readonly position: 'before' | 'after';
  readonly wrap: boolean;
  readonly enabled: boolean;
  readonly timeout_seconds: number;
  readonly on_error?: 'ignore' | 'fail';
  readonly description?: string;
  /** Capabilities of a configured hook in addition to its thread's. A directive's hooks have only the thread's. */
  readonly capabilities?: readonly string[];
  /** Position of the declaration as `file:line`. */
  readonly origin: string;
  /** In plans: the hook was shipped with rye and needs no capability. The plan keeps this even if rye is moved. */
  readonly shipped?: true;
  /** In plans: the directive's `suppress` keeps it out of the context. */
  readonly suppressed?: true;
}
