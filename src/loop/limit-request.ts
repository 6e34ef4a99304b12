import type { ControlAction } from '../core/hook.ts';
import type { LimitReached } from '../policy/limits.ts';
import { CHANGING_TRAITS, errorOutput, type Tool } from '../tools/tool.ts';
import { note } from './conversation.ts';
import type { Run } from './run.ts';
import { moneyOf } from './spend.ts';

/** Represents the raise of a limit in a request; no call runs it. */
const LIMIT: Tool = {
  id: 'rye/agent/limit',
  description: 'Raises a limit of the thread.',
  inputSchema: { type: 'object' },
  traits: CHANGING_TRAITS,
  execute: () => Promise.resolve(errorOutput('A limit is raised by a person.')),
};

type Ask = Extract<ControlAction, { readonly control: 'ask' }>;

/** The decision about the raise of a limit: `raise` if a person has agreed, the ids to wait for, or neither. */
export interface LimitDecision {
  readonly raise?: { readonly limit: string; readonly to: number };
  readonly waiting?: readonly string[];
}

/** Asks a person to raise a limit that was reached. */
export async function requestRaise(
  run: Run,
  { name, current, max }: LimitReached,
  { limit = name, to = max * 2, reason = '' }: Ask,
): Promise<LimitDecision> {
  const { ports, conversation, stop, spend } = run;
  const { approvals } = ports;
  if (!approvals) return {};
  const call = {
    callId: `limit-${limit}-${max}`,
    tool: LIMIT,
    input: { limit, current, max, to },
    need: { verb: 'execute', item_type: 'tool', item_id: LIMIT.id } as const,
    asks: [{ source: 'hook', reason }],
    money: async () => await moneyOf(run),
  };
  const [review] = await approvals.review([call]);
  if (review?.kind === 'unreachable') {
    await conversation.write(...review.drafts, note(`warning: ${review.reason}`, { limit, to }));
  }
  if (review?.kind !== 'asked') return {};
  await conversation.write(...review.drafts);
  spend.pause();
  await approvals.publish([review.id]);
  const verdict = await approvals.wait(review.id, call, stop.cancelSignal);
  spend.goOn();
  if (verdict.kind === 'waiting') return { waiting: [review.id] };
  if (verdict.kind !== 'approved') {
    await conversation.write(...verdict.drafts);
    return {};
  }
  const confirmed = await approvals.confirm(review.id, call, {
    ...call,
    input: verdict.input ?? call.input,
  });
  await conversation.write(...confirmed.drafts);
  if (confirmed.kind === 'voided') return {};
  const wanted = verdict.input?.['to'];
  return { raise: { limit, to: typeof wanted === 'number' ? wanted : to } };
}
