import { posix } from 'node:path';
import type { EventDraft } from '../core/events.ts';
import type { ControlAction } from '../core/hook.ts';
import { compact } from '../core/json.ts';
import {
  type AssistantMessage,
  contentBytes,
  isErrorOutcome,
  textOf,
  toolCallsOf,
} from '../core/message.ts';
import { admit, notStarted } from './gates.ts';
import { aboutCall, answerFailure, shaped } from './handlers.ts';
import { isReturn, judgeReturn, type Returned, returnedError, returnInput } from './outputs.ts';
import { boundResult, type Result, remindedResult, resultDraft, settledDraft } from './results.ts';
import type { Run } from './run.ts';
import {
  execute,
  hasRun,
  type Requested,
  type Settled,
  settleUnrun,
  start,
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
}

/**
 * Runs the calls of one recorded answer. Each gets exactly one result on every path, recorded in the order of the
 * calls. A valid `rye_directive_return` is judged after the calls before it, and the calls after it are skipped.
 */
export async function runToolBatch(run: Run, message: AssistantMessage): Promise<BatchResult> {
  const requested = toolCallsOf(message).map(
    (call, position): Requested => ({ stage: 'requested', position, call }),
  );
  run.calls.budgets.beginBatch();
  const results = new ResultQueue(run);
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
    const isRefused = !skipped && isReturn(request.call);
    if (isRefused) refused = await returnProblems(run, request);
    const stage = skipped ?? (isRefused ? settleInvalidReturn(request, refused ?? []) : undefined);
    const admitted = stage ?? (await admit(run, request));
    if (admitted.stage === 'validated') ready.push(admitted);
    else if (skipped) await results.settle(admitted);
    else await settle(admitted);
  }
  await runInLanes(ready, run.plan.settings.tools_parallel, async (validated) => {
    await settle(await perform(run, validated));
  });
  if (!returning) return compact({ refused });
  const judgement = judgeReturn(run, returning.request, returning.returned, failed);
  await results.settle(judgement.settled);
  const { returned } = judgement;
  return compact({ returned });
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

async function perform(run: Run, validated: Validated): Promise<Settled> {
  const { requested, tool } = validated;
  if (run.stop.signal.aborted) return notStarted(run, requested, tool.id);
  if (run.stop.decision) {
    const reason = 'a hook ended the thread before this call';
    return settleUnrun(requested, tool.id, 'skipped', reason);
  }
  const settled = await execute(run, await start(run, validated));
  run.calls.earlier.note(
    tool,
    validated.input,
    settled.outcome === 'ok' ? settled.content : undefined,
  );
  return shaped(run, await answered(run, settled));
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
  #next = 0;

  constructor(run: Run) {
    this.#run = run;
  }

  async settle(settled: Settled): Promise<void> {
    const run = this.#run;
    run.calls.loops.note(settled);
    const result = await boundResult(run, settled);
    run.calls.noteOutput(contentBytes(result.content));
    this.#waiting.set(settled.requested.position, result);
    const drafts: EventDraft[] = [settledDraft(result)];
    for (let ready = this.#take(); ready; ready = this.#take()) {
      const { position } = ready.settled.requested;
      const reminder = hasRun(ready.settled)
        ? run.conversation.watcher?.reminderFor(position)
        : undefined;
      drafts.push(resultDraft(remindedResult(ready, reminder), run.spend.turn));
      if (reminder) drafts.push(reminder.injection);
    }
    await run.conversation.record(...drafts);
    await afterCall(run, result);
  }

  #take(): Result | undefined {
    const result = this.#waiting.get(this.#next);
    if (!result) return undefined;
    this.#waiting.delete(this.#next);
    this.#next += 1;
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

/**
 * Runs up to `limit` calls at a time, started in order. A sequential call runs alone, and calls that write the same
 * path run one after another. Rejects after all have ended if one rejected.
 */
async function runInLanes(
  calls: readonly Validated[],
  limit: number,
  work: (call: Validated) => Promise<void>,
): Promise<void> {
  const slots = new Slots(Math.max(1, limit));
  const lanes: (Lane & { readonly end: Promise<void> })[] = [];
  for (const call of calls) {
    const paths = writtenPaths(call);
    const before = lanes.filter((earlier) => conflicts({ paths }, earlier)).map(({ end }) => end);
    const end = Promise.allSettled(before).then(() => slots.use(() => work(call)));
    lanes.push({ paths, end });
  }
  const ends = await Promise.allSettled(lanes.map(({ end }) => end));
  const broken = ends.find((end) => end.status === 'rejected');
  if (broken) throw broken.reason;
}

/** Admits a number of tasks at a time, in the order in which they ask. */
class Slots {
  #free: number;
  readonly #queue: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async use(work: () => Promise<void>): Promise<void> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#queue.push(resolve));
    try {
      await work();
    } finally {
      const next = this.#queue.shift();
      if (next) next();
      else this.#free += 1;
    }
  }
}

interface Lane {
  /** Paths that the call writes; undefined if it cannot tell, and so runs alone. */
  readonly paths: ReadonlySet<string> | undefined;
}

function conflicts(left: Lane, right: Lane): boolean {
  if (!left.paths || !right.paths) return true;
  for (const path of left.paths) if (right.paths.has(path)) return true;
  return false;
}

function writtenPaths({ tool, input }: Validated): ReadonlySet<string> | undefined {
  if (tool.traits.sequential) return undefined;
  try {
    return new Set((tool.writes?.(input) ?? []).map((path) => posix.normalize(path)));
  } catch {
    return undefined;
  }
}
