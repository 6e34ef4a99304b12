import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { type AssistantMessage, textOf } from '../core/message.ts';
import { hasResult } from '../core/return-schema.ts';
import { interruptionDraft } from '../log/interruption.ts';
import { hiddenMessage, note } from './conversation.ts';
import {
  askForResult,
  endFailed,
  isReturnName,
  owesResult,
  readResult,
  resultMissing,
} from './outputs.ts';
import type { Ending } from './ports.ts';
import { beginRun, type Run } from './run.ts';
import { recordTaken } from './taken.ts';

/** A call in the text of an answer, at the start of a line, in the forms that models are trained on. */
const TEXT_CALL =
  /^[ \t]*(?:<tool_call[\s>]|```tool_call|<function=|<\|python_tag\|>|\[TOOL_CALLS\])/m;
/** Hint for models and servers that write tool calls as text. */
export const CALLS_AS_TEXT =
  'Take `tools` out of the capabilities of the model in its provider file: its calls are then read from its text.';

/** A message to a model that stopped without calling a tool. */
type Nudge = { readonly type: string; readonly text: string };

/** Ends the run after an answer without a tool call, unless the model has to be told something. */
export async function finishOrNudge(
  run: Run,
  message: AssistantMessage,
): Promise<Ending | undefined> {
  const reminders = run.conversation.watcher?.takeFollowUps() ?? [];
  if (reminders.length > 0) {
    await run.conversation.record(...reminders);
    return undefined;
  }
  const isTextCall = offersTools(run) && TEXT_CALL.test(textOf(message.content));
  if (isTextCall && run.progress.isFirst('call_in_text')) {
    await run.conversation.write(
      note(`the answer contains a tool call as text, which is not run. ${CALLS_AS_TEXT}`),
    );
  }
  const nudge = nudgeFor(run, message);
  if (nudge) {
    await run.conversation.record(hiddenMessage(nudge.type, nudge.text));
    return undefined;
  }
  if (message.stop_reason === 'max_tokens') return await endCut(run);
  const { outputs } = run.progress;
  if (!outputs && hasResult(run.shape)) {
    const ending = await finishWithResult(run, isTextCall);
    if (ending !== 'none') return ending;
  }
  if (didNothing(run)) return { kind: 'error', error: answerEmpty(run).toJSON() };
  return finishUnlessMore(run, {
    kind: 'completed',
    result: run.progress.lastText,
    ...(outputs ? { outputs } : {}),
  });
}

/** Ends a run whose answer is cut still, after all its continuations: a part is no success. A resume continues the answer. */
async function endCut(run: Run): Promise<Ending | undefined> {
  await run.conversation.record(interruptionDraft('max_tokens'));
  const { provider, id } = run.models.current;
  const error = new RyeError(
    'answer_cut',
    `${provider}/${id} ran into its output limit again and again`,
    {
      hint: 'Resume the thread to continue the answer, or raise behavior.max_tokens.',
    },
  );
  return await endFailed(run, 'loop', error.toJSON());
}

/** True if the run called no tool and wrote no text: it did no work, which is no success. */
function didNothing({ progress, models }: Run): boolean {
  const { usedTools, outputs, lastText } = progress;
  return !usedTools && !outputs && lastText.trim() === '' && !models.traits.replayable;
}

function answerEmpty({ models }: Run): RyeError {
  const { provider, id } = models.current;
  return new RyeError('answer_empty', `${provider}/${id} returned only empty answers`, {
    hint: 'Resume the thread with a message, or choose another model.',
  });
}

/**
 * Finishes a run that returns a result, after the messages that are still waiting. An answer that is the result counts as a
 * return. `none`: the answer is none, and no result is required.
 */
async function finishWithResult(
  run: Run,
  isTextCall: boolean,
): Promise<Ending | 'none' | undefined> {
  if (run.shape.schema && !run.spend.reachedLimit() && !run.stop.signal.aborted) {
    const waiting = (await run.ports.inbox?.take('at_end')) ?? [];
    if (await recordTaken(run, waiting)) return undefined;
  }
  const read = await readResult(run);
  if (read.ok) return finishWith(run, read.outputs);
  if (!owesResult(run)) return 'none';
  if (await askForResult(run, read.problems)) return undefined;
  const ending = resultMissing(run, read.problems);
  return isTextCall && ending.kind === 'error'
    ? { ...ending, error: { ...ending.error, hint: CALLS_AS_TEXT } }
    : ending;
}

async function finishWith(run: Run, outputs: JsonObject): Promise<Ending | undefined> {
  await run.hooks.observe('directive_return', { outputs, result: run.progress.lastText });
  return finishUnlessMore(run, { kind: 'completed', result: run.progress.lastText, outputs });
}

/**
 * Ends the run, unless messages wait and there is room for another turn. What people write prolongs the run. Any other
 * message begins another run, which cannot undo this one.
 */
export async function finishUnlessMore(
  run: Run,
  ending: Extract<Ending, { kind: 'completed' }>,
): Promise<Ending | undefined> {
  const { ports, progress, spend, stop, conversation } = run;
  const { inbox } = ports;
  progress.noteOutputs(ending.outputs);
  if (!inbox || spend.reachedLimit() || stop.signal.aborted) return ending;
  if (await recordTaken(run, await inbox.take('at_end'))) {
    withdrawOutputs(run);
    return undefined;
  }
  const next = (await inbox.next?.()) ?? [];
  if (next.length === 0) return ending;
  progress.complete(ending);
  withdrawOutputs(run);
  await beginRun(run);
  await conversation.record(...next);
  return undefined;
}

/** Withdraws a result that was read from an answer. Outputs that the directive returned stay. */
function withdrawOutputs({ plan, progress }: Run): void {
  if (plan.outputs.length === 0) progress.withdrawOutputs();
}

/** Returns the message for a model that stopped without calling a tool; undefined if it has finished. */
function nudgeFor(run: Run, message: AssistantMessage): Nudge | undefined {
  const { progress } = run;
  if (message.stop_reason === 'max_tokens' && progress.continueAnswer()) {
    const text = 'Your answer was cut at the output limit. Continue exactly where it stopped.';
    return { type: 'continue_cut_answer', text };
  }
  if (message.stop_reason === 'max_tokens') return undefined;
  progress.endAnswer();
  const mayNeedTools = run.behavior.nudge && !progress.usedTools && offersTools(run);
  if (mayNeedTools && progress.isFirst('tools')) {
    const text =
      'You have not used any tool. If the task needs one, call it now; if not, give your final answer.';
    return { type: 'nudge_tools', text };
  }
  const isEmpty = textOf(message.content).trim() === '' && progress.lastText === '';
  if (isEmpty && !owesResult(run) && progress.isFirst('empty')) {
    return { type: 'nudge_empty', text: 'Your answer was empty. Give your final answer.' };
  }
  return undefined;
}

function offersTools({ ports }: Run): boolean {
  return ports.definitions().tools.some(({ name }) => !isReturnName(name));
}

/** Tells the model once that it repeats its calls, and ends the run if it repeats them again. */
export async function watchLoop(run: Run): Promise<Ending | undefined> {
  const found = run.calls.loops.endTurn();
  if (!found) return undefined;
  const { period, turns, tools, isLast } = found;
  const cycle = `${period === 1 ? 'the same calls' : `the same ${period} turns of calls`} (${tools.join(', ')})`;
  if (!isLast) {
    const text = `The last ${turns} turns made ${cycle} and got the same results. Repeating them brings nothing new. Try another way, or finish with what you know: the thread ends when you repeat them again.`;
    await run.conversation.record(hiddenMessage('loop_detected', text));
    return undefined;
  }
  const error = new RyeError(
    'loop_detected',
    `the model repeated ${cycle} for ${turns} turns without a new result, after a warning`,
    {
      hint: 'State in the directive when the work is done, or set behavior.loop_repeats (0: off), then resume the thread.',
      details: { period, turns, tools: [...tools] },
    },
  );
  return await endFailed(run, 'loop', error.toJSON());
}
