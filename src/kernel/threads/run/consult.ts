import { messageOf } from '../../core/errors.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import type { LoopPorts } from '../../loop/ports.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import type { Process, Sources } from '../ports.ts';
import { errorRulesOf } from './loop-ports.ts';
import type { StartedThread } from './start.ts';
import { summarize } from './summarize.ts';

/** A question must not hold up its thread for long. */
const RETRIES = { maxRetries: 1, maxSeconds: 10 };

/** Small questions for the loop: each is one request, to a model of the thread's provider unless it names others. */
export function consultPort(
  env: Process & Pick<Sources, 'models'>,
  { plan }: StartedThread,
  provider: (model: PlannedModel) => ModelProvider,
): NonNullable<LoopPorts['consult']> {
  return async ({ models, system, prompt, maxTokens, remainingMicroUsd, begin }, signal) => {
    const model = await modelFor(env, plan, models);
    const answer = await summarize(
      {
        model,
        traits: env.models.traits,
        provider: () => provider(model),
        clock: env.clock,
        errorRules: errorRulesOf(plan),
        random: env.random,
        maxTokens,
        remainingMicroUsd,
        allowUnpriced: plan.allow_unpriced,
        retries: RETRIES,
        question: { system, noun: 'judgment' },
        hold: async (most) => await begin(most, model),
        ...(env.models.about ? { about: env.models.about } : {}),
      },
      prompt,
      signal,
    );
    if ('error' in answer) return { model, usage: answer.usage, error: messageOf(answer.error) };
    return { model, ...answer };
  };
}

/** The first of the named models that is ready; without a name the small one of the thread's provider, else its own. */
async function modelFor(
  { models }: Pick<Sources, 'models'>,
  plan: ThreadPlan,
  names: readonly string[],
): Promise<PlannedModel> {
  const { provider } = plan.model;
  const wishes =
    names.length > 0 ? names.map((wanted) => ({ wanted })) : [{ wanted: 'fast', provider }];
  let last: unknown;
  for (const wish of wishes) {
    try {
      const { model } = await models.resolve({
        ...wish,
        hasSteps: false,
        allowUnpriced: plan.allow_unpriced,
      });
      await models.assertReady?.(model);
      return model;
    } catch (error) {
      last = error;
    }
  }
  if (names.length === 0) return plan.model;
  throw last;
}
