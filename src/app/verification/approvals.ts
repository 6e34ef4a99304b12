import type { ApprovalDecided, RequestedApproval } from '../../core/approval.ts';
import { capabilityOf } from '../../core/capability.ts';
import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { isKnown } from '../../log/tree.ts';
import { exhaustion, type Judgement, judgeDecisions } from '../../policy/approval-judgement.ts';
import { permissionAsks } from '../../policy/approvals.ts';
import { TOOL_SEARCH_ID } from '../../tools/disclosure.ts';
import { primaryNeed } from '../../tools/primary/actions.ts';
import { skillNeed } from '../../tools/skills/skill-tools.ts';
import {
  canonicalSha256,
  type DecisionFault,
  recordedFault,
  requestSha256,
} from '../../trust/approval.ts';
import type { KeyLookup } from '../../trust/keys.ts';

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
    let checked = 0;
    for await (const event of events) {
      if (isKnown(event, 'approval_requested')) this.#request(event.payload);
      else if (isKnown(event, 'approval_decided')) this.#decide(event.payload);
      else if (isKnown(event, 'tool_call_start')) {
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

  #needs({ call_id: callId, tool, input }: Start): boolean {
    if (this.#asked.has(callId)) return true;
    // a search for tools is judged by what it finds, which the log does not name; it only reads
    if (tool === TOOL_SEARCH_ID) return false;
    return permissionAsks(this.#plan?.asks ?? [], capabilityOfCall(tool, input)).length > 0;
  }

  #problemOf(start: Start, time: string): string | undefined {
    const { approval, call_id: callId, tool, input } = start;
    if (!approval) return 'it started without a decision';
    const requested = this.#requests.get(approval.approval_id);
    const state = this.#decided.get(approval.approval_id);
    if (!requested) return 'its request is not in the log';
    const { request } = requested;
    if (requestSha256(request) !== approval.request_sha256) return 'its request differs';
    if (request.thread_id !== this.#threadId) return 'its request is about another thread';
    if (!state || state.decided.outcome !== 'approved') return 'its request was not approved';
    const fault = this.#faultOf(state.decided, requested);
    if (fault !== undefined) return fault;
    const decisions = state.decided.decisions.map(({ decision }) => decision);
    const judgement = judgeDecisions(requested, decisions);
    if (judgement.state !== 'approved') return 'its decisions are not enough';
    const worstCaseUsd = approval.worst_case_usd ?? request.worst_case_usd;
    const used = { uses: state.uses, spendUsd: state.spend };
    state.uses += 1;
    state.spend += worstCaseUsd ?? 0;
    if (request.tool !== tool) return 'its decision is about another tool';
    return (
      exhaustion(judgement, used, { now: time, worstCaseUsd }) ??
      scopeProblem(judgement, requested, { input, isOwn: request.call_id === callId })
    );
  }

  #faultOf({ decisions }: ApprovalDecided, { request }: RequestedApproval): string | undefined {
    for (const signed of decisions) {
      const fault = recordedFault(signed, request, this.#keys);
      if (fault !== undefined) return FAULTS[fault].replace('KEY', signed.decision.key_id);
    }
    return undefined;
  }
}

/** The capability that a call needed when it started: `rye/fetch` of an item needs to fetch that item. */
function capabilityOfCall(tool: string, input: JsonObject): string {
  const own = { verb: 'execute', item_type: 'tool', item_id: tool } as const;
  try {
    return capabilityOf(primaryNeed(tool, input) ?? skillNeed(tool, input) ?? own);
  } catch {
    return capabilityOf(own); // an id that no call can start with
  }
}

const FAULTS: Readonly<Record<DecisionFault, string>> = {
  signature_invalid: 'the signature of KEY is not valid',
  key_untrusted: 'the key KEY is not trusted',
  key_revoked: 'the key KEY was revoked before it decided',
  wrong_purpose: 'the key KEY may not approve',
  out_of_scope: 'the key KEY may not approve this tool or directive',
};

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
