import { messageOf } from '../../core/errors.ts';
import type { HookDeclaration } from '../../core/hook.ts';
import { literalNeeds, missingCapability } from '../../hooks/authority.ts';
import { isSuppressed } from '../../hooks/run-hook.ts';
import type { ThreadEnv } from '../ports.ts';
import type { ResolvedDirective } from './directive.ts';

/** The hooks of a plan, and one sentence for each that cannot run as written. */
export interface PlannedHooks {
  readonly hooks: readonly HookDeclaration[];
  readonly warnings: readonly string[];
}

/**
 * Marks the hooks that came with rye, so that a thread can resume where rye is installed elsewhere, and those that
 * the directive suppresses; then checks that the others can take their actions.
 */
export async function planHooks(
  env: ThreadEnv,
  { hooks: merged, composed }: Pick<ResolvedDirective, 'hooks' | 'composed'>,
  capabilities: readonly string[],
): Promise<PlannedHooks> {
  const hooks = merged.map((hook) => ({
    ...hook,
    ...(env.isShipped(hook.origin) ? { shipped: true as const } : {}),
    ...(isSuppressed(hook, composed.suppress) ? { suppressed: true as const } : {}),
  }));
  const warnings: string[] = [];
  for (const hook of hooks) {
    if (!hook.enabled || hook.shipped === true || hook.suppressed === true) continue;
    const reason = await whyUnusable(env, hook, capabilities);
    if (reason !== undefined)
      warnings.push(`hook ${hook.id} cannot run: ${reason} (${hook.origin})`);
  }
  return { hooks, warnings };
}

async function whyUnusable(
  env: ThreadEnv,
  hook: HookDeclaration,
  capabilities: readonly string[],
): Promise<string | undefined> {
  const missing = missingCapability(hook, capabilities);
  if (missing !== undefined)
    return `it needs ${missing}, which neither its thread nor its file is granted`;
  for (const { verb, item_type: type, item_id: id } of literalNeeds(hook)) {
    if (verb === 'sign' || (type !== 'directive' && type !== 'knowledge')) continue;
    const isText = verb === 'fetch' || type === 'knowledge';
    try {
      await env.items.load(type, id, isText ? 'context' : 'execute');
    } catch (error) {
      return messageOf(error);
    }
  }
  return undefined;
}
