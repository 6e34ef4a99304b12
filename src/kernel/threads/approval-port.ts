import type { ApprovalPreview, ApprovalSubject, RequestedApproval } from '../core/approval.ts';
import type { CapabilityNeed } from '../core/capability.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadSettings } from '../core/plan.ts';
import type { ReviewedCall } from '../loop/ports.ts';
import type { ApprovalPolicy } from '../policy/approvals.ts';
import type { JudgedInput } from '../policy/call-views.ts';
import type { KeyLookup } from '../trust/keys.ts';

/** A call whose files rules judge. */
export interface JudgeRequest {
  readonly tool: string;
  readonly input: JsonObject;
  /** Absolute folder in which the thread works. */
  readonly folder: string;
  readonly threadId: string;
  readonly settings: Pick<ThreadSettings, 'allow_paths' | 'deny_read'>;
  /** Lists the files that a search opens. */
  readonly listsFiles: boolean;
}

/** Rules and keys of approvals, and what people are shown. */
export interface ApprovalEnv {
  readonly approvals: {
    /** The policies in force. Throws if a file is there that no trusted key signed: what it would ask must not run unasked. */
    policies(): Promise<readonly ApprovalPolicy[]>;
    readonly keys: Pick<KeyLookup, 'find'>;
    /** Compiles a glob over paths to its test. Throws `pattern_invalid`. */
    readonly glob: (pattern: string) => (path: string) => boolean;
    /** Returns the need of a call by the id of its tool. */
    needOf(tool: string, input: JsonObject): CapabilityNeed;
    /** Returns the files that a call names and opens, as rules judge them. */
    judge(call: JudgeRequest): Promise<JudgedInput>;
    /** The preview of a call for people, and the files in `folder` that it would change, with their hashes. */
    describe(
      call: ReviewedCall,
      folder: string,
    ): Promise<{
      readonly preview: ApprovalPreview;
      readonly files: ApprovalSubject['files'];
      /** Why no person can judge the call. */
      readonly problem?: string;
    }>;
    /** Tells the programs and servers of the policy about a request, within a bounded time. Never rejects or decides. */
    notify(requested: RequestedApproval): Promise<void>;
  };
}
