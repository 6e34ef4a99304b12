import { editOutcomes, outcomesText } from '../core/edit-hunks.ts';
import { messageOf } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact, toText } from '../core/json.ts';
import {
  type AssistantMessage,
  type CallBatch,
  contentBytes,
  isErrorOutcome,
  textOf,
  toolCallsOf,
} from '../core/message.ts';
import { type AwaitedCall, openDrafts } from '../log/open-calls.ts';
import type { AwaitedThreads } from '../tools/tool.ts';
import { reviewCalls, runAsked, type Waiting } from './approvals.ts';
import { admit, notStarted } from './gates.ts';
import { aboutCall, answerFailure, priorFacts, shaped } from './handlers.ts';
import { Lanes } from './lanes.ts';
import { isReturn, judgeReturn, type Returned, returnedError, returnInput } from './outputs.ts';
import { boundResult, type Result, remindedResult, resultDraft, settledDraft } from './results.ts';
import type { Run } from './run.ts';
import {
  execute,
  hasRun,
  type Parked,
  type Requested,
  type Settled,
  type Started,
  settle as settleCall,
  settleUnrun,
  start,
  startAgain,
  type Validated,
} from './tool-call.ts';

/** The maximum number of calls in one answer. The others are skipped. */
const MAX_CALLS = 256;
const MAX_ERROR_CHARS = 1000;
/** Decisions about a failed call that end the thread after the batch. */
const STOPPING: ReadonlySet<ControlAction['control']> = new Set([
  'fail',
  'abort',
  'suspend',
  'handoff',
]);

/** The result of a batch. */
export interface BatchResult {
  /** Set if the directive returned. */
  readonly returned?: Returned;
  /** Problems of a return that was refused. */
  readonly refused?: readonly string[];
  /** The requests that people have to decide before the rest of the batch can run or end. */
  readonly waiting?: AwaitedThreads;
}

/** Records that no call of an answer was started, because its price could not be noted. */
export async function leaveCalls(run: Run, message: AssistantMessage): Promise<void> {
  for (const [position, call] of toolCallsOf(message).entries()) {
    const requested: Requested = { stage: 'requested', position, call };
    const reason = 'the spend could not be recorded; the call was not started';
    const result = await boundResult(run, settleUnrun(requested, call.name, 'aborted', reason));
    await run.conversation.record(settledDraft(result), resultDraft(result, run.spend.turn));
  }
}

/**
 * Runs the calls of one recorded answer. Each gets exactly one result on every path, recorded in the order of the
 * calls. A valid `rye_directive_return` is judged after the calls before it, and the calls after it are skipped.
 */
export async function runToolBatch(
  run: Run,
  message: AssistantMessage,
  awaited: ReadonlyMap<string, AwaitedCall> = new Map(),
): Promise<BatchResult> {
  const requested = toolCallsOf(message).map(
    (call, position): Requested => ({ stage: 'requested', position, call }),
  );
  run.calls.budgets.beginBatch();
  // a crash must lose no result of an item that is done while an earlier one still runs
  const items = requested.filter(({ call }) => call.batch !== undefined);
  const results = new ResultQueue(
    run,
    items.map(({ position }) => position),
  );
  const returning = await findReturn(run, requested);
  const ready: Validated[] = [];
  let failed = false;
  let refused: readonly string[] | undefined;
  const settle = async (settled: Settled): Promise<void> => {
    failed ||= isErrorOutcome(settled.outcome);
    await results.settle(settled);
  };
  for (const request of requested) {
    if (request === returning?.request) continue;
    const skipped = skip(request, returning?.request);
    if (!skipped && isReturn(request.call)) {
      refused = await returnProblems(run, request);
      await settle(settleInvalidReturn(request, refused));
      continue;
    }
    const admitted = skipped ?? (await admitOrRejoin(run, request, awaited));
    if (admitted.stage === 'validated') ready.push(admitted);
    else if (skipped) await results.settle(admitted);
    else await settle(admitted);
  }
  const batch = batchOf(message, run.plan.settings.tools_parallel);
  const mayBegin = (): boolean => batch.on_error === 'continue' || !failed;
  const waiting = await runReady(run, {
    ready,
    returning: returning?.request,
    results,
    settle,
    parallel: batch.parallel,
    mayBegin,
  });
  if (waiting) return { waiting };
  if (!returning) return compact({ refused });
  const judgement = judgeReturn(run, returning.request, returning.returned, failed);
  await results.settle(judgement.settled);
  const { returned } = judgement;
  return compact({ returned });
}

/** The calls of an answer that have passed every gate. */
interface ReadyCalls {
  readonly ready: readonly Validated[];
  /** The return that is judged after them. */
  readonly returning: Requested | undefined;
  readonly results: ResultQueue;
  readonly settle: (settled: Settled) => Promise<void>;
  /** Maximum number of calls that run at once. */
  readonly parallel: number;
  /** False once an earlier item of a list has failed. */
  readonly mayBegin: () => boolean;
}

/** Runs calls, those that ask as people decide. Returns what people still have to decide in the end. */
async function runReady(
  run: Run,
  { ready, returning, results, settle, parallel, mayBegin }: ReadyCalls,
): Promise<AwaitedThreads | undefined> {
  const asked = await reviewCalls(
    run,
    ready.filter(({ awaited }) => awaited === undefined),
  );
  const lanes = new Lanes(parallel);
  if (asked.length > 0) {
    const later = [...asked.map(({ call }) => call.requested), ...(returning ? [returning] : [])];
    await results.defer(later.map(({ position }) => position));
  }
  const parked: Parked[] = [];
  let hasBegun = false;
  const work = async (validated: Validated): Promise<void> =>
    await run.idle.works(validated.requested.call.call_id, async () => {
      const isBegun = validated.awaited !== undefined;
      const mayGiveWay = hasBegun && !isBegun && run.behavior.steerBetweenCalls;
      const isSteered = mayGiveWay && (await givesWay(run, validated));
      hasBegun = true;
      const skipped = isSteered ? STEERED : isBegun || mayBegin() ? undefined : FAILED;
      const end =
        skipped === undefined ? await perform(run, validated) : notBegun(validated, skipped);
      if (end.stage === 'settled') return await settle(end);
      parked.push(end);
      const later = [end.requested, ...(returning ? [returning] : [])];
      await results.defer(later.map(({ position }) => position));
    });
  // each takes its place in the order of the answer; a call that a person has yet to decide about takes one then
  const ends = ready.map(async (call): Promise<Waiting | undefined> => {
    const one = asked.find((other) => other.call === call);
    if (one) return await runAsked(run, one, { lanes, work, settle });
    await lanes.run(call, work);
    return undefined;
  });
  const waiting = await allOf(ends);
  if (waiting.length + parked.length === 0) return undefined;
  const open = [
    ...waiting.map(({ call }) => ({ call })),
    ...parked.map(({ requested: { call }, waiting: { threads, owned = false } }) => ({
      call,
      awaiting: { threads, owned },
    })),
    ...(returning ? [{ call: returning.call }] : []),
  ];
  await run.conversation.record(...openDrafts(open));
  const own = waiting.flatMap(({ approvalId }) => approvalId ?? []);
  return {
    approvals: [...new Set([...own, ...parked.flatMap((one) => one.waiting.approvals)])],
    threads: [...new Set(parked.flatMap((one) => one.waiting.threads))],
  };
}

/** Continues a call of an earlier run without its gates, which it has passed; takes any other through them. */
async function admitOrRejoin(
  run: Run,
  requested: Requested,
  awaited: ReadonlyMap<string, AwaitedCall>,
): Promise<Validated | Settled> {
  const { call } = requested;
  const earlier = awaited.get(call.call_id);
  if (!earlier) return await admit(run, requested);
  const { tool: id, input, threads } = earlier;
  try {
    const found = await run.ports.tools.resolve(call.name, call.input);
    if (found.kind === 'resolved' && found.call.tool.id === id) {
      const { tool, need } = found.call;
      const none = { coerced: [], asks: [] };
      return { stage: 'validated', requested, tool, input, need, awaited: threads, ...none };
    }
  } catch (error) {
    return settleUnrun(requested, id, 'aborted', messageOf(error), 'tool_failed');
  }
  const reason = `the tool ${id}, which had started, is not offered any more`;
  return settleUnrun(requested, id, 'aborted', reason, 'tool_failed');
}

/** Waits for all calls; rejects after all have ended if one rejected. Resolves to those that still wait for a person. */
async function allOf(calls: readonly Promise<Waiting | undefined>[]): Promise<readonly Waiting[]> {
  const ends = await Promise.allSettled(calls);
  const broken = ends.find((end) => end.status === 'rejected');
  if (broken) throw broken.reason;
  return ends.flatMap((end) => (end.status === 'fulfilled' && end.value ? [end.value] : []));
}

/** Returns how the calls of an answer run together: as narrowly as one of them asks. */
function batchOf(message: AssistantMessage, parallel: number): CallBatch {
  const asked = toolCallsOf(message).flatMap(({ batch }) => (batch ? [batch] : []));
  if (asked.length === 0) return { parallel, on_error: 'continue' };
  const stops = asked.every(({ on_error: onError }) => onError === 'fail');
  return {
    parallel: Math.min(...asked.map((batch) => batch.parallel)),
    on_error: stops ? 'fail' : 'continue',
  };
}

const FAILED = 'an earlier item of the list failed';
/** Why a call was skipped that gave way to a person's message. */
export const STEERED = 'a person sent a message before this call';

function notBegun({ requested, tool }: Validated, reason: string): Settled {
  return settleUnrun(requested, tool.id, 'skipped', reason);
}

/** True if a call has to wait for what a person wrote meanwhile: the model may not want it any more. */
async function givesWay({ ports }: Run, { requested }: Validated): Promise<boolean> {
  return (await ports.inbox?.isSteered?.(requested.call.call_id)) ?? false;
}

/** Finds the first return that reports an error, or whose outputs are as declared. */
async function findReturn(
  run: Run,
  requested: readonly Requested[],
): Promise<{ readonly request: Requested; readonly returned: Returned } | undefined> {
  for (const request of requested.slice(0, MAX_CALLS)) {
    const failure = returnedError(run, request.call);
    if (failure) return { request, returned: failure };
    const input = returnInput(request.call);
    const checked = input && (await run.ports.checkReturn(input));
    if (checked?.ok) return { request, returned: { kind: 'outputs', outputs: checked.outputs } };
  }
  return undefined;
}

function skip(request: Requested, returning: Requested | undefined): Settled | undefined {
  if (request.position >= MAX_CALLS) {
    const reason = `an answer may hold at most ${MAX_CALLS} calls`;
    return settleUnrun(request, request.call.name, 'skipped', reason);
  }
  if (returning && request.position > returning.position) {
    const reason = 'the directive returned before this call';
    return settleUnrun(request, request.call.name, 'skipped', reason);
  }
  return undefined;
}

/** Why {@link findReturn} did not accept a return. */
async function returnProblems(run: Run, request: Requested): Promise<readonly string[]> {
  const input = returnInput(request.call);
  const checked = input && (await run.ports.checkReturn(input));
  return checked && !checked.ok
    ? checked.problems
    : ['the arguments of the return are not a JSON object'];
}

function settleInvalidReturn(request: Requested, problems: readonly string[]): Settled {
  return settleUnrun(request, request.call.name, 'invalid', problems.join('; '));
}

async function perform(run: Run, validated: Validated): Promise<Settled | Parked> {
  const { requested, tool, awaited } = validated;
  if (awaited) return await ended(run, validated, startAgain(run, validated));
  if (run.stop.signal.aborted) return notStarted(run, requested, tool.id);
  if (run.stop.decision) {
    const reason = 'a hook ended the thread before this call';
    return settleUnrun(requested, tool.id, 'skipped', reason);
  }
  const earlier = run.calls.earlier.find(tool, validated.input);
  if (earlier) return await shaped(run, settleCall(requested, tool.id, 'substituted', earlier));
  run.calls.earlier.noteStart(tool);
  return await ended(run, validated, await start(run, validated));
}

/** Takes a started call to its end. */
async function ended(run: Run, validated: Validated, started: Started): Promise<Settled | Parked> {
  const { tool } = validated;
  const settled = await execute(run, started);
  if (settled.stage === 'parked') return settled;
  run.calls.earlier.note(
    tool,
    validated.input,
    settled.outcome === 'ok' ? settled.content : undefined,
  );
  return changedNote(validated, await shaped(run, await answered(run, settled)));
}

/** Tells the model that a person has changed what it asked for, or which of its edits they omitted. */
function changedNote({ changed, input, tool }: Validated, settled: Settled): Settled {
  if (!changed) return settled;
  const { requested, comment } = changed;
  const outcomes = editOutcomes(tool.id, {
    requested,
    ran: input,
    isDone: settled.outcome === 'ok',
  });
  const why = comment === '' ? '' : `\nTheir comment: ${comment}`;
  const text = outcomes
    ? outcomesText(toText(input['path'] ?? ''), outcomes, comment)
    : `A person approved this call with another input, which ran instead: ${JSON.stringify(input)}${why}`;
  const content = [{ type: 'text' as const, text }, ...settled.content];
  if (!outcomes) return { ...settled, content };
  const data = { ...settled.data, outcomes: outcomes.map((one) => ({ ...one })) };
  return { ...settled, content, data };
}

/** Replaces the result of a failed call if a handler answers for it. */
async function answered(run: Run, settled: Settled): Promise<Settled> {
  const { requested, tool, outcome, content, reason, code = 'tool_failed' } = settled;
  if (outcome !== 'error' && outcome !== 'timeout') return settled;
  const error = { code, message: reason ?? textOf(content).slice(0, MAX_ERROR_CHARS) };
  const answer = await answerFailure(run, { ...aboutCall(run, requested.call), tool, error });
  return answer ? { ...settled, outcome: 'substituted', content: answer } : settled;
}

/** Records results in the order of the calls, each as soon as the earlier ones are known. */
class ResultQueue {
  readonly #run: Run;
  readonly #waiting = new Map<number, Result>();
  /** Calls that wait for a person, and items of a list: the results after them are not held back. */
  readonly #deferred = new Set<number>();
  #next = 0;

  constructor(run: Run, deferred: readonly number[]) {
    this.#run = run;
    for (const position of deferred) this.#deferred.add(position);
  }

  /** Lets the results of these calls come later than those after them, which are recorded at once. */
  async defer(positions: readonly number[]): Promise<void> {
    for (const position of positions) this.#deferred.add(position);
    await this.#run.conversation.record(...this.#ready());
  }

  async settle(settled: Settled): Promise<void> {
    const run = this.#run;
    run.calls.loops.note(settled);
    const result = await boundResult(run, settled);
    run.calls.noteOutput(contentBytes(result.content));
    this.#waiting.set(settled.requested.position, result);
    await run.conversation.record(settledDraft(result), ...this.#ready());
    await afterCall(run, result);
  }

  /** The drafts of the results whose turn it is. */
  #ready(): readonly EventDraft[] {
    const run = this.#run;
    const drafts: EventDraft[] = [];
    for (let ready = this.#take(); ready; ready = this.#take()) {
      const { position } = ready.settled.requested;
      const reminder = hasRun(ready.settled)
        ? run.conversation.watcher?.reminderFor(position)
        : undefined;
      drafts.push(resultDraft(remindedResult(ready, reminder), run.spend.turn));
      if (reminder) drafts.push(reminder.injection);
    }
    return drafts;
  }

  #skipDeferred(): void {
    while (this.#deferred.has(this.#next)) this.#next += 1;
  }

  #take(): Result | undefined {
    const late = [...this.#deferred].find((position) => this.#waiting.has(position));
    if (late === undefined) this.#skipDeferred();
    const position = late ?? this.#next;
    const result = this.#waiting.get(position);
    if (!result) return undefined;
    this.#waiting.delete(position);
    // a deferred call that the order has not reached stays deferred: its place is skipped
    if (late === undefined) this.#next += 1;
    return result;
  }
}

async function afterCall(run: Run, result: Result): Promise<void> {
  const { settled, outputBytes, artifact } = result;
  const { requested, tool, outcome, durationMs, reason, code, coerced = [] } = settled;
  const { call_id, name, input } = requested.call;
  const output = textOf(result.content);
  await run.hooks.observe('tool_after', {
    call_id,
    tool,
    name,
    input,
    outcome,
    is_error: isErrorOutcome(outcome),
    output,
    duration_ms: durationMs,
    output_bytes: outputBytes,
    ...priorFacts(settled),
    ...(coerced.length === 0 ? {} : { coerced }),
    ...(artifact === undefined ? {} : { artifact }),
  });
  if (outcome !== 'error' && outcome !== 'timeout') return;
  const decision = await run.hooks.control('error', {
    source: 'tool',
    call_id,
    tool,
    error: { message: reason ?? output.slice(0, MAX_ERROR_CHARS), code: code ?? 'tool_failed' },
    // a separate category: hooks on permanent failures mean the model's, and the model handles a tool's
    classification: { category: 'tool', retryable: false },
  });
  if (decision && STOPPING.has(decision.control)) run.stop.endAfterBatch(decision);
}
