import { type CapabilityNeed, capabilityOf } from '../core/capability.ts';
import { RyeError } from '../core/errors.ts';
import type { HookAction, HookDeclaration } from '../core/hook.ts';
import { didYouMean } from '../core/text.ts';
import { attenuate, covers, parseCapability } from '../policy/capability.ts';
import { interpolationPaths } from '../policy/interpolate.ts';
import { switchesOff } from './declaration.ts';

/** Hooks by where they come from, each in definition order, a directive's ancestors first. */
export interface HookSources {
  readonly user?: readonly HookDeclaration[];
  readonly directive?: readonly HookDeclaration[];
  readonly builtin?: readonly HookDeclaration[];
  readonly project?: readonly HookDeclaration[];
  readonly infra?: readonly HookDeclaration[];
}

/** The merged table in the order in which hooks run, and what a person should know about the merge. */
export interface MergedHooks {
  readonly hooks: readonly HookDeclaration[];
  readonly warnings: readonly string[];
}

/**
 * Merges the five layers: user, directive, builtin, project, infra. Within a layer the later of two hooks with one id
 * replaces the earlier, in its place. A user or project hook with a builtin's id removes it, and one that only has
 * `enabled: false` switches it off; hooks that are off stay in the table. `hook_invalid` for touching an infra hook.
 */
export function mergeLayers(sources: HookSources): MergedHooks {
  const infra = lastOfEach(sources.infra ?? []);
  const user = lastOfEach(sources.user ?? []);
  const project = lastOfEach(sources.project ?? []);
  const outer = [...user, ...project];
  for (const hook of outer) refuseInfra(hook, infra);

  const overrides = new Map(outer.map((hook) => [hook.id, hook]));
  const builtin = lastOfEach(sources.builtin ?? []).flatMap((hook) => {
    const override = overrides.get(hook.id);
    if (override === undefined) return [hook];
    return switchesOff(override) ? [switchedOff(hook, override)] : [];
  });
  const builtinIds = new Set((sources.builtin ?? []).map(({ id }) => id));
  const warnings = outer
    .filter((hook) => switchesOff(hook) && !builtinIds.has(hook.id))
    .map(({ id, origin }) => {
      const near = didYouMean(id, builtinIds);
      return `${origin}: unknown builtin hook "${id}"${near === undefined ? '' : `. ${near}`}`;
    });
  const directive = lastOfEach(sources.directive ?? []);
  const hooks = [user, directive, builtin, project, infra].flatMap((layer) =>
    layer.filter((hook) => !switchesOff(hook) || hook.layer === BUILTIN_LAYER),
  );
  return { hooks, warnings };
}

const BUILTIN_LAYER = 2;

function lastOfEach(hooks: readonly HookDeclaration[]): readonly HookDeclaration[] {
  const byId = new Map<string, HookDeclaration>();
  for (const hook of hooks) {
    const earlier = byId.get(hook.id);
    const both = earlier !== undefined && switchesOff(hook);
    byId.set(hook.id, both ? switchedOff(earlier, hook) : hook);
  }
  return [...byId.values()];
}

function switchedOff(hook: HookDeclaration, by: HookDeclaration): HookDeclaration {
  return { ...hook, enabled: false, origin: by.origin };
}

function refuseInfra(hook: HookDeclaration, infra: readonly HookDeclaration[]): void {
  if (!infra.some(({ id }) => id === hook.id)) return;
  throw new RyeError(
    'hook_invalid',
    `${hook.origin}: the infra hook "${hook.id}" can't be replaced or switched off`,
    {
      hint: 'Give the hook another id.',
    },
  );
}

/**
 * Capabilities of a project's hooks beyond their threads, unless the user's own hooks file sets others: load items and
 * start directives, whose children stay within the same bound. Tools must be allowed by the user.
 */
export const DEFAULT_PROJECT_BOUND: readonly string[] = [
  'rye.fetch.*',
  'rye.execute.knowledge.*',
  'rye.execute.directive.*',
];

/** Capabilities that one hooks file may grant to its hooks. */
export interface FileAuthority {
  /** The file's own `capabilities`; without them each hook gets what its actions name literally. */
  readonly declared: readonly string[] | undefined;
  /** Capabilities that the user allows for hooks of this source; undefined if there is no bound. */
  readonly bound: readonly string[] | undefined;
}

/**
 * Gives each hook of a configured file the capabilities that it holds in addition to its thread's: its own, else the
 * file's, else the capabilities of the items that its actions name without `${…}`, all within the bound.
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
