import { join } from 'node:path';
import { isoTime } from '../../core/clock.ts';
import { toRyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import { toolCallsOf } from '../../core/message.ts';
import type { PlannedModel } from '../../core/plan.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { type Cost, type MicroUsd, NO_COST } from '../../core/usage.ts';
import { runLoop } from '../../loop/loop.ts';
import type { LoopOutcome, LoopPorts } from '../../loop/ports.ts';
import { isTaintNote } from '../../policy/risk.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import type { LogWriter } from '../../storage/store.ts';
import { afterEnd } from '../family/cancel.ts';
import type { ChildStarter } from '../family/children.ts';
import { carriedEntries, childEnds, predecessorsOf } from '../family/delivery-log.ts';
import { endChildren } from '../family/end-children.ts';
import type { OnIdle, ThreadEnv } from '../ports.ts';
import { joinChain, type Successor, startHandoff } from '../recovery/successor.ts';
import { headerOf } from '../thread-document.ts';
import { readSigned } from '../verified-log.ts';
import { type ApprovalAttention, ApprovalDesk } from './approvals.ts';
import { compactPort } from './compaction.ts';
import { consultPort } from './consult.ts';
import { finalizeThread } from './finalize.ts';
import { ThreadInbox } from './inbox.ts';
import { ThreadWorktree } from './isolation.ts';
import { fileKeeper } from './keep-file.ts';
import { type LiveExport, openLiveExport } from './live-export.ts';
import { Cancellation, cancelReason } from './liveness.ts';
import { budgetPort, legPorts, raisedThread, recordedFirst, sharedPorts } from './loop-ports.ts';
import {
  type Conversation,
  messagesOf,
  type Opening,
  openingMessages,
  watchRules,
} from './opening.ts';
import { ownPass } from './own-pass.ts';
import { ProgramEntries } from './program-entries.ts';
import { ArtifactHashes, Recorder } from './recorder.ts';
import { type StartedThread, writerOptions } from './start.ts';
import { openTooling, type Tooling } from './tooling.ts';
import { judge } from './verdict.ts';

export interface RunOptions {
  /** Values of secret inputs, by name. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Called with each event of the thread, and with events of children in this process as `child.<type>`. */
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  /** Wraps each provider, e.g. to record its stream. */
  readonly wrapProvider?: ((provider: ModelProvider) => ModelProvider) | undefined;
  /** A person or program that may decide about calls while the thread and its children run. */
  readonly attention?: ApprovalAttention | undefined;
  readonly onIdle?: OnIdle | undefined;
  /** Starts children; given by the caller, so that runs can nest. */
  readonly children: ChildStarter;
  /** The start of the conversation; by default the directive's first message. */
  readonly conversation?: Conversation | undefined;
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
  const results: ThreadResult[] = [];
  const first = { started, conversation: options.conversation };
  let next: ThreadRun | undefined = new ThreadRun(env, first, options);
  // one after the other, so that neither the stack nor memory grows with the chain
  try {
    while (next) {
      results.push(await next.run());
      next = next.successor;
    }
  } finally {
    next?.stop();
    next?.successor?.stop();
  }
  return joinChain(results);
}

interface RunLog {
  readonly writer: LogWriter;
  readonly recorder: Recorder;
  readonly live: LiveExport;
}

interface RunSession extends Tooling {
  readonly approvals: ApprovalDesk;
  readonly inbox: ThreadInbox;
  /** The threads that this one continues. */
  readonly before: readonly string[];
}

/** One run of one thread: opens its log and tools, drives the loop, and finalizes the thread. */
class ThreadRun {
  readonly #env: ThreadEnv;
  #started: StartedThread;
  readonly #conversation: Conversation | undefined;
  readonly #options: RunOptions;
  readonly #cancellation: Cancellation;
  readonly #artifacts = new ArtifactHashes();
  readonly #worktree: ThreadWorktree;
  /** The thread that continues this one after a handoff. */
  successor: ThreadRun | undefined;
  #log: RunLog | undefined;
  #session: RunSession | undefined;
  /** Spend that the ledger was told last. */
  #reported: MicroUsd | undefined;
  /** The newest cost that the registry is told. */
  #cost: Cost | undefined;
  /** The last turn that ended, until the registry has its cost. */
  #unreported: (LogEvent & { readonly event_type: 'cost' }) | undefined;

  constructor(env: ThreadEnv, { started, conversation }: Successor, options: RunOptions) {
    this.#env = env;
    this.#started = started;
    this.#conversation = conversation;
    this.#options = options;
    this.#worktree = new ThreadWorktree(env, started);
    this.#cancellation = new Cancellation(env, started, options.signal);
    // the thread is claimed: a worktree or a slow server of tools may take longer than a silent owner has
    this.#cancellation.watch();
  }

  /** Ends the signs of life. */
  stop(): void {
    this.#cancellation.stop();
  }

  async run(): Promise<ThreadResult> {
    let outcome = await this.#converse();
    let successor: Successor | undefined;
    if (outcome.kind === 'handoff' && this.#log) {
      ({ outcome, successor } = await this.#handOff(outcome, this.#log.recorder));
    }
    // it gives signs of life also while the hooks of this thread run
    this.successor = successor && new ThreadRun(this.#env, successor, this.#options);
    const { signal } = this.#cancellation;
    const ended = await this.#worktree.end(outcome, this.#log?.recorder, signal);
    this.#cancellation.stop();
    // before the end is on record, so that a crash in between leaves no child that nothing cancels
    if (this.#conversation ?? this.#session?.children.ids.length) {
      const { status } = judge(ended.outcome, successor !== undefined);
      await endChildren(this.#env, this.#started.threadId, status);
    }
    const result = await finalizeThread(this.#env, {
      started: this.#started,
      outcome: ended.outcome,
      changes: ended.changes,
      hooks: this.#session?.hooks,
      log: this.#log,
      children: this.#session?.children.ids ?? [],
      inbox: this.#session?.inbox,
      reported: this.#reported,
      successor: successor && {
        threadId: successor.started.threadId,
        spendUsd: successor.started.plan.limits.spend,
      },
    });
    await this.#session?.tools.close();
    await this.#worktree.remove(ended.changes);
    await afterEnd(this.#env, result);
    return result;
  }

  /** Runs the conversation to its end. A failure to open or to drive it is an outcome too. */
  async #converse(): Promise<LoopOutcome> {
    try {
      const log = await this.#openLog();
      this.#log = log;
      await this.#worktree.open(log.recorder, async () => await this.#continued());
      const session = await this.#openSession(log.recorder);
      this.#session = session;
      const opening = await this.#open(log, session);
      return await this.#drive(log.recorder, session, opening);
    } catch (error) {
      const cost = this.#conversation?.spent ?? NO_COST;
      return failed(toRyeError(error, 'thread_error'), { cost, last_text: '' });
    }
  }

  async #openLog(): Promise<RunLog> {
    const env = this.#env;
    const { plan, document } = this.#started;
    const hold = this.#conversation?.hold;
    const owned = writerOptions(env, this.#started);
    const writer = hold
      ? await hold.open({ ...owned, verifier: env.verifier })
      : await env.store.logs.create(headerOf(document), owned);
    const live = await openLiveExport(env, this.#started, hold !== undefined);
    const recorder = new Recorder({
      writer,
      clock: env.clock,
      deltas: plan.settings.token_deltas,
      onEvent: (event) => {
        live.append(event);
        this.#options.onEvent?.(event);
      },
    });
    return { writer, recorder, live };
  }

  /** The threads whose work this run continues, the newest first. */
  async #continued(): Promise<readonly string[]> {
    if (!this.#conversation) return [];
    const before = await predecessorsOf(this.#env, this.#started);
    const own = this.#conversation.hold ? [this.#started.threadId] : [];
    return [...own, ...before.toReversed()];
  }

  async #openSession(recorder: Recorder): Promise<RunSession> {
    const env = this.#env;
    const { plan, threadId } = this.#started;
    const { children: starter, secrets, onEvent } = this.#options;
    const before = this.#conversation ? await predecessorsOf(env, this.#started) : [];
    const tooling = await openTooling(env, this.#started, recorder, {
      starter,
      approvals: env,
      earlier: this.#conversation && {
        threads: before,
        ends: async () => await childEnds(env, [...before, threadId]),
      },
      secrets,
      onEvent,
      onLearned: (child) => inbox.learned(child),
      record: (drafts) => void recorder.record(drafts),
      keep: fileKeeper(env, threadId, recorder),
    });
    const { tools, hooks } = tooling;
    const approvals = new ApprovalDesk(env, this.#started, {
      history: this.#conversation?.approvals,
      signLog: async () => await recorder.checkpoint(),
      attention: this.#options.attention,
    });
    const inbox = new ThreadInbox({
      env,
      started: this.#started,
      tools,
      rules: env.config.steer,
      observe: async (context) => await hooks.observeDelivery(context),
      syncLog: async () => void (await recorder.checkpoint()),
      entries: new ProgramEntries({
        appends: env.store.appends,
        skills: tools.skills,
        threadIds: [...before, threadId],
        plan,
        readLog: async () => {
          recorder.sign();
          return await readSigned(env, threadId);
        },
      }),
      pendingApprovals: () => approvals.pending(),
    });
    const snapshot = env.renderer.capabilities(plan, tools.definitions().tools);
    await env.files.writeCapabilities(threadId, snapshot).catch(async (error: unknown) => {
      await tools.close();
      throw error;
    });
    return { ...tooling, inbox, before, approvals };
  }

  /** Records the beginning of the conversation and opens the inbox. */
  async #open({ recorder, writer }: RunLog, session: RunSession): Promise<Opening> {
    const { hooks, tools, inbox, approvals } = session;
    const { threadId, plan } = this.#started;
    const conversation = this.#conversation;
    if (!conversation?.hold) recorder.record(announcement(this.#started).map(repeatable));
    const request = { plan, hooks, tools, signal: this.#cancellation.signal };
    const opening = conversation
      ? await conversation.open({ ...request, recorder, writer })
      : await openingMessages(request);
    // a thread that has not begun begins again
    recorder.record(conversation ? opening.drafts : opening.drafts.map(repeatable));
    const pending = opening.pending ? toolCallsOf(opening.pending.answer) : [];
    const open = new Set(pending.map(({ call_id: id }) => id));
    recorder.record(await approvals.withdrawOthers(open));
    if (conversation) tools.restore?.(opening.messages);
    const carried = conversation ? await carriedEntries(this.#env, threadId) : new Set<string>();
    await inbox.open(carried, session.before);
    return await this.#afterWaiting(opening, recorder, inbox);
  }

  /** Records the message that starts the run, after the messages that came before it. */
  async #afterWaiting(opening: Opening, recorder: Recorder, inbox: ThreadInbox): Promise<Opening> {
    const { lastDrafts = [], messages } = opening;
    if (lastDrafts.length === 0) return opening;
    const waiting = await inbox.take('before_turn');
    const written = recorder.record(waiting);
    await recorder.settled();
    await inbox.written(written);
    recorder.record(lastDrafts);
    const isCompacted = waiting.some(({ event_type: type }) => type === 'compaction');
    const all = isCompacted
      ? await inbox.context()
      : [...messages, ...messagesOf([...waiting, ...lastDrafts])];
    return { ...opening, messages: all };
  }

  /** Drives the loop and records its events before the next step. */
  async #drive(recorder: Recorder, session: RunSession, opening: Opening): Promise<LoopOutcome> {
    const continues = this.#conversation !== undefined;
    const ports = {
      ...this.#ports(recorder, session, opening),
      ...(await watchRules(this.#env, this.#started, continues)),
    };
    const loop = runLoop(this.#started.plan, ports, this.#cancellation.signal);
    let step = await loop.next();
    while (!step.done) {
      let written: readonly LogEvent[];
      try {
        written = await this.#write(recorder, step.value);
        await session.inbox.written(written);
      } catch (error) {
        step = await loop.throw(error);
        continue;
      }
      step = await loop.next(written);
    }
    try {
      recorder.flush();
      await this.#writeRest(recorder, session, step.value);
      await recorder.settled();
    } catch (error) {
      // what was spent stays spent, also if the log could not be written
      return failed(error, step.value);
    }
    return step.value;
  }

  /** Writes the entries of programs that came too late for the loop. One that waits or is handed off takes them later. */
  async #writeRest(
    recorder: Recorder,
    { inbox, tools }: RunSession,
    { kind }: LoopOutcome,
  ): Promise<void> {
    recorder.record(tools.skills?.end() ?? []);
    if (kind === 'suspended' || kind === 'handoff') return;
    const rest = await inbox.rest();
    if (rest.length > 0) await inbox.written(await this.#write(recorder, rest));
  }

  /** Appends drafts to the log. A turn that has ended is synced with the beginning of the next one. */
  async #write(recorder: Recorder, drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    // yield between answers that arrive together, so that the timers and sockets of other threads run
    if (drafts.some(isAnswer)) await ownPass();
    // what a call has changed is kept before its result is
    if (drafts.some(hasActed)) await this.#worktree.save();
    const events = recorder.record(drafts.map((draft) => this.#artifacts.named(draft)));
    await recorder.settled();
    for (const event of events) {
      if (event.event_type !== 'cost') continue;
      this.#unreported = event;
      this.#cost = event.payload.total;
      recorder.checkpointSoon();
    }
    await this.#reportTurn(recorder);
    return events;
  }

  /** Tells the registry the cost of a turn once the log has it for good and, if the log is synced, its signed head. */
  async #reportTurn({ durable: head }: Recorder): Promise<void> {
    const turn = this.#unreported;
    if (!turn || !head || head.seq < turn.seq) return;
    const { threadId, record, plan } = this.#started;
    this.#unreported = undefined;
    const isSynced = plan.settings.durability !== 'off';
    // an answer since may have been reported already
    const progress = { cost: this.#cost ?? turn.payload.total, ...(isSynced ? { head } : {}) };
    const now = isoTime(this.#env.clock.now());
    await this.#env.store.registry.heartbeat(threadId, record.epoch, now, progress);
  }

  #ports(recorder: Recorder, session: RunSession, opening: Opening): LoopPorts {
    const env = this.#env;
    const { threadId, plan } = this.#started;
    const { tools, inbox } = session;
    const provider = (model: PlannedModel): ModelProvider => {
      const opened = env.models.open(model, plan);
      return this.#options.wrapProvider?.(opened) ?? opened;
    };
    return {
      ...sharedPorts(env, this.#started, session, opening),
      ...legPorts(env.fleet?.leg, threadId),
      onNotice: env.onNotice,
      ...compact({
        pending: opening.pending,
        cutText: opening.cutText,
        spent: this.#conversation?.spent,
        handlers: env.handlers,
        onIdle: this.#options.onIdle,
        refreshTools: tools.refresh,
      }),
      provider,
      definitions: recordedFirst(opening.tools ?? [], tools),
      budget: budgetPort(env, this.#started, (spent, cost) => {
        this.#reported = spent;
        this.#cost = cost;
      }),
      raise: async (limits) => {
        this.#started = await raisedThread(env, this.#started, limits);
      },
      cancelled: () => this.#cancellation.reason,
      artifacts: {
        save: async (callId, content) => {
          const text = content
            .map((block) => (block.type === 'text' ? block.text : block.data))
            .join('\n');
          const path = await env.files.writeArtifact(threadId, callId, text);
          this.#artifacts.note(path, text);
          // the tools of an isolated thread take its worktree for the project
          return plan.work_path === undefined ? path : join(env.projectPath, path);
        },
      },
      forgetReads: () => tools.forgetReads?.(),
      gates: [...tools.gates, inbox.gate],
      inbox,
      approvals: session.approvals,
      consult: consultPort(env, this.#started, provider),
      compact: compactPort(env, this.#started, { ...session, recorder }, provider),
    };
  }

  /** Starts the successor. Without one the thread ends as cancelled or failed. */
  async #handOff(
    outcome: LoopOutcome,
    recorder: Recorder,
  ): Promise<{ readonly outcome: LoopOutcome; readonly successor?: Successor }> {
    const { cost, last_text } = outcome;
    try {
      // requested during the last call: the successor would not see it
      const reason = await cancelReason(this.#env.store.registry, this.#started.threadId);
      if (reason !== undefined) return { outcome: { kind: 'cancelled', reason, cost, last_text } };
      const request = { started: this.#started, cost, recorder };
      return { outcome, successor: await startHandoff(this.#env, request) };
    } catch (error) {
      return { outcome: failed(error, outcome) };
    }
  }
}

/** Returns the outcome of a run that an error outside of the loop has ended. */
function failed(
  error: unknown,
  { cost, last_text }: Pick<LoopOutcome, 'cost' | 'last_text'>,
): LoopOutcome {
  return { kind: 'error', error: toRyeError(error).toJSON(), cost, last_text };
}

function isAnswer(draft: EventDraft): boolean {
  return draft.event_type === 'message' && draft.payload.message.role === 'assistant';
}

function hasActed(draft: EventDraft): boolean {
  return draft.event_type === 'tool_settled' && draft.repeatable !== true;
}

/** Marks a draft that a crash may lose, because a thread that has not begun starts over. */
function repeatable(draft: EventDraft): EventDraft {
  return { ...draft, repeatable: true };
}

/** Returns the first events of a thread's log. */
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
        ...(plan.raised_limits ? { raised_limits: { ...plan.raised_limits } } : {}),
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
