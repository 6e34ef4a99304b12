import type {
  ActiveTurn,
  Delivery,
  DeliveryClass,
  DeliveryFacts,
  DeliveryKind,
  DeliveryMode,
  DeliveryReport,
  RunEnd,
  RunKind,
  RunProof,
  RunTraits,
  WaitedChild,
} from '../core/delivery.ts';
import type { SteerDecision, SteerRules } from '../policy/steer.ts';

export interface EnqueueParams {
  readonly deliveryId: string;
  readonly threadId: string;
  readonly class: DeliveryClass;
  readonly kind: DeliveryKind;
  readonly mode: DeliveryMode;
  readonly source: string;
  /** A second enqueue with the same key is a no-op. */
  readonly sourceKey?: string;
  readonly text: string;
  readonly requiresArtifact: boolean;
  /** The run of the child whose end this is. */
  readonly childRun?: number;
  readonly now: string;
}

/** A run, and the claim of the process that owns it. */
export interface RunKey {
  readonly threadId: string;
  readonly epoch: number;
  readonly runId: string;
}

export interface OpenRunParams extends RunKey {
  readonly traits: RunTraits;
  /** Entries that the conversation begins with. */
  readonly carried: ReadonlySet<string>;
  /** Threads that this one continues: what waits for them moves here. */
  readonly from: readonly string[];
  /** The state of the run as its owner publishes it with the beginning; absent: not yet. */
  readonly point?: SteerPoint;
  readonly now: string;
}

export interface AdmitParams {
  readonly key: RunKey;
  readonly modes: readonly DeliveryMode[];
  /** The oldest ones, at most this many; absent: all. */
  readonly atMost?: number;
  readonly newEntryId: () => string;
  readonly now: string;
}

/** The state of a run that only its owner can observe, now. */
export type SteerPoint = Pick<
  RunProof,
  | 'observed_at'
  | 'valid_until'
  | 'answer_boundary_passed'
  | 'after_tool_batch'
  | 'pending_approvals'
  | 'open_tool_calls'
>;

export interface SteerParams {
  readonly key: RunKey;
  readonly point: SteerPoint;
  readonly rules: SteerRules;
  readonly now: string;
  readonly nowMs: number;
  readonly ids: { readonly attempt: () => string; readonly entry: () => string };
}

export interface EndRunParams {
  readonly key: RunKey;
  readonly end: RunEnd;
  /** Entries that a request of this run carried or may have carried. */
  readonly requested: ReadonlySet<string>;
  /** Opens a run for the head of the queue in the same transaction. */
  readonly next?: {
    readonly runId: string;
    readonly attemptId: string;
    readonly entryId: string;
    readonly traits: RunTraits;
    /** Leave the run open where nothing waits. */
    readonly onlyIfWaiting: boolean;
  };
  readonly now: string;
}

export interface RecoverParams {
  readonly threadId: string;
  readonly epoch: number;
  readonly facts: DeliveryFacts;
  readonly now: string;
}

export interface ResolveParams {
  readonly threadId: string;
  readonly seq: number;
  readonly as: 'delivered' | 'dropped' | 'retry';
  /** For the new delivery of a retry. */
  readonly newId: string;
  readonly now: string;
}

/**
 * Messages to threads, the runs that take them, and the record of every decision. Each method is one transaction; what
 * changes a run is refused with `thread_locked` to an owner that lost the thread.
 */
export interface Deliveries {
  /** Queues a message for the end of the addressee's chain. A known source key changes nothing. */
  enqueue(params: EnqueueParams): Promise<Delivery>;
  /** Everything that a thread has or was sent, in order of arrival. */
  list(threadId: string): Promise<readonly DeliveryReport[]>;
  /** True if a delivery waits for the thread and is not in its log. One indexed read. */
  isAnyWaiting(threadId: string): Promise<boolean>;
  /** Opens the thread's run; returns deliveries whose entries the conversation carries and no answer covered yet. */
  openRun(params: OpenRunParams): Promise<readonly Delivery[]>;
  /** Updates what the run may do, which invalidates earlier proofs. */
  updateRun(key: RunKey, kind: RunKind, traits: RunTraits): Promise<void>;
  /** Publishes the state of the run as its owner observes it now. */
  publishPoint(key: RunKey, point: SteerPoint): Promise<void>;
  /** The thread's open run as its owner last published it; undefined if there is none. */
  activeTurn(threadId: string): Promise<ActiveTurn | undefined>;
  /** Reserves the pending deliveries from people. Each comes with the id of the entry to write. */
  admitPeople(params: AdmitParams): Promise<readonly Delivery[]>;
  /** Decides whether the first waiting background delivery may enter the run, and records the attempt. Undefined: nothing waits. */
  requestSteer(params: SteerParams): Promise<SteerDecision | undefined>;
  /** Decides again from the present state, and reserves the entry to write. Undefined: nothing to write. */
  admitSteer(params: SteerParams): Promise<Delivery | undefined>;
  /** Marks reserved deliveries as accepted, once their entries are in the log. */
  accept(key: RunKey, entryIds: readonly string[], now: string): Promise<void>;
  /** Marks deliveries as consumed by a committed answer that covers their entries. */
  consume(
    key: RunKey,
    covered: { readonly entryIds: readonly string[]; readonly answerId: string },
    now: string,
  ): Promise<void>;
  /** The thread has the results of these children by waiting for them: they are not delivered as well. */
  consumeWaited(key: RunKey, children: readonly WaitedChild[], now: string): Promise<void>;
  /**
   * Ends the run and settles its deliveries. With `next`, opens another run for the first waiting delivery in the same
   * transaction (the transition `admitIdle`); returns that delivery, whose entry the caller writes.
   */
  endRun(params: EndRunParams): Promise<Delivery | undefined>;
  /** Settles the deliveries of a crashed run by what its log proves. */
  recover(params: RecoverParams): Promise<void>;
  /** Resolves a delivery by hand. A retry returns a new delivery. */
  resolve(params: ResolveParams): Promise<Delivery>;
}
