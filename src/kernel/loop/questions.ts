import type { CallContext, Question, QuestionEnd, ResolvedCall } from '../tools/tool.ts';
import { note } from './conversation.ts';
import type { ApprovalPort, ReviewedCall } from './ports.ts';
import type { Run } from './run.ts';
import { moneyOf } from './spend.ts';

/** A call that has started. */
type Asking = Pick<ResolvedCall, 'tool' | 'need'> & { readonly callId: string };

/** Questions that one call may ask; more are cancelled without a trace, so that a call cannot fill the log. */
const MAX_QUESTIONS = 20;

const CANCELLED: QuestionEnd = { kind: 'cancelled' };

/**
 * Returns the way from a running call to a person. The call cannot be suspended, so its questions wait in this process. They
 * are separate requests: the call that asks has started already.
 */
export function askerOf(run: Run, call: Asking): NonNullable<CallContext['ask']> {
  let asked = 0;
  return async (question, signal) => {
    asked += 1;
    if (asked > MAX_QUESTIONS || signal.aborted) return CANCELLED;
    const { approvals } = run.ports;
    if (approvals && (await approvals.waitsInline())) {
      const about = await requestOf(run, call, { question, number: asked });
      return await askPerson(run, approvals, { about, callId: call.callId, signal });
    }
    await run.conversation.write(unasked(call, question));
    return CANCELLED;
  };
}

function unasked({ callId, tool }: Asking, { text, source = tool.id }: Question) {
  const why = 'no person can be asked here; run it at a terminal, or set wait_inline in the policy';
  return note(`warning: the question of the ${source} was cancelled: ${why}`, {
    call_id: callId,
    tool: tool.id,
    question: text,
  });
}

async function requestOf(
  run: Run,
  { callId, tool, need }: Asking,
  { question, number }: { readonly question: Question; readonly number: number },
): Promise<ReviewedCall> {
  const { text, schema, source = tool.id } = question;
  return {
    callId: `${callId}.question-${number}`,
    tool: { ...tool, question: () => question },
    input: { question: text, schema, source },
    need,
    asks: [],
    money: async () => await moneyOf(run),
  };
}

/** A question of a call that runs. */
interface Asked {
  readonly about: ReviewedCall;
  readonly callId: string;
  readonly signal: AbortSignal;
}

async function askPerson(
  run: Run,
  approvals: ApprovalPort,
  { about, callId, signal }: Asked,
): Promise<QuestionEnd> {
  const { conversation, hooks, stop } = run;
  const [review] = await approvals.review([about]);
  if (review?.kind === 'unreachable') {
    const facts = { call_id: about.callId, tool: about.tool.id };
    await conversation.write(...review.drafts, note(`warning: ${review.reason}`, facts));
  }
  if (review?.kind !== 'asked') return CANCELLED;
  const { id } = review;
  const facts = {
    approval_id: id,
    kind: 'question',
    call_id: about.callId,
    tool: about.tool.id,
    input: about.input,
  };
  await conversation.write(...review.drafts);
  const verdict = await run.idle.waitsInside(callId, async () => {
    await approvals.publish([id]);
    await hooks.observe('approval_requested', facts);
    return await approvals.wait(id, about, signal);
  });
  if (verdict.kind === 'waiting' || verdict.kind === 'approved') {
    const reason = signal.aborted ? 'the call that asked has ended' : 'no person answered in time';
    await conversation.write(...(await approvals.withdraw([id], reason)));
    return CANCELLED;
  }
  await conversation.write(...verdict.drafts);
  await hooks.observe('approval_decided', { ...facts, outcome: verdict.kind });
  if (verdict.kind === 'answered') return { kind: 'answered', answer: verdict.answer };
  if (verdict.ends) stop.endAfterBatch({ control: 'fail', error: verdict.reason });
  return { kind: verdict.kind === 'denied' ? 'declined' : 'cancelled' };
}
