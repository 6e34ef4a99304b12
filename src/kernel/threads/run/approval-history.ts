import type {
  ApprovalDecided,
  ApprovalDecision,
  ApprovalUse,
  RequestedApproval,
} from '../../core/approval.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { isKnown } from '../../log/tree.ts';

/** A request of a thread, as its log knows it. */
export interface KnownApproval {
  readonly requested: RequestedApproval;
  /** Absent while it is open. */
  decided?: ApprovalDecided;
  /** Calls that have used the decision. */
  readonly usedBy: Set<string>;
  spendUsd: number;
  /** USD that the thread had spent when the call of the request started: the baseline of a plan. */
  spentUsd?: number;
}

/** The requests of one thread. The log is the only record of decisions and of their use. */
export class ApprovalHistory {
  readonly #known = new Map<string, KnownApproval>();

  constructor(events: Iterable<LogEvent | UnknownEvent> = []) {
    for (const event of events) {
      if (isKnown(event, 'approval_requested')) this.request(event.payload);
      else if (isKnown(event, 'approval_decided')) this.decide(event.payload);
      else if (isKnown(event, 'tool_call_start') && event.payload.approval) {
        this.use(event.payload.approval, event.payload.call_id);
      }
    }
  }

  find(id: string): KnownApproval | undefined {
    return this.#known.get(id);
  }

  /** The open request about a call. */
  openFor(callId: string): KnownApproval | undefined {
    return this.open().find(({ requested }) => requested.request.call_id === callId);
  }

  open(): readonly KnownApproval[] {
    return [...this.#known.values()].filter(({ decided }) => decided === undefined);
  }

  approved(): readonly KnownApproval[] {
    return [...this.#known.values()].filter(({ decided }) => decided?.outcome === 'approved');
  }

  request(requested: RequestedApproval): KnownApproval {
    const known: KnownApproval = { requested, usedBy: new Set(), spendUsd: 0 };
    this.#known.set(requested.request.id, known);
    return known;
  }

  decide(decided: ApprovalDecided): void {
    const known = this.#known.get(decided.approval_id);
    if (known) known.decided ??= decided;
  }

  use(
    { approval_id: id, worst_case_usd: usd, spent_usd: spent }: ApprovalUse,
    callId: string,
  ): void {
    const known = this.#known.get(id);
    if (!known || known.usedBy.has(callId)) return;
    known.usedBy.add(callId);
    known.spendUsd += usd ?? known.requested.request.worst_case_usd ?? 0;
    if (spent !== undefined) known.spentUsd ??= spent;
  }
}

/** The decisions in a signed list. */
export function plainDecisions(signed: ApprovalDecided['decisions']): readonly ApprovalDecision[] {
  return signed.map(({ decision }) => decision);
}
