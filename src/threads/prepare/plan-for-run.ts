import { RyeError } from '../../core/errors.ts';
import type { PlanChange } from '../../core/events.ts';
import type { HookAction, HookDeclaration } from '../../core/hook.ts';
import type { PlannedRule, PlannedRules, PlanSource, ThreadPlan } from '../../core/plan.ts';
import { mergeLayers } from '../../hooks/sources.ts';
import { parseDirective } from '../../items/directive.ts';
import { composeChain, type LoadedDirective } from '../../items/extends.ts';
import { attenuate, covers, uncovered } from '../../policy/capability.ts';
import type { Preparing } from '../ports.ts';
import { planHooks } from './directive.ts';
import { isImport } from './plan-at-head.ts';
import { planRules, renamedGrants } from './policy.ts';

/** The plan that a run follows, and what in it the thread's earlier runs did not follow. */
export interface PlanForRun {
  readonly plan: ThreadPlan;
  readonly changes: readonly PlanChange[];
}

/** A part of the check: what applies from now on, and what changed but does not apply, as sentences. */
interface Tightened extends PlanForRun {
  readonly kept: readonly string[];
}

/**
 * Returns the plan of a thread under the policy in force now where that is stricter: new and edited rules, gates and other
 * hooks that stop, ceilings of ancestors. What would widen it is only noticed. Throws
 * `key_revoked` or `key_untrusted` if a file that the thread was planned from is not trusted any more.
 */
export async function planForRun(
  env: Preparing,
  planned: ThreadPlan,
  threadId: string,
): Promise<PlanForRun> {
  if (isImport(planned)) return { plan: planned, changes: [] };
  let plan = planned;
  const changes: PlanChange[] = [];
  const kept: string[] = [];
  for (const tighten of [withCeilings, withRules, withHooks]) {
    const found = await tighten(env, plan, threadId);
    plan = found.plan;
    changes.push(...found.changes);
    kept.push(...found.kept);
  }
  for (const { text } of changes) if (text !== undefined) env.onNotice(text);
  for (const text of kept) env.onNotice(`${text}; the change applies to new threads only`);
  return { plan, changes };
}

/** Reads the files of the plan again: keeps the capabilities within the ceilings that ancestors set now. */
async function withCeilings(
  env: Preparing,
  plan: ThreadPlan,
  threadId: string,
): Promise<Tightened> {
  const kept: string[] = [];
  const ancestors: LoadedDirective[] = [];
  for (const [index, source] of plan.chain.entries()) {
    const text = await textNow(env, source, { threadId, kept });
    if (text === undefined || index === plan.chain.length - 1) continue;
    ancestors.push({ id: source.id, directive: parseDirective(text, source.path) });
  }
  for (const source of plan.context_sources) await textNow(env, source, { threadId, kept });
  for (const { id } of plan.tools.filter(isItem)) await assertTrusted(env, id, threadId);
  const [leaf] = ancestors;
  if (leaf === undefined) return { plan, changes: [], kept };
  const { composed } = await renamedGrants(env.items, composeChain([...ancestors, leaf]));
  let { capabilities } = plan;
  for (const ceiling of composed.ceilings) {
    if (uncovered(capabilities, ceiling.capabilities).length > 0) {
      capabilities = attenuate(capabilities, ceiling.capabilities);
    }
  }
  const gone = plan.capabilities.filter((one) => !capabilities.includes(one));
  if (gone.length === 0) return { plan, changes: [], kept };
  return { plan: within(plan, capabilities), changes: gone.map(beyondCeiling), kept };
}

function beyondCeiling(capability: string): PlanChange {
  const text = `the permission ${capability} is beyond a ceiling that an ancestor sets now, and is narrowed or removed`;
  return { type: 'capability', id: capability, text };
}

function within(plan: ThreadPlan, capabilities: readonly string[]): ThreadPlan {
  const isLost = (id: string): boolean => {
    const need = { verb: 'execute', item_type: 'tool', item_id: id } as const;
    return covers(plan.capabilities, need) && !covers(capabilities, need);
  };
  return {
    ...plan,
    capabilities,
    risks: plan.risks.filter(({ capability }) => capabilities.includes(capability)),
    tools: plan.tools.filter(({ id }) => !isLost(id)),
  };
}

/** True for a tool that has a file: the others come with rye, from a server or from the program. */
function isItem({ id }: { readonly id: string }): boolean {
  return !id.startsWith('rye/') && !id.startsWith('mcp/');
}

/** Returns the text of a file of the plan; undefined, with a notice, if it can't be used any more. */
async function textNow(
  { items }: Pick<Preparing, 'items'>,
  source: PlanSource,
  { threadId, kept }: { readonly threadId: string; readonly kept: string[] },
): Promise<string | undefined> {
  const { type, id } = source;
  try {
    const item = await items.load(type, id, type === 'directive' ? 'execute' : 'context');
    if (item.sha256 !== source.sha256) kept.push(`the ${type} ${id} has changed since the plan`);
    return item.text;
  } catch (error) {
    const { message } = asUnusable(error, threadId);
    kept.push(`${message}, and the thread keeps what it was planned with`);
    return undefined;
  }
}

async function assertTrusted(
  { items }: Pick<Preparing, 'items'>,
  id: string,
  threadId: string,
): Promise<void> {
  try {
    await items.load('tool', id, 'execute');
  } catch (error) {
    // any other fault is that of the call that needs the tool
    asUnusable(error, threadId);
  }
}

/** Returns the fault of a file; throws it if its key is not trusted any more. */
function asUnusable(error: unknown, threadId: string): RyeError {
  if (!(error instanceof RyeError)) throw error;
  if (error.code !== 'key_revoked' && error.code !== 'key_untrusted') return error;
  const { code, message, hint = '', details } = error;
  throw new RyeError(
    code,
    `thread ${threadId} was planned with a file that is refused: ${message}`,
    {
      hint: `${hint}. Then run: rye threads resume ${threadId}`,
      details,
      cause: error,
    },
  );
}

/** Adds the rules in force now; those of the plan stay unless one of them replaces them with the same or more. */
async function withRules(env: Preparing, plan: ThreadPlan): Promise<Tightened> {
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
  if (added.length + told.length === 0) return { plan, changes: [], kept };
  const ids = new Set(told.map(({ name }) => `rule:${name}`));
  const rules: PlannedRules = {
    ...before,
    stream: [...added, ...stream.map(({ rule }) => rule)],
    always: [...before.always, ...told],
  };
  return {
    plan: {
      ...plan,
      rules,
      context: [...plan.context, ...blocks.filter(({ id }) => ids.has(id))],
    },
    changes: [...added, ...told].map((rule) => ruleChange(rule, before)),
    kept,
  };
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

/** Adds the gates and the stopping hooks in force now before those of the plan; all of these stay. */
async function withHooks(env: Preparing, plan: ThreadPlan): Promise<Tightened> {
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
function isWatched({ enabled, shipped, suppressed }: HookDeclaration): boolean {
  return enabled && shipped !== true && suppressed !== true;
}

/** Returns the content of a hook, without the line that declares it. */
function contentOf({ origin: _origin, ...hook }: HookDeclaration): string {
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

const STOPS: ReadonlySet<string> = new Set(['fail', 'abort', 'suspend']);

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
