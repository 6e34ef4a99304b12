import { RyeError, toRyeError } from '../core/errors.ts';
import { type AssistantMessage, textOf, toolCallsOf } from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { hasSchema } from '../core/return-schema.ts';
import { CONTINUE_DRAFT } from '../log/interruption.ts';
import type { AwaitedThreads } from '../tools/tool.ts';
import { leaveCalls, runToolBatch } from './batch.ts';
import { compactContext, watchContext } from './compaction.ts';
import { hiddenMessage, note } from './conversation.ts';
import { finishOrNudge, finishUnlessMore, watchLoop } from './finish.ts';
import { decidedEnding } from './hooks.ts';
import { enforceLimits, nextCallOf } from './limits.ts';
import { streamAnswer } from './model-call.ts';
import { endReturned, type Returned, resultMissing } from './outputs.ts';
import type { Ending, LoopEvents, LoopOutcome, LoopPorts } from './ports.ts';
import { createRun, type Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';
import { recordTaken } from './taken.ts';

/** The reason of a suspension for which the hook gave none. */
const SUSPENDED = 'a hook suspended the thread';

/**
 * Runs a thread's model and tools until it is done, as a stream of events that the caller writes to the log before
 * it asks for more. The outcome is always a value: if a port throws, a write fails or the caller leaves, the run ends
 * cleanly and every tool is stopped. Has no effects except through its ports.
 */
export async function* runLoop(
  plan: ThreadPlan,
  ports: LoopPorts,
  signal: AbortSignal,
): LoopEvents {
  const run = createRun(plan, ports, signal);
  const work = outcomeOf(run).finally(() => run.outbox.close());
  try {
    yield* run.outbox.pump();
    return await work;
  } finally {
    run.outbox.fail(new RyeError('cancelled', 'the events of the run are no longer read'));
    run.stop.close();
    await work;
  }
}

async function outcomeOf(run: Run): Promise<LoopOutcome> {
  const { progress, spend } = run;
  let ending = await endingOf(() => runTurns(run));
  if (progress.completed) ending = await endingOf(() => keepCompleted(run, ending));
  return { ...ending, cost: spend.cost(), last_text: progress.lastText };
}

async function endingOf(work: () => Promise<Ending>): Promise<Ending> {
  try {
    return await work();
  } catch (error) {
    return { kind: 'error', error: toRyeError(error).toJSON() };
  }
}

/** Takes turns until one of them, a limit or a cancellation ends the run. */
async function runTurns(run: Run): Promise<Ending> {
  const waiting = await runPendingCalls(run);
  if (waiting) return waiting;
  for (;;) {
    await refreshTools(run);
    const blocked = (await enforceLimits(run)) ?? checkCancelled(run) ?? checkParked(run);
    if (blocked) return blocked;
    // a run that ends above leaves the messages in its inbox
    await takeMessages(run);
    await continueCut(run);
    const ending = await takeTurn(run);
    await settleTurn(run);
    const end = ending ?? checkCancelled(run) ?? (await watchContext(run));
    if (end) return end;
  }
}

/** Takes one answer of the model and runs the tools that it calls. Undefined if the run continues. */
async function takeTurn(run: Run): Promise<Ending | undefined> {
  const { conversation, spend, progress, calls, stop } = run;
  const answer = await streamAnswer(run);
  if (answer.kind === 'ended') return answer.ending;
  if (answer.kind === 'none') return undefined;
  const message = calls.withUniqueIds(answer.message);
  progress.noteText(message);
  if (toolCallsOf(message).length > 0) return runCalls(run, message);
  await conversation.record({ event_type: 'message', payload: { message, turn: spend.turn } });
  await spend.report();
  return stop.cause === 'cancelled' ? undefined : finishOrNudge(run, message);
}

/** Runs the tools that an answer calls, then the hooks of the step. */
async function runCalls(run: Run, message: AssistantMessage): Promise<Ending | undefined> {
  const { conversation, spend, progress } = run;
  progress.noteToolUse();
  conversation.holdInjections();
  await conversation.record({ event_type: 'message', payload: { message, turn: spend.turn } });
  // children of this batch share the rest of the budget, and tools may run for hours
  try {
    await spend.report(nextCallOf(run));
  } catch (error) {
    await leaveCalls(run, message);
    throw error;
  }
  const { returned, refused, waiting } = await runToolBatch(run, message);
  await conversation.releaseInjections();
  if (waiting) return await endOrWait(run, waiting);
  if (refused && hasSchema(run.shape) && !progress.requestOutput()) {
    return resultMissing(run, refused);
  }
  if (!returned) {
    await boundTurnOutput(run);
    await conversation.record(...(conversation.watcher?.takeFollowUps() ?? []));
    return (await afterStep(run, message)) ?? (await watchLoop(run));
  }
  return await afterReturn(run, message, returned);
}

/** The ending of a run that continues once people have decided. */
function waitingFor({ approvals, threads }: AwaitedThreads): Ending {
  const reason = `waiting for ${(approvals.length > 0 ? approvals : threads).join(', ')}`;
  return { kind: 'suspended', reason, approvals, ...(threads.length === 0 ? {} : { threads }) };
}

/** Ends the run as a decision about its calls demands, without what else still waits; suspends it if there is none. */
async function endOrWait(run: Run, waiting: AwaitedThreads): Promise<Ending> {
  const decided = decidedEnding(run.stop.decision, 'after_step', SUSPENDED);
  if (!decided) return waitingFor(waiting);
  const withdrawn = await run.ports.approvals?.withdraw(waiting.approvals, 'the thread ends');
  await run.conversation.write(...(withdrawn ?? []));
  return decided;
}

/** Ends the run as its directive returned. */
async function afterReturn(
  run: Run,
  message: AssistantMessage,
  returned: Returned,
): Promise<Ending | undefined> {
  const { hooks } = run;
  if (returned.kind === 'error') {
    return (await afterStep(run, message)) ?? (await endReturned(run, returned.detail));
  }
  const { outputs } = returned;
  // a text of an earlier turn is not the result
  const result = textOf(message.content);
  await hooks.observe('directive_return', { outputs, result });
  const ending = await afterStep(run, message);
  if (ending?.kind === 'error') return ending;
  return finishUnlessMore(run, { kind: 'completed', result, outputs });
}

/** Applies the decision of a hook about the batch, or else about the whole step. */
async function afterStep(run: Run, message: AssistantMessage): Promise<Ending | undefined> {
  const { stop, hooks, spend } = run;
  const context = { limits: { ...spend.limits }, tool_calls: toolCallsOf(message).length };
  const decision = stop.decision ?? (await hooks.control('after_step', context));
  if (decision?.control === 'compact') await compactContext(run, 'hook', decision.instructions);
  return decidedEnding(decision, 'after_step', SUSPENDED);
}

/** Asks the model to summarize if its tools returned more in one turn than they may. The results stay as they are. */
async function boundTurnOutput({ behavior, calls, conversation, spend }: Run): Promise<void> {
  const { toolOutputBudget: budget } = behavior;
  const { turn } = spend;
  const bytes = calls.turnOutputBytes;
  if (budget === undefined || bytes <= budget) return;
  const text = `[Tool output budget exceeded: ${bytes} bytes were returned in this turn, the cap is ${budget}. Summarize what matters before you call more tools.]`;
  await conversation.write({
    event_type: 'output_budget_exceeded',
    payload: { turn, bytes, budget },
  });
  await conversation.record(hiddenMessage('output_budget', text));
}

/** Runs the calls that a crashed process left open, and those that waited for a person. */
async function runPendingCalls(run: Run): Promise<Ending | undefined> {
  const { pending } = run.ports;
  if (!pending) return undefined;
  run.calls.noteIds(toolCallsOf(pending.answer).map(({ call_id }) => call_id));
  const { waiting, returned } = await runToolBatch(run, pending.answer, pending.awaited);
  await run.conversation.record(...pending.after);
  if (waiting) return await endOrWait(run, waiting);
  const decided = decidedEnding(run.stop.decision, 'after_step', SUSPENDED);
  if (decided) return decided;
  return returned ? await afterReturn(run, pending.answer, returned) : undefined;
}

/** Applies changes that servers made to their tools. A failure leaves the tools as they were. */
async function refreshTools({ ports, stop, conversation }: Run): Promise<void> {
  const refreshed = ports.refreshTools?.();
  if (!refreshed) return;
  try {
    const drafts = await orStopped(refreshed, stop.signal);
    if (!isStopped(drafts)) await conversation.record(...drafts);
  } catch (error) {
    const { message } = toRyeError(error);
    await conversation.write(note(`the tools could not be refreshed: ${message}`));
  }
}

/** Records messages to the thread at the safe point: after a whole batch, before the next request. */
async function takeMessages(run: Run): Promise<void> {
  await recordTaken(run, (await run.ports.inbox?.take('before_turn')) ?? []);
}

/** Asks for the rest of an answer that a limit cut, which was raised since. */
async function continueCut({ conversation, progress }: Run): Promise<void> {
  if (!conversation.isCut) return;
  progress.joinAnswer();
  await conversation.record(CONTINUE_DRAFT);
}

function checkCancelled({ ports, stop }: Run): Ending | undefined {
  const reason = ports.cancelled();
  if (reason === undefined && stop.cause !== 'cancelled') return undefined;
  return { kind: 'cancelled', reason: reason ?? stop.cancelReason };
}

/** Ends the run between two turns if another process is to continue it. */
function checkParked({ ports }: Run): Ending | undefined {
  const reason = ports.parkReason?.();
  return reason === undefined ? undefined : { kind: 'suspended', reason, isParked: true };
}

/** Books the turn. Its `cost` event is the last of a turn: the checkpoint that the caller adds forces both to the disk. */
async function settleTurn({ spend, conversation }: Run): Promise<void> {
  if (!spend.isTurnOpen) return;
  spend.endTurn();
  await spend.report();
  await conversation.write({
    event_type: 'cost',
    payload: { turn: spend.turn, usage: spend.turnUsage, total: spend.cost() },
  });
}

/** Keeps the completion of a thread if only the run that a delivery began has failed. */
async function keepCompleted(run: Run, ending: Ending): Promise<Ending> {
  const { completed } = run.progress;
  if (!completed || (ending.kind !== 'error' && ending.kind !== 'limit')) return ending;
  const failed = (await run.ports.inbox?.fail?.()) ?? [];
  const { code, message } = ending.error;
  await run.conversation.write(...failed, note(`a delivery failed: ${message}`, { code }));
  return completed;
}
