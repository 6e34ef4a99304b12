import { type CapabilityNeed, capabilityOf } from '../core/capability.ts';
import type { HookAction, HookDeclaration } from '../core/hook.ts';
import { attenuate, covers, parseCapability } from '../policy/capability.ts';
import { interpolationPaths } from '../policy/interpolate.ts';

/**
 * What a project's hooks may do beyond their threads unless the user's own hooks file says otherwise: load items and
 * start directives, whose children stay within the same bound. Tools must be allowed by the user.
 */
export const DEFAULT_PROJECT_BOUND: readonly string[] = [
  'rye.fetch.*',
  'rye.execute.knowledge.*',
  'rye.execute.directive.*',
];

/** What one hooks file may grant to its hooks. */
export interface FileAuthority {
  /** The file's own `capabilities`; without them each hook gets what its actions name literally. */
  readonly declared: readonly string[] | undefined;
  /** What the user allows hooks of this source; without it there is no bound. */
  readonly bound: readonly string[] | undefined;
}

/**
 * Gives each hook of a configured file the capabilities that it holds in addition to its thread's: its own, else the
 * file's, else those of the items that its actions name without `${…}`, all within the bound.
 */
export function grantFile(
  hooks: readonly HookDeclaration[],
  { declared, bound }: FileAuthority,
): readonly HookDeclaration[] {
  return hooks.map((hook) => {
    const wanted = hook.capabilities ?? declared ?? literalNeeds(hook).map(capabilityOf);
    const granted = bound === undefined ? wanted : attenuate(wanted, bound);
    const { capabilities: _declared, ...rest } = hook;
    return granted.length === 0 ? rest : { ...rest, capabilities: [...new Set(granted)] };
  });
}

/** Reads a list of capabilities as written; throws `permission_malformed` or `pattern_invalid`. */
export function readCapabilities(texts: readonly string[]): readonly string[] {
  return texts.map((text) => parseCapability(text));
}

/** The items that a hook's actions name without an expression, so that they are known before it runs. */
export function literalNeeds(hook: HookDeclaration): readonly (CapabilityNeed & {
  readonly item_id: string;
})[] {
  return hook.actions.filter(isLiteralItem).map(({ primary, item_type, item_id }) => ({
    verb: primary,
    item_type,
    item_id,
  }));
}

function isLiteralItem(
  action: HookAction,
): action is Extract<HookAction, { readonly kind: 'item' }> {
  return action.kind === 'item' && interpolationPaths(action.item_id).length === 0;
}

/** True if a hook may take an action: it came with rye, or its thread or its own file holds the capability. */
export function mayRun(
  hook: HookDeclaration,
  threadCapabilities: readonly string[],
  need: CapabilityNeed,
): boolean {
  return (
    hook.shipped === true || covers([...threadCapabilities, ...(hook.capabilities ?? [])], need)
  );
}

/** The first literal action that a hook may not take, as a capability; undefined if it may take all of them. */
export function missingCapability(
  hook: HookDeclaration,
  threadCapabilities: readonly string[],
): string | undefined {
  const missing = literalNeeds(hook).find((need) => !mayRun(hook, threadCapabilities, need));
  return missing === undefined ? undefined : capabilityOf(missing);
}
