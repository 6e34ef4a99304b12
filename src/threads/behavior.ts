import { compact, isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { Composed } from '../items/extends.ts';
import { parseBehavior } from '../loop/behavior.ts';
import type { LoopPorts, ReturnCheck } from '../loop/ports.ts';
import type { OpenTools, ThreadConfig, ThreadEnv } from './ports.ts';

/**
 * The behavior of a thread: that of the configuration, below that of the directive, below that of the run. A member that is null
 * unsets. A schema given as text becomes the object; one that can't be used is an error before anything runs.
 */
export async function planBehavior(
  env: ThreadEnv,
  config: ThreadConfig,
  { composed, given }: { readonly composed: Composed; readonly given: JsonObject | undefined },
): Promise<JsonObject> {
  const merged: JsonObject = { ...config.behavior, ...composed.behavior, ...given };
  const set = Object.entries(merged).filter(([, value]) => value !== null && value !== undefined);
  const { schema: raw, ...rest } = Object.fromEntries(set);
  const parsed = typeof raw === 'string' ? parseJson(raw) : raw;
  const behavior: JsonObject = compact({
    ...rest,
    schema: parsed !== undefined && isJsonObject(parsed) ? parsed : raw,
  });
  const { schema } = parseBehavior(behavior);
  if (schema) await env.checkSchema(schema);
  return behavior;
}

/** Checks what a directive returns: by its declared outputs, then by the schema of its behavior. */
export function returnCheck(plan: ThreadPlan, tools: OpenTools): LoopPorts['checkReturn'] {
  const { schema } = parseBehavior(plan.behavior);
  return async (input): Promise<ReturnCheck> => {
    const checked = tools.checkReturn(input);
    if (!checked.ok || !schema) return checked;
    const valid = await tools.validate(schema, checked.outputs);
    return valid.ok
      ? { ok: true, outputs: valid.input }
      : { ok: false, problems: [valid.problems] };
  };
}
