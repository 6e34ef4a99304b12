import { mergeBehavior, withoutUnset } from '../../core/behavior.ts';
import { RyeError } from '../../core/errors.ts';
import { compact, isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import type { PlannedTool, ThreadPlan } from '../../core/plan.ts';
import type { Composed } from '../../items/extends.ts';
import { parseBehavior } from '../../loop/behavior.ts';
import type { LoopPorts, ReturnCheck } from '../../loop/ports.ts';
import { OUTPUT_TOOL } from '../../providers/provider.ts';
import type { OpenTools, ThreadConfig, ThreadEnv } from '../ports.ts';

/**
 * The behavior of a thread: that of the configuration, below that of the directive, below that of the run. A member that is null
 * unsets. A schema given as text becomes the object; one that can't be used is an error before anything runs.
 */
export async function planBehavior(
  env: ThreadEnv,
  config: ThreadConfig,
  { composed, given }: { readonly composed: Composed; readonly given: JsonObject | undefined },
): Promise<JsonObject> {
  const merged = mergeBehavior(config.behavior, composed.behavior, given ?? {});
  const { schema: raw, ...rest } = withoutUnset(merged);
  const parsed = typeof raw === 'string' ? parseJson(raw) : raw;
  const behavior: JsonObject = compact({
    ...rest,
    schema: parsed !== undefined && isJsonObject(parsed) ? parsed : raw,
  });
  const { schema } = parseBehavior(behavior);
  if (schema) await env.checkSchema(schema);
  return behavior;
}

/** Refuses aliases by which a model could not tell two tools apart: `wire_name_collision`. */
export function assertAliases(behavior: JsonObject, tools: readonly PlannedTool[]): void {
  const { toolAliases } = parseBehavior(behavior);
  const taken = new Map<string, string>(
    RESERVED_NAMES.map((name) => [name, 'a name that is reserved']),
  );
  for (const { id, name } of tools) {
    const shown = toolAliases.get(name) ?? name;
    const rival = taken.get(shown);
    if (rival !== undefined) {
      throw new RyeError(
        'wire_name_collision',
        `the tool ${id} would be offered as ${shown}, ${rival}`,
        { hint: 'Choose another name in behavior.tool_aliases.', details: { name: shown } },
      );
    }
    taken.set(shown, `the name of ${id}`);
  }
}

const RESERVED_NAMES = [
  'rye_directive_return',
  'directive_return',
  'tool_search',
  OUTPUT_TOOL.name,
];

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
