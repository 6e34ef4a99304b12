import { toText } from '../core/json.ts';
import type { ToolCallBlock } from '../core/message.ts';
import { notStarted, readmit } from './gates.ts';
import type { Lanes } from './lanes.ts';
import type { ApprovalPort, ApprovalVerdict, Review, ReviewedCall } from './ports.ts';
import type { Run } from './run.ts';
import { moneyOf } from './spend.ts';
import { type Settled, settle, settleUnrun, type Validated } from './tool-call.ts';

/** Number of times that a call is asked about because what it would do has changed. */
const MAX_ROUNDS = 20;

/** A call that a person decides about, or that an earlier decision may cover. */
export interface AskedCall {
  readonly call: Validated;
  readonly review: Exclude<Review, { readonly kind: 'allowed' }>;
}

/** A call that still waits when its run is suspended. */
export interface Waiting {
  readonly call: ToolCallBlock;
  readonly approvalId?: string;
}

/** Returns the calls of one answer that ask. Their requests are made together, and are durable before anyone sees one. */
export async function reviewCalls(
  run: Run,
  calls: readonly Validated[],
): Promise<readonly AskedCall[]> {
  const reviews = await review(run, calls);
  return calls.flatMap((call, index) => {
    const found = reviews[index];
    return found && found.kind !== 'allowed' ? [{ call, review: found }] : [];
  });
}

async function review(run: Run, calls: readonly Validated[]): Promise<readonly Review[]> {
  const { approvals } = run.ports;
  if (calls.length === 0 || !approvals) return [];
  const reviews = await approvals.review(calls.map((call) => reviewed(run, call)));
  const requested = reviews.flatMap((one) => (one.kind === 'asked' ? [one] : []));
  const drafts = reviews.flatMap((one) => ('drafts' in one ? one.drafts : []));
  await run.conversation.write(...drafts);
  // from here on a person may take time
  const publish = async () => await approvals.publish(requested.map(({ id }) => id));
  if (requested.length > 0) await run.idle.waits(publish);
  for (const [index, one] of reviews.entries()) {
    const call = calls[index];
    const isNew = one.kind === 'asked' && one.drafts.length > 0;
    if (isNew && call) await run.hooks.observe('approval_requested', aboutRequest(one.id, call));
  }
  return reviews;
}

/** Returns the members of a request for hooks. */
function aboutRequest(approvalId: string, { requested, tool, input }: Validated) {
  const { call_id, name } = requested.call;
  const kind = tool.presentsPlan ? 'plan' : tool.question ? 'question' : 'call';
  return { approval_id: approvalId, kind, call_id, tool: tool.id, name, input };
}

function reviewed(run: Run, { requested, tool, input, need, asks }: Validated): ReviewedCall {
  const money = async () => await moneyOf(run);
  return { callId: requested.call.call_id, tool, input, need, asks, money };
}

/** The lanes and the results of a batch. */
export interface BatchWork {
  readonly lanes: Lanes;
  /** Runs a call and settles it. */
  readonly work: (call: Validated) => Promise<void>;
  readonly settle: (settled: Settled) => Promise<void>;
}

/**
 * Takes a call to its end: waits for the decision, checks it once more immediately before the call starts, and asks again
 * if something has changed. Resolves to the call if it still waits when the time to wait is over.
 */
export async function runAsked(
  run: Run,
  { call: first, review: firstReview }: AskedCall,
  batch: BatchWork,
): Promise<Waiting | undefined> {
  const { approvals } = run.ports;
  const { call: block } = first.requested;
  let found: Review | undefined = firstReview;
  if (!approvals) return undefined;
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    if (!found || found.kind === 'allowed') {
      await batch.lanes.run(first, batch.work);
      return undefined;
    }
    if (found.kind === 'unreachable') {
      const { requested, tool } = first;
      const code = 'approval_unreachable';
      await batch.settle(settleUnrun(requested, tool.id, 'blocked', found.reason, code));
      return undefined;
    }
    const { id } = found;
    const ready: Validated | Settled | 'waiting' =
      found.kind === 'granted'
        ? first
        : await run.idle.waits(async () => await decided(run, approvals, { id, call: first }));
    if (ready === 'waiting') return { call: block, approvalId: id };
    if (ready.stage === 'settled') {
      await batch.settle(ready);
      return undefined;
    }
    let isVoid = false;
    await batch.lanes.run(ready, async (call) => {
      isVoid = !(await startConfirmed(run, approvals, { id, asked: first, call, batch }));
    });
    if (!isVoid) return undefined;
    [found] = await review(run, [first]);
  }
  const reason = 'what it would do changed again and again while a person was asked';
  await batch.settle(
    settleUnrun(first.requested, first.tool.id, 'blocked', reason, 'approval_invalid'),
  );
  return undefined;
}

/** Waits for the decision about a call; its input is then what the person gave. */
async function decided(
  run: Run,
  approvals: ApprovalPort,
  { id, call }: { readonly id: string; readonly call: Validated },
): Promise<Validated | Settled | 'waiting'> {
  const { requested, tool } = call;
  const ending = run.stop.endingSignal;
  const verdict = await approvals.wait(id, reviewed(run, call), ending);
  if (ending.aborted) {
    await run.conversation.write(...(await approvals.withdraw([id], 'the thread ends')));
    if (run.stop.signal.aborted) return notStarted(run, requested, tool.id);
    const reason = 'the thread ended before a person decided about this call';
    return settleUnrun(requested, tool.id, 'skipped', reason);
  }
  if (verdict.kind === 'waiting') return 'waiting';
  const outcome = { ...aboutRequest(id, call), outcome: verdict.kind };
  await run.hooks.observe('approval_decided', outcome);
  if (verdict.kind === 'approved') {
    if (!verdict.input) return call;
    const admitted = await readmit(run, call, verdict.input);
    if (admitted.stage === 'settled') return admitted;
    const { comment = '' } = verdict;
    return { ...admitted, changed: { requested: call.input, comment } };
  }
  await run.conversation.write(...verdict.drafts);
  return verdict.kind === 'answered'
    ? settle(requested, tool.id, 'ok', toText(verdict.answer), { data: { answer: verdict.answer } })
    : refused(run, call, verdict);
}

function refused(
  run: Run,
  { requested, tool }: Validated,
  { kind, reason, ends }: Extract<ApprovalVerdict, { readonly reason: string }>,
): Settled {
  const code = kind === 'expired' ? 'approval_expired' : 'approval_denied';
  if (ends) run.stop.endAfterBatch({ control: 'fail', error: reason });
  return settleUnrun(requested, tool.id, 'blocked', reason, code);
}

/** Starts a call if its decision still counts; false, with the reason in the log, if it does not. */
async function startConfirmed(
  run: Run,
  approvals: ApprovalPort,
  facts: {
    readonly id: string;
    readonly asked: Validated;
    readonly call: Validated;
    readonly batch: BatchWork;
  },
): Promise<boolean> {
  const { id, asked, call, batch } = facts;
  const confirmed = await approvals.confirm(id, reviewed(run, asked), reviewed(run, call));
  if (confirmed.kind === 'voided') {
    await run.conversation.write(...confirmed.drafts);
    return false;
  }
  const { use, drafts } = confirmed;
  await batch.work({ ...call, approved: { use, drafts } });
  return true;
}
