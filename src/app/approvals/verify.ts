import type { ApprovalDecided, RequestedApproval, SignedDecision } from '../../core/approval.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { isKnown } from '../../log/tree.ts';
import { decisionProblem } from '../../policy/approval-judgement.ts';
import type { StoredApproval } from '../../storage/store.ts';
import { readSigned } from '../../threads/verified-log.ts';
import { requestSha256, signatureFault } from '../../trust/approval.ts';
import type { ApprovalVerification } from '../api/approvals.ts';
import { threadPorts } from '../thread-env.ts';
import type { Workspace } from '../workspace.ts';

/** Checks a request and its decisions in the signed log of its thread. */
export async function verifyApproval(
  workspace: Workspace,
  { request, state, decisions: stored }: StoredApproval,
): Promise<ApprovalVerification> {
  const { id, thread_id: threadId } = request;
  const env = threadPorts(workspace, { allowUnsigned: false });
  const { events } = await readSigned(env, threadId);
  const requested = requestIn(events, id);
  const decided = decisionIn(events, id);
  const late = stored.filter((one) => one.late).map((one) => one.signed);
  const signed = decided
    ? [...decided.decisions, ...(decided.late ?? []), ...late]
    : stored.map((one) => one.signed);
  const unique = signed.filter(
    (one, at) => signed.findIndex(({ signature }) => signature === one.signature) === at,
  );
  const isLogged =
    requested !== undefined && requestSha256(requested.request) === requested.request_sha256;
  const decisions = unique.map((one) => reportOf(requested, one));
  const counted = decided?.decisions ?? [];
  const isGood = counted.every(
    (one) => requested !== undefined && problemOf(requested, one) === undefined,
  );
  return {
    id,
    thread_id: threadId,
    ok: isLogged && isGood,
    request_sha256: requested?.request_sha256 ?? '',
    outcome: decided?.outcome ?? state,
    decisions,
    ...(isLogged
      ? {}
      : {
          error: {
            code: 'approval_invalid' as const,
            message: `the log of ${threadId} has no such request`,
          },
        }),
  };
}

function requestIn(
  events: readonly (LogEvent | UnknownEvent)[],
  id: string,
): RequestedApproval | undefined {
  for (const event of events) {
    if (isKnown(event, 'approval_requested') && event.payload.request.id === id)
      return event.payload;
  }
  return undefined;
}

function decisionIn(
  events: readonly (LogEvent | UnknownEvent)[],
  id: string,
): ApprovalDecided | undefined {
  for (const event of events) {
    if (isKnown(event, 'approval_decided') && event.payload.approval_id === id)
      return event.payload;
  }
  return undefined;
}

function problemOf(requested: RequestedApproval, signed: SignedDecision): string | undefined {
  return signatureFault(signed) ?? decisionProblem(requested, signed.decision);
}

function reportOf(requested: RequestedApproval | undefined, signed: SignedDecision) {
  const { key_id, decision, decided_at } = signed.decision;
  const problem = requested ? problemOf(requested, signed) : 'its request is not in the log';
  return {
    key_id,
    decision,
    decided_at,
    ok: problem === undefined,
    ...(problem === undefined ? {} : { problem }),
  };
}
