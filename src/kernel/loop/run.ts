import type { JsonObject } from '../core/json.ts';
import { type AssistantMessage, textOf } from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { hasSchema, type ResultShape, resultSchema } from '../core/return-schema.ts';
import { type Behavior, parseBehavior } from './behavior.ts';
import { CallHistory } from './call-history.ts';
import { Conversation } from './conversation.ts';
import { Hooks } from './hooks.ts';
import { Outbox } from './outbox.ts';
import type { Ending, LoopPorts } from './ports.ts';
import { Models, Spend } from './spend.ts';
import { Stop } from './stop.ts';

/** Stops the clock of the duration while all that a run does is wait for people. */
class IdleClock {
  readonly #spend: Pick<Spend, 'pause' | 'goOn'>;
  /** The calls that run, by id, with the number of waits for people inside each. */
  readonly #running = new Map<string, number>();
  /** Calls that wait for a decision before they start. */
  #undecided = 0;

  constructor(spend: Pick<Spend, 'pause' | 'goOn'>) {
    this.#spend = spend;
  }

  /** Runs a call. */
  async works<T>(callId: string, work: () => Promise<T>): Promise<T> {
    this.#running.set(callId, 0);
    this.#update();
    try {
      return await work();
    } finally {
      this.#running.delete(callId);
      this.#update();
    }
  }

  /** Waits for the decision about a call that has not started. */
  async waits<T>(wait: () => Promise<T>): Promise<T> {
    this.#undecided += 1;
    this.#update();
    try {
      return await wait();
    } finally {
      this.#undecided -= 1;
      this.#update();
    }
  }

  /** Waits for a person on behalf of a call that runs, which does nothing else meanwhile. */
  async waitsInside<T>(callId: string, wait: () => Promise<T>): Promise<T> {
    this.note(callId, true);
    try {
      return await wait();
    } finally {
      this.note(callId, false);
    }
  }

  /** Notes that a wait inside a call begins or ends. A call that has ended waits no more. */
  note(callId: string, isWaiting: boolean): void {
    const waits = this.#running.get(callId);
    if (waits === undefined) return;
    this.#running.set(callId, Math.max(0, waits + (isWaiting ? 1 : -1)));
    this.#update();
  }

  #update(): void {
    const counts = [...this.#running.values()];
    const isWaiting = this.#undecided > 0 || counts.length > 0;
    if (isWaiting && counts.every((waits) => waits > 0)) this.#spend.pause();
    else this.#spend.goOn();
  }
}

/** One run of a thread: its plan, its ports, and its state in parts. A part changes only through its own methods. */
export interface Run {
  readonly plan: ThreadPlan;
  readonly behavior: Behavior;
  /** The result that the model returns. */
  readonly shape: ResultShape;
  /** The schema of the result, if one is given; one object for the whole run. */
  readonly resultSchema: JsonObject | undefined;
  readonly ports: LoopPorts;
  readonly stop: Stop;
  readonly outbox: Outbox;
  readonly conversation: Conversation;
  readonly spend: Spend;
  readonly idle: IdleClock;
  readonly models: Models;
  readonly calls: CallHistory;
  readonly progress: Progress;
  readonly hooks: Hooks;
  /** Sentences that the person was told. */
  readonly told: Set<string>;
}

/** Tells the person a sentence, once in a run. */
export function tellOnce({ ports, told }: Run, notice: string): void {
  if (told.has(notice)) return;
  told.add(notice);
  ports.onNotice?.(notice);
}

export function createRun(plan: ThreadPlan, ports: LoopPorts, signal: AbortSignal): Run {
  const behavior = parseBehavior(plan.behavior);
  const shape = { outputs: plan.outputs, schema: behavior.schema };
  const stop = new Stop(ports.clock, signal);
  const outbox = new Outbox(() => stop.close());
  const models = new Models(plan, behavior, ports);
  const calls = new CallHistory(behavior, ports, models.traits);
  const onShrink = (): void => calls.forgetResults();
  // explicit steps use all results, also old ones
  const view = models.traits.replayable ? { tail: undefined, elideStaleReads: false } : behavior;
  const conversation = new Conversation(ports, outbox, { ...view, onShrink });
  const spend = new Spend(plan.limits, ports, stop);
  const hooks = new Hooks({ plan, ports, stop, conversation, spend, models });
  const usedTools = ports.history.some(({ role }) => role === 'tool_result');
  const progress = new Progress(usedTools, ports.cutText);
  return {
    plan,
    behavior,
    shape,
    resultSchema: hasSchema(shape) ? resultSchema(shape) : undefined,
    ports,
    stop,
    outbox,
    conversation,
    spend,
    idle: new IdleClock(spend),
    models,
    calls,
    progress,
    hooks,
    told: new Set(),
  };
}

export function beginTurn({ spend, calls }: Run): void {
  spend.beginTurn();
  calls.beginTurn();
}

/** Begins another run of the thread, in which the model may think less and each tool has its whole budget again. */
export async function beginRun({ models, calls, conversation, spend }: Run): Promise<void> {
  const before = models.thinking;
  models.beginRun(spend.turn);
  calls.beginRun();
  const level = models.thinking;
  if (level === before) return;
  await conversation.record({ event_type: 'thinking_change', payload: { level } });
}

/** The maximum number of times that an answer which was cut at `max_tokens` is continued in a row, within the limits. */
const MAX_CONTINUATIONS = 10;
/** The maximum number of times that a model is asked again for a result that matches the schema. */
const MAX_OUTPUT_REQUESTS = 3;

/** Messages that a run sends at most once. */
export type Reminding = 'tools' | 'outputs' | 'empty' | 'call_in_text';

/** Progress of the model: its last text, its outputs, and the reminders that it got. */
export class Progress {
  readonly #sent = new Set<Reminding>();
  #continuations = 0;
  #timesSentBack = 0;
  #outputRequests = 0;
  #usedTools: boolean;
  #needsLongAnswers = false;
  #lastText = '';
  #outputs: JsonObject | undefined;
  #completed: Extract<Ending, { kind: 'completed' }> | undefined;

  /** `cutText`: the beginning of the first answer, which an earlier run took. */
  constructor(usedTools: boolean, cutText = '') {
    this.#usedTools = usedTools;
    this.#lastText = cutText;
    if (cutText !== '') this.joinAnswer();
  }

  /** True if a tool ran in this run, or in the history that it resumes. */
  get usedTools(): boolean {
    return this.#usedTools;
  }

  /** The last text of the model. A cut answer is joined with its continuations. */
  get lastText(): string {
    return this.#lastText;
  }

  /** Outputs that the directive returned, or that were read from an answer. */
  get outputs(): JsonObject | undefined {
    return this.#outputs;
  }

  /** The end of the thread before a delivery began another run: a failure of that run does not undo it. */
  get completed(): Extract<Ending, { kind: 'completed' }> | undefined {
    return this.#completed;
  }

  /** True once an answer was cut: what the model writes is longer than most answers. */
  get needsLongAnswers(): boolean {
    return this.#needsLongAnswers;
  }

  get timesSentBack(): number {
    return this.#timesSentBack;
  }

  get outputRequests(): number {
    return this.#outputRequests;
  }

  noteText({ content, stop_reason: reason }: AssistantMessage): void {
    if (reason === 'max_tokens') this.#needsLongAnswers = true;
    const text = textOf(content);
    if (this.#continuations > 0) this.#lastText += text;
    else if (text !== '') this.#lastText = text;
  }

  noteToolUse(): void {
    this.#usedTools = true;
    this.#continuations = 0;
  }

  /** Counts the continuation of a cut answer; false if there were too many in a row. */
  continueAnswer(): boolean {
    if (this.#continuations >= MAX_CONTINUATIONS) return false;
    this.#continuations += 1;
    return true;
  }

  /** Joins the next answer with the text so far: it continues an interrupted one. */
  joinAnswer(): void {
    this.#continuations = Math.max(1, this.#continuations);
  }

  endAnswer(): void {
    this.#continuations = 0;
  }

  /** True the first time that it is called for a message. */
  isFirst(message: Reminding): boolean {
    const isFirst = !this.#sent.has(message);
    this.#sent.add(message);
    return isFirst;
  }

  /** Counts that a hook sends the model back to work; false if it did so `max` times. */
  sendBack(max: number): boolean {
    if (this.#timesSentBack >= max) return false;
    this.#timesSentBack += 1;
    return true;
  }

  /** Counts a request for the result; false if there were too many. */
  requestOutput(): boolean {
    if (this.#outputRequests >= MAX_OUTPUT_REQUESTS) return false;
    this.#outputRequests += 1;
    return true;
  }

  noteOutputs(outputs: JsonObject | undefined): void {
    this.#outputs = outputs;
  }

  /** Forgets a result that was read from an answer: what comes now may change it. */
  withdrawOutputs(): void {
    this.#outputs = undefined;
    this.#outputRequests = 0;
  }

  complete(ending: Extract<Ending, { kind: 'completed' }>): void {
    this.#completed = ending;
  }
}
