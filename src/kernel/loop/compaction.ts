import { messageOf } from '../core/errors.ts';
import type { RequestEstimate } from '../core/events.ts';
import { NO_USAGE, toMicroUsd, totalTokens, type Usage } from '../core/usage.ts';
import { note } from './conversation.ts';
import { decidedEnding } from './hooks.ts';
import type { CompactionReason, CompactionRequest, Ending } from './ports.ts';
import type { Run } from './run.ts';
import { isStopped, orAbandoned } from './stop.ts';

/** Time in which a compaction must react to the end of its run. After it, its open request counts as used up. */
const GRACE_MS = 5000;

/**
 * Makes the context shorter through the port. If that is not possible, returns false and leaves the context unchanged.
 * The summary's cost is booked at once, so that a crash does not forget it.
 */
export async function compactContext(
  run: Run,
  reason: CompactionReason,
  instructions?: string,
): Promise<boolean> {
  const { ports, stop, conversation, calls } = run;
  if (!ports.compact) return false;
  const { signal } = stop;
  const bill = new SummaryBill(run);
  try {
    const request = await requestOf(run, bill, { reason, instructions });
    const work = ports.compact(request, signal);
    const done = await orAbandoned(work, { signal, clock: ports.clock, graceMs: GRACE_MS });
    if (isStopped(done)) await bill.abandon();
    if (isStopped(done) || !done) return false;
    await conversation.write(...done.drafts);
    if (done.messages) {
      conversation.replace(done.messages);
      calls.noteCompaction();
    }
    await bill.book(done.usage);
    return done.messages !== undefined;
  } catch (error) {
    await bill.abandon();
    await conversation.write(note(`the context could not be compacted: ${messageOf(error)}`));
    return false;
  }
}

/** The cost of the requests of one compaction. */
class SummaryBill {
  readonly #run: Run;
  /** The request that was announced and is not booked. */
  #open: RequestEstimate | undefined;
  #isOver = false;

  constructor(run: Run) {
    this.#run = run;
  }

  async hold(most: RequestEstimate): Promise<boolean> {
    if (this.#isOver || !(await this.#run.spend.hold(toMicroUsd(most.reserved_usd ?? 0)))) {
      return false;
    }
    this.#open = most;
    return true;
  }

  /** Charges and books a part of the summary. */
  async book(usage: Usage): Promise<void> {
    if (this.#isOver) return;
    this.#open = undefined;
    this.#run.spend.charge(usage, this.#run.models.current.pricing);
    await bookOutsideTurn(this.#run, usage);
  }

  /** Books the open request as it was announced: what it used will not be known. */
  async abandon(): Promise<void> {
    const { input_tokens = 0, max_tokens = 0 } = this.#open ?? {};
    await this.book({ ...NO_USAGE, input_tokens, output_tokens: max_tokens });
    this.#isOver = true;
  }
}

async function requestOf(
  run: Run,
  bill: SummaryBill,
  { reason, instructions }: { reason: CompactionReason; instructions: string | undefined },
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
    hold: async (most) => await bill.hold(most),
    book: async (usage) => await bill.book(usage),
  };
}

/** Books the usage of a compaction between turns. An open turn books its whole usage at its end. */
async function bookOutsideTurn(run: Run, usage: Usage): Promise<void> {
  if (run.spend.isTurnOpen) return;
  await run.spend.report();
  if (totalTokens(usage) === 0) return;
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
