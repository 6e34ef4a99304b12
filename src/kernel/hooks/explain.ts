import type { HookDeclaration } from '../core/hook.ts';
import { type DecidingNode, explain, forecast } from '../policy/condition.ts';
import { contextPathProblem, dispatchKind } from './contexts.ts';
import { isFinal } from './dispatch.ts';
import { type HookCall, inRunningOrder, isInfra, isSuppressed } from './run-hook.ts';
import { missingCapability } from './sources.ts';

/** The answer to the question if one hook would fire for an event, with the reason. */
export interface HookExplanation {
  readonly hook: HookDeclaration;
  /** Undefined if that depends on what only a run knows. */
  readonly fires: boolean | undefined;
  readonly reason: 'fires' | 'disabled' | 'suppressed' | 'not_matched' | 'denied' | 'depends';
  /** The condition nodes that decided, with the values compared. Empty without a condition. */
  readonly because: readonly DecidingNode[];
  /** Paths of the context that are known during a run only. */
  readonly dependsOn: readonly string[];
  /** The capability that the hook's action needs and that neither its thread nor its file holds. */
  readonly missing?: string;
  /** Id of an earlier hook that decides, so that this one is not asked. */
  readonly decidedBy?: string;
  /** Id of an earlier hook that may decide, so that this one may not be asked. */
  readonly maybeDecidedBy?: string;
}

/** Facts known about a thread before it runs. */
export interface ExplainOptions {
  readonly suppress?: readonly string[];
  readonly capabilities?: readonly string[];
}

/**
 * Reports for each hook of an event, in execution order, whether it would fire in this context and, if not, why.
 * `dependsOn` lists paths that are known only at run time.
 */
export function explainHooks(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: ExplainOptions = {},
): readonly HookExplanation[] {
  let decider: string | undefined;
  let possible: string | undefined;
  return inRunningOrder(hooks, call.event).map((hook) => {
    const explained = explainOne(hook, call, options);
    const earlier = isInfra(hook) ? {} : { decidedBy: decider, maybeDecidedBy: possible };
    if (decides(hook)) {
      if (explained.fires === true) decider ??= hook.id;
      else if (explained.fires === undefined) possible ??= hook.id;
    }
    if (explained.fires === false) return explained;
    return {
      ...explained,
      ...(earlier.decidedBy === undefined ? {} : { decidedBy: earlier.decidedBy }),
      ...(earlier.maybeDecidedBy === undefined ? {} : { maybeDecidedBy: earlier.maybeDecidedBy }),
    };
  });
}

function decides(hook: HookDeclaration): boolean {
  const isControl = dispatchKind(hook.event) === 'control';
  return hook.actions.some((action) =>
    isControl
      ? action.kind === 'control' && isFinal(hook, action.action)
      : action.kind === 'set_extends',
  );
}

function explainOne(
  hook: HookDeclaration,
  { event, context }: HookCall,
  { suppress = [], capabilities = [] }: ExplainOptions,
): HookExplanation {
  const of = (
    reason: HookExplanation['reason'],
    rest: Partial<HookExplanation> = {},
  ): HookExplanation => ({
    hook,
    fires: reason === 'fires',
    reason,
    because: [],
    dependsOn: [],
    ...rest,
  });
  if (!hook.enabled) return of('disabled');
  const { condition } = hook;
  const isKnown = (path: string): boolean =>
    Object.hasOwn(context, path.split('.', 1)[0] ?? '') ||
    contextPathProblem(event, path) !== undefined;
  const judged = condition === undefined ? true : forecast(condition, context, isKnown);
  const because =
    condition === undefined || typeof judged !== 'boolean'
      ? []
      : explain(condition, context).because;
  if (judged === false) return of('not_matched', { because });
  if (isSuppressed(hook, suppress)) return of('suppressed', { because });
  const missing = missingCapability(hook, capabilities);
  if (missing !== undefined) return of('denied', { because, missing });
  if (judged === true) return of('fires', { because });
  return of('depends', { fires: undefined, dependsOn: judged });
}
