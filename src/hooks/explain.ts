import type { HookDeclaration } from '../core/hook.ts';
import { type DecidingNode, explain } from '../policy/condition.ts';
import { dispatchKind } from './contexts.ts';
import { type HookCall, isInfra, isSuppressed } from './run-hook.ts';

/** Whether one hook would fire for an event, and why. */
export interface HookExplanation {
  readonly hook: HookDeclaration;
  readonly fires: boolean;
  /** `fires`, `disabled`, `suppressed` or `not_matched`. */
  readonly reason: 'fires' | 'disabled' | 'suppressed' | 'not_matched';
  /** The condition nodes that decided, with the values compared. Empty where there is no condition. */
  readonly because: readonly DecidingNode[];
  /** Id of an earlier hook that decides, so that this one matches but would not get its turn. */
  readonly behind?: string;
}

/** Says for every hook of an event, in running order, whether it would fire in a context and, if not, why. */
export function explainHooks(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  suppress: readonly string[] = [],
): readonly HookExplanation[] {
  const relevant = hooks
    .filter((hook) => hook.event === call.event)
    .toSorted((a, b) => a.layer - b.layer);
  let decider: string | undefined;
  return relevant.map((hook) => {
    const explained = explainOne(hook, call, suppress);
    const behind = isInfra(hook) ? undefined : decider;
    if (explained.fires && decides(hook)) decider ??= hook.id;
    return behind === undefined || !explained.fires ? explained : { ...explained, behind };
  });
}

function decides(hook: HookDeclaration): boolean {
  const kind = dispatchKind(hook.event);
  const decisive = kind === 'control' ? 'control' : 'set_extends';
  return !isInfra(hook) && hook.actions.some((action) => action.kind === decisive);
}

function explainOne(
  hook: HookDeclaration,
  { context }: HookCall,
  suppress: readonly string[],
): HookExplanation {
  if (!hook.enabled) return { hook, fires: false, reason: 'disabled', because: [] };
  const { result, because } =
    hook.condition === undefined ? { result: true, because: [] } : explain(hook.condition, context);
  if (!result) return { hook, fires: false, reason: 'not_matched', because };
  return isSuppressed(hook, suppress)
    ? { hook, fires: false, reason: 'suppressed', because }
    : { hook, fires: true, reason: 'fires', because };
}
