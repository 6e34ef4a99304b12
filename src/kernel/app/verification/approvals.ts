import type { ApprovalDecided, RequestedApproval } from '../../core/approval.ts';
import { capabilityOf } from '../../core/capability.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { readPlan } from '../../core/presented-plan.ts';
import { isKnown } from '../../log/tree.ts';
import {
  exhaustion,
  isAgreedBy,
  type Judgement,
  judgeDecisions,
} from '../../policy/approval-judgement.ts';
import { permissionAsks } from '../../policy/approvals.ts';
import { isAgreed, isWide } from '../../threads/run/approval-cover.ts';
import { plainPath, scopeInPlan } from '../../threads/run/plan-cover.ts';
import { needOfCall } from '../../tools/call-need.ts';
import { TOOL_SEARCH_ID } from '../../tools/disclosure.ts';
import { compileGlob } from '../../tools/glob-pattern.ts';
import {
  canonicalSha256,
  type DecisionFault,
  recordedFault,
  requestSha256,
} from '../../trust/approval.ts';
import type { KeyLookup } from '../../trust/keys.ts';

const NOT_JUDGED = 'the rules were not asked about the input that ran';

type Start = EventPayloads['tool_call_start'];
type Approved = Extract<Judgement, { state: 'approved' }>;

interface Decided {
  readonly decided: ApprovalDecided;
  uses: number;
  spend: number;
  /** USD that the thread had spent when an approved plan was started. */
  spent?: number;
}

const BEGINNINGS = ['thread_finished', 'thread_continued', 'run_started', 'turn_started'] as const;
const BEGINS_OWN: ReadonlySet<string> = new Set(BEGINNINGS);

/** The events that an audit looks at. Others are skipped. */
export const AUDITED_EVENTS = [
  'approval_requested',
  'approval_decided',
  'tool_call_start',
  'plan_changed',
  ...BEGINNINGS,
] as const;

interface AuditResult {
  readonly problems: readonly string[];
  readonly checked: number;
}

/**
 * Finds the problems of the calls of a log that a person had to decide about: each needs a decision before it, good
 * signatures of keys that are trusted or were then, the quorum, and uses that are left.
 */
export class LogAudit {
  readonly #whole: ApprovalAudit;
  readonly #own: ApprovalAudit;
  #isOwn = false;

  constructor(
    threadId: string,
    plan: Pick<ThreadPlan, 'asks'> | undefined,
    keys: Pick<KeyLookup, 'find'>,
  ) {
    this.#whole = new ApprovalAudit(threadId, plan, keys);
    this.#own = new ApprovalAudit(threadId, plan, keys);
  }

  /** Takes the next event of the log. */
  take(event: LogEvent | UnknownEvent): void {
    this.#whole.take(event);
    this.#isOwn ||= BEGINS_OWN.has(event.event_type);
    if (this.#isOwn) this.#own.take(event);
  }

  /** `isCopy`: a fork or a successor has copied the first part. Its calls ran in the thread before, and are checked there. */
  result(isCopy: boolean): AuditResult {
    return isCopy ? this.#own.result() : this.#whole.result();
  }
}

class ApprovalAudit {
  readonly #problems: string[] = [];
  /** Problems that only the plan shows: a plan of before is not kept. */
  #byPlan: string[] = [];
  #checked = 0;
  readonly #threadId: string;
  readonly #plan: Pick<ThreadPlan, 'asks'> | undefined;
  readonly #keys: Pick<KeyLookup, 'find'>;
  readonly #requests = new Map<string, RequestedApproval>();
  readonly #asked = new Set<string>();
  readonly #decided = new Map<string, Decided>();

  constructor(
    threadId: string,
    plan: Pick<ThreadPlan, 'asks'> | undefined,
    keys: Pick<KeyLookup, 'find'>,
  ) {
    this.#threadId = threadId;
    this.#plan = plan;
    this.#keys = keys;
  }

  take(event: LogEvent | UnknownEvent): void {
    if (isKnown(event, 'approval_requested')) this.#request(event.payload);
    else if (isKnown(event, 'approval_decided')) this.#decide(event.payload);
    else if (isKnown(event, 'plan_changed')) this.#byPlan = [];
    else if (isKnown(event, 'tool_call_start')) this.#start(event.payload, event.timestamp);
  }

  result(): AuditResult {
    return { problems: [...this.#problems, ...this.#byPlan], checked: this.#checked };
  }

  #start(start: Start, time: string): void {
    const { call_id: callId, tool, approval } = start;
    const text = (problem: string): string => `the call ${callId} of ${tool}: ${problem}`;
    const isAsked = approval !== undefined || this.#asked.has(callId);
    const problem = isAsked ? this.#problemOf(start, time) : undefined;
    const lack = problem === undefined ? this.#lackOf(start) : undefined;
    if (isAsked) this.#checked += 1;
    if (problem !== undefined) this.#problems.push(text(problem));
    if (lack !== undefined) this.#byPlan.push(text(lack));
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
    const { approval } = start;
    if (!approval) return 'it started without a decision';
    const requested = this.#requests.get(approval.approval_id);
    const state = this.#decided.get(approval.approval_id);
    if (!requested) return 'its request is not in the log';
    const { request } = requested;
    if (requestSha256(request) !== approval.request_sha256) return 'its request differs';
    if (request.thread_id !== this.#threadId) return 'its request names another thread';
    if (!state || state.decided.outcome !== 'approved') return 'its request was not approved';
    const own = approval.edited ?? approval.covered ?? request;
    const fault = this.#faultOf(state.decided, [request, own]);
    if (fault !== undefined) return fault;
    const judgement = judgementOf(requested, state.decided, start);
    if (judgement.state !== 'approved') return 'its decisions are not enough';
    return this.#useProblem(judgement, requested, { start, time, state });
  }

  /** Counts a use of a decision. Returns why the decision does not reach so far. */
  #useProblem(
    judgement: Approved,
    requested: RequestedApproval,
    {
      start,
      time,
      state,
    }: { readonly start: Start; readonly time: string; readonly state: Decided },
  ): string | undefined {
    const { request } = requested;
    const { approval, call_id: callId, tool, input } = start;
    const worstCaseUsd = approval?.worst_case_usd ?? request.worst_case_usd;
    const used = { uses: state.uses, spendUsd: state.spend };
    state.uses += 1;
    state.spend += worstCaseUsd ?? 0;
    if (request.kind === 'plan') state.spent ??= approval?.spent_usd ?? 0;
    const isOwn = request.call_id === callId;
    if (request.kind === 'plan' && !isOwn)
      return planProblem(judgement, requested, { start, state });
    if (request.tool !== tool) return 'its decision names another tool';
    return (
      exhaustion(judgement, used, { now: time, worstCaseUsd }) ??
      scopeProblem(judgement, request, { input, isOwn }) ??
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

/** Returns why a plan that people approved does not cover a call that used it. */
function planProblem(
  { input: given }: Approved,
  { input: asked, request }: RequestedApproval,
  { start, state }: { readonly start: Start; readonly state: Decided },
): string | undefined {
  const { tool, input, approval } = start;
  const { covered } = approval ?? {};
  const plan = readPlan(given ?? asked);
  const path = input['path'];
  const files = typeof path === 'string' ? [plainPath(path)] : [];
  const need = needOfCall(tool, input);
  if (scopeInPlan(plan, { tool, input, need, files }, compileGlob) === undefined)
    return 'it is outside of its plan';
  const isJudged =
    covered?.input_sha256 === canonicalSha256(input) && covered.capability === capabilityOf(need);
  if (!isJudged) return NOT_JUDGED;
  const keys = state.decided.decisions.map(({ decision }) => decision.key_id);
  const { worker_key_id } = request;
  if (!isAgreedBy({ requirements: covered.requirements, worker_key_id }, keys))
    return 'the people who approved its plan are not enough for it';
  const before = state.spent ?? 0;
  const spent = (approval?.spent_usd ?? before) - before + (approval?.worst_case_usd ?? 0);
  return spent > plan.costUsd ? 'the money of its plan was used up' : undefined;
}

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
