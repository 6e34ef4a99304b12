import { RyeError } from '../../core/errors.ts';
import { originalLineOf } from '../../core/original.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from '../../log/tree.ts';
import { THINKING_LEVELS } from '../../providers/provider.ts';
import type { Sources } from '../ports.ts';
import { assertPriced, planRules } from './policy.ts';

/**
 * The plan under the settings at a leaf: the model and the thinking level that entries of its path set last. Throws as a
 * start does for a model that is not configured any more or has no price.
 */
export async function planAtLeaf(
  env: Pick<Sources, 'models' | 'rules'>,
  plan: ThreadPlan,
  { tree, leafId }: { readonly tree: SessionTree; readonly leafId: string | null },
): Promise<ThreadPlan> {
  const path = pathTo(tree, leafId);
  return await withRules(env, await withModel(env, withThinking(plan, path), path));
}

/** An imported session was planned without rules: those in force now apply, as to a new thread. */
async function withRules(
  env: Pick<Sources, 'models' | 'rules'>,
  plan: ThreadPlan,
): Promise<ThreadPlan> {
  if (plan.rules || !isImport(plan)) return plan;
  const { directive, model, capabilities } = plan;
  const { rules, blocks, warnings } = await planRules(env, {
    directive: directive.id,
    model,
    capabilities,
  });
  return {
    ...plan,
    ...(rules ? { rules } : {}),
    context: [...plan.context, ...blocks],
    warnings: [...plan.warnings, ...warnings],
  };
}

/** True for the plan of a conversation that rye did not run. */
export function isImport({ chain, directive }: ThreadPlan): boolean {
  return chain.length === 0 && directive.category === 'imported';
}

function withThinking(plan: ThreadPlan, path: readonly TreeEntry[]): ThreadPlan {
  const set = path.findLast((entry) => isKnown(entry, 'thinking_change'))?.payload.level;
  // another program may know other levels
  const level = THINKING_LEVELS.find((known) => known === set);
  if (level === undefined) return plan;
  const { behavior } = plan;
  return {
    ...plan,
    thinking: level,
    behavior: Object.hasOwn(behavior, 'thinking') ? { ...behavior, thinking: level } : behavior,
  };
}

async function withModel(
  env: Pick<Sources, 'models'>,
  plan: ThreadPlan,
  path: readonly TreeEntry[],
): Promise<ThreadPlan> {
  const change = path.findLast((entry) => isKnown(entry, 'model_change'));
  // what an imported session ran on was weighed when it was imported
  if (!change || originalLineOf(change) !== undefined) return plan;
  const { provider, model: id } = change.payload;
  const chain = [plan.model, ...plan.fallbacks];
  const at = chain.findIndex((one) => one.provider === provider && one.id === id);
  const [known, ...rest] = at === -1 ? [] : chain.slice(at);
  if (known) return { ...plan, model: known, fallbacks: rest };
  try {
    const found = await configuredModel(env, plan, { model: id, provider });
    return { ...plan, model: found.model, fallbacks: found.fallbacks };
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    throw new RyeError(error.code, `entry ${change.id} set the model: ${error.message}`, {
      hint: error.hint ?? 'Configure the model, or continue from an earlier entry with --from.',
      cause: error,
    });
  }
}

/** A model of today's configuration for a thread that was planned before; refused where it could not run on it. */
export async function configuredModel(
  env: Pick<Sources, 'models'>,
  plan: ThreadPlan,
  wanted: { readonly model: string; readonly provider?: string | undefined },
) {
  const { model: id, provider } = wanted;
  const { process: steps, allow_unpriced: allowUnpriced } = plan;
  const hasSteps = steps.length > 0;
  const found = await env.models.resolve({ wanted: id, provider, hasSteps });
  if (found.unfit) throw found.unfit;
  assertSameNature(env, plan, found.model);
  assertPriced([found.model, ...found.fallbacks], allowUnpriced);
  return found;
}

/** A plan for no model has none of the rules that one is to be watched by; that of an imported session has nothing to do. */
export function assertSameNature(
  { models }: Pick<Sources, 'models'>,
  plan: ThreadPlan,
  other: PlannedModel,
): void {
  const { model, directive } = plan;
  if (isImport(plan) || models.traits(model).replayable === models.traits(other).replayable) return;
  throw new RyeError(
    'usage',
    `the thread was planned for ${model.provider}/${model.id} and can't continue with ${other.provider}/${other.id}`,
    { hint: `Run ${directive.id} again with --model ${other.id}.` },
  );
}
