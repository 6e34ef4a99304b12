import type { PartialLimits } from '../core/limits.ts';
import { toMicroUsd, toUsd } from '../core/usage.ts';
import type { RawLimit, ResolvedLimits } from '../policy/limits.ts';
import type { ThreadEnv } from './ports.ts';
import type { ThreadDocument } from './thread-document.ts';

export interface ChildBudget {
  readonly parent: ThreadDocument | undefined;
  /** What the directive says about limits. */
  readonly declared: readonly RawLimit[];
  /** What the request says about them. */
  readonly overrides: PartialLimits;
}

/**
 * Lowers the spend limit of a child for which nobody declared one to its share of what the parent has left: one part
 * in `concurrency.max_children`, half at most. So no child takes the whole budget by default, and its siblings and the parent keep
 * the rest. A declared limit stays as it is, and its reservation is refused where it can't be afforded.
 */
export async function shareSpend(
  env: ThreadEnv,
  resolved: ResolvedLimits,
  { parent, declared, overrides }: ChildBudget,
): Promise<ResolvedLimits> {
  if (parent === undefined || overrides.spend !== undefined) return resolved;
  if (declared.some(({ name }) => name === 'spend' || name === 'max_spend')) return resolved;
  const left = await env.store.ledger.remaining(parent.thread_id);
  const { maxChildren } = (await env.config()).coordination;
  const parts = Math.max(2, maxChildren);
  const share = Math.floor(left / parts);
  if (share >= toMicroUsd(resolved.limits.spend)) return resolved;
  return {
    limits: { ...resolved.limits, spend: toUsd(share) },
    origins: {
      ...resolved.origins,
      spend: `1/${parts} of what ${parent.thread_id} has left`,
    },
  };
}
