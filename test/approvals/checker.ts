import { createHash, verify } from 'node:crypto';
import type {
  ApprovalDecided,
  ApprovalDecision,
  ApprovalRequest,
  RequestedApproval,
} from '../../src/kernel/core/approval.ts';
import type { EventPayloads, LogEvent } from '../../src/kernel/core/events.ts';

/** A key as a checker outside of rye knows it. */
export interface KnownKey {
  readonly pem: string;
  readonly mayApprove: boolean;
  readonly revokedAt?: string;
}

/**
 * Checks the approvals of a log from their description alone, without any code of rye: returns the calls that started
 * though no decision in force allowed them.
 */
export function unapprovedCalls(
  threadId: string,
  events: readonly Pick<LogEvent, 'event_type' | 'payload' | 'timestamp'>[],
  keys: ReadonlyMap<string, KnownKey>,
): readonly string[] {
  const requests: RequestedApproval[] = [];
  const ends: ApprovalDecided[] = [];
  const used = new Map<string, { uses: number; usd: number }>();
  const found: string[] = [];
  for (const { event_type: type, payload, timestamp } of events) {
    if (type === 'approval_requested') requests.push(payload as RequestedApproval);
    if (type === 'approval_decided') ends.push(payload as ApprovalDecided);
    if (type !== 'tool_call_start') continue;
    const call = payload as EventPayloads['tool_call_start'];
    const wasAsked = requests.some(({ request }) => request.call_id === call.call_id);
    if (!wasAsked && !call.approval) continue;
    const id = call.approval?.approval_id ?? '';
    const requested = requests.find(({ request }) => request.id === id);
    const end = ends.find((one) => one.approval_id === id);
    const count = used.get(id) ?? { uses: 0, usd: 0 };
    const usd = call.approval?.worst_case_usd ?? requested?.request.worst_case_usd ?? 0;
    const isGood =
      requested !== undefined &&
      end?.outcome === 'approved' &&
      isAbout(requested, call, threadId) &&
      areSigned(end, keys) &&
      agree(requested, end, { call, now: timestamp, count, usd });
    used.set(id, { uses: count.uses + 1, usd: count.usd + usd });
    if (!isGood) found.push(call.call_id);
  }
  return found;
}

function isAbout(
  { request }: RequestedApproval,
  { tool, approval }: EventPayloads['tool_call_start'],
  threadId: string,
): boolean {
  const hash = sha256(`rye-approval-request-v1\n${canonical(request)}`);
  return (
    request.thread_id === threadId && request.tool === tool && hash === approval?.request_sha256
  );
}

function areSigned({ decisions }: ApprovalDecided, keys: ReadonlyMap<string, KnownKey>): boolean {
  return decisions.every(({ decision, public_key: pem, signature }) => {
    const key = keys.get(decision.key_id);
    if (key?.pem !== pem || !key.mayApprove) return false;
    if (key.revokedAt !== undefined && key.revokedAt <= decision.decided_at) return false;
    const message = Buffer.from(`rye-approval-v1\n${canonical(decision)}`);
    return verify(null, message, pem, Buffer.from(signature, 'base64url'));
  });
}

function agree(
  { request }: RequestedApproval,
  { decisions }: ApprovalDecided,
  facts: {
    readonly call: EventPayloads['tool_call_start'];
    readonly now: string;
    readonly count: { readonly uses: number; readonly usd: number };
    readonly usd: number;
  },
): boolean {
  const all = decisions.map(({ decision }) => decision).filter((one) => counts(request, one));
  if (all.some(({ decision }) => decision === 'deny')) return false;
  // a person's last word replaces the earlier ones
  const valid = [...new Map(all.map((one) => [one.key_id, one])).values()];
  return valid.some((first) => {
    const same = valid.filter((one) => canonical(one.input) === canonical(first.input));
    const { edited } = facts.call.approval ?? {};
    const ran = sha256(canonical(facts.call.input));
    const isEdited = first.input !== undefined && ran !== request.input_sha256;
    if (isEdited && edited?.input_sha256 !== ran) return false;
    const own = isEdited ? (edited?.requirements ?? []) : [];
    const isEnough = [...request.requirements, ...own].every(({ approvers, quorum }) => {
      const able = new Set(
        approvers.filter((one) => isAble(request, one)).map((one) => one.key_id),
      );
      return new Set(same.map((one) => one.key_id).filter((key) => able.has(key))).size >= quorum;
    });
    return isEnough && covers(request, same, facts);
  });
}

function isAble(
  { worker_key_id: worker }: ApprovalRequest,
  { key_id: key, four_eyes: fourEyes }: ApprovalRequest['approvers'][number],
): boolean {
  return fourEyes !== true || key !== worker;
}

function counts(request: ApprovalRequest, decision: ApprovalDecision): boolean {
  const approver = request.approvers.find(({ key_id: key }) => key === decision.key_id);
  return (
    approver !== undefined &&
    isAble(request, approver) &&
    decision.approval_id === request.id &&
    decision.thread_id === request.thread_id &&
    decision.request_sha256 === sha256(`rye-approval-request-v1\n${canonical(request)}`) &&
    decision.decided_at < request.expires_at &&
    (decision.decision === 'deny' ||
      (decision.decision === 'approve' && request.scopes.includes(decision.scope)))
  );
}

function covers(
  request: ApprovalRequest,
  same: readonly ApprovalDecision[],
  { call, now, count, usd }: Parameters<typeof agree>[2],
): boolean {
  const scopes = new Set(same.map(({ scope }) => scope));
  const scope = scopes.has('once') ? 'once' : scopes.has('arguments') ? 'arguments' : 'tool';
  const isOwn = call.call_id === request.call_id;
  const input = sha256(canonical(call.input));
  const [first] = same;
  const changed = first?.input === undefined ? undefined : sha256(canonical(first.input));
  const isAgreed = input === (changed ?? request.input_sha256);
  const isFree = scope === 'tool' && changed === undefined;
  const fits = isOwn ? isAgreed : isFree || (scope !== 'once' && isAgreed);
  return (
    fits &&
    same.every(({ constraints: { until, uses, spend_usd: most } }) => {
      const isLeft = count.uses < (uses ?? (scope === 'once' ? 1 : Number.POSITIVE_INFINITY));
      const isNow = until === undefined || now < until;
      return isLeft && isNow && (most === undefined || count.usd + usd <= most);
    })
  );
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Canonical JSON of plain values: members sorted, without white space. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined';
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(',')}}`;
}
