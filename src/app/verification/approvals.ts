import type { ApprovalDecided, RequestedApproval } from '../../core/approval.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isKnown } from '../../log/tree.ts';
import { exhaustion, type Judgement, judgeDecisions } from '../../policy/approval-judgement.ts';
import { permissionAsks } from '../../policy/approvals.ts';
import { canonicalSha256, requestSha256, signatureFault } from '../../trust/approval.ts';
import type { KeyLookup } from '../../trust/keys.ts';

type Start = EventPayloads['tool_call_start'];
type Approved = Extract<Judgement, { state: 'approved' }>;

/** Calls of hooks, which people have written, are not asked about. */
const HOOK_CALL = /^hook-/;

/**
 * Returns the problems of the calls of a log that a person had to decide about: each needs a decision before it, good
 * signatures of keys that are trusted or were then, the quorum, and uses that are left.
 */
export function approvalProblems(
  events: Iterable<LogEvent | UnknownEvent>,
  plan: Pick<ThreadPlan, 'asks'> | undefined,
  keys: Pick<KeyLookup, 'find'>,
): { readonly problems: readonly string[]; readonly checked: number } {
  return new ApprovalAudit(plan, keys).run(events);
}

class ApprovalAudit {
  readonly #plan: Pick<ThreadPlan, 'asks'> | undefined;
  readonly #keys: Pick<KeyLookup, 'find'>;
  readonly #requests = new Map<string, RequestedApproval>();
  readonly #asked = new Set<string>();
  readonly #decided = new Map<string, { decided: ApprovalDecided; uses: number; spend: number }>();

  constructor(plan: Pick<ThreadPlan, 'asks'> | undefined, keys: Pick<KeyLookup, 'find'>) {
    this.#plan = plan;
    this.#keys = keys;
  }

  run(events: Iterable<LogEvent | UnknownEvent>) {
    const problems: string[] = [];
    let checked = 0;
    for (const event of events) {
      if (isKnown(event, 'approval_requested')) {
        const { request } = event.payload;
        this.#requests.set(request.id, event.payload);
        this.#asked.add(request.call_id);
      } else if (isKnown(event, 'approval_decided')) {
        this.#decided.set(event.payload.approval_id, { decided: event.payload, uses: 0, spend: 0 });
      } else if (isKnown(event, 'tool_call_start')) {
        if (!event.payload.approval && !this.#needs(event.payload)) continue;
        checked += 1;
        const problem = this.#problemOf(event.payload, event.timestamp);
        if (problem !== undefined) {
          problems.push(`the call ${event.payload.call_id} of ${event.payload.tool}: ${problem}`);
        }
      }
    }
    return { problems, checked };
  }

  #needs({ call_id: callId, tool }: Start): boolean {
    if (this.#asked.has(callId)) return true;
    const capability = `rye.execute.tool.${tool.replaceAll('/', '.')}`;
    return !HOOK_CALL.test(callId) && permissionAsks(this.#plan?.asks ?? [], capability).length > 0;
  }

  #problemOf(start: Start, time: string): string | undefined {
    const { approval, call_id: callId, tool, input } = start;
    if (!approval) return 'it started without a decision';
    const requested = this.#requests.get(approval.approval_id);
    const state = this.#decided.get(approval.approval_id);
    if (!requested) return 'its request is not in the log';
    if (requestSha256(requested.request) !== approval.request_sha256) return 'its request differs';
    if (!state || state.decided.outcome !== 'approved') return 'its request was not approved';
    const fault = this.#faultOf(state.decided);
    if (fault !== undefined) return fault;
    const decisions = state.decided.decisions.map(({ decision }) => decision);
    const judgement = judgeDecisions(requested, decisions);
    if (judgement.state !== 'approved') return 'its decisions are not enough';
    const { request } = requested;
    const next = { now: time, worstCaseUsd: request.worst_case_usd };
    const used = { uses: state.uses, spendUsd: state.spend };
    state.uses += 1;
    state.spend += request.worst_case_usd ?? 0;
    if (request.tool !== tool) return 'its decision is about another tool';
    return (
      exhaustion(judgement, used, next) ??
      scopeProblem(judgement, requested, { input, isOwn: request.call_id === callId })
    );
  }

  /** The fault of a signature or of its key; a key that was revoked later counted then. */
  #faultOf({ decisions }: ApprovalDecided): string | undefined {
    for (const signed of decisions) {
      const { key_id: keyId, decided_at: at } = signed.decision;
      if (signatureFault(signed)) return `the signature of ${keyId} is not valid`;
      const found = this.#keys.find(keyId);
      if (found.status === 'unknown') return `the key ${keyId} is not trusted`;
      const wasRevoked = found.status === 'revoked' && (found.revokedAt ?? '') <= at;
      if (wasRevoked) return `the key ${keyId} was revoked before it decided`;
      const scope = found.status === 'trusted' ? found.scope : undefined;
      if (scope?.purposes.includes('approve') === false) return `the key ${keyId} may not approve`;
    }
    return undefined;
  }
}

function scopeProblem(
  { scope, input: given }: Approved,
  { request }: RequestedApproval,
  { input, isOwn }: { readonly input: JsonObject; readonly isOwn: boolean },
): string | undefined {
  const ran = canonicalSha256(input);
  const wanted = given === undefined ? request.input_sha256 : canonicalSha256(given);
  if (isOwn) return ran === wanted ? undefined : 'it ran with another input';
  if (scope === 'tool') return undefined;
  if (scope === 'once') return 'its decision is about another call';
  return ran === request.input_sha256 ? undefined : 'it ran with another input';
}
