import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { type AssistantMessage, type ToolCallBlock, textOf } from '../core/message.ts';
import { reachedLimit } from './limits.ts';
import {
  askForOutput,
  endFailed,
  isReturnName,
  owesOutput,
  readOutput,
  settleOutput,
} from './outputs.ts';
import type { Ending } from './ports.ts';
import { hiddenMessage, note, type Run } from './run.ts';

/** How often an answer that was cut at `max_tokens` is continued, per run of cuts. */
const MAX_CONTINUATIONS = 3;

/** A call in the text of an answer, at the start of a line, in the forms that models are trained on. */
const TEXT_CALL =
  /^[ \t]*(?:<tool_call[\s>]|```tool_call|<function=|<\|python_tag\|>|\[TOOL_CALLS\])/m;
/** What helps where a model, or its server, knows no calls beside the text. */
export const CALLS_AS_TEXT =
  'Take `tools` out of the capabilities of the model in its provider file: its calls are then read from its text.';

/** What to tell a model that stopped without calling a tool; undefined when that is its end. */
type Nudge = { readonly type: string; readonly text: string };

/** The model called no tool: that is the end of the run, unless somebody has more to say to it. */
export async function finishOrNudge(
  run: Run,
  message: AssistantMessage,
): Promise<Ending | undefined> {
  const reminders = run.watcher?.takeFollowUps() ?? [];
  if (reminders.length > 0) {
    await run.record(reminders);
    return undefined;
  }
  const isTextCall = bearsTools(run) && TEXT_CALL.test(textOf(message.content));
  if (isTextCall && !run.counters.saidTextCall) {
    run.counters.saidTextCall = true;
    await run.write(note(`the answer holds a call as text, which is not run. ${CALLS_AS_TEXT}`));
  }
  const nudge = nudgeFor(run, message);
  if (nudge) {
    await run.record([hiddenMessage(nudge.type, nudge.text)]);
    return undefined;
  }
  const { outputs } = run;
  const missing = run.plan.outputs.filter(({ required }) => required).map(({ name }) => name);
  if (missing.length === 0 || outputs) {
    if (saidNothing(run)) return { kind: 'error', error: answerEmpty(run).toJSON() };
    if (owesOutput(run)) return finishWithOutput(run);
    return finishUnlessMore(run, {
      kind: 'completed',
      result: run.lastText,
      ...(outputs ? { outputs } : {}),
    });
  }
  const error = new RyeError(
    'outputs_missing',
    `the model ended without returning ${missing.join(', ')}`,
    {
      hint: isTextCall
        ? CALLS_AS_TEXT
        : 'Say in the directive when to call rye_directive_return, or make the outputs optional.',
      details: { missing },
    },
  );
  return { kind: 'error', error: error.toJSON() };
}

/** A run that called no tool and wrote no text did no work, which is no success. */
function saidNothing(run: Run): boolean {
  return (
    !run.usedTools &&
    !run.outputs &&
    run.lastText.trim() === '' &&
    !run.ports.traits(run.model).replayable
  );
}

function answerEmpty({ model: { provider, id } }: Run): RyeError {
  return new RyeError('answer_empty', `${provider}/${id} gave only empty answers`, {
    hint: 'Resume the thread with a message, or choose another model.',
  });
}

/** The run is over but for its result, which must match a schema; whoever still has something to say comes first. */
async function finishWithOutput(run: Run): Promise<Ending | undefined> {
  if (!reachedLimit(run) && !run.stop.signal.aborted) {
    const said = (await run.ports.inbox?.take('at_end')) ?? [];
    if (said.length > 0) {
      await run.record(said);
      return undefined;
    }
  }
  const checked = await readOutput(run);
  return checked.ok ? finishWith(run, checked.input) : askForOutput(run, checked.problems);
}

/** The answer carries the result in a call of its own; one that does not match is answered, and asked for again. */
export async function takeOutput(
  run: Run,
  message: AssistantMessage,
  call: ToolCallBlock,
): Promise<Ending | undefined> {
  const checked = await settleOutput(run, message, call);
  return checked.ok ? finishWith(run, checked.input) : askForOutput(run, checked.problems);
}

async function finishWith(run: Run, outputs: JsonObject): Promise<Ending | undefined> {
  await run.observe('directive_return', { outputs, result: run.lastText });
  return finishUnlessMore(run, { kind: 'completed', result: run.lastText, outputs });
}

/**
 * The work is done: that is the end, unless somebody has more to say and there is room for another turn. What people say
 * prolongs the run; anything else begins one of its own, which cannot undo this one.
 */
export async function finishUnlessMore(
  run: Run,
  ending: Extract<Ending, { kind: 'completed' }>,
): Promise<Ending | undefined> {
  const { inbox } = run.ports;
  run.outputs = ending.outputs;
  if (!inbox || reachedLimit(run) || run.stop.signal.aborted) return ending;
  const said = await inbox.take('at_end');
  if (said.length > 0) {
    await run.record(said);
    withdrawOutput(run);
    return undefined;
  }
  const next = (await inbox.next?.()) ?? [];
  if (next.length === 0) return ending;
  run.standing = ending;
  withdrawOutput(run);
  await run.beginRun();
  await run.record(next);
  return undefined;
}

/** What comes now may change a result that was read from the answer; one that the directive returned stands. */
function withdrawOutput(run: Run): void {
  if (run.plan.outputs.length > 0) return;
  run.outputs = undefined;
  run.outputAsks = 0;
}

/** Keeps the text of an answer; a cut one is joined with what follows. */
export function noteText(run: Run, message: AssistantMessage): void {
  const text = textOf(message.content);
  const isContinued = run.counters.continuations > 0;
  if (isContinued) run.lastText += text;
  else if (text !== '') run.lastText = text;
}

function nudgeFor(run: Run, message: AssistantMessage): Nudge | undefined {
  const { counters, plan } = run;
  if (message.stop_reason === 'max_tokens' && counters.continuations < MAX_CONTINUATIONS) {
    counters.continuations += 1;
    const text = 'Your answer was cut at the output limit. Continue exactly where it stopped.';
    return { type: 'continue_cut_answer', text };
  }
  counters.continuations = 0;
  if (run.behavior.nudge && !run.usedTools && bearsTools(run) && counters.toolNudges === 0) {
    counters.toolNudges += 1;
    const text =
      'You have not used any tool. If the task needs one, call it now; if not, give your final answer.';
    return { type: 'nudge_tools', text };
  }
  if (plan.outputs.length > 0 && !run.outputs && counters.outputNudges === 0) {
    counters.outputNudges += 1;
    const names = plan.outputs.map(({ name }) => name).join(', ');
    const text = `The directive has not returned. Finish what is left, then call rye_directive_return with ${names}. If you cannot finish, call it with status "error" and error_detail.`;
    return { type: 'nudge_outputs', text };
  }
  if (textOf(message.content).trim() === '' && run.lastText === '' && counters.emptyNudges === 0) {
    counters.emptyNudges += 1;
    return { type: 'nudge_empty', text: 'Your answer was empty. Give your final answer.' };
  }
  return undefined;
}

function bearsTools(run: Run): boolean {
  return run.ports.definitions().tools.some(({ name }) => !isReturnName(name));
}

/** After a turn with calls: tells the model once that it repeats itself, and ends the run when it does so again. */
export async function watchLoop(run: Run): Promise<Ending | undefined> {
  const found = run.loopGuard.endTurn();
  if (!found) return undefined;
  const { period, turns, tools, isLast } = found;
  const what = `${period === 1 ? 'the same calls' : `the same ${period} turns of calls`} (${tools.join(', ')})`;
  if (!isLast) {
    const text = `The last ${turns} turns made ${what} and got the same results. Repeating them brings nothing new. Try another way, or finish with what you know: the thread ends when you repeat them again.`;
    await run.record([hiddenMessage('loop_detected', text)]);
    return undefined;
  }
  const error = new RyeError(
    'loop_detected',
    `the model repeated ${what} for ${turns} turns without a new result, after it was told so`,
    {
      hint: 'Say in the directive when the work is done, or set behavior.loop_repeats (0: off), then resume the thread.',
      details: { period, turns, tools: [...tools] },
    },
  );
  return await endFailed(run, { source: 'loop', error: error.toJSON() });
}
