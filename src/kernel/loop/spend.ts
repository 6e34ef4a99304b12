import type { LimitName, Limits } from '../core/limits.ts';
import type { PlannedModel, ThreadPlan } from '../core/plan.ts';
import {
  addUsage,
  type Cost,
  estimatedSpend,
  type MicroUsd,
  NO_COST,
  NO_USAGE,
  type Pricing,
  priceMicroUsd,
  toMicroUsd,
  totalTokens,
  toUsd,
  type Usage,
} from '../core/usage.ts';
import { checkLimits, escalateLimit, type LimitReached } from '../policy/limits.ts';
import type { ProviderTraits } from '../providers/provider.ts';
import { type Behavior, thinkingOfRun, thinkingOfTurn } from './behavior.ts';
import { AnswerRatio } from './meters.ts';
import type { CallMoney, LoopPorts } from './ports.ts';
import type { Stop } from './stop.ts';

/** A run whose hooks raise limits forever must still end. */
const MAX_ESCALATIONS = 10;

/** Usage of a run against its limits: turns, tokens, money and time. Includes the thread's usage before the run. */
export class Spend {
  readonly answerRatio = new AnswerRatio();
  readonly #ports: Pick<LoopPorts, 'budget' | 'clock' | 'parentLimits' | 'onIdle' | 'raise'>;
  readonly #stop: Stop;
  #startedMs: number;
  /** When the clock of the duration was stopped; undefined while it runs. */
  #pausedMs: number | undefined;
  readonly #priorSeconds: number;
  #limits: Limits;
  #escalations = 0;
  #turn: number;
  #isTurnOpen = false;
  #usage: Usage;
  #turnUsage: Usage = NO_USAGE;
  #microUsd: MicroUsd;
  /** The part of it that earlier crashes left as an upper bound. */
  readonly #estimated: Pick<Cost, 'estimated_spend_usd'>;
  #reportedMicroUsd: MicroUsd;
  #reportedUsage: Usage;
  /** True while the budget holds money for a call. */
  #holds = false;

  constructor(limits: Limits, ports: LoopPorts, stop: Stop) {
    const spent = ports.spent ?? NO_COST;
    this.#limits = limits;
    this.#ports = ports;
    this.#stop = stop;
    this.#turn = spent.turns;
    this.#usage = spent;
    this.#microUsd = toMicroUsd(spent.spend);
    this.#estimated = estimatedSpend(toMicroUsd(spent.estimated_spend_usd ?? 0));
    this.#reportedMicroUsd = this.#microUsd;
    this.#reportedUsage = this.#usage;
    this.#priorSeconds = spent.elapsed_seconds;
    this.#startedMs = ports.clock.monotonic();
    this.#armDeadline();
  }

  get limits(): Limits {
    return this.#limits;
  }

  /** Number of the current turn, counted from 1 over the whole thread. */
  get turn(): number {
    return this.#turn;
  }

  get isTurnOpen(): boolean {
    return this.#isTurnOpen;
  }

  get turnUsage(): Usage {
    return this.#turnUsage;
  }

  get microUsd(): MicroUsd {
    return this.#microUsd;
  }

  beginTurn(): void {
    this.#turn += 1;
    this.#isTurnOpen = true;
    this.#turnUsage = NO_USAGE;
  }

  endTurn(): void {
    this.#isTurnOpen = false;
  }

  /** Adds what a model call used, even if its answer was of no use. A price of null adds no money. */
  charge(usage: Usage, pricing: Pricing | null): void {
    if (totalTokens(usage) === 0) return;
    this.#usage = addUsage(this.#usage, usage);
    this.#turnUsage = addUsage(this.#turnUsage, usage);
    if (pricing) this.#microUsd += priceMicroUsd(usage, pricing);
  }

  cost(): Cost {
    const { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = this.#usage;
    return {
      input_tokens,
      output_tokens,
      cache_read_tokens,
      cache_write_tokens,
      turns: this.#turn,
      spend: toUsd(this.#microUsd),
      ...this.#estimated,
      elapsed_seconds: Math.round(this.#elapsedSeconds() * 1000) / 1000,
    };
  }

  /** Returns the money that may still be spent, by the thread's own limit and by its budget. */
  async remainingMicroUsd(): Promise<MicroUsd> {
    const unreported = this.#microUsd - this.#reportedMicroUsd;
    return Math.min(
      toMicroUsd(this.#limits.spend) - this.#microUsd,
      (await this.#ports.budget.remainingMicroUsd()) - unreported,
    );
  }

  /** Stops the clock of the duration: nothing runs until a person decides. */
  pause(): void {
    if (this.#pausedMs !== undefined) return;
    this.#pausedMs = this.#ports.clock.monotonic();
    this.#stop.arm(Number.POSITIVE_INFINITY);
    this.#ports.onIdle?.(true);
  }

  /** Starts the clock of the duration again where it was stopped. */
  goOn(): void {
    if (this.#pausedMs === undefined) return;
    this.#startedMs += this.#ports.clock.monotonic() - this.#pausedMs;
    this.#pausedMs = undefined;
    this.#armDeadline();
    this.#ports.onIdle?.(false);
  }

  /**
   * Has the budget set aside what a call may cost at most, until the next report: children and threads that people resume
   * meanwhile do not get it. False if it is not there any more.
   */
  async hold(microUsd: MicroUsd): Promise<boolean> {
    const { budget } = this.#ports;
    if (!budget.hold || (microUsd === 0 && !this.#holds)) return true;
    const unreported = this.#microUsd - this.#reportedMicroUsd;
    if (!(await budget.hold(unreported + microUsd))) return false;
    this.#holds = true;
    return true;
  }

  /**
   * Reports to the budget what was used since the last report, if anything. The log must have the answer by then: recovery
   * would count an answer that only the budget knows twice.
   */
  async report(nextCall?: MicroUsd): Promise<void> {
    const usage = this.#usage;
    const spent = this.#microUsd;
    const isKnown = spent === this.#reportedMicroUsd && usage === this.#reportedUsage;
    if (isKnown && !this.#holds) return;
    await this.#ports.budget.report(spent, this.cost(), nextCall);
    this.#holds = false;
    this.#reportedMicroUsd = spent;
    this.#reportedUsage = usage;
  }

  tokensLeft(): number {
    return this.#limits.tokens - totalTokens(this.#usage);
  }

  secondsLeft(): number {
    return Math.max(0, this.#limits.duration_seconds - this.#elapsedSeconds());
  }

  /** Returns the limit that leaves no room for another turn. */
  reachedLimit(): LimitReached | undefined {
    const elapsedSeconds = this.#elapsedSeconds();
    const reached = checkLimits(this.#limits, { cost: this.cost(), elapsedSeconds });
    if (reached || this.#stop.cause !== 'duration') return reached;
    // the deadline's timer fired a moment before the clock reads it
    const max = this.#limits.duration_seconds;
    return { name: 'duration_seconds', current: Math.max(elapsedSeconds, max), max };
  }

  /** Raises a limit and the deadline that follows from it; undefined if that is not allowed. Rejects if the budget above has no room. */
  async escalate(name: LimitName, to: number): Promise<number | undefined> {
    const raised = escalateLimit(this.#limits, { name, to }, this.#ports.parentLimits);
    if (!raised || this.#escalations >= MAX_ESCALATIONS) return undefined;
    await this.#ports.raise?.(raised);
    this.#escalations += 1;
    this.#limits = raised;
    this.#armDeadline();
    return raised[name];
  }

  #elapsedSeconds(): number {
    const now = this.#pausedMs ?? this.#ports.clock.monotonic();
    return this.#priorSeconds + (now - this.#startedMs) / 1000;
  }

  #armDeadline(): void {
    this.#stop.arm(this.secondsLeft() * 1000);
  }
}

/** The model that answers, the models to fall back to, and how hard they think. */
export class Models {
  readonly #ports: Pick<LoopPorts, 'traits'>;
  readonly #thinking: ThreadPlan['thinking'];
  readonly #decay: Behavior['thinkingDecay'];
  #current: PlannedModel;
  #fallbacks: readonly PlannedModel[];
  /** Number of the run in this process, from 1: another begins with each delivery to a thread that had finished. */
  #run = 1;
  /** Turns of the thread before the run. */
  #turnsBefore: number;

  constructor(plan: ThreadPlan, behavior: Behavior, ports: Pick<LoopPorts, 'traits' | 'spent'>) {
    this.#ports = ports;
    this.#turnsBefore = ports.spent?.turns ?? 0;
    this.#current = plan.model;
    this.#fallbacks = plan.fallbacks;
    this.#thinking = behavior.thinking ?? plan.thinking;
    this.#decay = behavior.thinkingDecay;
  }

  get current(): PlannedModel {
    return this.#current;
  }

  /** Traits of the current model's provider. */
  get traits(): ProviderTraits {
    return this.#ports.traits(this.#current);
  }

  get thinking(): ThreadPlan['thinking'] {
    return thinkingOfRun(this.#thinking, this.#run, this.#decay);
  }

  /** Returns the number of a turn in its run, and how hard the model thinks in it. */
  turnOfRun(turn: number): { readonly runTurn: number; readonly level: ThreadPlan['thinking'] } {
    const runTurn = turn - this.#turnsBefore;
    return { runTurn, level: thinkingOfTurn(this.thinking, runTurn, this.#decay) };
  }

  get hasFallback(): boolean {
    return this.#fallbacks.length > 0;
  }

  /** Switches to the next model of the chain; undefined if there is none. */
  fallBack(): PlannedModel | undefined {
    const [next, ...rest] = this.#fallbacks;
    if (!next) return undefined;
    this.#fallbacks = rest;
    this.#current = next;
    return next;
  }

  /** Counts another run, which may think less. */
  beginRun(turnsBefore: number): void {
    this.#run += 1;
    this.#turnsBefore = turnsBefore;
  }
}

/** Returns the thread's money now, for the conditions of policies. */
export async function moneyOf({ spend }: { readonly spend: Spend }): Promise<CallMoney> {
  return { cost: spend.cost(), left: toUsd(await spend.remainingMicroUsd()) };
}
