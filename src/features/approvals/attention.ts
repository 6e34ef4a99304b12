import type { ApprovalAttendant, OnApproval } from '../../kernel/app/api/approvals.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { messageOf } from '../../kernel/core/errors.ts';
import type { ApprovalAttention } from '../../kernel/threads/run/approvals.ts';
import { listedApproval } from './listed.ts';
import { ApprovalRequests } from './service.ts';

/** Connects an attendant with the requests of a run in this process. */
export function attentionOf(
  workspace: Workspace,
  attendant: ApprovalAttendant | undefined,
): { readonly attention?: ApprovalAttention } {
  if (!attendant) return {};
  const requests = new ApprovalRequests(workspace);
  const attention: ApprovalAttention = {
    isAttended: (id) => attendant.isThere(id),
    onRequest: (requested) => {
      const { id } = requested.request;
      attendant.onRequest(
        listedApproval(requested),
        // the run that waits here goes ahead by itself
        async (decision) => await requests.decide({ ...decision, id, resume: false }),
      );
    },
  };
  return { attention };
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
