import type {
  ApprovalConstraints,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalScope,
  Approver,
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

/**
 * Judges a request by decisions whose signatures and keys were checked. Any approver can deny. An approval needs the quorum
 * of every requirement in distinct keys that agree on the same input; its scope and bounds are the narrowest of theirs.
 */
export function judgeDecisions(
  { request, request_sha256: sha256 }: Judged,
  decisions: readonly ApprovalDecision[],
): Judgement {
  const counted = decisions.filter(
    (one) => decisionProblem({ request, request_sha256: sha256 }, one) === undefined,
  );
  const denied = counted.find(({ decision }) => decision === 'deny');
  if (denied) {
    const by = nameOf(request, denied.key_id);
    return { state: 'denied', by, comment: denied.comment };
  }
  let fewest = missingKeys(request, []);
  for (const first of counted) {
    const agreeing = counted.filter((one) => agrees(first, one));
    const missing = missingKeys(
      request,
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
  if (decision.request_sha256 !== sha256) return 'it is about another request';
  if (decision.approval_id !== request.id || decision.thread_id !== request.thread_id) {
    return 'it names another request';
  }
  const approver = request.approvers.find(({ key_id: key }) => key === decision.key_id);
  if (!approver) return `key ${decision.key_id} is not among the approvers`;
  if (approver.four_eyes === true && decision.key_id === request.worker_key_id) {
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

/** The number of further keys that a request needs. */
function missingKeys(
  { requirements, worker_key_id: worker }: ApprovalRequest,
  keys: readonly string[],
): number {
  const missing = requirements.map(({ approvers, quorum }) => {
    const able = approvers.filter((one) => isAble(one, worker)).map(({ key_id: key }) => key);
    const known = new Set(able);
    const agreed = new Set(keys.filter((key) => known.has(key)));
    return Math.max(0, quorum - agreed.size);
  });
  return Math.max(...missing, requirements.length === 0 ? 1 : 0);
}

/** Why no decisions could ever approve or answer a request, with the next step; undefined if some can. */
export function unreachableReason({
  requirements,
  worker_key_id: worker,
  capability,
}: Pick<ApprovalRequest, 'requirements' | 'worker_key_id' | 'capability'>): string | undefined {
  for (const { rule, approvers, quorum } of requirements) {
    const able = approvers.filter((one) => isAble(one, worker));
    const keys = new Set(able.map(({ key_id: key }) => key));
    if (keys.size >= quorum) continue;
    const excluded = approvers.filter((one) => !able.includes(one)).map(({ name }) => name);
    const why =
      excluded.length === 0
        ? ''
        : `; ${excluded.join(', ')} may not, because that key runs the thread and four_eyes is set`;
    const need = `${quorum} ${quorum === 1 ? 'approver' : 'approvers'}`;
    return `no person can approve this call: ${rule} needs ${need} for ${capability}, and ${keys.size} can decide${why}. Add approvers to agent/approvals.yaml, or run the thread with the key of another person.`;
  }
  return undefined;
}

function isAble({ key_id: key, four_eyes: fourEyes }: Approver, worker: string): boolean {
  return fourEyes !== true || key !== worker;
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
