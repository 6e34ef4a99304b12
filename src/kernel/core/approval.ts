import type { JsonObject, JsonValue } from './json.ts';

/**
 * `call`: may this call run; `question`: what is the answer; `limit`: may this limit be raised; `plan`: may all of this plan be
 * carried out.
 */
export type ApprovalKind = 'call' | 'question' | 'limit' | 'plan';

/** Reach of an approval within its thread: this call, the same input, or the same tool and item. */
export const APPROVAL_SCOPES = ['once', 'arguments', 'tool'] as const;
export type ApprovalScope = (typeof APPROVAL_SCOPES)[number];

/** A demand for a person's decision, and where it comes from. */
export interface Ask {
  /** Such as `directive rye.execute.tool.rye.bash`, `risk elevated` or `hook guard-push`. */
  readonly source: string;
  /** For people; empty: none was given. */
  readonly reason: string;
}

/** An entry of `<permissions>` with `ask="true"`. The threads that the directive's thread starts inherit it. */
export interface AskedPermission extends Ask {
  readonly capability: string;
}

/** Outcome of a call whose request expired: it is denied, or the thread ends. */
export type OnExpiry = 'deny' | 'end';

/** A person who may decide, by the name in the policy and the key. */
export interface Approver {
  readonly name: string;
  readonly key_id: string;
  /** The key that runs the thread may not decide. */
  readonly four_eyes?: true;
}

/** One condition on a decision: so many of these approvers. */
export interface ApprovalRequirement {
  /** The source of the demand, such as `directive rye.execute.tool.rye.bash`. */
  readonly rule: string;
  readonly approvers: readonly Approver[];
  /** Distinct keys that have to agree. */
  readonly quorum: number;
}

/** The call, question or limit that a person decides about: everything that would run, bound by hashes. */
export interface ApprovalSubject {
  readonly kind: ApprovalKind;
  readonly thread_id: string;
  /** The first thread of the family, which is the thread itself if no other one started it. */
  readonly root_thread_id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly capability: string;
  /** The item that will run and the SHA-256 of its bytes. */
  readonly item: { readonly id: string; readonly sha256: string };
  /** SHA-256 of the canonical input; secrets are in it as handles. */
  readonly input_sha256: string;
  /** Files that the call would change, with the SHA-256 of their bytes now; null: there is none. */
  readonly files: readonly {
    readonly path: string;
    readonly sha256: string | null;
    /** The real path in the project, which differs from `path` if a link is on the way. */
    readonly real?: string;
    /** Device and inode of the folder of the real file; absent in a fleet. */
    readonly folder?: string;
  }[];
  readonly cwd: string;
  readonly sandbox: string;
  /** `none`, `any`, or the hosts that the call may reach. */
  readonly network: 'none' | 'any' | readonly string[];
  /** The most that the call may cost; null: it has no price. */
  readonly worst_case_usd: number | null;
  readonly reason: string;
  readonly requirements: readonly ApprovalRequirement[];
  /** The requirements of {@link requirements} in short: where they come from, who may decide, and how many must. */
  readonly rule: string;
  readonly approvers: readonly Approver[];
  readonly quorum: number;
  /** The scopes that a decision may have. */
  readonly scopes: readonly ApprovalScope[];
  readonly on_expiry: OnExpiry;
  /** The key that runs the thread and signs its log. */
  readonly worker_key_id: string;
  readonly plan_sha256: string;
  /** SHA-256 of the canonical JSON Schema of the answer, for a question. */
  readonly schema_sha256?: string;
}

/** A subject with its id, its time and its place in the log: the part that is hashed and signed. */
export interface ApprovalRequest extends ApprovalSubject {
  readonly format: 1;
  readonly id: string;
  readonly epoch: number;
  readonly created_at: string;
  readonly expires_at: string;
  /** The end of the signed log when the request was made. */
  readonly log_head: {
    readonly bytes: number;
    readonly seq: number;
    readonly sha256: string;
  };
  /** SHA-256 of the canonical preview, so that what people were shown is bound too. */
  readonly preview_sha256: string;
}

/** The presentation of a request for people. */
export interface ApprovalPreview {
  readonly title: string;
  /** `diff`: a unified diff; `command`: a command line; `url`; `question`; `plan`; `input`: the input as JSON. */
  readonly format: 'diff' | 'command' | 'url' | 'question' | 'plan' | 'input';
  readonly text: string;
  /** JSON Schema of the answer to a question. */
  readonly schema?: JsonObject;
}

export type ApprovalVerb = 'approve' | 'deny' | 'answer';

/** Bounds of an approval that reaches further than one call. */
export interface ApprovalConstraints {
  /** ISO 8601 UTC. */
  readonly until?: string;
  /** Maximum number of calls. */
  readonly uses?: number;
  /** Maximum of the worst cases of its calls together. */
  readonly spend_usd?: number;
}

/** A person's decision, as it is signed. */
export interface ApprovalDecision {
  readonly format: 1;
  readonly approval_id: string;
  readonly thread_id: string;
  readonly request_sha256: string;
  readonly decision: ApprovalVerb;
  readonly scope: ApprovalScope;
  readonly constraints: ApprovalConstraints;
  readonly comment: string;
  /** The input that runs instead of the requested one. */
  readonly input?: JsonObject;
  /** The answer to a question. */
  readonly answer?: JsonValue;
  readonly decided_at: string;
  readonly key_id: string;
}

/** A decision with its Ed25519 signature, base64url, and the public key in PEM form, whose hash is `key_id`. */
export interface SignedDecision {
  readonly decision: ApprovalDecision;
  readonly public_key: string;
  readonly signature: string;
}

/** States of a request. `voided`: its call has changed since, so that it is asked again. */
export const APPROVAL_STATES = [
  'pending',
  'approved',
  'denied',
  'answered',
  'expired',
  'withdrawn',
  'voided',
] as const;
export type ApprovalState = (typeof APPROVAL_STATES)[number];
export type ApprovalOutcome = Exclude<ApprovalState, 'pending'>;

/** A request as it is logged, stored and listed. */
export interface RequestedApproval {
  readonly request: ApprovalRequest;
  readonly request_sha256: string;
  readonly input: JsonObject;
  readonly preview: ApprovalPreview;
}

/** The use of a decision: in the log it is a part of the call's start, so that neither is there without the other. */
export interface ApprovalUse {
  readonly approval_id: string;
  readonly request_sha256: string;
  /** The most that this call may cost, which counts against the money of the decision; absent: it has no price. */
  readonly worst_case_usd?: number;
  /** USD that the thread had spent when the call started. Present for a plan, and for each call inside of it. */
  readonly spent_usd?: number;
  /** Present if the call ran with another input than the requested one. */
  readonly edited?: EditedCall;
  /** Present for a call inside of an approved plan: what it needed by itself. */
  readonly covered?: EditedCall;
}

/** The demands on a call whose input a person gave, as if the model had made it. */
export interface EditedCall extends Pick<ApprovalSubject, 'capability' | 'item' | 'requirements'> {
  /** SHA-256 of the canonical input that ran. */
  readonly input_sha256: string;
}

/** The end of a request in the log, with every signed decision that led to it. */
export interface ApprovalDecided {
  readonly approval_id: string;
  readonly request_sha256: string;
  readonly outcome: ApprovalOutcome;
  readonly decisions: readonly SignedDecision[];
  /** Signed after the request had expired: without effect. */
  readonly late?: readonly SignedDecision[];
  /** The reason of an outcome that no person decided. */
  readonly reason?: string;
}
