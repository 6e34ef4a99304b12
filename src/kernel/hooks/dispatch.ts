import { EXIT, type RyeError } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import type { ControlAction, HookDeclaration } from '../core/hook.ts';
import { isJsonObject, isRecord, type JsonObject } from '../core/json.ts';
import type { ContextBlock } from '../core/plan.ts';
import {
  type ActionOutcome,
  type DispatchOptions,
  type Fired,
  firedRecord,
  type HookCall,
  hooksOf,
  isInfra,
  notRun,
  runHook,
} from './run-hook.ts';

/** Records of the hooks considered, and the entries that `emit` and `inject` ask for. */
export interface DispatchReport {
  readonly fired: readonly Fired[];
  readonly drafts: readonly EventDraft[];
}

/** The decision of a control event, and the id of the hook that took it. */
export interface ControlReport extends DispatchReport {
  readonly decision?: ControlAction;
  readonly decidedBy?: string;
}

/** Text for the model, in order; `failure` is set where the thread may not start. */
export interface ContextReport extends DispatchReport {
  readonly contents: readonly ContextBlock[];
  readonly failure?: RyeError;
}

/** Target of a directive's extends and the hook that set it; without a target the directive's own is used. */
export interface RoutingReport {
  readonly target?: string;
  readonly decidedBy?: string;
  readonly fired: readonly Fired[];
}

/** `resolve_extends`: the first hook that matches decides the target. Runs nothing, so it has no effect. */
export function dispatchRouting(
  hooks: readonly HookDeclaration[],
  context: JsonObject,
): RoutingReport {
  const call: HookCall = { event: 'resolve_extends', context };
  const fired: Fired[] = [];
  for (const hook of hooksOf(hooks, call.event)) {
    const aside = notRun(hook, call, []);
    const routed = hook.actions.find((action) => action.kind === 'set_extends');
    if (aside !== undefined || routed === undefined) {
      fired.push(aside ?? firedRecord(hook, { matched: true, outcome: 'ok' }));
      continue;
    }
    fired.push(firedRecord(hook, { matched: true, outcome: 'set_extends' }));
    return { target: routed.target, decidedBy: hook.id, fired };
  }
  return { fired };
}

/**
 * Context events: every matching hook runs and adds its texts in order. A failing hook is recorded and skipped,
 * unless it has `on_error: fail` or the failure is one of integrity: then `failure` is set and no later hook runs.
 */
export async function dispatchContext(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<ContextReport> {
  const fired: Fired[] = [];
  const drafts: EventDraft[] = [];
  const contents: ContextBlock[] = [];
  for (const hook of hooksOf(hooks, call.event)) {
    const ran = await runHook(hook, call, options);
    fired.push(ran.fired);
    drafts.push(...ran.drafts);
    if (ran.failure === undefined) contents.push(...ran.contents);
    else if (endsTheStart(hook, ran.failure))
      return { fired, drafts, contents, failure: ran.failure };
    if (options.signal.aborted) break;
  }
  return { fired, drafts, contents };
}

function endsTheStart(hook: HookDeclaration, failure: RyeError): boolean {
  return hook.on_error === 'fail' || failure.exitCode === EXIT.integrity;
}

/**
 * Control events: the first hook of layers 0, 1, 3 and then 2 with a control action decides and no later one of them
 * runs, except after `ask`, which a later one may turn into a refusal, but for the built-in one that ends a thread at its
 * limit; a later one whose condition holds is recorded as `superseded`. A gate is only passed if no hook refuses: `continue`
 * and `ask` keep none from it. Infra hooks always run and never decide. A failing gate hook refuses, as does any hook with
 * `on_error: fail`; other failures are recorded and skipped. Injected texts become hidden `custom_message` drafts.
 */
export async function dispatchControl(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<ControlReport> {
  const fired: Fired[] = [];
  const drafts: EventDraft[] = [];
  let decided: { readonly decision: ControlAction; readonly decidedBy: string } | undefined;
  for (const hook of hooksOf(hooks, call.event)) {
    const isOver =
      decided !== undefined && (isFinal(call, decided.decision) || isLastResort(hook, call));
    if (isOver && !isInfra(hook)) {
      if (notRun(hook, call, []) === undefined)
        fired.push(firedRecord(hook, { matched: true, outcome: 'superseded' }));
      continue;
    }
    const ran = await runHook(hook, call, options);
    fired.push(ran.fired);
    drafts.push(...ran.drafts, ...ran.contents.map(injectedMessage));
    const decision = ran.failure === undefined ? ran.control : failureDecision(hook, ran.failure);
    if (!isInfra(hook) && decision !== undefined && outweighs(call, decision, decided?.decision)) {
      decided = { decision, decidedBy: hook.id };
    }
    if (options.signal.aborted) break;
  }
  return { ...decided, fired, drafts };
}

/** True for a hook that rye ships and that ends a thread at its limit: it decides only if no other hook has. */
function isLastResort({ layer }: HookDeclaration, { event }: HookCall): boolean {
  return event === 'limit' && layer === 2;
}

/** True if no later hook is asked after this decision. */
export function isFinal({ event }: Pick<HookCall, 'event'>, { control }: ControlAction): boolean {
  return control !== 'ask' && !(control === 'continue' && event === 'tool_gate');
}

/** True if a later decision replaces one that is not final: an ask a permission, and a refusal both. */
function outweighs(call: HookCall, next: ControlAction, now: ControlAction | undefined): boolean {
  if (now === undefined || refuses(next)) return true;
  if (call.event !== 'tool_gate') return false;
  return isFinal(call, next) || (now.control === 'continue' && next.control === 'ask');
}

function refuses({ control }: ControlAction): boolean {
  return control === 'fail' || control === 'abort' || control === 'suspend';
}

function failureDecision(hook: HookDeclaration, failure: RyeError): ControlAction | undefined {
  const onError = hook.on_error ?? (hook.event === 'tool_gate' ? 'fail' : 'ignore');
  if (onError === 'ignore') return undefined;
  return { control: 'fail', error: `hook ${hook.id} failed: ${failure.message}` };
}

function injectedMessage({ content, source }: ContextBlock): EventDraft {
  return {
    event_type: 'custom_message',
    payload: { custom_type: 'hook', content, display: false, details: { source } },
  };
}

/** Observing events: every matching hook runs; failures are recorded and change nothing. */
export async function dispatchObserving(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<DispatchReport> {
  const fired: Fired[] = [];
  const drafts: EventDraft[] = [];
  for (const hook of hooksOf(hooks, call.event)) {
    const ran = await runHook(hook, call, options);
    fired.push(ran.fired);
    drafts.push(...ran.drafts);
    if (options.signal.aborted) break;
  }
  return { fired, drafts };
}

/** The texts of one position as they go into a message, a blank line between them. */
export function joinContents(
  contents: readonly ContextBlock[],
  position: ContextBlock['position'],
): string {
  return contents
    .filter((block) => block.position === position)
    .map(({ content }) => content)
    .join('\n\n');
}

/** A replacement of the planned compaction by a hook: a summary, a cut, or both. */
export interface SuppliedCompaction {
  /** The hook that gave it. */
  readonly hook: string;
  /** Absent: the model summarizes. */
  readonly summary?: string;
  readonly details?: JsonObject;
  /** The first entry that stays in full, not yet checked; absent: the planned one. */
  readonly first_kept_entry_id?: string;
}

/** Result of the `before_compact` hooks: at most one of a cancellation, a failure and a replacement. */
export interface CompactReport extends DispatchReport {
  /** Why there is to be no compaction now. */
  readonly cancelled?: string;
  /** Why what a hook gave can't be used; there is no compaction then either. */
  readonly failed?: string;
  readonly supplied?: SuppliedCompaction;
  /** Instructions for the summary, in the order of the hooks. */
  readonly instructions: readonly string[];
}

/**
 * `before_compact`: every matching hook runs in order until one decides. A control action `compact` adds its
 * instructions, any other cancels; an item whose structured output is `{compaction: {summary?, details?,
 * first_kept_entry_id?}}` replaces the planned one; texts are instructions. A failing hook is recorded and skipped,
 * unless it has `on_error: fail`; one that took the decision and returned something malformed stops the compaction.
 */
export async function dispatchBeforeCompact(
  hooks: readonly HookDeclaration[],
  call: HookCall,
  options: DispatchOptions,
): Promise<CompactReport> {
  const fired: Fired[] = [];
  const drafts: DispatchReport['drafts'][number][] = [];
  const instructions: string[] = [];
  let decided: Decision | undefined;
  for (const hook of hooksOf(hooks, call.event)) {
    if (decided !== undefined && !isInfra(hook)) continue;
    let supplied: Decision | undefined;
    const ran = await runHook(hook, call, {
      ...options,
      runAction: async (...action): Promise<ActionOutcome> => {
        const outcome = await options.runAction(...action);
        const found = suppliedBy(hook.id, outcome);
        if (found === undefined) return outcome;
        supplied = found;
        // what replaces the compaction is no instruction as well
        const { content: _replacement, ...rest } = outcome;
        return rest;
      },
    });
    fired.push(ran.fired);
    drafts.push(...ran.drafts);
    if (options.signal.aborted) break;
    if (ran.failure !== undefined) {
      if (hook.on_error === 'fail') {
        decided ??= { cancelled: `hook ${hook.id} failed: ${ran.failure.message}` };
      }
      continue;
    }
    instructions.push(...ran.contents.map(({ content }) => content));
    if (isInfra(hook)) continue;
    if (ran.control?.control === 'compact') {
      if (ran.control.instructions !== undefined) instructions.push(ran.control.instructions);
    } else if (ran.control !== undefined) {
      decided = { cancelled: `hook ${hook.id} decided ${ran.control.control}` };
    } else if (supplied !== undefined) {
      decided = supplied;
    }
  }
  return { ...decided, fired, drafts, instructions };
}

type Decision = Pick<CompactReport, 'cancelled' | 'failed' | 'supplied'>;

function suppliedBy(hook: string, { data }: ActionOutcome): Decision | undefined {
  if (!isRecord(data) || !Object.hasOwn(data, 'compaction')) return undefined;
  const problem = compactionProblem(data['compaction']);
  if (problem !== undefined) return { failed: `hook ${hook} gave a compaction that ${problem}` };
  return { supplied: { ...(data['compaction'] as Omit<SuppliedCompaction, 'hook'>), hook } };
}

const MEMBERS: ReadonlySet<string> = new Set(['summary', 'details', 'first_kept_entry_id']);

function compactionProblem(given: unknown): string | undefined {
  if (!isRecord(given)) return 'is not an object';
  const unknown = Object.keys(given).find((name) => !MEMBERS.has(name));
  if (unknown !== undefined) return `has an unknown member "${unknown}"`;
  const { summary, details, first_kept_entry_id: first } = given;
  if (summary === undefined && first === undefined) {
    return 'has neither a summary nor a first_kept_entry_id';
  }
  if (summary !== undefined && !isText(summary)) return 'has a summary that is not a text';
  if (first !== undefined && !isText(first))
    return 'has a first_kept_entry_id that is not an entry id';
  if (details !== undefined && !isJsonObject(details)) return 'has details that are no object';
  return undefined;
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.trim() !== '';
}
