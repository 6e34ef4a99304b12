import type { ApprovalUse, Ask } from '../core/approval.ts';
import type { CapabilityNeed } from '../core/capability.ts';
import type { Clock } from '../core/clock.ts';
import type { ErrorInfo } from '../core/errors.ts';
import type { EventDraft, EventPayloads, LogEvent, RequestEstimate } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import type { LimitName, Limits } from '../core/limits.ts';
import type { AssistantMessage, ContentBlock, Message, ToolCallBlock } from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import type { Cost, MicroUsd, Usage } from '../core/usage.ts';
import type { HandlerLists } from '../hooks/handlers.ts';
import type { AwaitedCall } from '../log/open-calls.ts';
import type { Held } from '../policy/budget.ts';
import type { CallView, JudgedInput } from '../policy/call-views.ts';
import type { ErrorRule } from '../policy/error-class.ts';
import type { ProviderFacts } from '../policy/provider-hint.ts';
import type { ModelEvent, ModelProvider, ProviderTraits, ToolList } from '../providers/provider.ts';
import type { ResolvedCall, Tool, ToolOutput, ToolSet } from '../tools/tool.ts';

/**
 * The stream of a run. Each yielded batch must be in the log before the generator is asked for more: pass the
 * written events to `next`. Delta events may be merged or dropped, all others come back in order. A writer that
 * fails calls `throw(error)`: the run then ends with that error. A `cost` event closes each turn; the consumer
 * checkpoints after it.
 */
export type LoopEvents = AsyncGenerator<
  readonly EventDraft[],
  LoopOutcome,
  readonly LogEvent[] | undefined
>;

/** Reason for the end of a run. */
export type Ending =
  | { readonly kind: 'completed'; readonly result: string; readonly outputs?: JsonObject }
  | {
      readonly kind: 'limit';
      readonly name: LimitName;
      readonly current: number;
      readonly max: number;
      readonly error: ErrorInfo;
    }
  | { readonly kind: 'cancelled'; readonly reason: string }
  | { readonly kind: 'error'; readonly error: ErrorInfo }
  | {
      readonly kind: 'suspended';
      readonly reason: string;
      /** Ids of the requests that a person has to decide before the run continues. */
      readonly approvals?: readonly string[];
      /** Threads whose end open calls wait for; some of the requests are theirs. */
      readonly threads?: readonly string[];
      /** Another process continues the run, without a person. */
      readonly isParked?: true;
    }
  | { readonly kind: 'handoff' };

/** The ending of a run, the cost of the thread, and the last text of the model. */
export type LoopOutcome = Ending & { readonly cost: Cost; readonly last_text: string };

/** Records of the hooks that ran, and the entries that they asked for. */
export interface HookReport {
  readonly fired: readonly EventPayloads['hook_fired'][];
  /** Entries of `emit` and `inject` actions. */
  readonly drafts?: readonly EventDraft[];
}

export interface HookDecision extends HookReport {
  readonly decision?: ControlAction | undefined;
}

/** `substitute` replaces the run of the tool, if no hook refuses. */
export interface GateDecision extends HookDecision {
  readonly substitute?: ToolOutput | undefined;
}

export type ControlEvent = 'error' | 'limit' | 'after_step' | 'context_limit_reached';
export type ObservedEvent =
  | 'tool_after'
  | 'directive_return'
  | 'rule_triggered'
  | 'approval_requested'
  | 'approval_decided';

/** Dispatches the thread's merged hooks. A rejected promise is recorded and counts as no decision; of a gate, as no. */
export interface HookPort {
  /** True if a hook listens to the event; other events are not dispatched. Absent: every event is. */
  listens?(event: ControlEvent | ObservedEvent | 'tool_gate'): boolean;
  control(event: ControlEvent, context: JsonObject, signal: AbortSignal): Promise<HookDecision>;
  observe(event: ObservedEvent, context: JsonObject, signal: AbortSignal): Promise<HookReport>;
  gate(
    context: JsonObject,
    signal: AbortSignal,
    views?: readonly CallView[],
  ): Promise<GateDecision>;
  /** True if a gate tests the files that a call opens. Absent: none does. */
  gatesPaths?(): boolean;
}

/** The thread's claim in the ledger. */
export interface BudgetPort {
  remainingMicroUsd(): Promise<MicroUsd>;
  /** Returns the claims of running children on the budget. */
  held?(): Promise<readonly Held[]>;
  /** Sets aside what the next model call may cost, until the next report; false if it is not there any more. Absent: it is. */
  hold?(microUsd: MicroUsd): Promise<boolean>;
  /**
   * Sets the thread's own spend so far, as soon as the log has the answer that it paid for: before the answer's tools.
   * `nextCall`: what its children have to leave to it.
   */
  report(spentMicroUsd: MicroUsd, cost: Cost, nextCall?: MicroUsd): Promise<void>;
}

/** `before_turn`: after a whole tool batch, before the next request. `at_end`: the model has finished. */
export type SafePoint = 'before_turn' | 'at_end';

/** Steers, follow-ups and deliveries that wait for a safe point. What is taken is recorded and sent. */
export interface InboxPort {
  /** True if something waits; {@link take} decides if it may come in. Absent: nothing comes during a wait. */
  isWaiting?(): Promise<boolean>;
  take(point: SafePoint): Promise<readonly EventDraft[]>;
  /** True if a message of a person waits for {@link take}, and the call should give way to it. Absent: none ever does. */
  isSteered?(callId: string): Promise<boolean>;
  /** Returns the context as the log has it: asked for after a compaction that {@link take} gave. */
  context?(): Promise<readonly Message[]>;
  /** Ends the run as completed and begins another with what waits for that. Empty: nothing waits, the run is still open. */
  next?(): Promise<readonly EventDraft[]>;
  /** The run that {@link next} began has failed. What it returns is recorded. */
  fail?(): Promise<readonly EventDraft[]>;
}

/** Demand of a stream rule: cut the answer, record `drafts`, ask again. */
export interface Interrupt {
  readonly reason: string;
  /** Leave the partial answer in the model's view. */
  readonly keepPartial: boolean;
  readonly drafts: readonly EventDraft[];
}

/** Text before the result of a call, and the log entry that records it. */
export interface Reminder {
  readonly text: string;
  readonly injection: EventDraft;
}

/** Returns the tool that a call would run, with its input as the tool would get it; undefined if it would run nothing. */
export type WhatRuns = (
  call: ToolCallBlock,
) => Promise<{ readonly tool: string; readonly input: JsonObject } | undefined>;

/** A question to another model, beside the conversation. */
export interface Question {
  /** Names it in the log. */
  readonly label: string;
  /** Tiers or IDs of models, the first that is ready answers; none: a small model. */
  readonly models: readonly string[];
  readonly system: string;
  readonly prompt: string;
  readonly maxTokens: number;
}

/** Asks a question under the limits of the run; the log has it, with its answer. Never rejects. */
export type Consult = (
  question: Question,
) => Promise<{ readonly text: string; readonly model: string } | { readonly error: string }>;

/** Watches one answer while it is spoken. Cost per event must not grow with the answer. */
export interface StreamWatcher {
  observe(event: ModelEvent): Interrupt | undefined;
  /**
   * Called after `finish`: waits for checks that take time, and judges calls by what they run where `whatRuns` is
   * given. Afterwards the watcher interrupts no more.
   */
  settle(whatRuns?: WhatRuns, consult?: Consult): Promise<Interrupt | undefined>;
  /** Contexts of `rule_triggered` for the matches since the last call. */
  takeTriggers(): readonly JsonObject[];
  /** The answer came whole and is used: what did not cut it is now due. */
  accept(): void;
  /** Returns the reminder for the result of the answer's call at that position, and notes it as sent. */
  reminderFor(position: number): Reminder | undefined;
  /** Returns the reminders after the answer and its results, and notes them as sent. */
  takeFollowUps(): readonly EventDraft[];
}

/** A call that may need a person's decision: everything that decides what would run. */
export interface ReviewedCall {
  readonly callId: string;
  readonly tool: Tool;
  readonly input: JsonObject;
  readonly need: CapabilityNeed;
  /** Demands of hooks and handlers, beside the demands of permissions, policies and risks. */
  readonly asks: readonly Ask[];
  /** Reads the thread's money. Called only if a person may have to be asked. */
  readonly money: () => Promise<CallMoney>;
}

/** The money of a thread when a call is reviewed. */
export interface CallMoney {
  readonly cost: Cost;
  /** Money that the thread may still spend, in USD. */
  readonly left: number;
}

/**
 * `granted`: an earlier decision may cover the call. `asked`: a request, whose drafts are not in the log yet. `unreachable`:
 * no decision could ever be enough, so no person is asked; the drafts end an earlier request.
 */
export type Review =
  | { readonly kind: 'allowed' }
  | {
      readonly kind: 'unreachable';
      readonly reason: string;
      readonly drafts: readonly EventDraft[];
    }
  | { readonly kind: 'granted'; readonly id: string }
  | { readonly kind: 'asked'; readonly id: string; readonly drafts: readonly EventDraft[] };

/** The outcome of a request. The drafts record it; `waiting`: no person decided while the run could wait. */
export type ApprovalVerdict =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'approved'; readonly input?: JsonObject; readonly comment?: string }
  | {
      readonly kind: 'answered';
      readonly answer: JsonValue;
      readonly drafts: readonly EventDraft[];
    }
  | {
      readonly kind: 'denied' | 'expired' | 'withdrawn';
      readonly reason: string;
      readonly drafts: readonly EventDraft[];
      /** The thread is to end. */
      readonly ends: boolean;
    };

/** The last check before the intent: the decision counts for what would run now, or no longer. */
export type Confirmation =
  | {
      readonly kind: 'confirmed';
      readonly use: ApprovalUse;
      readonly drafts: readonly EventDraft[];
    }
  | { readonly kind: 'voided'; readonly drafts: readonly EventDraft[] };

/** People's decisions about the calls of one thread. */
export interface ApprovalPort {
  /** Judges the calls of one answer together; a call that is asked about again keeps its request while nothing changed. */
  review(calls: readonly ReviewedCall[]): Promise<readonly Review[]>;
  /** Shows requests to people: called once they are durable in the log. */
  publish(ids: readonly string[]): Promise<void>;
  /** True if a run waits in its process for a decision, because a person may be there or the policy wants it. */
  waitsInline(): Promise<boolean>;
  /** Waits for a decision as long as a person may be there to take it. */
  wait(id: string, call: ReviewedCall, signal: AbortSignal): Promise<ApprovalVerdict>;
  /**
   * Checks a decision again, immediately before the intent is written with its drafts; counts it as used. `ran` is the call
   * with the input that a person gave, which has to be allowed by itself.
   */
  confirm(id: string, call: ReviewedCall, ran?: ReviewedCall): Promise<Confirmation>;
  /** Takes back requests whose calls are not made any more. */
  withdraw(ids: readonly string[], reason: string): Promise<readonly EventDraft[]>;
  /** The number of requests that wait now. */
  pending(): number;
}

/** Large tool results, kept beside the log. */
export interface ArtifactPort {
  /** Resolves to the path that the model is told, relative to the project. */
  save(callId: string, content: readonly ContentBlock[]): Promise<string>;
}

export type Validation =
  | { readonly ok: true; readonly input: JsonObject; readonly coerced: readonly string[] }
  | { readonly ok: false; readonly problems: string };

export type ReturnCheck =
  | { readonly ok: true; readonly outputs: JsonObject }
  | { readonly ok: false; readonly problems: readonly string[] };

/**
 * A refusal beyond capabilities: skill restriction, risk latch, tool budget, disclosure. A text refuses, and no later
 * gate can take that back. Must not throw.
 */
export type PolicyGate = (call: ResolvedCall) => string | undefined;

export interface Compaction {
  readonly drafts: readonly EventDraft[];
  /** The whole context afterwards; absent if a hook prevented the compaction. */
  readonly messages?: readonly Message[];
  /** Usage of the summary that is not booked, priced as the current model. */
  readonly usage: Usage;
}

/** Reason for a compaction. */
export type CompactionReason = 'threshold' | 'context_exceeded' | 'hook' | 'manual';

export interface CompactionRequest {
  readonly messages: readonly Message[];
  readonly reason: CompactionReason;
  /** The model that the run talks to now; it writes the summary too. */
  readonly model: PlannedModel;
  /** The next request's likely size in tokens. */
  readonly tokens: number;
  readonly turn: number;
  readonly cost: Cost;
  /** Money that may still be spent. */
  readonly remainingMicroUsd: MicroUsd;
  readonly instructions?: string;
  /** Sets aside what a request for a part of the summary may use at most, before it is sent; false if it is not there. */
  readonly hold: (most: RequestEstimate) => Promise<boolean>;
  /** Charges and books a part of the summary that is paid for. */
  readonly book: (usage: Usage) => Promise<void>;
}

export interface ConsultRequest extends Question {
  readonly remainingMicroUsd: MicroUsd;
  /** Sets aside and announces what a request may use at most, before it is sent; false if it is not there. */
  readonly begin: (most: RequestEstimate, model: PlannedModel) => Promise<boolean>;
}

/** The answer of a model, or why there is none; the usage was paid for in both cases. */
export type Consultation = { readonly model: PlannedModel; readonly usage: Usage } & (
  | { readonly text: string }
  | { readonly error: string }
);

/** Calls of the last answer in the history that a crashed process left open and that may be run again. */
export interface PendingCalls {
  /** The answer, with these calls alone. */
  readonly answer: AssistantMessage;
  /** Drafts to record after the results of the calls. */
  readonly after: readonly EventDraft[];
  /** The calls that were started and wait for threads, by their ids. */
  readonly awaited?: ReadonlyMap<string, AwaitedCall>;
}

/** Everything that the loop needs from outside. Nothing in it may assume a disk, a clock or a network. */
export interface LoopPorts {
  readonly threadId: string;
  readonly projectPath: string;
  /** The recorded system text, sent byte-identical on every turn. */
  readonly system: string;
  /** The context so far: already in the log, every tool call answered. */
  readonly history: readonly Message[];
  /** The text of an interrupted answer at the end of the history, which the run continues; absent: there is none. */
  readonly cutText?: string;
  /** Run before the first turn, under every gate. */
  readonly pending?: PendingCalls;
  /** Usage of the thread before this run, when it is resumed. */
  readonly spent?: Cost;
  /** The parent's limits: they bound an escalation. */
  readonly parentLimits?: Limits;
  /** Returns the traits of the model's kind of provider. */
  readonly traits: (model: PlannedModel) => ProviderTraits;
  /** May throw, e.g. for a missing key: that counts as a failure of this model. */
  provider(model: PlannedModel): ModelProvider;
  /** Replaces the refused key of a model's provider; false if there is no other. Absent: there never is. */
  readonly renewKey?: (model: PlannedModel, key: string | undefined) => Promise<boolean>;
  /** Returns what is known of a model's provider, for the hint of a failed call. */
  readonly about?: (model: PlannedModel) => Promise<ProviderFacts>;
  /** Tells the person a sentence about the run; absent: nothing is told. */
  readonly onNotice?: (notice: string) => void;
  /** Returns the tools offered now. The version changes when tools are unlocked, added or withdrawn. */
  definitions(): ToolList;
  readonly tools: ToolSet;
  readonly hooks: HookPort;
  /** Returns the functions of the embedding program now; those that decide are asked after the hooks. */
  readonly handlers?: () => HandlerLists;
  readonly clock: Clock;
  readonly budget: BudgetPort;
  /**
   * Applies raised limits to the thread: its budget, its children and its later runs. Throws if the budget of the
   * thread above has no room. Absent: they apply to the run only.
   */
  raise?(limits: Limits): Promise<void>;
  /** Returns the reason of a cancellation that was requested. */
  cancelled(): string | undefined;
  /** Resolves once a call may begin: not while another process may run the thread. Absent: it always may. */
  mayStart?(signal: AbortSignal): Promise<void>;
  /** Returns why another process is to continue the run; undefined: it continues here. Absent: it always does. */
  parkReason?(): string | undefined;
  readonly artifacts: ArtifactPort;
  /** Parsed `error_classification.yaml`. */
  readonly errorRules: readonly ErrorRule[];
  /** Uniform in [0, 1); spreads retries. */
  random(): number;
  /** Coerces and validates the input of a call. */
  validate(schema: JsonObject, input: JsonObject): Promise<Validation>;
  /** Checks the input of `rye_directive_return` against the declared outputs. */
  checkReturn(input: JsonObject): ReturnCheck | Promise<ReturnCheck>;
  /** Earlier results have left the model's view: tools must not refer to them any more. */
  forgetReads?(): void;
  readonly gates?: readonly PolicyGate[];
  /** Returns the files that a call names and opens, as gates judge them. Absent: gates judge what the model wrote. */
  judge?(tool: string, input: JsonObject, listsFiles: boolean): Promise<JudgedInput>;
  readonly inbox?: InboxPort;
  /** Absent: no call asks. */
  readonly approvals?: ApprovalPort;
  /** Called when all that the run does is wait for people, and when it works again. */
  readonly onIdle?: (isIdle: boolean) => void;
  /** Called before each turn, never within one: brings the offered tools up to date. What it gives is recorded. */
  refreshTools?(): Promise<readonly EventDraft[]>;
  /** Called once for each answer, and ends the earlier answer's watcher. The watcher calls `record` with drafts for the log. */
  watchStream?(turn: number, record: (draft: EventDraft) => void): StreamWatcher;
  /** Called with each message that enters the conversation, after it is in the log. */
  readonly noteMessage?: (message: Message) => void;
  /** Absent: no model can be asked beside the conversation. */
  consult?(request: ConsultRequest, signal: AbortSignal): Promise<Consultation>;
  /** undefined: there is nothing to compact. */
  compact?(request: CompactionRequest, signal: AbortSignal): Promise<Compaction | undefined>;
}
