import { messageOf } from '../core/errors.ts';
import type { ControlAction } from '../core/hook.ts';
import { totalTokens, type Usage } from '../core/usage.ts';
import type { CompactionReason, CompactionRequest, Ending } from './ports.ts';
import { hookError, note, type Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';

/**
 * Makes the context shorter through the port; false when that is not possible. Then the context is as it was. What the
 * summary cost is booked at once: a crash behind it must not forget it.
 */
export async function compactContext(
  run: Run,
  reason: CompactionReason,
  instructions?: string,
): Promise<boolean> {
  const { ports, stop } = run;
  if (!ports.compact) return false;
  try {
    const request = await requestOf(run, reason, instructions);
    const done = await orStopped(ports.compact(request, stop.signal), stop.signal);
    if (isStopped(done) || !done) return false;
    run.charge(done.usage);
    await run.write(...done.drafts);
    if (done.messages) run.replaceContext(done.messages);
    await bookOutsideTurn(run, done.usage);
    return done.messages !== undefined;
  } catch (error) {
    await run.write(note(`the context could not be compacted: ${messageOf(error)}`));
    return false;
  }
}

async function requestOf(
  run: Run,
  reason: CompactionReason,
  instructions: string | undefined,
): Promise<CompactionRequest> {
  return {
    messages: run.messages,
    reason,
    model: run.model,
    tokens: run.meter.likelyTokens(run.preamble()),
    turn: run.turn,
    cost: run.cost(),
    remainingMicroUsd: await run.remainingMicroUsd(),
    ...(instructions === undefined ? {} : { instructions }),
  };
}

/** An open turn books its whole usage when it ends. */
async function bookOutsideTurn(run: Run, usage: Usage): Promise<void> {
  if (run.isTurnOpen || totalTokens(usage) === 0) return;
  await run.reportSpend();
  await run.write({
    event_type: 'cost',
    payload: { turn: run.turn, usage, total: run.cost() },
    durable: true,
  });
}

/**
 * After a turn: when the context fills the model's window up to the threshold, the `context_limit_reached` hooks
 * decide; by default it is compacted, or handed off where the configuration says so.
 */
export async function watchContext(run: Run): Promise<Ending | undefined> {
  const { context_window: window } = run.model;
  const used = run.meter.likelyTokens(run.preamble());
  const ratio = used / window;
  if (window <= 0 || used < fullAt(run, window)) {
    run.contextAskedAt = 0;
    return undefined;
  }
  // a context that can't be made shorter would ask, and pay, on every turn: so only when it has grown by a tenth
  if (used < run.contextAskedAt * 1.1) return undefined;
  run.contextAskedAt = used;
  const decision = await run.control('context_limit_reached', {
    usage_ratio: Math.round(ratio * 1000) / 1000,
    tokens_used: used,
    tokens_limit: window,
  });
  return decide(run, decision);
}

/** A context is full at the threshold, or where less than the reserve would be left for an answer. */
function fullAt(run: Run, window: number): number {
  const { threshold, reserve_tokens: reserve = 0 } = run.plan.settings.context_limit;
  // a small window can't spare a large reserve
  return Math.min(threshold * window, window - Math.min(reserve, window / 4));
}

async function decide(run: Run, decision: ControlAction | undefined): Promise<Ending | undefined> {
  switch (decision?.control) {
    case undefined:
      if (run.plan.settings.context_limit.mode === 'handoff') return { kind: 'handoff' };
      await compactContext(run, 'threshold');
      return undefined;
    case 'compact':
      await compactContext(run, 'threshold', decision.instructions);
      return undefined;
    case 'handoff':
      return { kind: 'handoff' };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? 'the context is full' };
    case 'fail':
    case 'abort':
      return { kind: 'error', error: hookError(decision, 'context_limit_reached').toJSON() };
    case 'continue':
    case 'retry':
    case 'escalate':
      break;
  }
  return undefined;
}
