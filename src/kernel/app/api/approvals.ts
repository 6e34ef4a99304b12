import type {
  ApprovalKind,
  ApprovalPreview,
  ApprovalScope,
  ApprovalState,
  ApprovalVerb,
} from '../../core/approval.ts';
import type { ErrorInfo } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';

/** A request for a decision, as `rye approvals list` shows it. Questions are requests too. */
export interface ListedApproval {
  readonly id: string;
  readonly thread_id: string;
  /** The thread at the top of the family. */
  readonly root_thread_id: string;
  readonly kind: ApprovalKind;
  readonly state: ApprovalState;
  readonly tool: string;
  readonly capability: string;
  readonly reason: string;
  /** The source of the demand. */
  readonly rule: string;
  readonly input: JsonObject;
  readonly input_sha256: string;
  /** The hash that decisions sign. */
  readonly request_sha256: string;
  readonly preview: ApprovalPreview;
  readonly approvers: readonly { readonly name: string; readonly key_id: string }[];
  readonly quorum: number;
  readonly scopes: readonly ApprovalScope[];
  readonly created_at: string;
  readonly expires_at: string;
  readonly decisions: readonly {
    readonly decision: ApprovalVerb;
    readonly key_id: string;
    readonly scope: ApprovalScope;
    readonly comment: string;
    readonly decided_at: string;
    /** Signed too late: evidence without effect. */
    readonly late: boolean;
  }[];
}

/** A decision of the person who runs this program, signed with their key. */
export interface DecideRequest {
  /** The id, or its unique beginning. */
  readonly id: string;
  readonly decision: ApprovalVerb;
  /** Default: `once`. */
  readonly scope?: ApprovalScope;
  /** The input that runs instead of the requested one. */
  readonly input?: JsonObject;
  /** Numbers, from 1, of the edits of a `multi_edit` that run; the others are denied. Not with `input`. */
  readonly hunks?: readonly number[];
  readonly answer?: JsonValue;
  readonly comment?: string;
  /** Milliseconds from now for which a wider approval holds. */
  readonly forMs?: number;
  /** Number of calls that a wider approval covers. */
  readonly uses?: number;
  /** Most that its calls may cost together, in USD. */
  readonly spendUsd?: number;
  /** False leaves a suspended thread as it is. Default: it is resumed in another process. */
  readonly resume?: boolean;
}

/** A person or program that may decide about the calls of a run while it runs. */
export interface ApprovalAttendant {
  /** Called with each request once it is durable, and with a function that decides about it. Must not throw. */
  readonly onRequest: (
    approval: ListedApproval,
    decide: (decision: Omit<DecideRequest, 'id'>) => Promise<DecidedApproval>,
  ) => void;
  /** While true, the run waits for the decision about a request; afterwards it is suspended. */
  readonly isThere: (id: string) => boolean;
}

/** A function of a program that decides, or leaves a request to people with `undefined`. */
export type OnApproval = (
  approval: ListedApproval,
) => Promise<Omit<DecideRequest, 'id'> | undefined> | Omit<DecideRequest, 'id'> | undefined;

export interface DecidedApproval extends ListedApproval {
  /** Further keys that have to agree; 0 if the request is decided. */
  readonly missing: number;
  /** True if a process was started that resumes the thread. */
  readonly resumed: boolean;
  /** The thread runs under another key, whose owner resumes it: under yours the decision would not apply. */
  readonly awaits_owner?: true;
}

/** The evidence about a request: what its log has, and whether each signature is good. */
export interface ApprovalVerification {
  readonly id: string;
  readonly thread_id: string;
  readonly ok: boolean;
  readonly request_sha256: string;
  readonly outcome: ApprovalState;
  readonly decisions: readonly {
    readonly key_id: string;
    readonly decision: ApprovalVerb;
    readonly decided_at: string;
    readonly ok: boolean;
    readonly problem?: string;
  }[];
  readonly error?: ErrorInfo;
}

export interface WatchApprovals {
  readonly signal?: AbortSignal;
  /** Resumes each thread of your key once people have decided, and calls the function with its id. */
  readonly onResume?: (threadId: string) => void;
}

/** Requests for decisions of people. Nothing that runs in a thread can decide. */
export interface ApprovalsService {
  /** Oldest first; by default what waits. */
  list(filter?: {
    readonly threadId?: string;
    readonly state?: ApprovalState | 'all';
  }): Promise<readonly ListedApproval[]>;
  /** Throws `approval_not_found`, or `ambiguous` for the beginning of several ids. */
  show(id: string): Promise<ListedApproval>;
  /**
   * Signs and records a decision. Throws `approval_not_found`; `invalid_input` for an input or an answer that does not
   * match; `approval_expired` and `approval_closed`, where the decision is kept as evidence; `approval_invalid` for a key
   * or a scope that the rule does not allow; `approval_refused` inside a thread.
   */
  decide(request: DecideRequest): Promise<DecidedApproval>;
  /** Checks a request and its decisions in the thread's signed log. */
  verify(id: string): Promise<ApprovalVerification>;
  /** Yields the pending requests and each new one as it comes, until `signal` aborts. */
  watch(options?: WatchApprovals): AsyncIterable<ListedApproval>;
}
