import { RyeError } from '../../core/errors.ts';
import type { PartialLimits } from '../../core/limits.ts';
import { formatUsd, type MicroUsd, toMicroUsd, toUsd } from '../../core/usage.ts';
import { heldText } from '../../policy/budget.ts';
import type { GrantedLimits } from '../../policy/limit-grant.ts';
import type { RawLimit, ResolvedLimits } from '../../policy/limits.ts';
import type { Configured, Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';

export interface ChildBudget {
  readonly directiveId: string;
  readonly parent: ThreadDocument | undefined;
  /** The limits that the directive declares. */
  readonly declared: readonly RawLimit[];
  /** The limits that the request sets. */
  readonly overrides: PartialLimits;
}

/** The limits of a child, and what its plan warns of. */
export type SharedLimits = GrantedLimits & { readonly warnings: readonly string[] };

/** Minimum share of its declared spend that a child must get; a smaller one would be spent without finishing. */
const MIN_SHARE = 0.5;

/**
 * Lowers the spend limit of a child to what its parent can spare. A child without a declared spend gets
 * 1/`concurrency.max_children` of the parent's remaining budget, at most half, so that no child takes all of it by
 * default. A declared limit is lowered only if it would take the parent's next model call; the plan warns about that.
 */
export async function shareSpend(
  env: Stored & Configured,
  resolved: GrantedLimits,
  child: ChildBudget,
): Promise<SharedLimits> {
  const { parent, declared, overrides } = child;
  if (parent === undefined) return { ...resolved, warnings: [] };
  const isDeclared =
    overrides.spend !== undefined ||
    declared.some(({ name }) => name === 'spend' || name === 'max_spend');
  if (isDeclared) return await spareSpend(env, resolved, { ...child, parent });
  const left = await env.store.ledger.remaining(parent.thread_id);
  const { maxChildren } = env.config.coordination;
  const parts = Math.max(2, maxChildren);
  const share = Math.floor(left / parts);
  if (share >= toMicroUsd(resolved.limits.spend)) return { ...resolved, warnings: [] };
  const origin = `1/${parts} of the remaining budget of ${parent.thread_id}`;
  return { ...lowered(resolved, share, origin), warnings: [] };
}

async function spareSpend(
  env: Stored,
  resolved: ResolvedLimits,
  { directiveId, parent }: ChildBudget & { readonly parent: ThreadDocument },
): Promise<SharedLimits> {
  const { thread_id: parentId } = parent;
  const left = await env.store.ledger.remaining(parentId);
  const keep = await env.store.ledger.nextCall(parentId);
  const wanted = toMicroUsd(resolved.limits.spend);
  const spare = Math.max(0, left - keep);
  if (wanted <= spare) return { ...resolved, warnings: [] };
  const held = await env.store.ledger.held(parentId);
  const facts = `${parentId} has ${usd(left)} left and needs ${usd(keep)} of it for its own next call`;
  if (keep > 0 && spare < wanted * MIN_SHARE) {
    throw new RyeError(
      'budget_insufficient',
      `${directiveId} declares a spend of ${usd(wanted)}, and ${parentId} can spare ${usd(spare)}: ${facts}${heldText(held)}`,
      {
        hint:
          held.length === 0
            ? 'Give the child a lower spend (limit_overrides), or raise the spend of the parent.'
            : 'Wait for the running children, or give each child a lower spend from the start (limit_overrides).',
        details: {
          parent_thread_id: parentId,
          directive: directiveId,
          requested_usd: toUsd(wanted),
          remaining_usd: toUsd(left),
          kept_usd: toUsd(keep),
          reserved: held.map(({ thread_id, microUsd }) => ({ thread_id, usd: toUsd(microUsd) })),
        },
      },
    );
  }
  // the ledger refuses what other children hold, and names them; what the parent spent itself only lowers the limit
  if (wanted > left && held.length > 0) return { ...resolved, warnings: [] };
  return {
    ...lowered(resolved, spare, `what ${parentId} can spare`),
    warnings: [
      `the spend limit of ${directiveId} is ${usd(spare)} instead of ${usd(wanted)}: ${facts}`,
    ],
  };
}

function usd(micro: MicroUsd): string {
  return formatUsd(toUsd(micro));
}

function lowered(
  { limits, origins }: ResolvedLimits,
  spend: MicroUsd,
  origin: string,
): ResolvedLimits {
  return { limits: { ...limits, spend: toUsd(spend) }, origins: { ...origins, spend: origin } };
}
