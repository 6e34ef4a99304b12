import { RyeError, toRyeError } from '../core/errors.ts';
import type { EventDraft, LogEvent } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import type { JsonObject } from '../core/json.ts';
import type { Limits } from '../core/limits.ts';
import { type Message, userText } from '../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../core/plan.ts';
import {
  addUsage,
  type Cost,
  type MicroUsd,
  NO_COST,
  NO_USAGE,
  priceMicroUsd,
  toMicroUsd,
  toUsd,
  type Usage,
} from '../core/usage.ts';
import { type Behavior, parseBehavior, thinkingOfRun } from './behavior.ts';
import { EarlierResults, LoopGuard, ToolBudgets } from './call-history.ts';
import { ContextView } from './context-view.ts';
import { AnswerRatio, ContextMeter, Preamble } from './meters.ts';
import { Outbox } from './outbox.ts';
import type {
  ControlEvent,
  Ending,
  GateDecision,
  HookReport,
  LoopPorts,
  ObservedEvent,
  StreamWatcher,
} from './ports.ts';
import { isStopped, orStopped, Stop } from './stop.ts';

/** Things that happen at most once, or a few times, in a run. */
export interface Counters {
  toolNudges: number;
  outputNudges: number;
  emptyNudges: number;
  continuations: number;
  escalations: number;
  /** How often a hook sent the model back to work instead of ending the thread. */
  sentBack: number;
  /** Whether people were told that the model writes its calls as text. */
  saidTextCall: boolean;
}

/**
 * The state of one run: what the model sees, what was used, and the only way to the log. The message list is
 * changed after the log was, never before.
 */
export class Run {
  readonly plan: ThreadPlan;
  readonly behavior: Behavior;
  readonly ports: LoopPorts;
  readonly stop: Stop;
  readonly outbox: Outbox;
  readonly meter = new ContextMeter();
  readonly answerRatio = new AnswerRatio();
  /** What of the conversation is sent. */
  readonly view: ContextView;
  readonly budgets: ToolBudgets;
  readonly earlier: EarlierResults;
  readonly loopGuard: LoopGuard;
  readonly counters: Counters = {
    toolNudges: 0,
    outputNudges: 0,
    emptyNudges: 0,
    continuations: 0,
    escalations: 0,
    sentBack: 0,
    saidTextCall: false,
  };
  /** Call ids of the whole thread: results are found by them. */
  readonly callIds = new Set<string>();
  limits: Limits;
  model: PlannedModel;
  turn: number;
  isTurnOpen = false;
  /** Watches, or watched, the newest answer. */
  watcher: StreamWatcher | undefined;
  /** Size in tokens at which a full context was last asked about; 0: it is not full. */
  contextAskedAt = 0;
  /** Bytes of results that the model was given in this turn. */
  turnOutputBytes = 0;
  usedTools = false;
  /** The last text that the model said; after a cut answer, joined with its continuations. */
  lastText = '';
  /** What the directive returned; it stands while somebody has more to say. */
  outputs: JsonObject | undefined;
  /** How the thread would have ended before a delivery began another run: a failure of that one does not undo it. */
  standing: Extract<Ending, { kind: 'completed' }> | undefined;
  /** How often the model was asked for a result that matches the schema. */
  outputAsks = 0;
  /** Why the run is to stop after the current batch, decided inside it. */
  verdict: ControlAction | undefined;
  #messages: Message[];
  /** Number of the run in this process, from 1: another begins with each delivery to a thread that had finished. */
  #runs = 1;
  #fallbacks: readonly PlannedModel[];
  #usage: Usage;
  #turnUsage: Usage = NO_USAGE;
  #spent: MicroUsd;
  #reported: MicroUsd;
  readonly #startedMs: number;
  readonly #priorSeconds: number;
  #held: EventDraft[] | undefined;
  readonly #preamble: Preamble;

  constructor(plan: ThreadPlan, ports: LoopPorts, signal: AbortSignal) {
    const spent = ports.spent ?? NO_COST;
    this.plan = plan;
    this.behavior = parseBehavior(plan.behavior);
    this.view = new ContextView({ ...this.behavior, onShrink: () => this.forgetResults() });
    this.budgets = new ToolBudgets(this.behavior.toolBudgets);
    this.earlier = new EarlierResults(this.behavior.dedupTools);
    // explicit steps may repeat what they like
    this.loopGuard = new LoopGuard(
      ports.traits(plan.model).replayable ? 0 : this.behavior.loopRepeats,
    );
    this.ports = ports;
    this.#preamble = new Preamble(ports.system);
    this.stop = new Stop(ports.clock, signal);
    this.outbox = new Outbox(() => this.stop.close());
    this.limits = plan.limits;
    this.model = plan.model;
    this.#fallbacks = plan.fallbacks;
    this.turn = spent.turns;
    this.#usage = spent;
    this.#spent = toMicroUsd(spent.spend);
    this.#reported = this.#spent;
    this.#priorSeconds = spent.elapsed_seconds;
    this.#startedMs = ports.clock.monotonic();
    this.#messages = [...ports.history];
    this.meter.reset(this.#messages);
    for (const message of this.#messages) {
      if (message.role !== 'tool_result') continue;
      this.callIds.add(message.call_id);
      this.usedTools = true;
    }
    this.armDuration();
  }

  get messages(): readonly Message[] {
    return this.#messages;
  }

  get spentMicroUsd(): MicroUsd {
    return this.#spent;
  }

  /** What may still be spent: by the thread's own limit, and by what its budget has left. */
  async remainingMicroUsd(): Promise<MicroUsd> {
    const unreported = this.#spent - this.#reported;
    return Math.min(
      toMicroUsd(this.limits.spend) - this.#spent,
      (await this.ports.budget.remainingMicroUsd()) - unreported,
    );
  }

  async reportSpend(): Promise<void> {
    const spent = this.#spent;
    await this.ports.budget.report(spent);
    this.#reported = spent;
  }

  get turnUsage(): Usage {
    return this.#turnUsage;
  }

  elapsedSeconds(): number {
    return this.#priorSeconds + (this.ports.clock.monotonic() - this.#startedMs) / 1000;
  }

  cost(): Cost {
    const { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = this.#usage;
    return {
      input_tokens,
      output_tokens,
      cache_read_tokens,
      cache_write_tokens,
      turns: this.turn,
      spend: toUsd(this.#spent),
      elapsed_seconds: Math.round(this.elapsedSeconds() * 1000) / 1000,
    };
  }

  /** Bytes that every request repeats before its messages. */
  preamble(): number {
    return this.#preamble.bytes(this.ports.definitions());
  }

  /** Writes drafts that are not part of the context. */
  write(...drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    return this.outbox.write(drafts);
  }

  /** Writes drafts and takes the messages among them into the context. */
  async record(drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    const written = await this.outbox.write(drafts);
    for (const draft of drafts) {
      if (draft.event_type === 'message') this.#append(draft.payload.message);
      if (draft.event_type === 'custom_message') this.#append(userText(draft.payload.content));
    }
    return written;
  }

  #append(message: Message): void {
    this.#messages.push(message);
    this.meter.add(message);
  }

  /** Puts a compacted context in place of the whole one. */
  replaceContext(messages: readonly Message[]): void {
    this.#messages = [...messages];
    this.meter.reset(messages);
    this.view.reset();
    this.loopGuard.forget();
    this.forgetResults();
  }

  /** Results have left the model's view: nothing may refer to them or repeat them. */
  forgetResults(): void {
    this.earlier.forget();
    this.ports.forgetReads?.();
  }

  /** How hard the model thinks in this run. */
  get thinking(): ThreadPlan['thinking'] {
    const { thinking, thinkingDecay } = this.behavior;
    return thinkingOfRun(thinking ?? this.plan.thinking, this.#runs, thinkingDecay);
  }

  /** Another run of the thread begins: with it thinking may become less. */
  async beginRun(): Promise<void> {
    const before = this.thinking;
    this.#runs += 1;
    this.budgets.beginRun();
    this.loopGuard.forget();
    const level = this.thinking;
    if (level !== before)
      await this.record([{ event_type: 'thinking_change', payload: { level } }]);
  }

  beginTurn(): void {
    this.turn += 1;
    this.isTurnOpen = true;
    this.#turnUsage = NO_USAGE;
    this.turnOutputBytes = 0;
  }

  /** Adds what a model call used, whether or not its answer was of use. */
  charge(usage: Usage): void {
    this.#usage = addUsage(this.#usage, usage);
    this.#turnUsage = addUsage(this.#turnUsage, usage);
    if (this.model.pricing) this.#spent += priceMicroUsd(usage, this.model.pricing);
  }

  /** Changes over to the next model of the chain; undefined when there is none. */
  nextModel(): PlannedModel | undefined {
    const [next, ...rest] = this.#fallbacks;
    if (!next) return undefined;
    this.#fallbacks = rest;
    this.model = next;
    return next;
  }

  /** Takes raised limits, and the deadline that follows from them. */
  raiseLimits(limits: Limits): void {
    this.limits = limits;
    this.armDuration();
  }

  armDuration(): void {
    this.stop.arm(this.secondsLeft() * 1000);
  }

  /** What is left of the time that the thread may run. */
  secondsLeft(): number {
    return Math.max(0, this.limits.duration_seconds - this.elapsedSeconds());
  }

  /** Asks control hooks. A dispatch that fails is noted and decides nothing. */
  async control(event: ControlEvent, context: JsonObject): Promise<ControlAction | undefined> {
    if (!this.#isHeard(event)) return undefined;
    const report = await this.#dispatch(event, () =>
      this.ports.hooks.control(event, this.hookContext(context), this.stop.cancelSignal),
    );
    return report?.decision;
  }

  async observe(event: ObservedEvent, context: JsonObject): Promise<void> {
    if (!this.#isHeard(event)) return;
    await this.#dispatch(event, () =>
      this.ports.hooks.observe(event, this.hookContext(context), this.stop.cancelSignal),
    );
  }

  /** A gate that fails refuses. */
  async gate(context: JsonObject): Promise<GateDecision> {
    if (!this.#isHeard('tool_gate')) return { fired: [] };
    const asked = await this.#dispatch('tool_gate', () =>
      this.ports.hooks.gate(this.hookContext(context), this.stop.cancelSignal),
    );
    const failed = {
      fired: [],
      decision: { control: 'fail', error: 'its gate could not be asked' },
    };
    return asked ?? (failed as GateDecision);
  }

  #isHeard(event: ControlEvent | ObservedEvent | 'tool_gate'): boolean {
    return this.ports.hooks.listens?.(event) ?? true;
  }

  async #dispatch<T extends HookReport>(
    event: string,
    ask: () => Promise<T>,
  ): Promise<T | undefined> {
    const report = await this.#ask(event, ask);
    if (report) await this.#recordReport(report);
    return report;
  }

  async #ask<T extends HookReport>(event: string, ask: () => Promise<T>): Promise<T | undefined> {
    try {
      const report = await orStopped(ask(), this.stop.cancelSignal);
      return isStopped(report) ? undefined : report;
    } catch (error) {
      const { message } = toRyeError(error, 'hook_failed');
      await this.write(note(`the hooks of ${event} failed: ${message}`));
      return undefined;
    }
  }

  async #recordReport(report: HookReport): Promise<void> {
    const fired = report.fired.map((payload) => ({ event_type: 'hook_fired' as const, payload }));
    const drafts = report.drafts ?? [];
    if (this.#held) {
      this.#held.push(...drafts);
      await this.write(...fired);
    } else await this.record([...fired, ...drafts]);
  }

  /** Takes drafts into the conversation as soon as no answer waits for its results. */
  async inject(drafts: readonly EventDraft[]): Promise<void> {
    if (this.#held) this.#held.push(...drafts);
    else await this.record(drafts);
  }

  /** From here on what hooks inject waits, so that an answer and its results stay together. */
  holdInjections(): void {
    this.#held ??= [];
  }

  async releaseInjections(): Promise<void> {
    const held = this.#held ?? [];
    this.#held = undefined;
    await this.record(held);
  }

  /** What every hook and handler is told, with the facts of its event. */
  hookContext(context: JsonObject): JsonObject {
    const { directive, inputs, parent_thread_id } = this.plan;
    return {
      thread_id: this.ports.threadId,
      turn: this.turn,
      cost: { ...this.cost() },
      directive: directive.id,
      model: this.model.id,
      inputs,
      parent_thread_id,
      project_path: this.ports.projectPath,
      depth: this.limits.depth,
      ...context,
    };
  }
}

export function note(text: string, details?: JsonObject): EventDraft {
  return { event_type: 'note', payload: { text, ...(details ? { details } : {}) } };
}

/** Text that the model gets as a user message and people do not see. */
export function hiddenMessage(customType: string, content: string): EventDraft {
  return {
    event_type: 'custom_message',
    payload: { custom_type: customType, content, display: false },
  };
}

/** The error of a run that a hook ended. */
export function hookError(
  action: Extract<ControlAction, { control: 'fail' | 'abort' }>,
  where: string,
): RyeError {
  if (action.control === 'fail' && action.error !== undefined) {
    return new RyeError('thread_error', action.error, { details: { decided_by: 'hook', where } });
  }
  return new RyeError('aborted_by_hook', `a hook of ${where} ended the thread`);
}
