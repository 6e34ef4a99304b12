import type { ErrorInfo } from './errors.ts';
import type { JsonObject } from './json.ts';
import type { ThreadStatus } from './thread.ts';

/** Bytes of a delivery that the model reads at once; the rest is an artifact. */
export const INLINE_BYTES = 8192;

/** People outrank machines; within a class the order of arrival counts. */
export type DeliveryClass = 'person' | 'background';

/** `steer` comes from a person, `message` from another thread, `child_result` from a finished background child. */
export type DeliveryKind = 'steer' | 'message' | 'child_result';

export const DELIVERY_MODES = ['auto', 'idle', 'active', 'follow-up'] as const;
/**
 * When the delivery may enter the conversation. `auto`: at the next safe point that its class may use. `active`: the same, for a thread that
 * runs. `idle` and `follow-up`: when the model has finished.
 */
export type DeliveryMode = (typeof DELIVERY_MODES)[number];

/** `queued`: rye will deliver it. `manual`: the model may have acted on it, and a person decides. `closed`: done. */
export type DeliveryState = 'queued' | 'manual' | 'closed';

export const CLOSE_REASONS = [
  'delivered',
  'delivered_absorbed',
  'consumed_by_wait',
  'operator_confirmed',
  'operator_dropped',
  'requeued',
] as const;
export type CloseReason = (typeof CLOSE_REASONS)[number];

/** One message to a thread. Times are ISO 8601 UTC. */
export interface Delivery {
  /** Order of arrival in the project, and the number that people name a delivery by. */
  readonly seq: number;
  readonly delivery_id: string;
  /** The thread that gets it: moves along when that thread is continued. */
  readonly thread_id: string;
  /** The thread that it was sent to. */
  readonly sent_to: string;
  readonly class: DeliveryClass;
  readonly kind: DeliveryKind;
  readonly mode: DeliveryMode;
  /** `person`, or the id of the thread that it comes from. */
  readonly source: string;
  /** Text of the message; empty for a child's result, which is in the registry. */
  readonly text: string;
  /** Too large to be quoted whole: the thread gets the rest as an artifact. */
  readonly requires_artifact: boolean;
  readonly state: DeliveryState;
  readonly close_reason: CloseReason | null;
  /** Why it is manual; null otherwise. */
  readonly manual_reason: string | null;
  readonly attempts: number;
  readonly max_attempts: number;
  readonly created_at: string;
  readonly closed_at: string | null;
  /** The entry of the log that carries it; null until it is in the log. */
  readonly entry_id: string | null;
  /** The answer that covered that entry; null until there is one. */
  readonly answer_id: string | null;
  /** The run of the child that ended, for a child's result; absent: its first. */
  readonly child_run?: number;
}

/** Kind of an attempt. `turn_start`: the delivery begins a run. `turn_steer`: the delivery joins an active run. */
export type AttemptKind = 'turn_start' | 'turn_steer';

/** `accept_pending` and `tracking` are unresolved: a thread has at most one attempt in them. */
export type AttemptState = 'accept_pending' | 'tracking' | 'delivered' | 'rejected' | 'abandoned';

/** One try to deliver a background delivery. */
export interface DeliveryAttempt {
  readonly attempt_id: string;
  readonly delivery_id: string;
  readonly thread_id: string;
  readonly generation: number;
  readonly kind: AttemptKind;
  /** Unique: the id of the entry that carries the delivery if the attempt is accepted. */
  readonly marker: string;
  readonly state: AttemptState;
  readonly epoch: number;
  readonly expected_run_id: string;
  readonly expected_revision: number;
  /** The run that took it; null until it is accepted. */
  readonly run_id: string | null;
  readonly reason: string | null;
  /** The state of the run that a steer was judged by; null for a try that begins a run. */
  readonly proof: ActiveTurn | null;
  readonly created_at: string;
}

/** Kinds of runs; only a `regular` one can be steered while it is under way. */
export type RunKind = 'regular' | 'delivery' | 'compact' | 'unknown';

/** Outcome of a run. `replaced`: the head moved to another branch. */
export type RunEnd = 'completed' | 'failed' | 'interrupted' | 'replaced';

/** Only `read_only_low_risk` can be steered. */
export type RunRisk = 'read_only_low_risk' | 'elevated' | 'unknown';

/** Traits of a run, derived from the tools that it is offered and the hooks that watch it. null: not known. */
export interface RunTraits {
  readonly requires_approval: boolean | null;
  readonly requires_network: boolean | null;
  readonly requires_write_access: boolean | null;
}

/** The state of a thread's open run, as its owner last published it. All that a steer is judged by. */
export interface RunProof extends RunTraits {
  readonly thread_id: string;
  readonly epoch: number;
  readonly active_run_id: string;
  readonly active_run_kind: RunKind;
  readonly risk_class: RunRisk;
  readonly steerable: boolean | null;
  /** Incremented by every change of the members above. */
  readonly revision: number;
  /** Milliseconds since 1970; outside of the two nothing is proven. */
  readonly observed_at: number;
  readonly valid_until: number;
  /** The model has given its final answer. */
  readonly answer_boundary_passed: boolean;
  /** The last thing in the conversation is a whole batch of tool results. */
  readonly after_tool_batch: boolean;
  readonly pending_approvals: number;
  readonly open_tool_calls: number;
}

/** A {@link RunProof} as people and programs read it: its times are ISO 8601 UTC. */
export interface ActiveTurn extends Omit<RunProof, 'observed_at' | 'valid_until'> {
  readonly observed_at: string;
  readonly valid_until: string;
}

/** One line of the record of decisions about a delivery, with the reason. */
export interface DeliveryDecision {
  readonly seq: number;
  readonly at: string;
  readonly thread_id: string;
  readonly delivery_id: string;
  readonly attempt_id: string | null;
  readonly run_id: string | null;
  readonly epoch: number | null;
  readonly decision: DecisionName;
  readonly reason: string;
  readonly details: JsonObject;
}

export type DecisionName =
  | 'enqueue'
  | 'allow'
  | 'hold'
  | 'idle'
  | 'refuse'
  | 'accept'
  | 'consume'
  | 'deliver'
  | 'requeue'
  | 'manual'
  | 'move'
  | 'close';

/** A delivery with everything that is known of it. */
export interface DeliveryReport extends Delivery {
  readonly tries: readonly DeliveryAttempt[];
  readonly decisions: readonly DeliveryDecision[];
}

/** A child's end, as its parent is told. */
export interface ChildEnd {
  readonly thread_id: string;
  readonly directive: string;
  readonly status: ThreadStatus;
  readonly result: string;
  readonly outputs: JsonObject | null;
  readonly error: ErrorInfo | null;
  readonly spend: number;
}

/** A child whose end its parent has by waiting. */
export interface WaitedChild {
  readonly threadId: string;
  /** The run of the child that ended; absent if unknown, which means its oldest undelivered end. */
  readonly run?: number;
}

/** Facts about a thread's deliveries that its log proves. The log is authoritative, and the tables follow it. */
export interface DeliveryFacts {
  /** Entries of deliveries that are in the log. */
  readonly entries: ReadonlySet<string>;
  /** The entries that a request carried or may have carried: a model call was announced after them. */
  readonly requested: ReadonlySet<string>;
  /** The committed answer that covered each of them. */
  readonly answers: ReadonlyMap<string, string>;
  /** Final status of the thread, if its log has one. */
  readonly finished: 'completed' | 'other' | undefined;
  /** Ends of children that the thread learned by waiting for them, with the result in its log. */
  readonly waitedFor: readonly WaitedChild[];
}
