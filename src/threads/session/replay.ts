import { RyeError, toRyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact, isJsonObject, type JsonObject } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { NO_USAGE, type Usage } from '../../core/usage.ts';
import { planCompaction } from '../../log/compaction.ts';
import { foldContext } from '../../log/context.ts';
import { type RecordedRun, recordedRun } from '../../log/recorded-run.ts';
import { buildTree, isKnown, type SessionTree } from '../../log/tree.ts';
import { runLoop } from '../../loop/loop.ts';
import type { Compaction, CompactionRequest, LoopOutcome, LoopPorts } from '../../loop/ports.ts';
import { parseErrorRules } from '../../policy/error-class.ts';
import { Children } from '../family/children.ts';
import type { OpenTools, Preparing, Process, Sources, Stored, ThreadEnv } from '../ports.ts';
import { returnCheck } from '../prepare/directive.ts';
import { prepareThread } from '../prepare/prepare.ts';
import { compactContext, compactionSizes, NOT_COMPACTED } from '../run/compaction.ts';
import { HookRunner } from '../run/hook-runner.ts';
import { openingMessages, watchRules } from '../run/opening.ts';
import { Recorder } from '../run/recorder.ts';
import type { StartedThread } from '../run/start.ts';
import { partOf } from '../verified-log.ts';
import { readVerified } from './edit.ts';
import {
  memoryWriter,
  NO_CHILDREN,
  ReplayComparison,
  type ReplayDifference,
  recordedProvider,
  recordedTools,
  stoppedClock,
} from './replay-world.ts';

export interface ReplayOptions {
  /** The entry after which the replay starts; entries up to it are taken from the log. */
  readonly from?: string;
  readonly signal?: AbortSignal;
  /** Called with each event that the replay would have logged. */
  readonly onEvent?: (event: LogEvent) => void;
}

export interface ReplayReport {
  readonly thread_id: string;
  /** Answers of the model that the recording has. */
  readonly answers: number;
  /** Recorded steps, and the number of them that the replay repeated. */
  readonly steps: number;
  readonly matched: number;
  readonly difference: ReplayDifference | null;
  /** Tools and directives that hooks would have run; a replay has no effects, so it leaves them out. */
  readonly not_run: readonly string[];
}

/**
 * Plays the recorded answers through the loop with today's directive, rules, hooks and gates. Tools are not run: they
 * give what they gave. Nothing is written and no model is asked, so the same log, items and configuration always give
 * the same report.
 */
export async function replayThread(
  given: ThreadEnv,
  threadId: string,
  options: ReplayOptions,
): Promise<ReplayReport> {
  // an edited log is no recording
  const { document, record, verdict } = await readVerified(given, threadId);
  const recordedPlan = await given.files.readPlan(document);
  const { header, events } = await given.store.logs.read(threadId, partOf(threadId, verdict));
  const tree = buildTree(events);
  const recording = recordedRun(tree, { header, events, from: options.from });
  const comparison = new ReplayComparison(recording);
  const notRun: string[] = [];
  const env = replayEnv(given, recordedPlan);
  try {
    const plan = await todaysPlan(env, recordedPlan);
    const started = await startedLike(given, { document, record, plan });
    await play(env, { started, recording, tree, events, comparison, notRun, options });
  } catch (error) {
    const { code, message } = toRyeError(error);
    comparison.compare({ kind: 'end', value: { status: 'error', code, message } });
  }
  return {
    thread_id: threadId,
    answers: recording.answers.length,
    steps: recording.steps.length,
    matched: comparison.matched,
    difference: comparison.difference ?? null,
    not_run: notRun,
  };
}

/** Stops the clock and fixes the recorded model. */
function replayEnv(env: ThreadEnv, { model, fallbacks }: ThreadPlan): ThreadEnv {
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

/** The directive as it is prepared today, under the limits that the thread was given. */
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
    acknowledge: recorded.acknowledged.map(({ risk }) => risk),
    behavior,
  });
  // a failure is part of the recording only where a rule cut an answer: nothing is tried again
  return { ...plan, limits, settings: { ...plan.settings, max_retries: 0 } };
}

async function startedLike(
  env: Pick<Stored, 'files'>,
  { document, record, plan }: Pick<StartedThread, 'document' | 'record' | 'plan'>,
): Promise<StartedThread> {
  const parent =
    document.parent_thread_id === null
      ? undefined
      : await env.files.readDocument(document.parent_thread_id);
  return { threadId: document.thread_id, plan, record, document, parent };
}

interface Play {
  readonly started: StartedThread;
  readonly recording: RecordedRun;
  readonly tree: SessionTree;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly comparison: ReplayComparison;
  readonly notRun: string[];
  readonly options: ReplayOptions;
}

async function play(env: ThreadEnv, parts: Play): Promise<void> {
  const { started, recording, comparison, notRun, options } = parts;
  const { plan, threadId } = started;
  const writer = memoryWriter(threadId, env.clock);
  const recorder = new Recorder({
    writer,
    clock: env.clock,
    deltas: 'off',
    onEvent: options.onEvent,
  });
  const children = new Children({
    parent: started,
    starter: NO_CHILDREN,
    recorder,
    onEvent: undefined,
  });
  const opened = await env.tools.open({
    plan,
    traits: env.models.traits(plan.model),
    threadId,
    secrets: {},
    children,
  });
  const tools = recordedTools(opened, recording.results, notRun);
  const hooks = new HookRunner({ env, plan, threadId, tools, children, recorder });
  const stop = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  const opening = await openingOf(parts, { hooks, tools, recorder, signal });
  if (comparison.isOver) return;
  const ports = replayPorts(env, { ...parts, tools, hooks, opening });
  const watching = await watchRules(env, started, recording.historyLeaf !== null);
  const loop = runLoop(plan, { ...ports, ...watching }, signal);
  let step = await loop.next();
  while (!step.done) {
    const written = recorder.record(step.value);
    if (!comparison.observe(step.value)) stop.abort('the replay is over');
    step = await loop.next(written);
  }
  if (options.signal?.aborted) throw new RyeError('cancelled', 'the replay was cancelled');
  if (comparison.isOver) return;
  compareEnd(comparison, step.value);
}

function compareEnd(comparison: ReplayComparison, outcome: LoopOutcome): void {
  comparison.compare({ kind: 'end', value: endOf(outcome) });
  comparison.finish();
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

interface Opened {
  readonly system: string;
  readonly messages: LoopPorts['history'];
}

/** Renders the opening again and compares it. A replay that starts later takes the recorded context instead. */
async function openingOf(
  { started, recording, tree, comparison, notRun }: Play,
  parts: {
    readonly hooks: HookRunner;
    readonly tools: OpenTools;
    readonly recorder: Recorder;
    readonly signal: AbortSignal;
  },
): Promise<Opened> {
  if (recording.historyLeaf !== null) {
    return foldContext(tree, { leafId: recording.historyLeaf });
  }
  const opening = await openingMessages({ plan: started.plan, ...parts });
  // what hooks load by running something can't be known without running it
  const drafts = notRun.length === 0 ? opening.drafts : recordedOpening(recording);
  comparison.observe(drafts);
  parts.recorder.record(drafts);
  return opening;
}

function recordedOpening({ steps }: RecordedRun): readonly EventDraft[] {
  const end = steps.findIndex(({ kind }) => kind === 'user');
  return steps.slice(0, end + 1).flatMap(({ draft }) => (draft === null ? [] : [draft]));
}

interface PortParts extends Play {
  readonly tools: OpenTools;
  readonly hooks: HookRunner;
  readonly opening: Opened;
}

function replayPorts(env: Process & Pick<Sources, 'models'>, parts: PortParts): LoopPorts {
  const { started, recording, comparison, tools, hooks, opening, options } = parts;
  const { plan, threadId, parent } = started;
  const provider = recordedProvider(recording.answers);
  return {
    threadId,
    projectPath: env.projectPath,
    system: opening.system,
    history: opening.messages,
    spent: recording.spent,
    traits: env.models.traits,
    provider: () => provider,
    definitions: () => tools.definitions(),
    tools: tools.set,
    hooks,
    clock: env.clock,
    budget: {
      remainingMicroUsd: () => Promise.resolve(Number.MAX_SAFE_INTEGER),
      report: () => Promise.resolve(),
    },
    cancelled: () => (options.signal?.aborted ? 'the replay was cancelled' : undefined),
    artifacts: { save: (callId) => Promise.resolve(`artifacts/${callId}`) },
    errorRules: parseErrorRules(plan.settings.error_classification, 'error_classification'),
    random: env.random,
    ...(parent ? { parentLimits: parent.limits } : {}),
    validate: (schema, input) => tools.validate(schema, input),
    checkReturn: returnCheck(plan, tools),
    gates: tools.gates,
    inbox: { take: () => Promise.resolve(comparison.takeDeliveries()) },
    compact: (request, signal) => recordedCompaction(parts, request, signal),
  };
}

/**
 * Plans as the run did and asks today's hooks; gives the recorded summary where the recording has one at this place.
 * An attempt that failed for want of an answer is none. Everything else is a difference.
 */
async function recordedCompaction(
  parts: PortParts,
  request: CompactionRequest,
  signal: AbortSignal,
): Promise<Compaction | undefined> {
  const { started, recording, comparison, tree, hooks } = parts;
  const { plan, threadId } = started;
  const leafId = comparison.lastEntryId ?? recording.historyLeaf;
  const sizes = compactionSizes(plan, request.model);
  const planned = planCompaction(tree, { sizes, tokens: request.tokens, leafId });
  if (!planned) return undefined;
  const report = await hooks.beforeCompact(
    compactContext({ ...request, threadId }, planned),
    signal,
  );
  if ((report.cancelled ?? report.failed) !== undefined) return undefined;
  const { expected } = comparison;
  if (expected?.kind === 'compaction' && expected.draft?.event_type === 'compaction') {
    const { messages } = foldContext(tree, { leafId: expected.entryId });
    const usage = expected.draft.payload.details?.['usage'];
    return {
      drafts: [expected.draft],
      messages,
      usage: isJsonObject(usage) ? (usage as unknown as Usage) : NO_USAGE,
    };
  }
  if (!hasFailedAttempt(parts, leafId)) comparison.compare({ kind: 'compaction', value: {} });
  return undefined;
}

/** True if the run tried to compact at this place and failed. */
function hasFailedAttempt({ tree, events, comparison }: PortParts, leafId: string | null): boolean {
  const since = leafId === null ? 0 : (tree.byId.get(leafId)?.seq ?? 0);
  const until = comparison.expected?.seq ?? Number.POSITIVE_INFINITY;
  return events.some(
    (event) =>
      event.seq > since &&
      event.seq < until &&
      isKnown(event, 'note') &&
      event.payload.text.startsWith(NOT_COMPACTED),
  );
}
