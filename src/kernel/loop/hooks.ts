import { RyeError, toRyeError } from '../core/errors.ts';
import type { ControlAction } from '../core/hook.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { CallView } from '../policy/call-views.ts';
import { type Conversation, note } from './conversation.ts';
import type {
  ControlEvent,
  Ending,
  GateDecision,
  HookReport,
  LoopPorts,
  ObservedEvent,
} from './ports.ts';
import type { Models, Spend } from './spend.ts';
import { isStopped, orAbandoned, type Stop, type Stopped } from './stop.ts';

/**
 * Time in which hooks must react to a cancellation. A hook may run a directive, whose tools have to end first, and which must
 * not stay `running`.
 */
const GRACE_MS = 10_000;

/** The parts of a run that hooks are told about, and those that take what hooks report. */
export interface HookScope {
  readonly plan: ThreadPlan;
  readonly ports: LoopPorts;
  readonly stop: Stop;
  readonly conversation: Conversation;
  readonly spend: Spend;
  readonly models: Models;
}

/** Asks the thread's hooks and records what they did. A dispatch that fails is noted and decides nothing. */
export class Hooks {
  readonly #scope: HookScope;
  /** The hook that gave each reason of a refusal in this run. */
  readonly #refusals = new Map<string, string>();

  constructor(scope: HookScope) {
    this.#scope = scope;
  }

  /** Returns what every hook and handler is told, with the members of its event. */
  context(members: JsonObject): JsonObject {
    const { plan, ports, spend, models } = this.#scope;
    return {
      thread_id: ports.threadId,
      turn: spend.turn,
      cost: { ...spend.cost() },
      directive: plan.directive.id,
      model: models.current.id,
      inputs: plan.inputs,
      parent_thread_id: plan.parent_thread_id,
      project_path: ports.projectPath,
      depth: spend.limits.depth,
      ...members,
    };
  }

  /** Returns the decision of the control hooks of an event. */
  async control(event: ControlEvent, members: JsonObject): Promise<ControlAction | undefined> {
    const { ports, stop } = this.#scope;
    const report = await this.#dispatch(event, () =>
      ports.hooks.control(event, this.context(members), stop.cancelSignal),
    );
    return report?.decision;
  }

  /** Tells the hooks of an event that only observe. */
  async observe(event: ObservedEvent, members: JsonObject): Promise<void> {
    const { ports, stop } = this.#scope;
    await this.#dispatch(event, () =>
      ports.hooks.observe(event, this.context(members), stop.cancelSignal),
    );
  }

  /** True if a gate hook is asked about calls. */
  get hasGates(): boolean {
    return this.#isHeard('tool_gate');
  }

  /** Asks the gate hooks about a call. A gate that fails refuses. */
  async gate(context: JsonObject, views: readonly CallView[]): Promise<GateDecision> {
    const { ports, stop } = this.#scope;
    if (!this.#isHeard('tool_gate')) return { fired: [] };
    const decision = await this.#dispatch('tool_gate', () =>
      ports.hooks.gate(context, stop.cancelSignal, views),
    );
    const refusal = { control: 'fail', error: 'its gate could not be asked' } as const;
    return decision ?? { fired: [], decision: refusal };
  }

  /** Remembers that a gate hook refused a call, and returns the reason for people, which names the hook. */
  refused(reason: string, { fired, decision }: GateDecision): string {
    const hook = fired.findLast(({ outcome }) => outcome === decision?.control)?.id;
    if (hook === undefined) return reason;
    this.#refusals.set(reason, hook);
    const isNamed = [' ', ':'].some((after) => reason.startsWith(`hook ${hook}${after}`));
    return isNamed ? reason : `${reason} (hook ${hook})`;
  }

  /** Returns the hook whose refusal a message quotes, for errors of steps. */
  refusalIn(message: string): string | undefined {
    for (const [reason, hook] of this.#refusals) if (message.includes(reason)) return hook;
    return undefined;
  }

  #isHeard(event: ControlEvent | ObservedEvent | 'tool_gate'): boolean {
    return this.#scope.ports.hooks.listens?.(event) ?? true;
  }

  async #dispatch<T extends HookReport>(
    event: ControlEvent | ObservedEvent | 'tool_gate',
    ask: () => Promise<T>,
  ): Promise<T | undefined> {
    if (!this.#isHeard(event)) return undefined;
    const { conversation, stop, ports } = this.#scope;
    const signal = stop.cancelSignal;
    let report: T | Stopped;
    try {
      report = await orAbandoned(ask(), { signal, clock: ports.clock, graceMs: GRACE_MS });
    } catch (error) {
      const { message } = toRyeError(error, 'hook_failed');
      await conversation.write(note(`the hooks of ${event} failed: ${message}`));
      return undefined;
    }
    if (isStopped(report)) return undefined;
    const fired = report.fired.map((payload) => ({ event_type: 'hook_fired' as const, payload }));
    await conversation.inject(report.drafts ?? [], fired);
    return naming(report);
  }
}

/** Names the hook in the reason of a suspension, for the person who has to decide. */
function naming<T extends HookReport>(report: T): T {
  const { decision, fired } = report as T & { readonly decision?: ControlAction };
  if (decision?.control !== 'suspend') return report;
  const by = fired.findLast(({ outcome }) => outcome === 'suspend')?.id;
  if (by === undefined) return report;
  const reason = decision.reason ?? 'the thread waits for a person';
  return { ...report, decision: { ...decision, reason: `hook ${by}: ${reason}` } };
}

/** Returns the ending that a hook of `event` decided; undefined if its decision does not end the run. */
export function decidedEnding(
  decision: ControlAction | undefined,
  event: ControlEvent,
  suspendReason: string,
): Ending | undefined {
  switch (decision?.control) {
    case 'fail':
    case 'abort':
      return { kind: 'error', error: hookError(decision, event).toJSON() };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? suspendReason };
    case 'handoff':
      return { kind: 'handoff' };
    case 'continue':
    case 'ask':
    case 'retry':
    case 'escalate':
    case 'compact':
    case undefined:
      break;
  }
  return undefined;
}

function hookError(
  action: Extract<ControlAction, { control: 'fail' | 'abort' }>,
  event: ControlEvent,
): RyeError {
  if (action.control === 'fail' && action.error !== undefined) {
    return new RyeError('thread_error', action.error, {
      details: { decided_by: 'hook', where: event },
    });
  }
  return new RyeError('aborted_by_hook', `a hook of ${event} ended the thread`);
}
