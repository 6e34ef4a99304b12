import { messageOf } from '../core/errors.ts';
import { totalTokens, type Usage } from '../core/usage.ts';
import { note } from './conversation.ts';
import { decidedEnding } from './hooks.ts';
import type { CompactionReason, CompactionRequest, Ending } from './ports.ts';
import type { Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';

/**
 * Makes the context shorter through the port. If that is not possible, returns false and leaves the context unchanged.
 * The summary's cost is booked at once, so that a crash does not forget it.
 */
export async function compactContext(
  run: Run,
  reason: CompactionReason,
  instructions?: string,
): Promise<boolean> {
  const { ports, stop, conversation, spend, models, calls } = run;
  if (!ports.compact) return false;
  try {
    const request = await requestOf(run, reason, instructions);
    const done = await orStopped(ports.compact(request, stop.signal), stop.signal);
    if (isStopped(done) || !done) return false;
    spend.charge(done.usage, models.current.pricing);
    await conversation.write(...done.drafts);
    if (done.messages) {
      conversation.replace(done.messages);
      calls.noteCompaction();
    }
    await bookOutsideTurn(run, done.usage);
    return done.messages !== undefined;
  } catch (error) {
    await conversation.write(note(`the context could not be compacted: ${messageOf(error)}`));
    return false;
  }
}

async function requestOf(
  run: Run,
  reason: CompactionReason,
  instructions: string | undefined,
): Promise<CompactionRequest> {
  return {
    messages: run.conversation.messages,
    reason,
    model: run.models.current,
    tokens: run.conversation.likelyTokens(),
    turn: run.spend.turn,
    cost: run.spend.cost(),
    remainingMicroUsd: await run.spend.remainingMicroUsd(),
    ...(instructions === undefined ? {} : { instructions }),
    book: async (usage) => {
      run.spend.charge(usage, run.models.current.pricing);
      // a run that was stopped meanwhile books its whole cost at its end
      if (!run.stop.signal.aborted) await bookOutsideTurn(run, usage);
    },
  };
}

/** Books the usage of a compaction between turns. An open turn books its whole usage at its end. */
async function bookOutsideTurn(run: Run, usage: Usage): Promise<void> {
  if (run.spend.isTurnOpen || totalTokens(usage) === 0) return;
  await run.spend.report();
  await run.conversation.write({
    event_type: 'cost',
    payload: { turn: run.spend.turn, usage, total: run.spend.cost() },
    durable: true,
  });
}

/**
 * Asks the `context_limit_reached` hooks if the context fills the model's window up to the threshold. By default it is
 * compacted, or handed off if the configuration sets that mode.
 */
export async function watchContext(run: Run): Promise<Ending | undefined> {
  const { context_window: window } = run.models.current;
  const used = run.conversation.likelyTokens();
  const ratio = used / window;
  if (window <= 0 || used < fullAt(run, window)) {
    run.conversation.noteRoom();
    return undefined;
  }
  if (!run.conversation.shouldAskAboutSize(used)) return undefined;
  const decision = await run.hooks.control('context_limit_reached', {
    usage_ratio: Math.round(ratio * 1000) / 1000,
    tokens_used: used,
    tokens_limit: window,
  });
  if (!decision && run.plan.settings.context_limit.mode === 'handoff') return { kind: 'handoff' };
  if (!decision) await compactContext(run, 'threshold');
  if (decision?.control === 'compact') {
    await compactContext(run, 'threshold', decision.instructions);
  }
  return decidedEnding(decision, 'context_limit_reached', 'the context is full');
}

/** Returns the tokens at which a context is full: at the threshold, or if an answer would have less than the reserve. */
function fullAt(run: Run, window: number): number {
  const { threshold, reserve_tokens: reserve = 0 } = run.plan.settings.context_limit;
  // a small window can't spare a large reserve
  return Math.min(threshold * window, window - Math.min(reserve, window / 4));
}
