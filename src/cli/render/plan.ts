import type { HookDeclaration } from '../../core/hook.ts';
import { LIMIT_NAMES } from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { oneLine } from '../terminal-text.ts';

/** A plan for people: what would run, with what, and which file says so. */
export function describePlan(plan: ThreadPlan): string {
  const { directive, model, limits, origins } = plan;
  const from = (path: string): string => {
    const origin = origins[path];
    return origin === undefined ? '' : `  (${origin})`;
  };
  const lines: (readonly [string, string])[] = [
    ['directive', `${directive.id} ${directive.version} (${directive.space}, ${plan.integrity})`],
    ...plan.chain.slice(0, -1).map(({ id, path }) => ['extends', `${id}  (${path})`] as const),
    ['model', `${model.provider}/${model.id}${from('model')}`],
    ...LIMIT_NAMES.map(
      (name) => ['limit', `${name} ${limits[name]}${from(`limits.${name}`)}`] as const,
    ),
    ...Object.entries(plan.inputs).map(
      ([name, value]) =>
        ['input', `${name} = ${JSON.stringify(value)}${from(`inputs.${name}`)}`] as const,
    ),
    ...plan.capabilities.map((capability) => ['permission', capability] as const),
    ...plan.risks.map(({ capability, risk }) => ['risk', `${risk} ${capability}`] as const),
    ...plan.tools.map(({ id, preloaded }) => ['tool', preloaded ? id : `${id} (by name)`] as const),
    ...plan.hooks.map((hook) => ['hook', describeHook(hook)] as const),
    ...plan.context.map(({ id, position }) => ['context', `${id} (${position})`] as const),
    ...plan.warnings.map((warning) => ['warning', warning] as const),
  ];
  return lines.map(([name, value]) => `${name.padEnd(11)} ${oneLine(value)}\n`).join('');
}

/** A hook with its layer, and why it does not run if that is certain. */
function describeHook({ id, event, layer, enabled, suppressed }: HookDeclaration): string {
  const off = suppressed === true ? ' (suppressed by the directive)' : '';
  return `${id} on ${event}, layer ${layer}${enabled ? off : ' (disabled)'}`;
}
