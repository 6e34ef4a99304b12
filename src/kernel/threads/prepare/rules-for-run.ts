import type { PlanChange } from '../../core/events.ts';
import type { HookAction, HookDeclaration } from '../../core/hook.ts';
import type { PlannedRule, PlannedRules, ThreadPlan } from '../../core/plan.ts';
import { mergeLayers } from '../../hooks/sources.ts';
import type { Preparing } from '../ports.ts';
import { planHooks } from './directive.ts';
import { planRules } from './policy.ts';

/** The plan that a run follows, and what in it the thread's earlier runs did not follow. */
export interface PlanForRun {
  readonly plan: ThreadPlan;
  readonly changes: readonly PlanChange[];
}

/** A part of the check: what applies from now on, and what changed but does not apply, as sentences. */
export interface Tightened extends PlanForRun {
  readonly kept: readonly string[];
}

/** Adds the rules in force now; rules of the plan stay unless one of these replaces them with the same or more. */
export async function withRules(env: Preparing, plan: ThreadPlan): Promise<Tightened> {
  const { rules: now, blocks } = await planRules(env, {
    directive: plan.directive.id,
    model: plan.model,
    capabilities: plan.capabilities,
  });
  if (now === undefined) return { plan, changes: [], kept: [] };
  const before = plan.rules ?? { settings: now.settings, stream: [], always: [], rulebook: [] };
  const pinned = now.stream.map((rule) => explicit(rule, now.settings));
  const planned = before.stream.map((rule) => ({ rule, modes: explicit(rule, before.settings) }));
  const isPlanned = (rule: ExplicitRule): boolean =>
    planned.some(({ modes }) => modes.sha256 === rule.sha256 && isAsStrict(modes, rule));
  const added = pinned.filter((rule) => !isPlanned(rule));
  const stream = planned.filter(
    ({ modes }) => !added.some((rule) => rule.name === modes.name && isAsStrict(rule, modes)),
  );
  const told = now.always.filter(
    ({ sha256 }) => !before.always.some((rule) => rule.sha256 === sha256),
  );
  const kept = [
    ...stream
      .filter(({ modes }) => !pinned.some((rule) => isAsStrict(rule, modes)))
      .map(({ rule: { name } }) => `the rule ${name} was removed or now matches less`),
    ...before.always
      .filter(({ sha256 }) => !now.always.some((rule) => rule.sha256 === sha256))
      .map(({ name }) => `the rule ${name} was edited or removed`),
  ];
  const most = Math.min(
    before.settings.max_interrupts_per_run,
    now.settings.max_interrupts_per_run,
  );
  const isLower = most < before.settings.max_interrupts_per_run;
  if (added.length + told.length === 0 && !isLower) return { plan, changes: [], kept };
  const ids = new Set(told.map(({ name }) => `rule:${name}`));
  const rules: PlannedRules = {
    ...before,
    settings: { ...before.settings, max_interrupts_per_run: most },
    stream: [...added, ...stream.map(({ rule }) => rule)],
    always: [...before.always, ...told],
  };
  return {
    plan: {
      ...plan,
      rules,
      context: [...plan.context, ...blocks.filter(({ id }) => ids.has(id))],
    },
    changes: [
      ...[...added, ...told].map((rule) => ruleChange(rule, before)),
      ...(isLower ? [fewerInterrupts(most)] : []),
    ],
    kept,
  };
}

function fewerInterrupts(most: number): PlanChange {
  const id = 'max_interrupts_per_run';
  return { type: 'rule_settings', id, text: `${id} is ${most} now, which is less, and applies` };
}

type ExplicitRule = PlannedRule & Required<Pick<PlannedRule, 'interrupt' | 'repeat' | 'gap'>>;

/** The rule with the modes that the settings give it. */
function explicit(rule: PlannedRule, settings: PlannedRules['settings']): ExplicitRule {
  return {
    ...rule,
    interrupt: rule.interrupt ?? settings.interrupt_mode,
    repeat: rule.repeat ?? settings.repeat_mode,
    gap: rule.gap ?? settings.repeat_gap,
  };
}

/** True if a rule states what the other states, matches all that it matches, and cuts and repeats no less. */
function isAsStrict(rule: ExplicitRule, other: ExplicitRule): boolean {
  const cuts = rule.interrupt === 'always' || other.interrupt === 'never';
  const repeats = rule.repeat === 'after-gap' && rule.gap <= other.gap;
  return (
    rule.name === other.name &&
    rule.engine === other.engine &&
    (rule.sha256 === other.sha256 || matchesAll(rule, other)) &&
    (cuts || rule.interrupt === other.interrupt) &&
    (repeats || other.repeat === 'once')
  );
}

/** An edited rule takes the place of its earlier version only if that loses nothing, and is told again. */
function matchesAll(rule: ExplicitRule, other: ExplicitRule): boolean {
  return (
    String(rule.scope) === String(other.scope) &&
    String(rule.globs) === String(other.globs) &&
    JSON.stringify(rule.match) === JSON.stringify(other.match) &&
    other.conditions.every((condition) => rule.conditions.includes(condition))
  );
}

function ruleChange({ name, path, sha256 }: PlannedRule, before: PlannedRules): PlanChange {
  const earlier = [...before.stream, ...before.always].find((rule) => rule.name === name);
  const how = earlier
    ? 'was edited; its present version applies from now on'
    : 'is new and applies';
  return {
    type: 'rule',
    id: name,
    ...(earlier ? { before: { path: earlier.path, sha256: earlier.sha256 } } : {}),
    after: { path, sha256 },
    text: `the rule ${name} ${how}`,
  };
}

/** Adds the gates and the stopping hooks in force now before the gates and hooks of the plan, which all stay. */
export async function withHooks(env: Preparing, plan: ThreadPlan): Promise<Tightened> {
  const own = plan.hooks.filter(({ layer }) => layer === DIRECTIVE_LAYER);
  const { hooks: merged } = mergeLayers({ ...env.config.hooks, directive: own });
  const facts = { hooks: merged, composed: { suppress: plan.suppress } };
  const { hooks } = await planHooks(env, facts, plan.capabilities);
  const now = hooks.filter(isWatched);
  const planned = new Set(plan.hooks.map(contentOf));
  const current = new Set(hooks.map(contentOf));
  const other = now.filter((hook) => !planned.has(contentOf(hook)));
  const added = other.filter(stops);
  const gone = plan.hooks.filter((hook) => isWatched(hook) && !current.has(contentOf(hook)));
  return {
    plan: added.length === 0 ? plan : { ...plan, hooks: inLayers(added, plan.hooks) },
    changes: added.map(({ id, origin }) => ({
      type: 'hook',
      id,
      after: { path: origin },
      text: `the hook ${id} is new or was edited, and applies`,
    })),
    kept: [
      ...other
        .filter((hook) => !stops(hook))
        .map(({ id }) => `the hook ${id} is new or was edited`),
      ...gone.map(
        ({ id }) => `the hook ${id} was edited or removed, and its earlier version stays`,
      ),
    ],
  };
}

const DIRECTIVE_LAYER = 1;

/** True for a hook of a person or a project that has an effect: rye's own change with its version. */
export function isWatched({ enabled, shipped, suppressed }: HookDeclaration): boolean {
  return enabled && shipped !== true && suppressed !== true;
}

/** Returns the content of a hook, without the line that declares it. */
export function contentOf({ origin: _origin, ...hook }: HookDeclaration): string {
  return JSON.stringify(hook);
}

/** True for a hook that can only make a run stricter. */
function stops({ event, actions }: HookDeclaration): boolean {
  return actions.every(
    (action) =>
      isStop(action) || action.kind === 'emit' || (event === 'tool_gate' && action.kind === 'item'),
  );
}

function isStop(action: HookAction): boolean {
  return action.kind === 'control' && STOPS.has(action.action.control);
}

const STOPS: ReadonlySet<string> = new Set(['fail', 'abort', 'suspend', 'ask']);

/**
 * Hooks of one layer in the order in which they run: those that were added first, so that no earlier decision lets pass
 * what they stop. A gate that runs an item may let pass too, so it comes last.
 */
function inLayers(
  added: readonly HookDeclaration[],
  planned: readonly HookDeclaration[],
): readonly HookDeclaration[] {
  const layers = [0, 1, 2, 3, 4] as const;
  return layers.flatMap((layer) => {
    const here = added.filter((hook) => hook.layer === layer);
    return [
      ...here.filter((hook) => !runsItem(hook)),
      ...planned.filter((hook) => hook.layer === layer),
      ...here.filter(runsItem),
    ];
  });
}

function runsItem({ actions }: HookDeclaration): boolean {
  return actions.some(({ kind }) => kind === 'item');
}
