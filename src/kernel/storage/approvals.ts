import type {
  ApprovalOutcome,
  ApprovalState,
  RequestedApproval,
  SignedDecision,
} from '../core/approval.ts';

/** A request as the store keeps it, so that people can find and decide it. The thread's log is what proves it. */
export interface StoredApproval extends RequestedApproval {
  readonly state: ApprovalState;
  /** When it left `pending`. */
  readonly closed_at: string | null;
  /** In the order in which they were recorded. */
  readonly decisions: readonly StoredDecision[];
}

export interface StoredDecision {
  readonly signed: SignedDecision;
  readonly recorded_at: string;
  /** Recorded after the request was closed or had expired: kept as evidence, and without effect. */
  readonly late: boolean;
}

export interface ApprovalFilter {
  readonly threadId?: string;
  readonly state?: ApprovalState;
}

/**
 * The requests of a project and the decisions about them. Each method is one transaction. Nothing here is trusted: the
 * executor checks every signature against the request in its own log, and consumes a decision in the same append to that
 * log that starts the call.
 */
export interface Approvals {
  /** Adds the requests of one answer, all or none. A request that is known stays as it is. */
  add(requests: readonly RequestedApproval[]): Promise<void>;
  get(id: string): Promise<StoredApproval | undefined>;
  /** Ids that begin with `part`; at most `limit`. */
  findIds(part: string, limit: number): Promise<readonly string[]>;
  /** Oldest first. */
  list(filter: ApprovalFilter): Promise<readonly StoredApproval[]>;
  /** Ids of the pending requests of a thread. */
  pendingIds(threadId: string): Promise<readonly string[]>;
  /**
   * Records a decision, late if the request is closed or has expired at `now`. The same decision again changes nothing.
   * Undefined for an unknown request.
   */
  decide(id: string, signed: SignedDecision, now: string): Promise<StoredApproval | undefined>;
  /** Closes a pending request; false if it was closed before. */
  close(id: string, outcome: ApprovalOutcome, now: string): Promise<boolean>;
  /**
   * Makes a closed request pending again, unless it has more or fewer than `decisions` by now: the executor calls it for
   * one that its decisions do not close. False if nothing changed.
   */
  reopen(id: string, decisions: number): Promise<boolean>;
}
