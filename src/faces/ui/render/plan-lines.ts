import type { HookDeclaration } from '../../../kernel/core/hook.ts';
import { LIMIT_NAMES } from '../../../kernel/core/limits.ts';
import type { ThreadPlan } from '../../../kernel/core/plan.ts';
import { processLines } from '../../../kernel/core/process-text.ts';
import { oneLine, type Shown } from '../visible.ts';

/** Formats a plan: what would run, with which values, and the file that set each. */
export function planLines(plan: ThreadPlan): readonly Shown[] {
  const { directive: item, model, limits, origins } = plan;
  const from = (member: string): string => {
    const origin = origins[member];
    return origin === undefined ? '' : ` (${origin})`;
  };
  const lines: (readonly [string, string])[] = [
    ['directive', `${item.id} ${item.version} (${item.space}, ${plan.integrity})`],
    ...plan.chain.slice(0, -1).map((base) => ['extends', `${base.id} (${base.path})`] as const),
    ['model', `${model.provider}/${model.id}${from('model')}`],
    ...LIMIT_NAMES.map(
      (name) => ['limit', `${name} ${limits[name]}${from(`limits.${name}`)}`] as const,
    ),
    ...Object.entries(plan.inputs).map(
      ([name, value]) =>
        ['input', `${name} = ${JSON.stringify(value)}${from(`inputs.${name}`)}`] as const,
    ),
    ...processLines(plan.process, plan.process_values).map((line) => ['process', line] as const),
    ...plan.capabilities.map((capability) => ['permission', capability] as const),
    ...plan.risks.map(({ capability, risk }) => ['risk', `${risk} ${capability}`] as const),
    ...plan.tools.map(({ id, preloaded }) => ['tool', preloaded ? id : `${id} (by name)`] as const),
    ...plan.hooks.map((hook) => ['hook', describeHook(hook)] as const),
    ...plan.context.map(({ id, position }) => ['context', `${id} (${position})`] as const),
    ...(plan.worktree === undefined
      ? []
      : [['worktree', `${plan.worktree.result} from ${plan.worktree.base}`] as const]),
    ...plan.warnings.map((warning) => ['warning', warning] as const),
  ];
  return lines.map(([name, value]) => oneLine(`${name.padEnd(11)} ${value}`));
}

/** Formats a hook with its layer, and why it does not run if that is certain. */
function describeHook({ id, event, layer, enabled, suppressed }: HookDeclaration): string {
  const off = suppressed === true ? ' (suppressed by the directive)' : '';
  return `${id} on ${event}, layer ${layer}${enabled ? off : ' (disabled)'}`;
}
