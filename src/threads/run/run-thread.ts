import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, toRyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { PlannedModel } from '../../core/plan.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { type Cost, NO_COST } from '../../core/usage.ts';
import { runLoop } from '../../loop/loop.ts';
import type { LoopOutcome, LoopPorts } from '../../loop/ports.ts';
import { parseErrorRules } from '../../policy/error-class.ts';
import { isTaintNote } from '../../policy/risk.ts';
import type { ModelProvider, ToolDefinition, ToolList } from '../../providers/provider.ts';
import type { LogWriter } from '../../storage/store.ts';
import { afterEnd } from '../family/cancel.ts';
import { Children, type ChildStarter } from '../family/children.ts';
import { carriedEntries, predecessorsOf } from '../family/delivery-log.ts';
import type {
  Exporting,
  OpenTools,
  Preparing,
  Process,
  Recovering,
  Sources,
  Stored,
  ThreadEnv,
} from '../ports.ts';
import { returnCheck } from '../prepare/directive.ts';
import { joinChain, type Successor, startHandoff } from '../recovery/successor.ts';
import { headerOf, type ThreadDocument } from '../thread-document.ts';
import { compactPort } from './compaction.ts';
import { finalizeThread } from './finalize.ts';
import { HookRunner } from './hook-runner.ts';
import { ThreadInbox } from './inbox.ts';
import { type LiveExport, openLiveExport } from './live-export.ts';
import { Cancellation, cancelReason } from './liveness.ts';
import { type Conversation, type Opening, openingMessages, watchRules } from './opening.ts';
import { ArtifactHashes, Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';

export interface RunOptions {
  /** Values of secret inputs, by name. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Called with each event of the thread, and with those of children in this process as `child.<type>`. */
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  /** Wraps each provider, e.g. to record its stream. */
  readonly wrapProvider?: ((provider: ModelProvider) => ModelProvider) | undefined;
  /** Starts children; given by the caller, so that runs can nest. */
  readonly children: ChildStarter;
  /** The start of the conversation; by default the directive's first message. */
  readonly conversation?: Conversation | undefined;
}

interface OpenRun {
  readonly writer: LogWriter;
  readonly recorder: Recorder;
  readonly tools: OpenTools;
  readonly hooks: HookRunner;
  readonly children: Children;
  readonly inbox: ThreadInbox;
}

/**
 * Runs a started thread to its end and finalizes it on every way out; after a handoff, its successors too. Resolves to
 * the result of the chain in every case; rejects only if not even the finalization could be recorded.
 */
export async function runThread(
  env: ThreadEnv,
  started: StartedThread,
  options: RunOptions,
): Promise<ThreadResult> {
  const { conversation } = options;
  const results: ThreadResult[] = [];
  // one after the other, so that neither the stack nor memory grows with the chain
  for (let next: Successor | undefined = { started, conversation }; next; ) {
    const run: { result: ThreadResult; successor: Successor | undefined } = await runLink(
      env,
      next,
      options,
    );
    results.push(run.result);
    next = run.successor;
  }
  return joinChain(results);
}

async function runLink(
  env: ThreadEnv,
  { started, conversation }: Successor,
  given: RunOptions,
): Promise<{ readonly result: ThreadResult; readonly successor: Successor | undefined }> {
  const options = { ...given, conversation };
  const cancellation = new Cancellation(env, started, options.signal);
  let open: OpenRun | undefined;
  let log: OpenLog | undefined;
  let outcome: LoopOutcome;
  let successor: Successor | undefined;
  try {
    log = await openLog(env, started, options);
    open = {
      ...log,
      ...(await openSession(env, started, { options, cancellation, log })),
    };
    outcome = await drive(env, started, { open, options, cancellation });
  } catch (error) {
    outcome = failed(toRyeError(error, 'thread_error').toJSON());
  }
  if (outcome.kind === 'handoff' && open) {
    const { cost, last_text } = outcome;
    try {
      // requested during the last call: the successor would not see it
      const reason = await cancelReason(env.store.registry, started.threadId);
      if (reason !== undefined) outcome = { kind: 'cancelled', reason, cost, last_text };
      else successor = await startHandoff(env, { started, cost, recorder: open.recorder });
    } catch (error) {
      outcome = { kind: 'error', error: toRyeError(error).toJSON(), cost, last_text };
    }
  }
  cancellation.stop();
  const result = await finalizeThread(env, {
    started,
    outcome,
    hooks: open?.hooks,
    log,
    children: open?.children.ids ?? [],
    inbox: open?.inbox,
    successor: successor && {
      threadId: successor.started.threadId,
      spendUsd: successor.started.plan.limits.spend,
    },
  });
  await open?.tools.close();
  await afterEnd(env, result);
  return { result, successor };
}

function failed(error: ErrorInfo, cost: Cost = NO_COST): LoopOutcome {
  return { kind: 'error', error, cost, last_text: '' };
}

interface OpenLog {
  readonly writer: LogWriter;
  readonly recorder: Recorder;
  readonly live: LiveExport | undefined;
}

async function openLog(
  env: Stored & Process & Exporting,
  { threadId, plan, record, document }: StartedThread,
  { onEvent, conversation }: RunOptions,
): Promise<OpenLog> {
  const owned = {
    signer: env.signer(),
    durability: plan.settings.durability,
    owner: env.owner,
    epoch: record.epoch,
  };
  const writer = conversation?.reopens
    ? await env.store.logs.reopen(threadId, { ...owned, verifier: env.verifier })
    : await env.store.logs.create(headerOf(document), owned);
  const live = await openLiveExport(env, { plan, document }, conversation?.reopens === true);
  const recorder = new Recorder({
    writer,
    clock: env.clock,
    deltas: plan.settings.token_deltas,
    onEvent: (event) => {
      live?.append(event);
      onEvent?.(event);
    },
  });
  return { writer, recorder, live };
}

interface SessionParts {
  readonly options: RunOptions;
  readonly cancellation: Cancellation;
  readonly log: { readonly recorder: Recorder };
}

async function openSession(
  env: Recovering & Sources,
  started: StartedThread,
  { options, cancellation, log: { recorder } }: SessionParts,
): Promise<Pick<OpenRun, 'tools' | 'hooks' | 'children' | 'inbox'>> {
  const { plan, threadId } = started;
  const { secrets, children: starter, onEvent } = options;
  const children = new Children({
    parent: started,
    starter,
    recorder,
    onEvent,
    onLearned: (id) => inbox.learned(id),
  });
  const tools = await env.tools.open({
    plan,
    traits: env.models.traits(plan.model),
    threadId,
    secrets,
    children,
    record: (drafts) => void recorder.record(drafts),
  });
  const hooks = new HookRunner({ env, plan, threadId, tools, children, recorder });
  children.attach(hooks);
  const inbox = new ThreadInbox({
    env,
    started,
    tools,
    rules: env.config.steer,
    observe: async (context) => await hooks.observeDelivery(context),
    syncLog: async () => void (await recorder.checkpoint()),
  });
  await env.files.writeCapabilities(
    threadId,
    env.renderer.capabilities(plan, tools.definitions().tools),
  );
  cancellation.watch();
  return { tools, hooks, children, inbox };
}

interface DriveParts {
  readonly open: OpenRun;
  readonly options: RunOptions;
  readonly cancellation: Cancellation;
}

/** Opens the conversation, drives the loop and records each of its events before the next step. */
async function drive(
  env: Preparing,
  started: StartedThread,
  { open, options, cancellation }: DriveParts,
): Promise<LoopOutcome> {
  const { threadId, plan, record } = started;
  const { recorder, hooks, tools, inbox } = open;
  const { parent } = started;
  const { conversation } = options;
  if (!conversation?.reopens) recorder.record(announcement(started));
  const parts = { plan, hooks, tools, signal: cancellation.signal };
  const opening = conversation
    ? await conversation.open({ ...parts, recorder, writer: open.writer })
    : await openingMessages(parts);
  recorder.record(opening.drafts);
  if (conversation) tools.restore?.(opening.messages);
  const carried = conversation ? await carriedEntries(env, threadId) : new Set<string>();
  await inbox.open(carried, await predecessorsOf(env, started));
  const artifacts = new ArtifactHashes();
  const ports = loopPorts({
    artifacts,
    env,
    plan,
    threadId,
    epoch: record.epoch,
    open,
    options,
    cancellation,
    opening,
    parent,
  });
  const watching = await watchRules(env, started, conversation !== undefined);
  const isSynced = plan.settings.durability !== 'off';
  const place = { recorder, threadId, epoch: record.epoch, isSynced };
  const loop = runLoop(plan, { ...ports, ...watching }, cancellation.signal);
  let step = await loop.next();
  while (!step.done) {
    let written: readonly LogEvent[] | undefined;
    try {
      const drafts = step.value.map((draft) => artifacts.named(draft));
      written = await write(env, { drafts, ...place });
      await inbox.written(written);
    } catch (error) {
      step = await loop.throw(error);
      continue;
    }
    step = await loop.next(written);
  }
  recorder.flush();
  await recorder.settled();
  return step.value;
}

interface Write {
  readonly drafts: readonly EventDraft[];
  readonly recorder: Recorder;
  readonly threadId: string;
  readonly epoch: number;
  /** The log is on the disk at each turn's end, so no crash of the machine takes that away. */
  readonly isSynced: boolean;
}

async function write(
  env: Pick<Stored, 'store'> & Pick<Process, 'clock'>,
  { drafts, recorder, threadId, epoch, isSynced }: Write,
): Promise<readonly LogEvent[]> {
  const events = recorder.record(drafts);
  await recorder.settled();
  for (const event of events) {
    if (event.event_type !== 'cost') continue;
    const head = await recorder.checkpoint();
    const progress = { cost: event.payload.total, ...(isSynced ? { head } : {}) };
    await env.store.registry.heartbeat(threadId, epoch, isoTime(env.clock.now()), progress);
  }
  return events;
}

function announcement({ plan, document }: StartedThread): EventDraft[] {
  const { directive, model, limits, integrity, inputs, parent_thread_id: parent, warnings } = plan;
  return [
    {
      event_type: 'thread_started',
      payload: {
        directive: directive.id,
        model: model.id,
        provider: model.provider,
        limits: { ...limits },
        integrity,
        inputs,
        // the stored plan has it: one that was read back may have gained new limits
        ...(document.plan_sha256 === undefined ? {} : { plan_sha256: document.plan_sha256 }),
      },
    },
    {
      event_type: 'budget',
      payload: { max_usd: limits.spend, ...(parent === null ? {} : { parent_thread_id: parent }) },
    },
    ...warnings
      .filter((warning) => !isTaintNote(warning))
      .map((warning): EventDraft => {
        return { event_type: 'note', payload: { text: `warning: ${warning}` } };
      }),
  ];
}

/**
 * Returns the tools offered now for a thread that resumes: the recorded ones in the same bytes, those unlocked since
 * after them. A list is made once for each version of the thread's tools.
 */
export function recordedFirst(
  recorded: readonly ToolDefinition[],
  tools: Pick<OpenTools, 'definitions' | 'withdrawn'>,
): () => ToolList {
  if (recorded.length === 0) return () => tools.definitions();
  const known = new Set(recorded.map(({ name }) => name));
  let merged: ToolList | undefined;
  return () => {
    const { version, tools: offered } = tools.definitions();
    if (merged?.version === version) return merged;
    const withdrawn = tools.withdrawn?.();
    const kept = recorded.filter(({ name }) => withdrawn?.has(name) !== true);
    merged = { version, tools: [...kept, ...offered.filter(({ name }) => !known.has(name))] };
    return merged;
  };
}

interface PortParts {
  readonly parent: ThreadDocument | undefined;
  readonly env: Preparing;
  readonly plan: StartedThread['plan'];
  readonly threadId: string;
  readonly epoch: number;
  readonly open: OpenRun;
  readonly options: RunOptions;
  readonly cancellation: Cancellation;
  readonly opening: Opening;
  readonly artifacts: ArtifactHashes;
}

function loopPorts(parts: PortParts): LoopPorts {
  const { env, plan, threadId, epoch, open, options, cancellation, opening, parent } = parts;
  const { artifacts } = parts;
  const { tools, hooks, inbox } = open;
  const { ledger } = env.store;
  const provider = (model: PlannedModel): ModelProvider => {
    const opened = env.models.open(model, plan);
    return options.wrapProvider?.(opened) ?? opened;
  };
  return {
    threadId,
    projectPath: env.projectPath,
    system: opening.system,
    history: opening.messages,
    ...(opening.pending ? { pending: opening.pending } : {}),
    ...(opening.spent ? { spent: opening.spent } : {}),
    traits: env.models.traits,
    provider,
    definitions: recordedFirst(opening.tools ?? [], tools),
    tools: tools.set,
    hooks,
    ...(env.handlers ? { handlers: env.handlers } : {}),
    clock: env.clock,
    budget: {
      remainingMicroUsd: () => ledger.remaining(threadId),
      held: () => ledger.held(threadId),
      report: (spent) => ledger.report(threadId, spent, epoch),
    },
    cancelled: () => cancellation.reason,
    artifacts: {
      save: async (callId, content) => {
        const text = content
          .map((block) => (block.type === 'text' ? block.text : block.data))
          .join('\n');
        const path = await env.files.writeArtifact(threadId, callId, text);
        artifacts.note(path, text);
        return path;
      },
    },
    errorRules: parseErrorRules(plan.settings.error_classification, 'agent/error_classification'),
    random: env.random,
    ...(parent ? { parentLimits: parent.limits } : {}),
    validate: (schema, input) => tools.validate(schema, input),
    checkReturn: returnCheck(plan, tools),
    forgetReads: () => tools.forgetReads?.(),
    ...(tools.refresh ? { refreshTools: tools.refresh } : {}),
    gates: [...tools.gates, inbox.gate],
    inbox,
    compact: compactPort({ env, plan, threadId, hooks, provider, recorder: open.recorder }),
  };
}
