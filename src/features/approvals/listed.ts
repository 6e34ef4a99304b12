import type { ListedApproval } from '../../kernel/app/api/approvals.ts';
import type { RequestedApproval } from '../../kernel/core/approval.ts';
import type { StoredApproval } from '../../kernel/storage/store.ts';

/** A request as people and programs are shown it. */
export function listedApproval(
  requested: RequestedApproval & Partial<StoredApproval>,
): ListedApproval {
  const { request, request_sha256, input, preview, state = 'pending', decisions = [] } = requested;
  return {
    id: request.id,
    thread_id: request.thread_id,
    root_thread_id: request.root_thread_id,
    kind: request.kind,
    state,
    tool: request.tool,
    capability: request.capability,
    reason: request.reason,
    rule: request.rule,
    input,
    input_sha256: request.input_sha256,
    request_sha256,
    preview,
    approvers: request.approvers.map(({ name, key_id }) => ({ name, key_id })),
    quorum: request.quorum,
    scopes: request.scopes,
    created_at: request.created_at,
    expires_at: request.expires_at,
    decisions: decisions.map(({ signed: { decision }, late }) => ({
      decision: decision.decision,
      key_id: decision.key_id,
      scope: decision.scope,
      comment: decision.comment,
      decided_at: decision.decided_at,
      late,
    })),
  };
}
