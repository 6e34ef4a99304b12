import { featureMissing, messageOf } from '../core/errors.ts';
import type { ApprovalAttention } from '../threads/run/approvals.ts';
import type { ApprovalAttendant, OnApproval } from './api/approvals.ts';
import { threadParts } from './feature.ts';
import type { Workspace } from './workspace.ts';

/** Connects an attendant, if there is one, with the requests of a run in this process. Throws `feature_missing`. */
export async function attentionOf(
  workspace: Workspace,
  attendant: ApprovalAttendant | undefined,
): Promise<{ readonly attention?: ApprovalAttention }> {
  if (!attendant) return {};
  const { approvals } = await threadParts(workspace);
  if (approvals === undefined) throw featureMissing('approvals');
  return { attention: approvals(workspace).attend(attendant) };
}

/** An attendant that is there until the function has settled. */
export function functionAttendant(
  onApproval: OnApproval,
  onNotice: (notice: string) => void,
): ApprovalAttendant {
  const open = new Set<string>();
  return {
    isThere: (id) => open.has(id),
    onRequest: (approval, decide) => {
      open.add(approval.id);
      const work = async (): Promise<void> => {
        const decision = await onApproval(approval);
        if (decision) await decide(decision);
      };
      work()
        .catch((error: unknown) => onNotice(`onApproval failed: ${messageOf(error)}`))
        .finally(() => open.delete(approval.id));
    },
  };
}
