import type {
  ApprovalDecided,
  ApprovalOutcome,
  ApprovalRequest,
  ApprovalSubject,
  ApprovalUse,
  EditedCall,
  RequestedApproval,
  SignedDecision,
} from '../../core/approval.ts';
import { isoTime } from '../../core/clock.ts';
import type { EventDraft } from '../../core/events.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import type { LogHead } from '../../log/checkpoint.ts';
import type {
  ApprovalPort,
  ApprovalVerdict,
  Confirmation,
  Review,
  ReviewedCall,
} from '../../loop/ports.ts';
import {
  decisionProblem,
  type EditDemand,
  exhaustion,
  type Judgement,
  judgeDecisions,
  unreachableReason,
} from '../../policy/approval-judgement.ts';
import type { ApprovalPolicy } from '../../policy/approvals.ts';
import type { StoredApproval } from '../../storage/store.ts';
import { canonicalSha256, decisionFault, requestSha256 } from '../../trust/approval.ts';
import { isAgreed, isCovered, isWide, withInput } from './approval-cover.ts';
import { ApprovalHistory, type KnownApproval, plainDecisions } from './approval-history.ts';
import { ApprovalSubjects, type Asked, type SubjectEnv } from './approval-subject.ts';
import { isBounded, isInPlan, OUTSIDE_PLAN, type StartedPlan } from './plan-cover.ts';
import type { StartedThread } from './start.ts';

/** Time between two looks at the store while a process waits for a decision. */
const LOOK_MS = 150;

/** A person or program that sees the requests of a run while it runs. */
export interface ApprovalAttention {
  /** Called with each request once it is durable. */
  readonly onRequest: (requested: RequestedApproval) => void;
  /** While true, the run waits for the decision; afterwards for the time of the policy. */
  readonly isAttended: (id: string) => boolean;
}

export interface DeskOptions {
  /** The requests that the log has already. */
  readonly history?: ApprovalHistory | undefined;
  /** Signs everything so far; resolves to the end of the signed part. */
  readonly signLog: () => Promise<LogHead>;
  /** A person or program that may decide at once. */
  readonly attention?: ApprovalAttention | undefined;
}

interface Judged {
  readonly judgement: Judgement;
  /** The decisions that count. */
  readonly signed: readonly SignedDecision[];
}

/** Asks people about the calls of one thread, and lets a call through when what they signed is what would run. */
export class ApprovalDesk implements ApprovalPort {
  readonly #env: SubjectEnv;
  readonly #started: StartedThread;
  readonly #options: DeskOptions;
  readonly #history: ApprovalHistory;
  readonly #subjects: ApprovalSubjects;
  readonly #told: Promise<void>[] = [];

  constructor(env: SubjectEnv, started: StartedThread, options: DeskOptions) {
    this.#env = env;
    this.#started = started;
    this.#options = options;
    this.#history = options.history ?? new ApprovalHistory();
    this.#subjects = new ApprovalSubjects(env, started);
  }

  pending(): number {
    return this.#history.open().length;
  }

  async review(calls: readonly ReviewedCall[]): Promise<readonly Review[]> {
    const policies = await this.#env.approvals.policies();
    const reviews: Review[] = [];
    for (const call of calls) reviews.push(await this.#reviewOne(policies, this.#bounded(call)));
    return reviews;
  }

  async publish(ids: readonly string[]): Promise<void> {
    const known = ids.flatMap((id) => this.#history.find(id) ?? []);
    await this.#env.store.approvals.add(known.map(({ requested }) => requested));
    for (const { requested } of known) {
      this.#options.attention?.onRequest(requested);
      this.#told.push(this.#env.approvals.notify(requested));
    }
  }

  async waitsInline(): Promise<boolean> {
    return this.#options.attention !== undefined || (await this.#inlineMs()) > 0;
  }

  async #inlineMs(): Promise<number> {
    const policies = await this.#env.approvals.policies();
    return Math.max(0, ...policies.map(({ waitInlineMs = 0 }) => waitInlineMs));
  }

  async wait(id: string, given: ReviewedCall, signal: AbortSignal): Promise<ApprovalVerdict> {
    const { clock } = this.#env;
    const call = this.#bounded(given);
    const waitMs = await this.#inlineMs();
    const { attention } = this.#options;
    const start = clock.monotonic();
    for (;;) {
      const verdict = await this.#verdict(id, call);
      if (verdict) return verdict;
      if (signal.aborted) return { kind: 'waiting' };
      const isOver = clock.monotonic() - start >= waitMs;
      if (isOver && attention?.isAttended(id) !== true) {
        // the process may end with the run: until then people have to be told
        await Promise.all(this.#told);
        return (await this.#verdict(id, call)) ?? { kind: 'waiting' };
      }
      await clock.sleep(LOOK_MS, signal);
    }
  }

  async confirm(id: string, given: ReviewedCall, givenRan = given): Promise<Confirmation> {
    const [call, ran] = [this.#bounded(given), this.#bounded(givenRan)];
    const known = this.#history.find(id);
    const stored = known && (await this.#env.store.approvals.get(id));
    if (!known || !stored) return { kind: 'voided', drafts: [] };
    const { requested } = known;
    const policies = await this.#env.approvals.policies();
    const now = await this.#subjects.of(policies, call);
    const isOwn = requested.request.call_id === call.callId;
    if (!isOwn && requested.request.kind === 'plan')
      return await this.#confirmInPlan(policies, known, { call, now });
    const judged = await this.#judgeRan(policies, { known, stored, ran });
    const usd = this.#subjects.worstCaseOf(ran);
    const fits = now !== undefined && this.#fits(requested, now, isOwn);
    const isGiven = !isOwn || isAgreed(judged.judgement, requested.request, ran.input);
    const isLet =
      fits &&
      isGiven &&
      this.#isUsable(known, judged.judgement, { ...now.subject, worst_case_usd: usd });
    if (!isLet) {
      // a wide approval that covers no more calls ends for them, and stays as it was for those that it let through
      const reason = fits ? whyVoid(judged.edited) : CHANGED;
      return { kind: 'voided', drafts: isOwn ? await this.#close(known, 'voided', reason) : [] };
    }
    return await this.#confirmed(known, call, { ...judged, usd });
  }

  /** Counts a decision as used by a call. */
  async #confirmed(
    known: KnownApproval,
    call: ReviewedCall,
    { signed, usd, edited }: Judged & { readonly usd: number | null; readonly edited?: EditedCall },
  ): Promise<Confirmation> {
    const { request, request_sha256: sha256 } = known.requested;
    const drafts = known.decided === undefined ? [this.#decided(known, 'approved', signed)] : [];
    const use: ApprovalUse = {
      approval_id: request.id,
      request_sha256: sha256,
      ...(usd === null ? {} : { worst_case_usd: usd }),
      ...(edited ? { edited } : {}),
      ...(request.kind === 'plan' ? { spent_usd: await spentOf(call) } : {}),
    };
    this.#history.use(use, call.callId);
    return { kind: 'confirmed', use, drafts };
  }

  /** Judges a request for the call that would run: what it needs by itself counts too if a person gave its input. */
  async #judgeRan(
    policies: readonly ApprovalPolicy[],
    {
      known,
      stored,
      ran,
    }: {
      readonly known: KnownApproval;
      readonly stored: StoredApproval;
      readonly ran: ReviewedCall;
    },
  ): Promise<Judged & { readonly edited?: EditedCall }> {
    const { request } = known.requested;
    if (canonicalSha256(ran.input) === request.input_sha256) return this.#judge(known, stored);
    const edited = await this.#subjects.edited(policies, ran);
    const demands = [{ input: ran.input, requirements: edited.requirements }];
    const judged = this.#judge(known, stored, demands, edited);
    const { judgement } = judged;
    // a wide approval of the requested input covers others as they are
    if (judgement.state === 'approved' && judgement.input === undefined) return judged;
    return { ...judged, edited };
  }

  async withdraw(ids: readonly string[], reason: string): Promise<readonly EventDraft[]> {
    const drafts: EventDraft[] = [];
    for (const id of ids) {
      const known = this.#history.find(id);
      if (known) drafts.push(...(await this.#close(known, 'withdrawn', reason)));
    }
    return drafts;
  }

  /** Takes back the requests about calls that this run does not make: the conversation has left them. */
  async withdrawOthers(callIds: ReadonlySet<string>): Promise<readonly EventDraft[]> {
    const left = this.#history
      .open()
      .filter(({ requested }) => requested.request.kind !== 'limit')
      .filter(({ requested }) => !callIds.has(requested.request.call_id));
    const ids = left.map(({ requested }) => requested.request.id);
    return await this.withdraw(ids, 'the thread continues without this call');
  }

  async #reviewOne(policies: readonly ApprovalPolicy[], call: ReviewedCall): Promise<Review> {
    const now = await this.#subjects.of(policies, call);
    if (!now) return { kind: 'allowed' };
    const open = this.#history.openFor(call.callId);
    if (open && this.#isSame(open.requested, now)) {
      return { kind: 'asked', id: open.requested.request.id, drafts: [] };
    }
    const voided = open ? await this.#close(open, 'voided', CHANGED) : [];
    const granted = (await this.#planFor(call, now.subject)) ?? (await this.#grantFor(now.subject));
    if (granted) return { kind: 'granted', id: granted };
    const reason = now.problem ?? unreachableReason(now.subject);
    if (reason !== undefined) return { kind: 'unreachable', reason, drafts: voided };
    const requested = await this.#request(now, call);
    const drafts: readonly EventDraft[] = [
      ...voided,
      { event_type: 'approval_requested', payload: requested, durable: true },
    ];
    return { kind: 'asked', id: requested.request.id, drafts };
  }

  async #request({ subject, demand, preview }: Asked, call: ReviewedCall) {
    const { clock, ids } = this.#env;
    const now = clock.now();
    const { bytes, seq, sha256 } = await this.#options.signLog();
    const request: ApprovalRequest = {
      ...subject,
      format: 1,
      id: `apr-${ids.entryId()}`,
      epoch: this.#started.record.epoch,
      created_at: isoTime(now),
      expires_at: isoTime(now + demand.expiresMs),
      log_head: { bytes, seq, sha256 },
      preview_sha256: canonicalSha256(preview),
    };
    const requested: RequestedApproval = {
      request,
      request_sha256: requestSha256(request),
      input: call.input,
      preview,
    };
    this.#history.request(requested);
    return requested;
  }

  #fits(requested: RequestedApproval, now: Asked, isOwn: boolean): boolean {
    return isOwn ? this.#isSame(requested, now) : isCovered(requested.request, now.subject);
  }

  /** True if what was decided covers one more call. */
  #isUsable(known: KnownApproval, judgement: Judgement, now: ApprovalSubject): boolean {
    if (judgement.state !== 'approved') return false;
    const { request } = known.requested;
    if (request.call_id !== now.call_id && !isWide(judgement, request, now.input_sha256)) {
      return false;
    }
    const next = {
      now: isoTime(this.#env.clock.now()),
      worstCaseUsd: now.worst_case_usd,
    };
    return exhaustion(judgement, usesOf(known), next) === undefined;
  }

  /** True if the request describes exactly what would run now. */
  #isSame({ request, request_sha256: sha256 }: RequestedApproval, { subject, preview }: Asked) {
    const { format, id, epoch, created_at, expires_at, log_head } = request;
    const now: ApprovalRequest = {
      ...subject,
      format,
      id,
      epoch,
      created_at,
      expires_at,
      log_head,
      preview_sha256: canonicalSha256(preview),
    };
    return requestSha256(now) === sha256;
  }

  /** The last plan that people approved: it bounds every later call of the thread. */
  #plan(): KnownApproval | undefined {
    return this.#history
      .approved()
      .findLast(
        ({ requested: { request }, usedBy }) =>
          request.kind === 'plan' && usedBy.has(request.call_id),
      );
  }

  /** Once there is a plan, every call asks that changes something; the plan answers for the calls inside of it. */
  #bounded(call: ReviewedCall): ReviewedCall {
    if (!isBounded(call) || this.#plan() === undefined) return call;
    return { ...call, asks: [...call.asks, OUTSIDE_PLAN] };
  }

  /** The plan of the thread if the call is inside of it. */
  async #planFor(call: ReviewedCall, subject: ApprovalSubject): Promise<string | undefined> {
    const known = this.#plan();
    if (!known || !isBounded(call)) return undefined;
    const { request } = known.requested;
    const started = await this.#startedPlan(known, subject);
    const spentUsd = await spentOf(call);
    return started && isInPlan(started, { call, subject, spentUsd }, this.#env.approvals.glob)
      ? request.id
      : undefined;
  }

  /** The plan as people approved it, with the decisions that count for a call. */
  async #startedPlan(
    known: KnownApproval,
    about: ApprovalSubject,
  ): Promise<StartedPlan | undefined> {
    const { request, ...requested } = known.requested;
    const stored = await this.#env.store.approvals.get(request.id);
    const { judgement, signed } = this.#judge(known, stored, [], about);
    if (judgement.state !== 'approved') return undefined;
    const keys = signed.map(({ decision }) => decision.key_id);
    return {
      request,
      input: judgement.input ?? requested.input,
      keys,
      spentUsd: known.spentUsd ?? 0,
    };
  }

  async #confirmInPlan(
    policies: readonly ApprovalPolicy[],
    known: KnownApproval,
    { call, now }: { readonly call: ReviewedCall; readonly now: Asked | undefined },
  ): Promise<Confirmation> {
    const { request, request_sha256: sha256 } = known.requested;
    if (!now || (await this.#planFor(call, now.subject)) !== request.id)
      return { kind: 'voided', drafts: [] };
    const usd = now.subject.worst_case_usd;
    const use: ApprovalUse = {
      approval_id: request.id,
      request_sha256: sha256,
      ...(usd === null ? {} : { worst_case_usd: usd }),
      spent_usd: await spentOf(call),
      covered: await this.#subjects.edited(policies, call),
    };
    this.#history.use(use, call.callId);
    return { kind: 'confirmed', use, drafts: [] };
  }

  /** An earlier approval of this thread that may cover the call. */
  async #grantFor(subject: ApprovalSubject): Promise<string | undefined> {
    for (const known of this.#history.approved()) {
      const { request } = known.requested;
      if (!isCovered(request, subject)) continue;
      const stored = await this.#env.store.approvals.get(request.id);
      const { judgement } = this.#judge(known, stored);
      if (this.#isUsable(known, judgement, subject)) return request.id;
    }
    return undefined;
  }

  /** Judges a request by what was signed, with the keys that are trusted now. */
  #judge(
    { requested, decided }: KnownApproval,
    stored: StoredApproval | undefined,
    demands: readonly EditDemand[] = [],
    edited: Pick<EditedCall, 'item' | 'capability'> = requested.request,
  ): Judged {
    const inTime = (stored?.decisions ?? []).filter(({ late }) => !late).map((one) => one.signed);
    // what is in the log already counts also if the database was lost
    const all = [...(decided?.decisions ?? []), ...inTime];
    const signed = all
      .filter((one, at) => all.findIndex(({ signature }) => signature === one.signature) === at)
      .filter((one) =>
        [requested.request, edited].every(
          (about) => decisionFault(one, about, this.#env.approvals.keys) === undefined,
        ),
      )
      .filter(({ decision }) => decisionProblem(requested, decision) === undefined);
    return { judgement: judgeDecisions(requested, plainDecisions(signed), demands), signed };
  }

  /** Returns the demands on the call with the inputs that people gave. */
  async #demandsOf(
    call: ReviewedCall,
    decisions: StoredApproval['decisions'],
  ): Promise<readonly EditDemand[]> {
    const inputs = decisions.flatMap(({ signed: { decision } }): readonly JsonObject[] =>
      decision.input === undefined ? [] : [decision.input],
    );
    if (inputs.length === 0) return [];
    const policies = await this.#env.approvals.policies();
    const demands: EditDemand[] = [];
    for (const input of inputs) {
      const edited = await this.#subjects.demandOf(policies, withInput(call, input));
      demands.push({ input, requirements: edited?.requirements ?? [] });
    }
    return demands;
  }

  async #verdict(id: string, call: ReviewedCall): Promise<ApprovalVerdict | undefined> {
    const known = this.#history.find(id);
    const stored = await this.#env.store.approvals.get(id);
    if (!known || !stored) return { kind: 'waiting' };
    const demands = await this.#demandsOf(call, stored.decisions);
    const { judgement, signed } = this.#judge(known, stored, demands);
    const decided = (outcome: ApprovalOutcome): readonly EventDraft[] => [
      this.#decided(known, outcome, signed),
    ];
    switch (judgement.state) {
      case 'approved':
        return compact({
          kind: 'approved' as const,
          input: judgement.input,
          comment: judgement.comment,
        });
      case 'answered':
        return { kind: 'answered', answer: judgement.answer, drafts: decided('answered') };
      case 'denied': {
        const why = judgement.comment === '' ? '' : `: ${judgement.comment}`;
        const reason = `${judgement.by} denied this call${why}`;
        return { kind: 'denied', reason, drafts: decided('denied'), ends: false };
      }
      case 'pending':
        break;
    }
    if (stored.state === 'withdrawn') {
      const reason = 'the request was withdrawn';
      const drafts = [this.#decided(known, 'withdrawn', [], { reason })];
      return { kind: 'withdrawn', reason, drafts, ends: false };
    }
    const { expires_at: expiry, on_expiry: onExpiry } = known.requested.request;
    if (isoTime(this.#env.clock.now()) < expiry) {
      // it was closed with a decision that does not count here: others can decide
      const { state, decisions } = stored;
      if (state !== 'pending') await this.#env.store.approvals.reopen(id, decisions.length);
      return undefined;
    }
    const late = stored.decisions.filter((one) => one.late).map((one) => one.signed);
    const reason = `no person decided before ${expiry}: the approval expired`;
    await this.#env.store.approvals.close(id, 'expired', isoTime(this.#env.clock.now()));
    const extra = late.length === 0 ? { reason } : { reason, late };
    const drafts = [this.#decided(known, 'expired', signed, extra)];
    return { kind: 'expired', reason, drafts, ends: onExpiry === 'end' };
  }

  async #close(
    known: KnownApproval,
    outcome: ApprovalOutcome,
    reason: string,
  ): Promise<readonly EventDraft[]> {
    if (known.decided) return [];
    const { id } = known.requested.request;
    const { approvals } = this.#env.store;
    const stored = await approvals.get(id);
    await approvals.close(id, outcome, isoTime(this.#env.clock.now()));
    const signed = stored?.decisions.map((one) => one.signed) ?? [];
    return [this.#decided(known, outcome, signed, { reason })];
  }

  #decided(
    known: KnownApproval,
    outcome: ApprovalOutcome,
    decisions: readonly SignedDecision[],
    extra: Pick<ApprovalDecided, 'reason' | 'late'> = {},
  ): EventDraft {
    const { request, request_sha256: sha256 } = known.requested;
    const payload: ApprovalDecided = {
      approval_id: request.id,
      request_sha256: sha256,
      outcome,
      decisions,
      ...extra,
    };
    this.#history.decide(payload);
    return { event_type: 'approval_decided', payload, durable: true };
  }
}

const CHANGED = 'what would run has changed since it was requested';

function whyVoid(edited: EditedCall | undefined): string {
  const rules = edited?.requirements.map(({ rule }) => rule).join(', ') ?? '';
  return rules === ''
    ? 'its decision does not count any more'
    : `the decisions are not enough for the input that was given: ${rules}`;
}

async function spentOf({ money }: ReviewedCall): Promise<number> {
  return (await money()).cost.spend;
}

function usesOf({ usedBy, spendUsd }: KnownApproval) {
  return { uses: usedBy.size, spendUsd };
}
