import { RyeError } from '../../core/errors.ts';
import type { PartialLimits } from '../../core/limits.ts';
import { formatUsd, type MicroUsd, toMicroUsd, toUsd } from '../../core/usage.ts';
import { beginsRun } from '../../log/runs.ts';
import { isKnown } from '../../log/tree.ts';
import type { GrantedLimits } from '../../policy/limit-grant.ts';
import { type RawLimit, type ResolvedLimits, worstMicroUsd } from '../../policy/limits.ts';
import type { Configured, Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { readSigned } from '../verified-log.ts';

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
/** Tokens that the parent's next request may have more than its last one, and that its answer may have. */
const MORE_INPUT_TOKENS = 2048;
const NEXT_OUTPUT_TOKENS = 512;

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
  const keep = await nextCallOf(env, parent);
  const wanted = toMicroUsd(resolved.limits.spend);
  const spare = Math.max(0, left - keep);
  if (wanted <= spare) return { ...resolved, warnings: [] };
  const facts = `${parentId} has ${usd(left)} left and needs ${usd(keep)} of it for its own next call`;
  if (keep > 0 && spare < wanted * MIN_SHARE) {
    throw new RyeError(
      'budget_insufficient',
      `${directiveId} declares a spend of ${usd(wanted)}, and ${parentId} can spare ${usd(spare)}: ${facts}`,
      {
        hint: 'Give the child a lower spend (limit_overrides), or raise the spend of the parent.',
        details: {
          parent_thread_id: parentId,
          directive: directiveId,
          requested_usd: toUsd(wanted),
          remaining_usd: toUsd(left),
          kept_usd: toUsd(keep),
        },
      },
    );
  }
  // the ledger refuses more than the parent has, and names the holders
  if (wanted > left) return { ...resolved, warnings: [] };
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

/**
 * Returns the maximum cost of a running thread's next model call: its last request from the log, with the answer and
 * the results since, plus that request again while it is not booked. 0 for a thread whose model costs nothing.
 */
export async function nextCallOf(env: Stored, thread: ThreadDocument): Promise<MicroUsd> {
  const ran = await runOf(env, thread);
  if (!ran) return 0;
  const { plan, events } = ran;
  const at = events.findLastIndex((event) => isKnown(event, 'turn_started'));
  const last = events[at];
  const request = last && isKnown(last, 'turn_started') ? last.payload.request : undefined;
  if (!request) return 0;
  // what precedes a run is paid for, and its model may have been another one
  const isOfEarlierRun = events.findLastIndex(beginsRun) > at;
  const model =
    [plan.model, ...plan.fallbacks].find(
      ({ provider, id }) => provider === request.provider && id === request.model,
    ) ?? (isOfEarlierRun ? plan.model : undefined);
  if (!model?.pricing) return 0;
  const { pricing } = model;
  const costOf = (inputTokens: number): MicroUsd =>
    worstMicroUsd({ inputTokens, pricing }, NEXT_OUTPUT_TOKENS);
  const isBooked = isOfEarlierRun || events.slice(at).some((event) => isKnown(event, 'cost'));
  const unbooked = isBooked ? 0 : costOf(request.input_tokens);
  return unbooked + costOf(request.input_tokens + MORE_INPUT_TOKENS);
}

async function runOf(env: Stored, thread: ThreadDocument) {
  try {
    const plan = await env.files.readPlan(thread);
    const events = await readSigned(env, thread.thread_id);
    return { plan, events };
  } catch {
    return undefined; // a parent without a plan or a log has made no call
  }
}
