import type { ApprovalVerification } from '../../kernel/app/api/approvals.ts';
import { threadPorts } from '../../kernel/app/thread-env.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import type {
  ApprovalDecided,
  RequestedApproval,
  SignedDecision,
} from '../../kernel/core/approval.ts';
import type { LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { isKnown } from '../../kernel/log/tree.ts';
import {
  decisionProblem,
  type EditDemand,
  judgeDecisions,
} from '../../kernel/policy/approval-judgement.ts';
import type { StoredApproval } from '../../kernel/storage/store.ts';
import { plainDecisions } from '../../kernel/threads/run/approval-history.ts';
import { readSigned } from '../../kernel/threads/verified-log.ts';
import {
  type DecisionFault,
  decisionFault,
  recordedFault,
  requestSha256,
} from '../../kernel/trust/approval.ts';

/** Checks a request and its decisions in the signed log of its thread. */
export async function verifyApproval(
  workspace: Workspace,
  { request, state, decisions: stored }: StoredApproval,
): Promise<ApprovalVerification> {
  const { id, thread_id: threadId } = request;
  const env = await threadPorts(workspace, { allowUnsigned: false });
  const events = await readSigned(env, threadId);
  const requested = requestIn(events, id);
  const decided = decisionIn(events, id);
  const keys = workspace.keyring;
  const about = signedPart(requested, request);
  const counted = (decided?.decisions ?? []).map((signed) => ({ signed, isLate: false }));
  const late = (decided?.late ?? []).map((signed) => ({ signed, isLate: true }));
  const inLog = new Set([...counted, ...late].map(({ signed }) => signed.signature));
  // what the database adds has no effect yet, or came too late to have one
  const added = stored.filter(({ signed }) => !inLog.has(signed.signature));
  const reports = [
    ...[...counted, ...late].map(({ signed, isLate }) => {
      return { isLate, report: reportOf(requested, signed, recordedFault(signed, about, keys)) };
    }),
    ...added.map(({ signed, late: isLate }) => {
      return { isLate, report: reportOf(requested, signed, decisionFault(signed, about, keys)) };
    }),
  ];
  const isOpen = decided === undefined || BY_PEOPLE.has(decided.outcome);
  const hasBad = isOpen && reports.some(({ isLate, report }) => !isLate && !report.ok);
  const problem =
    requestProblem(requested, threadId) ??
    (hasBad
      ? 'a decision about it does not count'
      : outcomeProblem(requested, decided, demandsIn(events, id)));
  const decisions = reports.map(({ report }) => report);
  return {
    id,
    thread_id: threadId,
    ok: problem === undefined,
    request_sha256: requested?.request_sha256 ?? '',
    outcome: decided?.outcome ?? state,
    decisions,
    ...(problem === undefined
      ? {}
      : { error: { code: 'approval_invalid' as const, message: `${id}: ${problem}` } }),
  };
}

/** The request in the signed log; the stored one if the log lost it, which is reported too. */
function signedPart(
  requested: RequestedApproval | undefined,
  stored: RequestedApproval['request'],
): RequestedApproval['request'] {
  return requested?.request ?? stored;
}

function requestProblem(
  requested: RequestedApproval | undefined,
  threadId: string,
): string | undefined {
  if (!requested) return `the log of ${threadId} has no such request`;
  const { request, request_sha256: sha256 } = requested;
  if (requestSha256(request) !== sha256) return 'its hash differs from the hash in the log';
  return request.thread_id === threadId ? undefined : 'it names another thread';
}

/** Returns the problem if what people decided does not lead to the outcome in the log. */
function outcomeProblem(
  requested: RequestedApproval | undefined,
  decided: ApprovalDecided | undefined,
  demands: readonly EditDemand[],
): string | undefined {
  if (!requested || !decided || !BY_PEOPLE.has(decided.outcome)) return undefined;
  const { state } = judgeDecisions(requested, plainDecisions(decided.decisions), demands);
  return state === decided.outcome ? undefined : `its decisions do not make it ${decided.outcome}`;
}

/** Outcomes that need decisions; the others occur without a person. */
const BY_PEOPLE: ReadonlySet<string> = new Set(['approved', 'denied', 'answered']);

/** The demands on the inputs that people gave, as they were judged before the calls started. */
function demandsIn(
  events: readonly (LogEvent | UnknownEvent)[],
  id: string,
): readonly EditDemand[] {
  return events.flatMap((event) => {
    if (!isKnown(event, 'tool_call_start') || event.payload.approval?.approval_id !== id) return [];
    const { input, approval } = event.payload;
    return approval.edited ? [{ input, requirements: approval.edited.requirements }] : [];
  });
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

function reportOf(
  requested: RequestedApproval | undefined,
  { decision: made }: SignedDecision,
  fault: DecisionFault | undefined,
) {
  const { key_id, decision, decided_at } = made;
  const problem =
    fault ?? (requested ? decisionProblem(requested, made) : 'its request is not in the log');
  return {
    key_id,
    decision,
    decided_at,
    ok: problem === undefined,
    ...(problem === undefined ? {} : { problem }),
  };
}
