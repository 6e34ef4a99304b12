import { RyeError, toRyeError } from '../core/errors.ts';
import type { ControlAction } from '../core/hook.ts';
import { type AssistantMessage, toolCallsOf } from '../core/message.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { runToolBatch, withUniqueCallIds } from './batch.ts';
import { compactContext, watchContext } from './compaction.ts';
import { finishOrNudge, finishUnlessMore, noteText, takeOutput, watchLoop } from './finish.ts';
import { enforceLimits } from './limits.ts';
import { streamAnswer } from './model-call.ts';
import { endReturned, outputCall } from './outputs.ts';
import type { Ending, LoopEvents, LoopOutcome, LoopPorts } from './ports.ts';
import { hiddenMessage, hookError, note, Run } from './run.ts';
import { isStopped, orStopped } from './stop.ts';

/**
 * Runs a thread's model and tools until it is done, as a stream of events that the caller writes to the log before
 * it asks for more. The outcome is a value whatever happens: a port that throws, a writer that fails and a caller
 * that leaves all end the run in order, with every tool stopped. Pure but for its ports.
 */
export async function* runLoop(
  plan: ThreadPlan,
  ports: LoopPorts,
  signal: AbortSignal,
): LoopEvents {
  const run = new Run(plan, ports, signal);
  const work = drive(run).finally(() => run.outbox.close());
  try {
    yield* run.outbox.pump();
    return await work;
  } finally {
    run.outbox.fail(new RyeError('cancelled', 'nobody reads the events of the run any more'));
    run.stop.close();
    await work;
  }
}

async function drive(run: Run): Promise<LoopOutcome> {
  let ending = await caught(() => untilDone(run));
  if (run.standing) ending = await caught(() => standingOr(run, ending));
  return { ...ending, cost: run.cost(), last_text: run.lastText };
}

async function caught(work: () => Promise<Ending>): Promise<Ending> {
  try {
    return await work();
  } catch (error) {
    return { kind: 'error', error: toRyeError(error).toJSON() };
  }
}

/** What a thread had completed stands, when only the run that a delivery began has failed. */
async function standingOr(run: Run, ending: Ending): Promise<Ending> {
  const { standing } = run;
  if (!standing || (ending.kind !== 'error' && ending.kind !== 'limit')) return ending;
  const failed = (await run.ports.inbox?.fail?.()) ?? [];
  const { code, message } = ending.error;
  await run.write(...failed, note(`a delivery was not dealt with: ${message}`, { code }));
  return standing;
}

async function untilDone(run: Run): Promise<Ending> {
  await runPending(run);
  for (;;) {
    await refreshTools(run);
    const halted = (await enforceLimits(run)) ?? checkCancelled(run);
    if (halted) return halted;
    await takeInbox(run);
    const ending = await takeTurn(run);
    await settleTurn(run);
    const over = ending ?? checkCancelled(run) ?? (await watchContext(run));
    if (over) return over;
  }
}

async function runPending(run: Run): Promise<void> {
  const { pending } = run.ports;
  if (!pending) return;
  for (const { call_id } of toolCallsOf(pending.answer)) run.callIds.add(call_id);
  await runToolBatch(run, pending.answer);
  await run.record(pending.behind);
}

/** One model call and the tool calls that it asked for; undefined when the run goes on. */
async function takeTurn(run: Run): Promise<Ending | undefined> {
  const answer = await streamAnswer(run);
  if (answer.kind === 'ended') return answer.ending;
  if (answer.kind === 'again') return undefined;
  const message = withUniqueCallIds(run, answer.message);
  noteText(run, message);
  if (toolCallsOf(message).length === 0) {
    await run.record([{ event_type: 'message', payload: { message, turn: run.turn } }]);
    return run.stop.cause === 'cancelled' ? undefined : finishOrNudge(run, message);
  }
  const output = outputCall(run, message);
  return output ? takeOutput(run, message, output) : actOn(run, message);
}

/** Runs the tools that an answer asks for, then the hooks of the step. */
async function actOn(run: Run, message: AssistantMessage): Promise<Ending | undefined> {
  run.usedTools = true;
  run.counters.continuations = 0;
  run.holdInjections();
  await run.record([{ event_type: 'message', payload: { message, turn: run.turn } }]);
  const { returned } = await runToolBatch(run, message);
  await run.releaseInjections();
  if (!returned) {
    await boundTurnOutput(run);
    await run.record(run.watcher?.takeFollowUps() ?? []);
    const ending = await endingOf(run, await stepDecision(run, message));
    return ending ?? (await watchLoop(run));
  }
  if (returned.kind === 'error') {
    const ending = await endingOf(run, await stepDecision(run, message));
    return ending ?? (await endReturned(run, returned.detail));
  }
  const { outputs } = returned;
  await run.observe('directive_return', { outputs, result: run.lastText });
  const ending = await endingOf(run, await stepDecision(run, message));
  if (ending?.kind === 'error') return ending;
  return finishUnlessMore(run, { kind: 'completed', result: run.lastText, outputs });
}

/** What a hook of the batch, or else of the whole step, decides. */
async function stepDecision(
  run: Run,
  message: AssistantMessage,
): Promise<ControlAction | undefined> {
  return run.verdict ?? (await afterStep(run, toolCallsOf(message).length));
}

/** Asks the model to summarise where its tools gave more in one turn than they may; the results stay as they are. */
async function boundTurnOutput(run: Run): Promise<void> {
  const { turn, turnOutputBytes: bytes } = run;
  const { toolOutputBudget: budget } = run.behavior;
  if (budget === undefined || bytes <= budget) return;
  await run.write({ event_type: 'output_budget_exceeded', payload: { turn, bytes, budget } });
  const text = `[Tool output budget exceeded: ${bytes} bytes were returned in this turn, the cap is ${budget}. Summarize what matters before you call more tools.]`;
  await run.record([hiddenMessage('output_budget', text)]);
}

function afterStep(run: Run, calls: number): Promise<ControlAction | undefined> {
  return run.control('after_step', { limits: { ...run.limits }, tool_calls: calls });
}

/** What a hook's decision about a whole step means for the run. */
async function endingOf(
  run: Run,
  decision: ControlAction | undefined,
): Promise<Ending | undefined> {
  switch (decision?.control) {
    case 'fail':
    case 'abort':
      return { kind: 'error', error: hookError(decision, 'after_step').toJSON() };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? 'a hook suspended the thread' };
    case 'handoff':
      return { kind: 'handoff' };
    case 'compact':
      await compactContext(run, 'hook', decision.instructions);
      return undefined;
    case 'continue':
    case 'retry':
    case 'escalate':
    case undefined:
      break;
  }
  return undefined;
}

/** What servers changed about their tools counts from here on; a failure leaves the tools what they were. */
async function refreshTools(run: Run): Promise<void> {
  const asked = run.ports.refreshTools?.();
  if (!asked) return;
  try {
    const drafts = await orStopped(asked, run.stop.signal);
    if (!isStopped(drafts)) await run.record(drafts);
  } catch (error) {
    await run.write(note(`the tools were not brought up to date: ${toRyeError(error).message}`));
  }
}

/** The safe point: a whole batch is behind, the next request is not made yet. */
async function takeInbox(run: Run): Promise<void> {
  await run.record((await run.ports.inbox?.take('before_turn')) ?? []);
}

function checkCancelled(run: Run): Ending | undefined {
  const asked = run.ports.cancelled();
  if (asked === undefined && run.stop.cause !== 'cancelled') return undefined;
  return { kind: 'cancelled', reason: asked ?? run.stop.cancelReason };
}

/** Books the turn. Its `cost` event is the last of a turn: the checkpoint that the caller adds forces both to the disk. */
async function settleTurn(run: Run): Promise<void> {
  if (!run.isTurnOpen) return;
  run.isTurnOpen = false;
  await run.reportSpend();
  await run.write({
    event_type: 'cost',
    payload: { turn: run.turn, usage: run.turnUsage, total: run.cost() },
  });
}
