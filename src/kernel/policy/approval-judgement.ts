import type {
  ApprovalConstraints,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalRequirement,
  ApprovalScope,
} from '../core/approval.ts';
import { APPROVAL_SCOPES } from '../core/approval.ts';
import { compact, type JsonObject, type JsonValue, jsonEquals } from '../core/json.ts';

/** The sum of the decisions about a request. */
export type Judgement =
  | { readonly state: 'pending'; readonly missing: number }
  | {
      readonly state: 'approved';
      readonly scope: ApprovalScope;
      readonly constraints: ApprovalConstraints;
      /** The input that runs instead of the requested one. */
      readonly input?: JsonObject;
      readonly comment: string;
    }
  | { readonly state: 'denied'; readonly by: string; readonly comment: string }
  | { readonly state: 'answered'; readonly answer: JsonValue };

/** A request with the hash by which decisions name it. */
export interface Judged {
  readonly request: ApprovalRequest;
  readonly request_sha256: string;
}

/** The demands on a call with an input that a person gave. */
export interface EditDemand {
  readonly input: JsonObject;
  readonly requirements: readonly ApprovalRequirement[];
}

/**
 * Judges a request by decisions whose signatures and keys were checked. Any approver can deny. An approval needs the quorum
 * of every requirement in distinct keys that agree on the same input, and of every requirement of that input; of several
 * decisions of a key the last one counts. Its scope and bounds are the narrowest of theirs.
 */
export function judgeDecisions(
  { request, request_sha256: sha256 }: Judged,
  decisions: readonly ApprovalDecision[],
  demands: readonly EditDemand[] = [],
): Judgement {
  const valid = decisions.filter(
    (one) => decisionProblem({ request, request_sha256: sha256 }, one) === undefined,
  );
  const counted = valid.filter(({ key_id: key, decision }, at) => {
    const isLast = !valid.slice(at + 1).some((later) => later.key_id === key);
    return isLast || decision === 'deny';
  });
  const denied = counted.find(({ decision }) => decision === 'deny');
  if (denied) {
    const by = nameOf(request, denied.key_id);
    return { state: 'denied', by, comment: denied.comment };
  }
  let fewest = missingKeys(request, request.requirements, []);
  for (const first of counted) {
    const agreeing = counted.filter((one) => agrees(first, one));
    const own = demands.find(({ input }) => jsonEquals(input, first.input))?.requirements ?? [];
    const missing = missingKeys(
      request,
      [...request.requirements, ...own],
      agreeing.map(({ key_id: key }) => key),
    );
    fewest = Math.min(fewest, missing);
    if (missing > 0) continue;
    if (first.decision === 'answer') {
      return { state: 'answered', answer: first.answer ?? null };
    }
    return {
      state: 'approved',
      scope: narrowest(agreeing.map(({ scope }) => scope)),
      constraints: tightest(agreeing.map(({ constraints }) => constraints)),
      ...(first.input === undefined ? {} : { input: first.input }),
      comment: agreeing
        .map(({ comment }) => comment)
        .filter((comment) => comment !== '')
        .join('; '),
    };
  }
  return { state: 'pending', missing: fewest };
}

/** Why a decision does not count for a request, apart from its signature; undefined if it does. */
export function decisionProblem(
  { request, request_sha256: sha256 }: Judged,
  decision: ApprovalDecision,
): string | undefined {
  if (decision.request_sha256 !== sha256) return 'it has the hash of another request';
  if (decision.approval_id !== request.id || decision.thread_id !== request.thread_id) {
    return 'it names another request';
  }
  const { approvers, requirements, worker_key_id: worker } = request;
  const isNamed = (one: Pick<ApprovalRequirement, 'approvers'>): boolean =>
    one.approvers.some(({ key_id: key }) => key === decision.key_id);
  if (!isNamed({ approvers })) return `key ${decision.key_id} is not among the approvers`;
  const asking = requirements.filter(isNamed);
  const able = (asking.length === 0 ? [{ approvers }] : asking).flatMap((one) =>
    ableKeys(one, worker),
  );
  if (!able.includes(decision.key_id)) {
    return `key ${decision.key_id} runs the thread, and four eyes are asked for`;
  }
  if (decision.decided_at >= request.expires_at) return 'it was signed after the request expired';
  const wanted = request.kind === 'question' ? 'answer' : 'approve';
  if (decision.decision !== 'deny' && decision.decision !== wanted) {
    return request.kind === 'question'
      ? 'a question needs an answer'
      : 'only a question has an answer';
  }
  if (decision.decision === 'approve' && !request.scopes.includes(decision.scope)) {
    return `the rule does not allow the scope ${decision.scope}`;
  }
  return undefined;
}

function agrees(one: ApprovalDecision, other: ApprovalDecision): boolean {
  return (
    one.decision === other.decision &&
    jsonEquals(one.input, other.input) &&
    jsonEquals(one.answer, other.answer)
  );
}

/** The number of further keys that requirements need. */
function missingKeys(
  { worker_key_id: worker }: Pick<ApprovalRequest, 'worker_key_id'>,
  requirements: readonly ApprovalRequirement[],
  keys: readonly string[],
): number {
  const missing = requirements.map(({ approvers, quorum }) => {
    const known = new Set(ableKeys({ approvers }, worker));
    const agreed = new Set(keys.filter((key) => known.has(key)));
    return Math.max(0, quorum - agreed.size);
  });
  return Math.max(...missing, requirements.length === 0 ? 1 : 0);
}

/** True if these keys are enough for every requirement of a request. */
export function isAgreedBy(
  request: Pick<ApprovalRequest, 'requirements' | 'worker_key_id'>,
  keys: readonly string[],
): boolean {
  return missingKeys(request, request.requirements, keys) === 0;
}

/** Why no decisions could ever approve or answer a request, with the next step; undefined if some can. */
export function unreachableReason({
  requirements,
  worker_key_id: worker,
  capability,
}: Pick<ApprovalRequest, 'requirements' | 'worker_key_id' | 'capability'>): string | undefined {
  for (const { rule, approvers, quorum } of requirements) {
    const keys = new Set(ableKeys({ approvers }, worker));
    if (keys.size >= quorum) continue;
    const excluded = approvers.filter((one) => !keys.has(one.key_id)).map(({ name }) => name);
    const why =
      excluded.length === 0
        ? ''
        : `; ${excluded.join(', ')} may not, because that key runs the thread and four_eyes is set`;
    const need = `${quorum} ${quorum === 1 ? 'approver' : 'approvers'}`;
    return `no person can approve this call: ${rule} needs ${need} for ${capability}, and ${keys.size} can decide${why}. Add approvers to agent/approvals.yaml, or run the thread with the key of another person.`;
  }
  return undefined;
}

/** The keys that may decide: a key that is listed with and without `four_eyes` has to observe it. */
export function ableKeys(
  { approvers }: Pick<ApprovalRequirement, 'approvers'>,
  worker: string,
): readonly string[] {
  const isBarred = approvers.some(({ key_id: key, four_eyes: four }) => key === worker && four);
  const keys = approvers.map(({ key_id: key }) => key);
  return isBarred ? keys.filter((key) => key !== worker) : keys;
}

/** The name under which the policy knows a key; the key itself if it does not. */
function nameOf({ approvers }: Pick<ApprovalRequest, 'approvers'>, keyId: string): string {
  return approvers.find(({ key_id: key }) => key === keyId)?.name ?? keyId;
}

function narrowest(scopes: readonly ApprovalScope[]): ApprovalScope {
  return APPROVAL_SCOPES.find((scope) => scopes.includes(scope)) ?? 'once';
}

function tightest(all: readonly ApprovalConstraints[]): ApprovalConstraints {
  const until = all
    .flatMap((one) => one.until ?? [])
    .toSorted()
    .at(0);
  return compact({
    until,
    uses: least(all.map(({ uses }) => uses)),
    spend_usd: least(all.map(({ spend_usd: spend }) => spend)),
  });
}

function least(values: readonly (number | undefined)[]): number | undefined {
  const given = values.flatMap((value) => value ?? []);
  return given.length === 0 ? undefined : Math.min(...given);
}

/** The use of a decision so far, by this thread alone. */
export interface UsedApproval {
  readonly uses: number;
  readonly spendUsd: number;
}

/** Why an approval does not cover one more call; undefined if it does. */
export function exhaustion(
  { scope, constraints }: Pick<Extract<Judgement, { state: 'approved' }>, 'scope' | 'constraints'>,
  used: UsedApproval,
  next: { readonly now: string; readonly worstCaseUsd: number | null },
): string | undefined {
  const { until, uses = scope === 'once' ? 1 : Number.POSITIVE_INFINITY, spend_usd } = constraints;
  if (used.uses >= uses) return 'its uses are used up';
  if (until !== undefined && next.now >= until) return 'its time is over';
  const spend = used.spendUsd + (next.worstCaseUsd ?? 0);
  return spend_usd !== undefined && spend > spend_usd ? 'its money is used up' : undefined;
}
