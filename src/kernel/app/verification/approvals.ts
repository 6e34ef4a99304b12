import type { ApprovalDecided, RequestedApproval } from '../../core/approval.ts';
import { capabilityOf } from '../../core/capability.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isKnown } from '../../log/tree.ts';
import { exhaustion, type Judgement, judgeDecisions } from '../../policy/approval-judgement.ts';
import { permissionAsks } from '../../policy/approvals.ts';
import { isAgreed, isWide } from '../../threads/run/approval-cover.ts';
import { needOfCall } from '../../tools/call-need.ts';
import { TOOL_SEARCH_ID } from '../../tools/disclosure.ts';
import {
  canonicalSha256,
  type DecisionFault,
  recordedFault,
  requestSha256,
} from '../../trust/approval.ts';
import type { KeyLookup } from '../../trust/keys.ts';

const NOT_JUDGED = 'the rules were not asked about the input that a person gave';

type Start = EventPayloads['tool_call_start'];
type Approved = Extract<Judgement, { state: 'approved' }>;

/**
 * Returns the problems of the calls of a log that a person had to decide about: each needs a decision before it, good
 * signatures of keys that are trusted or were then, the quorum, and uses that are left.
 */
export async function approvalProblems(
  { threadId, events, isCopy = false }: AuditedLog,
  plan: Pick<ThreadPlan, 'asks'> | undefined,
  keys: Pick<KeyLookup, 'find'>,
): Promise<{ readonly problems: readonly string[]; readonly checked: number }> {
  return await new ApprovalAudit(threadId, plan, keys).run(isCopy ? ownPart(events) : events);
}

/** Yields the events after those that a fork or a successor has copied: their calls ran in the thread before, and are checked there. */
async function* ownPart(events: AuditedLog['events']): AsyncGenerator<LogEvent | UnknownEvent> {
  let isOwn = false;
  for await (const event of events) {
    isOwn ||= BEGINS_OWN.has(event.event_type);
    if (isOwn) yield event;
  }
}

const BEGINNINGS = ['thread_finished', 'thread_continued', 'run_started', 'turn_started'] as const;
const BEGINS_OWN: ReadonlySet<string> = new Set(BEGINNINGS);

/** The events that {@link approvalProblems} looks at. */
export const AUDITED_EVENTS = [
  'approval_requested',
  'approval_decided',
  'tool_call_start',
  'plan_changed',
  ...BEGINNINGS,
] as const;

/** The log of one thread. */
interface AuditedLog {
  readonly threadId: string;
  /** Others than {@link AUDITED_EVENTS} are skipped. */
  readonly events: AsyncIterable<LogEvent | UnknownEvent> | Iterable<LogEvent | UnknownEvent>;
  /** The log begins with a part that was copied from another thread. */
  readonly isCopy?: boolean;
}

class ApprovalAudit {
  readonly #threadId: string;
  readonly #plan: Pick<ThreadPlan, 'asks'> | undefined;
  readonly #keys: Pick<KeyLookup, 'find'>;
  readonly #requests = new Map<string, RequestedApproval>();
  readonly #asked = new Set<string>();
  readonly #decided = new Map<string, { decided: ApprovalDecided; uses: number; spend: number }>();

  constructor(
    threadId: string,
    plan: Pick<ThreadPlan, 'asks'> | undefined,
    keys: Pick<KeyLookup, 'find'>,
  ) {
    this.#threadId = threadId;
    this.#plan = plan;
    this.#keys = keys;
  }

  async run(events: AuditedLog['events']) {
    const problems: string[] = [];
    // what only the plan shows: a plan of before is not kept
    let byPlan: string[] = [];
    let checked = 0;
    for await (const event of events) {
      if (isKnown(event, 'approval_requested')) this.#request(event.payload);
      else if (isKnown(event, 'approval_decided')) this.#decide(event.payload);
      else if (isKnown(event, 'plan_changed')) byPlan = [];
      else if (isKnown(event, 'tool_call_start')) {
        const { call_id: callId, tool, approval } = event.payload;
        const text = (problem: string): string => `the call ${callId} of ${tool}: ${problem}`;
        const isAsked = approval !== undefined || this.#asked.has(callId);
        const problem = isAsked ? this.#problemOf(event.payload, event.timestamp) : undefined;
        const lack = problem === undefined ? this.#lackOf(event.payload) : undefined;
        if (isAsked) checked += 1;
        if (problem !== undefined) problems.push(text(problem));
        if (lack !== undefined) byPlan.push(text(lack));
      }
    }
    return { problems: [...problems, ...byPlan], checked };
  }

  /** Like a decision, a request that is there twice keeps its first meaning. */
  #request(requested: RequestedApproval): void {
    const { id, call_id: callId } = requested.request;
    if (!this.#requests.has(id)) this.#requests.set(id, requested);
    this.#asked.add(callId);
  }

  #decide(decided: ApprovalDecided): void {
    const { approval_id: id } = decided;
    if (!this.#decided.has(id)) this.#decided.set(id, { decided, uses: 0, spend: 0 });
  }

  /** Returns what a call lacks by the permissions of the plan that ask. */
  #lackOf({ approval, tool, input }: Start): string | undefined {
    // a search for tools is judged by what it finds, which the log does not name; it only reads
    if (tool === TOOL_SEARCH_ID && !approval) return undefined;
    const asks = permissionAsks(this.#plan?.asks ?? [], capabilityOf(needOfCall(tool, input)));
    if (asks.length === 0) return undefined;
    if (!approval) return 'it started without a decision';
    return approval.edited?.requirements.length === 0 ? NOT_JUDGED : undefined;
  }

  #problemOf(start: Start, time: string): string | undefined {
    const { approval, call_id: callId, tool, input } = start;
    if (!approval) return 'it started without a decision';
    const requested = this.#requests.get(approval.approval_id);
    const state = this.#decided.get(approval.approval_id);
    if (!requested) return 'its request is not in the log';
    const { request } = requested;
    if (requestSha256(request) !== approval.request_sha256) return 'its request differs';
    if (request.thread_id !== this.#threadId) return 'its request names another thread';
    if (!state || state.decided.outcome !== 'approved') return 'its request was not approved';
    const fault = this.#faultOf(state.decided, [request, approval.edited ?? request]);
    if (fault !== undefined) return fault;
    const judgement = judgementOf(requested, state.decided, start);
    if (judgement.state !== 'approved') return 'its decisions are not enough';
    const worstCaseUsd = approval.worst_case_usd ?? request.worst_case_usd;
    const used = { uses: state.uses, spendUsd: state.spend };
    state.uses += 1;
    state.spend += worstCaseUsd ?? 0;
    if (request.tool !== tool) return 'its decision names another tool';
    return (
      exhaustion(judgement, used, { now: time, worstCaseUsd }) ??
      scopeProblem(judgement, request, { input, isOwn: request.call_id === callId }) ??
      this.#editProblem(judgement, requested, start)
    );
  }

  /** Returns the problem if no rule was asked about the input that a person gave. */
  #editProblem(
    { input: given }: Approved,
    { request }: RequestedApproval,
    { approval, tool, input }: Start,
  ): string | undefined {
    const ran = canonicalSha256(input);
    if (given === undefined || ran === request.input_sha256) return undefined;
    const { edited } = approval ?? {};
    const capability = capabilityOf(needOfCall(tool, input));
    const isJudged = edited?.input_sha256 === ran && edited.capability === capability;
    return isJudged ? undefined : NOT_JUDGED;
  }

  #faultOf(
    { decisions }: ApprovalDecided,
    abouts: readonly Parameters<typeof recordedFault>[1][],
  ): string | undefined {
    for (const signed of decisions) {
      for (const about of abouts) {
        const fault = recordedFault(signed, about, this.#keys);
        if (fault !== undefined) return FAULTS[fault].replace('KEY', signed.decision.key_id);
      }
    }
    return undefined;
  }
}

function judgementOf(
  requested: RequestedApproval,
  { decisions }: ApprovalDecided,
  { approval, input }: Start,
): Judgement {
  const { edited } = approval ?? {};
  const demands = edited ? [{ input, requirements: edited.requirements }] : [];
  return judgeDecisions(
    requested,
    decisions.map(({ decision }) => decision),
    demands,
  );
}

const FAULTS: Readonly<Record<DecisionFault, string>> = {
  signature_invalid: 'the signature of KEY is not valid',
  key_untrusted: 'the key KEY is not trusted',
  key_revoked: 'the key KEY was revoked before it decided',
  wrong_purpose: 'the key KEY may not approve',
  out_of_scope: 'the key KEY may not approve this tool or directive',
};

function scopeProblem(
  judgement: Approved,
  request: RequestedApproval['request'],
  { input, isOwn }: { readonly input: JsonObject; readonly isOwn: boolean },
): string | undefined {
  const covers = isOwn
    ? isAgreed(judgement, request, input)
    : isWide(judgement, request, canonicalSha256(input));
  if (covers) return undefined;
  const isOther = !isOwn && judgement.scope === 'once';
  return isOther ? 'its decision is for another call' : 'it ran with another input';
}
