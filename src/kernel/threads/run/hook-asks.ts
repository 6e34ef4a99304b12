import { RyeError } from '../../core/errors.ts';
import type { HookDeclaration } from '../../core/hook.ts';
import { isRecord, type JsonObject } from '../../core/json.ts';
import { type Cost, NO_COST, toUsd } from '../../core/usage.ts';
import type { CallMoney, ReviewedCall } from '../../loop/ports.ts';
import { ApprovalSubjects, type SubjectEnv } from './approval-subject.ts';
import type { StartedThread } from './start.ts';

/** An action of a hook that would run, and the context of the hook's event. */
export interface HookCall extends Pick<ReviewedCall, 'tool' | 'input' | 'need'> {
  readonly context: JsonObject;
}

/** Refuses what a person would have to decide about: a hook runs between two steps of a thread and cannot wait. */
export class HookAsks {
  readonly #env: SubjectEnv;
  readonly #started: StartedThread;
  readonly #subjects: ApprovalSubjects;

  constructor(env: SubjectEnv, started: StartedThread) {
    this.#env = env;
    this.#started = started;
    this.#subjects = new ApprovalSubjects(env, started);
  }

  /** Throws `approval_required` if permissions, a policy or the risk table ask about the call. */
  async refuseAsked(hook: HookDeclaration, { context, ...call }: HookCall): Promise<void> {
    const policies = await this.#env.approvals.policies();
    const money = async () => await this.#money(context);
    const asked = { ...call, callId: '', asks: [], money };
    const demand = await this.#subjects.demandOf(policies, asked);
    if (!demand) return;
    const rules = demand.requirements.map(({ rule }) => rule).join(', ');
    throw needsPerson(hook, `${call.need.item_id ?? call.tool.id} (${rules})`);
  }

  async #money(context: JsonObject): Promise<CallMoney> {
    const { plan, threadId } = this.#started;
    const given = context['cost'];
    // an event without costs is one before the first turn
    const cost: Cost = isRecord(given) ? { ...NO_COST, ...given } : NO_COST;
    const granted = toUsd(await this.#env.store.ledger.remaining(threadId));
    return { cost, left: Math.min(plan.limits.spend - cost.spend, granted) };
  }
}

/** The refusal of an action for which a person would have to be asked. */
export function needsPerson({ id }: HookDeclaration, what: string): RyeError {
  return new RyeError(
    'approval_required',
    `hook ${id} cannot wait for a person to decide about ${what}: allow it in the policy, or let the directive call it`,
    { hint: 'See docs/approvals.md.' },
  );
}
