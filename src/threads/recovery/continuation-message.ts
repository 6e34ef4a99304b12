import { messageOf } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { resolveInputs } from '../../items/inputs.ts';
import { interpolateText } from '../../items/prompt.ts';
import type { ThreadEnv } from '../ports.ts';
import { resolveDirective } from '../prepare/directive.ts';

const SHIPPED = 'rye/agent/continuation';

export interface ContinuationFacts {
  readonly plan: ThreadPlan;
  readonly previousThreadId: string;
  /** Why the thread goes on here, as one sentence for the model. */
  readonly reason: string;
}

/**
 * The message with which a successor begins: the body of the directive's continuation directive, else of the shipped one.
 * Without a usable one the reason alone is said, because a thread that could go on must not fail for its wording.
 */
export async function continuationMessage(
  env: ThreadEnv,
  { plan, previousThreadId, reason }: ContinuationFacts,
): Promise<string> {
  const directiveId = plan.continuation_directive ?? SHIPPED;
  const facts: JsonObject = {
    original_directive: plan.directive.id,
    original_directive_body: plan.body,
    previous_thread_id: previousThreadId,
    continuation_message: reason,
  };
  try {
    const config = await env.config();
    const { composed } = await resolveDirective(env.items, config, { directiveId, inputs: facts });
    const declared = new Set(composed.inputs.map(({ name }) => name));
    const given = Object.entries(facts).filter(([name]) => declared.has(name));
    const { values, secretNames } = resolveInputs(composed.inputs, Object.fromEntries(given));
    const scope = {
      inputs: values,
      secretNames,
      env: env.environment,
      envAllow: config.envAllow,
    };
    return interpolateText(composed.body, scope).value.trim();
  } catch (error) {
    env.onNotice(`the continuation directive ${directiveId} is not used: ${messageOf(error)}`);
    return reason;
  }
}
