import { acceptedRisk } from '../../core/capability.ts';
import { RyeError } from '../../core/errors.ts';
import type { PlanChange } from '../../core/events.ts';
import type { HookDeclaration } from '../../core/hook.ts';
import { compact } from '../../core/json.ts';
import { LIMIT_NAMES } from '../../core/limits.ts';
import type { PlannedModel, PlannedRule, PlanSource, ThreadPlan } from '../../core/plan.ts';
import type { Preparing } from '../ports.ts';
import { assertSameNature, isImport } from './plan-at-head.ts';
import { isToolRun, noticeChanges, type PlannedThread } from './plan-for-run.ts';
import { planDirective } from './prepare.ts';
import type { PrepareRequest } from './request.ts';
import { contentOf, isWatched, type PlanForRun } from './rules-for-run.ts';

/** The part of a refresh that a person decides. */
export interface RefreshRequest {
  /** Values of inputs: the secret ones, which are not stored, and others than before. */
  readonly inputs: Readonly<Record<string, string>>;
  readonly acknowledge: NonNullable<PrepareRequest['acknowledge']>;
  /** Warnings of the guards. */
  readonly ignored: readonly string[];
}

/**
 * Returns the plan of a thread's directive as its files are now, with the inputs and options that the thread was started
 * with. A parent's capabilities and limits bound it. Notices each change.
 */
export async function refreshPlan(
  env: Preparing,
  planned: ThreadPlan,
  thread: PlannedThread,
  request: RefreshRequest,
): Promise<PlanForRun> {
  const { threadId, parent } = thread;
  assertRefreshable(env, planned, threadId);
  const fresh = await planAgain(env, planned, thread, request);
  assertSameNature(env, planned, fresh.model);
  const plan = { ...fresh, parent_thread_id: planned.parent_thread_id };
  const changes = planChanges(planned, plan);
  if (changes.length === 0) {
    env.onNotice(`nothing has changed since thread ${threadId} was planned`);
    return { plan: planned, changes };
  }
  noticeChanges(env, changes);
  if (parent) noticeBound(env, plan, thread);
  return { plan, changes };
}

function assertRefreshable(
  { parentFromEnvironment }: Pick<Preparing, 'parentFromEnvironment'>,
  plan: ThreadPlan,
  threadId: string,
): void {
  const hint = `Resume it with the plan that it has: rye threads resume ${threadId}`;
  if (isImport(plan)) {
    throw new RyeError('usage', `thread ${threadId} was imported: it has no directive to refresh`, {
      hint,
    });
  }
  if (isToolRun(plan)) {
    throw new RyeError('usage', `thread ${threadId} runs a tool: it has no directive to refresh`, {
      hint,
    });
  }
  if (parentFromEnvironment === undefined || parentFromEnvironment === '') return;
  throw new RyeError(
    'capability_denied',
    `thread ${parentFromEnvironment} cannot refresh the plan of ${threadId}: only a person can`,
    { hint: 'Run the command in your own shell, outside of a thread.' },
  );
}

/** Plans the directive; a failure names the thread and how it still continues. */
async function planAgain(
  env: Preparing,
  planned: ThreadPlan,
  { threadId, parent }: PlannedThread,
  { inputs, acknowledge, ignored }: RefreshRequest,
): Promise<ThreadPlan> {
  const { requested = {}, origins, acknowledged } = planned;
  const { model, provider, system, limits, raise_limits, behavior, only_tools, hook_capabilities } =
    requested;
  const given = Object.entries(planned.inputs).filter(
    ([name]) => origins[`inputs.${name}`] === 'given' && !planned.secret_inputs.includes(name),
  );
  const accepted = acknowledged.filter(({ origin }) => origin === '--acknowledge');
  const request = compact({
    directiveId: planned.directive.id,
    inputs: { ...Object.fromEntries(given), ...inputs },
    model,
    provider,
    system,
    limits,
    raiseLimits: raise_limits,
    behavior,
    onlyTools: only_tools,
    hookCapabilities: hook_capabilities,
    acknowledge: [...accepted.map(acceptedRisk), ...acknowledge],
    allowUnpriced: planned.allow_unpriced,
  });
  try {
    const { plan } = await planDirective(env, request, { ignored, parent, isStart: false });
    const { worktree, work_path, label } = planned;
    return { ...plan, ...compact({ worktree, work_path, label }) };
  } catch (error) {
    if (!(error instanceof RyeError)) throw error;
    const { code, message, hint = '', details, location } = error;
    const next = `Or keep the plan that it has: rye threads resume ${threadId}`;
    throw new RyeError(code, `thread ${threadId} is not refreshed: ${message}`, {
      hint: hint === '' ? next : `${hint.replace(/[.]$/, '')}. ${next}`,
      details,
      location,
      cause: error,
    });
  }
}

/** Tells a person that a child gets less than its directive asks for. */
function noticeBound(
  { onNotice }: Pick<Preparing, 'onNotice'>,
  { origins }: ThreadPlan,
  { parent }: PlannedThread,
): void {
  const bound = LIMIT_NAMES.filter(
    (name) => origins[`limits.${name}`] === `parent ${parent?.thread_id ?? ''}`,
  );
  if (bound.length === 0) return;
  onNotice(`the limits ${bound.join(', ')} are bounded by the parent ${parent?.thread_id ?? ''}`);
}

/** True if the model is told the directive again: its text, or the knowledge beside it, reads differently. */
export function isTextChanged(before: ThreadPlan, after: ThreadPlan): boolean {
  return textOf(before) !== textOf(after);
}

function textOf({ prompt, context }: ThreadPlan): string {
  return JSON.stringify([prompt, context.filter(({ position }) => position !== 'system')]);
}

/** Returns what a plan holds that another does not, for the record and for people. */
function planChanges(before: ThreadPlan, after: ThreadPlan): readonly PlanChange[] {
  return [
    ...fileChanges(before, after),
    ...setChanges('capability', 'permission', [before.capabilities, after.capabilities]),
    ...setChanges('tool', 'tool', [before.tools.map(idOf), after.tools.map(idOf)]),
    ...hookChanges(before.hooks, after.hooks),
    ...ruleChanges(before, after),
    ...valueChange('model', 'model', nameOf(before.model), nameOf(after.model)),
    ...valueChange('model', 'thinking level', before.thinking, after.thinking),
    ...LIMIT_NAMES.flatMap((name) =>
      valueChange('limit', `limit ${name}`, before.limits[name], after.limits[name]),
    ),
    ...partChanges(before, after),
  ];
}

function idOf({ id }: { readonly id: string }): string {
  return id;
}

function nameOf({ provider, id }: PlannedModel): string {
  return `${provider}/${id}`;
}

function fileChanges(before: ThreadPlan, after: ThreadPlan): readonly PlanChange[] {
  return pairs(filesOf(before), filesOf(after)).flatMap(([key, was, is]): PlanChange[] => {
    const source = is ?? was;
    if (!source || (was?.sha256 === is?.sha256 && was?.path === is?.path)) return [];
    return [
      {
        type: source.type,
        id: source.id,
        ...(was ? { before: changedSource(was) } : {}),
        ...(is ? { after: changedSource(is) } : {}),
        text: `the ${key} ${stateOf(was, is)}`,
      },
    ];
  });
}

function filesOf({ chain, context_sources }: ThreadPlan): ReadonlyMap<string, PlanSource> {
  return new Map(
    [...chain, ...context_sources].map((source) => [`${source.type} ${source.id}`, source]),
  );
}

/** The values of two maps, by key. */
function pairs<T>(
  before: ReadonlyMap<string, T>,
  after: ReadonlyMap<string, T>,
): readonly (readonly [string, T | undefined, T | undefined])[] {
  const keys = [...new Set([...before.keys(), ...after.keys()])];
  return keys.map((key) => [key, before.get(key), after.get(key)]);
}

function changedSource({ space, path, sha256 }: PlanSource) {
  return { space, path, sha256 };
}

function stateOf(was: unknown, is: unknown): string {
  if (was === undefined) return 'is new and applies';
  return is === undefined ? 'does not apply any more' : 'has changed and applies';
}

function setChanges(
  type: string,
  noun: string,
  [before, after]: readonly [readonly string[], readonly string[]],
): readonly PlanChange[] {
  const change = (id: string, how: string): PlanChange => {
    return { type, id, text: `the ${noun} ${id} ${how}` };
  };
  return [
    ...after.filter((one) => !before.includes(one)).map((id) => change(id, 'is granted')),
    ...before.filter((one) => !after.includes(one)).map((id) => change(id, 'is withdrawn')),
  ];
}

function hookChanges(
  before: readonly HookDeclaration[],
  after: readonly HookDeclaration[],
): readonly PlanChange[] {
  const added = withoutAll(after.filter(isWatched), before);
  const gone = withoutAll(before.filter(isWatched), after);
  const edited = new Set(added.map(idOf));
  return [
    ...added.map(({ id, origin }) => ({
      type: 'hook',
      id,
      after: { path: origin },
      text: `the hook ${id} is new or was edited, and applies`,
    })),
    ...gone
      .filter(({ id }) => !edited.has(id))
      .map(({ id, origin }) => ({
        type: 'hook',
        id,
        before: { path: origin },
        text: `the hook ${id} does not apply any more`,
      })),
  ];
}

function withoutAll(hooks: readonly HookDeclaration[], known: readonly HookDeclaration[]) {
  const contents = new Set(known.map(contentOf));
  return hooks.filter((hook) => !contents.has(contentOf(hook)));
}

function rulesOf({ rules }: ThreadPlan): ReadonlyMap<string, PlannedRule> {
  const all = [...(rules?.stream ?? []), ...(rules?.always ?? [])];
  return new Map(all.map((rule) => [rule.name, rule]));
}

function ruleChanges(before: ThreadPlan, after: ThreadPlan): readonly PlanChange[] {
  return pairs(rulesOf(before), rulesOf(after)).flatMap(([id, was, is]): PlanChange[] => {
    if (JSON.stringify(was) === JSON.stringify(is)) return [];
    return [
      {
        type: 'rule',
        id,
        ...(was ? { before: { path: was.path, sha256: was.sha256 } } : {}),
        ...(is ? { after: { path: is.path, sha256: is.sha256 } } : {}),
        text: `the rule ${id} ${stateOf(was, is)}`,
      },
    ];
  });
}

function valueChange(
  type: string,
  noun: string,
  before: string | number,
  after: string | number,
): readonly PlanChange[] {
  if (before === after) return [];
  const id = noun.replace(/^limit /, '');
  return [{ type, id, text: `the ${noun} is ${after} instead of ${before}` }];
}

/** Parts that have no short form, with a sentence about their change. */
const PARTS = {
  inputs: 'the inputs have changed and apply',
  outputs: 'the outputs have changed and apply',
  process: 'the steps have changed and apply',
  process_values: 'the values in the steps have changed and apply',
  fallbacks: 'the fallback models have changed and apply',
  behavior: 'the behavior has changed and applies',
  settings: 'the settings have changed and apply',
} as const satisfies Partial<Record<keyof ThreadPlan, string>>;

function partChanges(before: ThreadPlan, after: ThreadPlan): readonly PlanChange[] {
  const parts = Object.entries(PARTS) as readonly (readonly [keyof typeof PARTS, string])[];
  const isRuleChange = before.rules && after.rules && settingsOf(before) !== settingsOf(after);
  const text = 'the settings of rules have changed and apply';
  return [
    ...parts
      .filter(([part]) => JSON.stringify(before[part]) !== JSON.stringify(after[part]))
      .map(([part, sentence]) => ({ type: part, id: after.directive.id, text: sentence })),
    ...(isRuleChange ? [{ type: 'rule_settings', id: 'agent/rules', text }] : []),
  ];
}

function settingsOf({ rules }: ThreadPlan): string {
  return JSON.stringify(rules?.settings ?? null);
}
