import { messageOf } from '../core/errors.ts';
import type { RequestEstimate } from '../core/events.ts';
import type { PlannedModel } from '../core/plan.ts';
import { headChars } from '../core/text.ts';
import { NO_USAGE, priceMicroUsd, toMicroUsd, totalTokens, type Usage } from '../core/usage.ts';
import { note } from './conversation.ts';
import type { Consult, Question } from './ports.ts';
import type { Run } from './run.ts';
import { isStopped, orAbandoned } from './stop.ts';

/** Time in which an answer must react to the end of its run. After it, its request counts as used up. */
const GRACE_MS = 5000;

/**
 * Asks another model a question beside an answer that is complete, but not charged yet. The request takes from the same
 * limits and the same budget, is on the disk before it is sent, and is charged at once. Never rejects.
 */
export async function consult(run: Run, question: Question, uncharged: Usage): ReturnType<Consult> {
  const answer = await ask(run, question, uncharged);
  const verdict =
    'error' in answer
      ? `no answer: ${answer.error}`
      : `${headChars(answer.text, 40)}, by ${answer.model}`;
  await run.conversation.write(
    note(`${question.label}: ${verdict}`, { [JUDGMENT]: { ...answer } }),
  );
  return answer;
}

/** The member of a note's details that has the answer to a question: `text` and `model`, or `error`. */
export const JUDGMENT = 'judgment';

async function ask(run: Run, question: Question, uncharged: Usage): ReturnType<Consult> {
  const { ports, spend, stop, conversation, models } = run;
  if (!ports.consult) return { error: 'no model can be asked here' };
  if (stop.signal.aborted) return { error: 'the run was stopped' };
  const { pricing } = models.current;
  const owed = pricing ? priceMicroUsd(uncharged, pricing) : 0;
  let open: { readonly most: RequestEstimate; readonly model: PlannedModel } | undefined;
  const begin = async (most: RequestEstimate, model: PlannedModel): Promise<boolean> => {
    const tokens = totalTokens(uncharged) + most.input_tokens + most.max_tokens;
    if (tokens > spend.tokensLeft()) return false;
    if (!(await spend.hold(owed + toMicroUsd(most.reserved_usd ?? 0)))) return false;
    open = { most, model };
    const payload = { turn: spend.turn, purpose: 'judgment', request: most } as const;
    await conversation.write({ event_type: 'request_started', payload, durable: true });
    return true;
  };
  try {
    const remainingMicroUsd = (await spend.remainingMicroUsd()) - owed;
    const work = ports.consult({ ...question, remainingMicroUsd, begin }, stop.signal);
    const waiting = { signal: stop.signal, clock: ports.clock, graceMs: GRACE_MS };
    const done = await orAbandoned(work, waiting);
    if (!isStopped(done)) {
      spend.charge(done.usage, done.model.pricing);
      if ('error' in done) return { error: done.error };
      return { text: done.text, model: `${done.model.provider}/${done.model.id}` };
    }
    if (open) {
      const { input_tokens, max_tokens: output_tokens } = open.most;
      spend.charge({ ...NO_USAGE, input_tokens, output_tokens }, open.model.pricing);
    }
    return { error: 'the run was stopped' };
  } catch (error) {
    return { error: messageOf(error) };
  }
}
