import type { ApprovalAttendant } from '../../kernel/app/api/approvals.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import type { ApprovalAttention } from '../../kernel/threads/run/approvals.ts';
import { listedApproval } from './listed.ts';
import { ApprovalRequests } from './service.ts';

/** Connects an attendant with the requests of a run in this process. */
export function attend(workspace: Workspace, attendant: ApprovalAttendant): ApprovalAttention {
  const requests = new ApprovalRequests(workspace);
  return {
    isAttended: (id) => attendant.isThere(id),
    onRequest: (requested) => {
      const { id } = requested.request;
      attendant.onRequest(
        listedApproval(requested),
        // the waiting run continues on its own; don't resume it
        async (decision) => await requests.decide({ ...decision, id, resume: false }),
      );
    },
  };
}
