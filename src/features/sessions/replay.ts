import type { ReplayOptions, ReplayReport } from '../../kernel/app/api/trees.ts';
import { acceptedRisk } from '../../kernel/core/capability.ts';
import { RyeError, toRyeError } from '../../kernel/core/errors.ts';
import type { EventDraft, LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { compact, isJsonObject, type JsonObject } from '../../kernel/core/json.ts';
import { type ToolResultMessage, textOf } from '../../kernel/core/message.ts';
import type { ThreadPlan } from '../../kernel/core/plan.ts';
import { mapOf, NUMBER } from '../../kernel/core/shape.ts';
import { NO_USAGE } from '../../kernel/core/usage.ts';
import { planCompaction } from '../../kernel/log/compaction.ts';
import { foldContext } from '../../kernel/log/context.ts';
import { type RecordedRun, recordedRun } from '../../kernel/log/recorded-run.ts';
import { partsOfRuns, type RunPart, runsOf } from '../../kernel/log/runs.ts';
import {
  buildTree,
  entryByPrefix,
  isKnown,
  pathTo,
  type SessionTree,
} from '../../kernel/log/tree.ts';
import { STEERED } from '../../kernel/loop/batch.ts';
import { JUDGMENT } from '../../kernel/loop/consult.ts';
import { runLoop } from '../../kernel/loop/loop.ts';
import type {
  Compaction,
  CompactionRequest,
  LoopOutcome,
  LoopPorts,
} from '../../kernel/loop/ports.ts';
import type { ApprovalEnv } from '../../kernel/threads/approval-port.ts';
import { readVerified } from '../../kernel/threads/open-session.ts';
import type { Preparing, Process, Sources, Stored } from '../../kernel/threads/ports.ts';
import { prepareThread } from '../../kernel/threads/prepare/prepare.ts';
import {
  compactContext,
  compactionSizes,
  NOT_COMPACTED,
} from '../../kernel/threads/run/compaction.ts';
import type { HookRunner } from '../../kernel/threads/run/hook-runner.ts';
import { sharedPorts } from '../../kernel/threads/run/loop-ports.ts';
import { type Opening, openingMessages, watchRules } from '../../kernel/threads/run/opening.ts';
import { Recorder } from '../../kernel/threads/run/recorder.ts';
import { readParent, type StartedThread } from '../../kernel/threads/run/start.ts';
import { openTooling, type Tooling } from '../../kernel/threads/run/tooling.ts';
import { partOf } from '../../kernel/threads/verified-log.ts';
import {
  memoryWriter,
  NO_CHILDREN,
  ReplayComparison,
  recordedProvider,
  recordedTools,
  stoppedClock,
} from './replay-world.ts';

/**
 * Plays the recorded answers through the loop with today's directive, rules, hooks and gates. Tools don't run: they
 * return their recorded results. Nothing is written and no model is called, so the same log, items and configuration
 * always give the same report.
 */
export async function replayThread(
  given: Preparing & ApprovalEnv,
  threadId: string,
  options: ReplayOptions,
): Promise<ReplayReport> {
  // an edited log is no recording
  const { document, record, verdict } = await readVerified(given, threadId);
  const recordedPlan = await given.files.readPlan(document);
  const { header, events } = await given.store.logs.read(threadId, partOf(threadId, verdict));
  const env = replayEnv(given, recordedPlan);
  const runs = runsOf(header, events);
  const parts = chosenParts(partsOfRuns(header, events), threadId, options);
  const report = { thread_id: threadId, runs: [], answers: 0, steps: 0, matched: 0 };
  let total: ReplayReport = { ...report, difference: null, not_run: [] };
  for (const { run, events: told, tree, from, ...part } of parts) {
    const recording = recordedRun(tree, { header, part: { run, events: told, ...part }, from });
    const replay = new Replay(env, { recording, tree, events: told }, options);
    const { comparison, notRun } = replay;
    try {
      const today = await todaysPlan(env, recordedPlan);
      const plan = { ...today, limits: { ...today.limits, ...runs[run - 1]?.limits } };
      const parent = await readParent(given.files, document);
      await replay.play({ threadId, plan, record, document, parent });
    } catch (error) {
      const { code, message } = toRyeError(error);
      comparison.compare({ kind: 'end', value: { status: 'error', code, message } });
    }
    total = {
      ...total,
      runs: [...total.runs, run],
      answers: total.answers + recording.answers.length,
      steps: total.steps + recording.steps.length,
      matched: total.matched + comparison.matched,
      difference: comparison.difference ?? null,
      not_run: [...total.not_run, ...notRun],
    };
    if (total.difference || options.signal?.aborted) break;
  }
  return total;
}

/** A run to replay, with the tree that its log was then. */
interface ChosenRun extends RunPart {
  readonly tree: SessionTree;
  /** The entry after which it starts. */
  readonly from?: string;
}

/** Returns the runs that were asked for: all, one, or the first one whose path has the entry. */
function chosenParts(
  parts: readonly RunPart[],
  threadId: string,
  { run, from }: Pick<ReplayOptions, 'run' | 'from'>,
): readonly ChosenRun[] {
  const asked = parts.filter((part) => run === undefined || part.run === run);
  if (asked.length === 0) {
    throw new RyeError('usage', `thread ${threadId} has no run ${run}`, {
      hint: `Give a number from 1 to ${parts.length}.`,
    });
  }
  const chosen = asked.map((part) => ({ ...part, tree: buildTree(part.events) }));
  if (from === undefined) return chosen;
  const whole = parts.at(-1)?.events ?? [];
  const { id } = entryByPrefix(buildTree(whole), from);
  const first = chosen.find(({ tree }) => pathTo(tree, tree.leafId).some((one) => one.id === id));
  if (first) return [{ ...first, from: id }];
  throw new RyeError(
    'usage',
    `entry ${id} is not on the path of ${run === undefined ? 'any run' : `run ${run}`}`,
    {
      hint: `List the entries: rye threads entries ${threadId}`,
    },
  );
}

/** Stops the clock and fixes the recorded model. */
function replayEnv(
  env: Preparing & ApprovalEnv,
  { model, fallbacks }: ThreadPlan,
): Preparing & ApprovalEnv {
  return {
    ...env,
    clock: stoppedClock(env.clock.now()),
    random: () => 0,
    models: {
      ...env.models,
      resolve: () => Promise.resolve({ model, fallbacks, origin: 'the recording' }),
      open: () => {
        throw new RyeError('internal', 'a replay asks no model');
      },
    },
  };
}

/** Prepares the directive as it is today, under the limits that the thread was given. */
async function todaysPlan(env: Preparing, recorded: ThreadPlan): Promise<ThreadPlan> {
  const {
    directive,
    inputs,
    parent_thread_id: parent,
    limits,
    allow_unpriced,
    behavior,
  } = recorded;
  const { plan } = await prepareThread(env, {
    directiveId: directive.id,
    inputs,
    ...(parent === null ? {} : { parentThreadId: parent }),
    allowUnpriced: allow_unpriced,
    acknowledge: recorded.acknowledged.map(acceptedRisk),
    behavior,
  });
  // a recording has a failure only if a rule cut an answer: nothing is retried
  return { ...plan, limits, settings: { ...plan.settings, max_retries: 0 } };
}

/** The recording in the log of a thread. */
interface Recorded {
  readonly recording: RecordedRun;
  readonly tree: SessionTree;
  readonly events: readonly (LogEvent | UnknownEvent)[];
}

/** Plays a recording again, up to the first difference. */
class Replay {
  readonly comparison: ReplayComparison;
  /** Tools and directives that hooks would have run. */
  readonly notRun: string[] = [];
  readonly #env: Stored & Process & Sources & ApprovalEnv;
  readonly #recorded: Recorded;
  readonly #options: ReplayOptions;

  constructor(
    env: Stored & Process & Sources & ApprovalEnv,
    recorded: Recorded,
    options: ReplayOptions,
  ) {
    this.#env = env;
    this.#recorded = recorded;
    this.#options = options;
    this.comparison = new ReplayComparison(recorded.recording);
  }

  async play(started: StartedThread): Promise<void> {
    const { clock } = this.#env;
    const { onEvent, signal: cancelled } = this.#options;
    const { recording, tree } = this.#recorded;
    const { historyLeaf: leafId } = recording;
    const writer = memoryWriter(started.threadId, clock);
    const recorder = new Recorder({ writer, clock, deltas: 'off', onEvent });
    const tooling = await openTooling(this.#env, started, recorder, {
      starter: NO_CHILDREN,
      approvals: undefined,
      wrap: (tools) => recordedTools(tools, recording.results, this.notRun),
    });
    const stop = new AbortController();
    const signal = cancelled ? AbortSignal.any([cancelled, stop.signal]) : stop.signal;
    const opening = await this.#open(started.plan, tooling, recorder, signal);
    if (this.comparison.isOver) return;
    const ports = {
      ...this.#ports(started, tooling, opening),
      ...(await watchRules(this.#env, started, leafId !== null && { tree, leafId })),
    };
    const loop = runLoop(started.plan, ports, signal);
    let step = await loop.next();
    while (!step.done) {
      const written = recorder.record(step.value);
      if (!this.comparison.observe(step.value)) stop.abort('the replay is over');
      step = await loop.next(written);
    }
    if (cancelled?.aborted) throw new RyeError('cancelled', 'the replay was cancelled');
    if (this.comparison.isOver) return;
    this.comparison.compare({ kind: 'end', value: endOf(step.value) });
    this.comparison.finish();
  }

  /** Renders the opening again and compares it. A replay that starts later takes the recorded context instead. */
  async #open(
    plan: ThreadPlan,
    { hooks, tools }: Tooling,
    recorder: Recorder,
    signal: AbortSignal,
  ): Promise<Pick<Opening, 'system' | 'messages'>> {
    const { recording, tree } = this.#recorded;
    if (recording.historyLeaf !== null) return foldContext(tree, { leafId: recording.historyLeaf });
    const opening = await openingMessages({ plan, hooks, tools, signal });
    // what hooks load by running something can't be known without running it
    const drafts = this.notRun.length === 0 ? opening.drafts : recordedOpening(recording);
    this.comparison.observe(drafts);
    recorder.record(drafts);
    return opening;
  }

  #ports(
    started: StartedThread,
    tooling: Tooling,
    opening: Pick<Opening, 'system' | 'messages'>,
  ): LoopPorts {
    const { recording } = this.#recorded;
    const { signal: cancelled } = this.#options;
    const provider = recordedProvider(recording.answers);
    return {
      ...sharedPorts(this.#env, started, tooling, opening),
      spent: recording.spent,
      provider: () => provider,
      budget: {
        remainingMicroUsd: () => Promise.resolve(Number.MAX_SAFE_INTEGER),
        report: () => Promise.resolve(),
      },
      cancelled: () => (cancelled?.aborted ? 'the replay was cancelled' : undefined),
      artifacts: { save: (callId) => Promise.resolve(`artifacts/${callId}`) },
      inbox: {
        take: () => {
          const drafts = this.comparison.takeDeliveries();
          for (const draft of drafts) activateSkill(draft, tooling);
          return Promise.resolve(drafts);
        },
        isSteered: (callId) => Promise.resolve(gaveWay(recording.results.get(callId))),
        context: () => {
          const leafId = this.comparison.lastEntryId ?? recording.historyLeaf;
          return Promise.resolve(foldContext(this.#recorded.tree, { leafId }).messages);
        },
      },
      consult: this.#consult(started.plan),
      compact: (request, signal) => this.#compact(started, tooling.hooks, request, signal),
    };
  }

  /** Answers questions as the run's models did, in their order. */
  #consult({ model }: ThreadPlan): NonNullable<LoopPorts['consult']> {
    const { recording, events, tree } = this.#recorded;
    const { historyLeaf: leaf } = recording;
    const since = leaf === null ? 0 : (tree.byId.get(leaf)?.seq ?? 0);
    const answers = events.flatMap((event) => {
      const answer = isKnown(event, 'note') ? event.payload.details?.[JUDGMENT] : undefined;
      return event.seq > since && isJsonObject(answer) ? [answer] : [];
    });
    return () => {
      const { text } = answers.shift() ?? {};
      const answer = typeof text === 'string' ? { text } : { error: 'the recording has no answer' };
      return Promise.resolve({ model, usage: NO_USAGE, ...answer });
    };
  }

  /**
   * Plans as the run did and asks today's hooks, then returns the summary that was recorded here. An attempt that failed
   * without an answer counts as none. Everything else is a difference.
   */
  async #compact(
    { plan, threadId }: StartedThread,
    hooks: HookRunner,
    request: CompactionRequest,
    signal: AbortSignal,
  ): Promise<Compaction | undefined> {
    const { recording, tree } = this.#recorded;
    const leafId = this.comparison.lastEntryId ?? recording.historyLeaf;
    const sizes = compactionSizes(plan, request.model);
    const planned = planCompaction(tree, { sizes, tokens: request.tokens, leafId });
    if (!planned) return undefined;
    const context = compactContext({ ...request, threadId }, planned);
    const report = await hooks.beforeCompact(context, signal);
    if ((report.cancelled ?? report.failed) !== undefined) return undefined;
    const { expected } = this.comparison;
    if (expected?.kind === 'compaction' && expected.draft?.event_type === 'compaction') {
      const { messages } = foldContext(tree, { leafId: expected.entryId });
      const usage = expected.draft.payload.details?.['usage'];
      return {
        drafts: [expected.draft],
        messages,
        usage: USAGE.fits(usage) ? { ...NO_USAGE, ...usage } : NO_USAGE,
      };
    }
    if (!this.#hasFailedAttempt(leafId)) {
      this.comparison.compare({ kind: 'compaction', value: {} });
    }
    return undefined;
  }

  /** True if the run tried to compact at this place and failed. */
  #hasFailedAttempt(leafId: string | null): boolean {
    const { tree, events } = this.#recorded;
    const since = leafId === null ? 0 : (tree.byId.get(leafId)?.seq ?? 0);
    const until = this.comparison.expected?.seq ?? Number.POSITIVE_INFINITY;
    return events.some(
      (event) =>
        event.seq > since &&
        event.seq < until &&
        isKnown(event, 'note') &&
        event.payload.text.startsWith(NOT_COMPACTED),
    );
  }
}

const USAGE = mapOf(NUMBER);

/** Activates a skill that the recording activated from outside, as far as the thread still has it. */
function activateSkill(draft: EventDraft, { tools }: Tooling): void {
  if (draft.event_type !== 'custom_message' || draft.payload.custom_type !== 'skill') return;
  const skill = draft.payload.details?.['skill'];
  try {
    if (typeof skill === 'string') tools.skills?.activate(skill, '');
  } catch {
    // the recorded instructions count all the same
  }
}

/** True for the recorded result of a call that a person's message came before. */
function gaveWay(result: ToolResultMessage | undefined): boolean {
  return result?.outcome === 'skipped' && textOf(result.content).includes(STEERED);
}

function endOf(outcome: LoopOutcome): JsonObject {
  switch (outcome.kind) {
    case 'completed':
      return compact({ status: 'completed', outputs: outcome.outputs });
    case 'limit':
    case 'error':
      return { status: 'error', code: outcome.error.code };
    case 'suspended':
      return { status: 'suspended' };
    case 'cancelled':
      return { status: 'cancelled' };
    case 'handoff':
      return { status: 'continued' };
  }
}

function recordedOpening({ steps }: RecordedRun): readonly EventDraft[] {
  const end = steps.findIndex(({ kind }) => kind === 'user');
  return steps.slice(0, end + 1).flatMap(({ draft }) => (draft === null ? [] : [draft]));
}
