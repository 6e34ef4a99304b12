import type {
  AttemptState,
  Delivery,
  RunEnd,
  RunProof,
  RunRisk,
  RunTraits,
} from '../core/delivery.ts';
import type { HookDeclaration } from '../core/hook.ts';

/** Bounds of steering, from the configuration. */
export interface SteerRules {
  /** `steer.active_turn: enabled`. */
  readonly enabled: boolean;
  /** Time between two steers of one thread. */
  readonly minIntervalMs: number;
  /** Time for which a published state of a run counts as fresh. */
  readonly proofMs: number;
}

/** Facts known when a delivery arrives during an active run. */
export interface SteerFacts {
  readonly rules: SteerRules;
  readonly delivery: Pick<
    Delivery,
    'state' | 'mode' | 'class' | 'attempts' | 'max_attempts' | 'requires_artifact' | 'entry_id'
  >;
  readonly isHead: boolean;
  readonly hasUnresolvedAttempt: boolean;
  /** When the thread last got a steer; milliseconds since 1970. */
  readonly lastSentAt: number | undefined;
  /** Mode of the delivery. */
  readonly needs: RunTraits;
  readonly threadId: string;
  readonly epoch: number;
  /** Every open run that claims the thread: more than one proves nothing. */
  readonly proofs: readonly RunProof[];
  readonly now: number;
}

/** `idle`: it waits for the end of the run. `hold`: not now. `manual`: a person decides. `row`: see {@link decideSteer}. */
export interface SteerDecision {
  readonly outcome: 'steer' | 'idle' | 'hold' | 'manual';
  readonly row: number;
  readonly reason: string;
}

type Row = readonly [row: number, outcome: SteerDecision['outcome'], reason: string];

/**
 * Decides if a background delivery may join an active run. The rows are read from top to bottom, the first
 * that applies decides: 1 switch, 2 capability, 3 head, 4 unresolved attempt, 5 attempts, 6 interval, 7 needs, 8 size,
 * 9 proof, 10 no run, 11 several runs, 12 kind, 13 steerable, 14 traits, 15 risk, 16 go. Unknown means no.
 */
export function decideSteer(facts: SteerFacts): SteerDecision {
  const [row, outcome, reason] =
    switchRows(facts) ??
    queueRows(facts) ??
    needRows(facts) ??
    proofRows(facts) ??
    riskRows(facts) ??
    ([16, 'steer', 'the run reads only, and its state is proven'] as const);
  return { row, outcome, reason };
}

function switchRows({ rules, delivery, epoch }: SteerFacts): Row | undefined {
  if (!rules.enabled) return [1, 'idle', 'steer.active_turn is not enabled'];
  // our own loop can be steered wherever it holds the thread: the capability is the claim
  if (epoch < 1) return [2, 'idle', 'no process holds the thread'];
  if (delivery.mode === 'idle' || delivery.mode === 'follow-up') {
    return [1, 'idle', `its mode is ${delivery.mode}`];
  }
  return undefined;
}

function queueRows(facts: SteerFacts): Row | undefined {
  const { delivery, isHead, hasUnresolvedAttempt, lastSentAt, now, rules } = facts;
  if (!isHead || delivery.state !== 'queued') return [3, 'hold', 'another delivery comes first'];
  if (delivery.entry_id !== null) return [3, 'hold', 'it is in the log already'];
  if (hasUnresolvedAttempt) return [4, 'hold', 'an earlier delivery is not resolved yet'];
  if (delivery.attempts >= delivery.max_attempts) {
    return [5, 'manual', `all ${delivery.max_attempts} attempts are used`];
  }
  if (lastSentAt !== undefined && now - lastSentAt < rules.minIntervalMs) {
    return [6, 'hold', 'the last steer was too recent'];
  }
  return undefined;
}

function needRows({ delivery, needs }: SteerFacts): Row | undefined {
  const wanted = traitProblem(needs);
  if (wanted !== undefined) return [7, 'idle', `the delivery ${wanted}`];
  if (delivery.requires_artifact) return [8, 'idle', 'it is too large to be quoted whole'];
  return undefined;
}

function proofRows({ proofs, threadId, epoch, now }: SteerFacts): Row | undefined {
  const [proof, other] = proofs;
  if (proof === undefined) return [10, 'idle', 'no run is under way'];
  if (other !== undefined) return [11, 'idle', 'more than one run claims the thread'];
  if (proof.active_run_id === '') return [11, 'idle', 'the run has no id'];
  if (proof.thread_id !== threadId) return [9, 'idle', 'the proof is of another thread'];
  if (proof.epoch !== epoch) return [9, 'idle', 'the proof is of another epoch'];
  if (now < proof.observed_at || now > proof.valid_until) return [9, 'idle', 'the proof is stale'];
  return undefined;
}

function riskRows({ proofs: [proof] }: SteerFacts): Row | undefined {
  if (!proof) return [10, 'idle', 'no run is under way'];
  if (proof.active_run_kind !== 'regular') {
    return [12, 'idle', `a run of kind ${proof.active_run_kind} is not steered`];
  }
  if (proof.steerable !== true)
    return [13, 'idle', 'the run does not declare that it can be steered'];
  if (proof.answer_boundary_passed) return [13, 'idle', 'the model has given its final answer'];
  if (!proof.after_tool_batch || proof.open_tool_calls !== 0 || proof.pending_approvals !== 0) {
    return [13, 'idle', 'the run is not at the end of a whole tool batch'];
  }
  const wanted = traitProblem(proof);
  if (wanted !== undefined) return [14, 'idle', `the run ${wanted}`];
  if (proof.risk_class !== 'read_only_low_risk') {
    return [15, 'idle', `the run's risk is ${proof.risk_class}`];
  }
  return undefined;
}

function traitProblem(traits: RunTraits): string | undefined {
  const named = [
    ['asks for approval', traits.requires_approval],
    ['reaches the network', traits.requires_network],
    ['writes', traits.requires_write_access],
  ] as const;
  for (const [what, value] of named) {
    if (value === null) return `is not known: whether it ${what}`;
    if (value) return what;
  }
  return undefined;
}

/** Traits that a tool declares; undefined if there are none to rely on. */
export type DeclaredTool = { readonly readsOnly: boolean; readonly network: boolean } | undefined;

/** Derives the traits of a run: it only reads if every tool that it is offered declares that it only reads. */
export function runTraits(
  tools: readonly DeclaredTool[],
  hooks: readonly HookDeclaration[],
  asks = false,
): RunTraits {
  return {
    requires_approval: asks || hooks.some(canSuspend),
    requires_network: anyOf(tools, ({ network }) => network),
    requires_write_access: anyOf(tools, ({ readsOnly }) => !readsOnly),
  };
}

/** True if a hook can stop the thread for a person's decision. */
function canSuspend({ event, enabled, actions }: HookDeclaration): boolean {
  return (
    enabled &&
    (event === 'tool_gate' || event === 'after_step') &&
    actions.some((action) => action.kind === 'control' && action.action.control === 'suspend')
  );
}

function anyOf(
  tools: readonly DeclaredTool[],
  test: (tool: NonNullable<DeclaredTool>) => boolean,
): boolean | null {
  if (tools.some((tool) => tool !== undefined && test(tool))) return true;
  return tools.includes(undefined) ? null : false;
}

export function riskOf(traits: RunTraits): RunRisk {
  const { requires_approval: approval, requires_network: network, requires_write_access } = traits;
  const values = new Set([approval, network, requires_write_access]);
  if (values.has(true)) return 'elevated';
  return values.has(null) ? 'unknown' : 'read_only_low_risk';
}

/** A message is text that is quoted: it asks for nothing itself. */
export const TEXT_NEEDS: RunTraits = {
  requires_approval: false,
  requires_network: false,
  requires_write_access: false,
};

/** Decides how a delivery in the log is settled when its run ends. */
export interface Settlement {
  readonly attempt: Extract<AttemptState, 'delivered' | 'abandoned'>;
  readonly delivery: 'delivered' | 'queued' | 'manual';
  readonly reason: string;
}

/** Proven facts about the entry of a delivery. */
export interface EntryProof {
  /** A committed answer covered it. */
  readonly isCovered: boolean;
  /** A request carried it or may have carried it. */
  readonly isRequested: boolean;
}

/** The reason of a delivery that no request carried. It costs no attempt. */
export const UNSEEN = 'no request carried it';

/**
 * Delivered only if the run completed and a committed answer covered the entry. An entry that no request carried is
 * proven unseen and stays queued. Anything else the model may have acted on, so a person decides.
 */
export function settleDelivery(end: RunEnd, { isCovered, isRequested }: EntryProof): Settlement {
  if (end === 'completed' && isCovered) {
    return {
      attempt: 'delivered',
      delivery: 'delivered',
      reason: 'the run completed and an answer covered it',
    };
  }
  if (end === 'replaced') {
    return { attempt: 'abandoned', delivery: 'manual', reason: 'its branch was left' };
  }
  if (!isCovered && !isRequested) {
    return { attempt: 'abandoned', delivery: 'queued', reason: UNSEEN };
  }
  const seen = isCovered ? 'the model saw it' : 'the model may have seen it';
  return { attempt: 'abandoned', delivery: 'manual', reason: `${seen}, and ${ENDS[end]}` };
}

const ENDS: Readonly<Record<Exclude<RunEnd, 'replaced'>, string>> = {
  completed: 'no answer covered it',
  failed: 'the run failed',
  interrupted: 'the run was interrupted',
};
