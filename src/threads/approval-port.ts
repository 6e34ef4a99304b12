import type { ApprovalPreview, ApprovalSubject, RequestedApproval } from '../core/approval.ts';
import type { CapabilityNeed } from '../core/capability.ts';
import type { JsonObject } from '../core/json.ts';
import type { ReviewedCall } from '../loop/ports.ts';
import type { ApprovalPolicy } from '../policy/approvals.ts';
import type { KeyLookup } from '../trust/keys.ts';

/** Rules and keys of approvals, and what people are shown. */
export interface ApprovalEnv {
  readonly approvals: {
    /** The policies in force. Throws if a file is there that no trusted key signed: what it would ask must not run unasked. */
    policies(): Promise<readonly ApprovalPolicy[]>;
    readonly keys: Pick<KeyLookup, 'find'>;
    /** Returns the need of a call by the id of its tool. */
    needOf(tool: string, input: JsonObject): CapabilityNeed;
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
