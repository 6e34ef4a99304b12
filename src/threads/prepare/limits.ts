import { compact } from '../../core/json.ts';
import type { PartialLimits } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { Composed } from '../../items/extends.ts';
import { checkRaises, type GrantedLimits } from '../../policy/limit-grant.ts';
import { parseLimits, resolveLimits } from '../../policy/limits.ts';
import { type SharedLimits, shareSpend } from '../family/child-budget.ts';
import type { Configured, Stored } from '../ports.ts';
import type { ThreadConfig } from '../thread-config.ts';
import type { ThreadDocument } from '../thread-document.ts';
import type { PrepareRequest } from './request.ts';

interface LimitFacts {
  readonly parent: ThreadDocument | undefined;
  /** True if the thread is new. */
  readonly isStart: boolean;
}

/** The limits of the thread; a child spends no more than its parent can spare. */
export async function planSpend(
  env: Stored & Configured,
  request: PrepareRequest,
  composed: Composed,
  { parent, isStart }: LimitFacts,
): Promise<SharedLimits> {
  const { directiveId, limits: overrides = {}, raiseLimits: mayRaise = false } = request;
  const options = { overrides, parent, directiveId, mayRaise };
  const resolved = planLimits(env.config, composed, options);
  if (!isStart) return { ...resolved, warnings: [] };
  const declared = composed.rawLimits;
  return await shareSpend(env, resolved, { directiveId, parent, declared, overrides });
}

/** defaults → directive → overrides, capped by the parent's signed limits. */
function planLimits(
  config: ThreadConfig,
  composed: Composed,
  { overrides, parent, directiveId, mayRaise }: LimitOptions,
): GrantedLimits {
  const sources = {
    defaults: config.limitDefaults,
    directive: parseLimits(composed.rawLimits, 'the directive'),
  };
  const given = parseLimits(
    Object.entries(overrides).map(([name, value]) => ({ name, value })),
    'limit overrides',
  );
  if (parent) {
    const caps = { thread_id: parent.thread_id, limits: parent.limits };
    return resolveLimits({ ...sources, overrides: given, parent: caps });
  }
  const signed = resolveLimits({ ...sources, overrides: { limits: {}, origins: {} } });
  const resolved = resolveLimits({ ...sources, overrides: given });
  if (Object.keys(given.limits).length === 0) return resolved;
  const { limits: granted, origins } = signed;
  const wanted = given.limits;
  const ceiling = config.limitCeiling;
  const raised = checkRaises({ directiveId, granted, origins, wanted, ceiling, mayRaise });
  return { ...resolved, granted, ...(Object.keys(raised).length === 0 ? {} : { raised }) };
}

interface LimitOptions {
  readonly overrides: PartialLimits;
  readonly parent: ThreadDocument | undefined;
  readonly directiveId: string;
  /** True if the overrides may go above what is granted. */
  readonly mayRaise: boolean;
}

/** Returns the limits as a plan records them. */
export function limitsOfPlan({
  limits,
  granted,
  raised,
}: GrantedLimits): Pick<ThreadPlan, 'limits' | 'granted_limits' | 'raised_limits'> {
  return { limits, ...compact({ granted_limits: granted, raised_limits: raised }) };
}
