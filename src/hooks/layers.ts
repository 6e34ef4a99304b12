import { RyeError } from '../core/errors.ts';
import type { HookDeclaration } from '../core/hook.ts';
import { didYouMean } from '../core/text.ts';
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
 * replaces the earlier, in its place. A user or project hook with a builtin's id takes it out, and one that only says
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
      return `${origin}: there is no builtin hook "${id}" to switch off${near === undefined ? '' : `. ${near}`}`;
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
