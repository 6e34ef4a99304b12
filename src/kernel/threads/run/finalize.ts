import { isoTime } from '../../core/clock.ts';
import { messageOf, toRyeError } from '../../core/errors.ts';
import type { EventDraft } from '../../core/events.ts';
import type { WorktreeChanges } from '../../core/isolation.ts';
import type { ThreadRecord, ThreadResult } from '../../core/thread.ts';
import { type MicroUsd, toMicroUsd } from '../../core/usage.ts';
import { headAndPlace } from '../../log/oversized.ts';
import { endRun } from '../../log/runs.ts';
import type { LoopOutcome } from '../../loop/ports.ts';
import type { LogWriter } from '../../storage/store.ts';
import { type Attempt, type EndingThread, recordEnd, releaseBudget } from '../end.ts';
import { recoverDeliveries } from '../family/delivery-log.ts';
import { familyCost } from '../family/family-cost.ts';
import type { Exporting, Process, Stored } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { exportThread } from './export-thread.ts';
import type { HookRunner } from './hook-runner.ts';
import type { ThreadInbox } from './inbox.ts';
import type { LiveExport } from './live-export.ts';
import { ownPass } from './own-pass.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';
import { judge, type Verdict } from './verdict.ts';
import { isWaiting, waitingOf } from './waiting.ts';

/** Maximum bytes of a result in thread.json and the registry; the log has all of it. */
const KEPT_RESULT_BYTES = 256 * 1024;

interface RunLog {
  readonly writer: LogWriter;
  readonly recorder: Recorder;
  readonly live?: Pick<LiveExport, 'close'> | undefined;
}

export interface FinalizeRequest {
  readonly started: StartedThread;
  readonly outcome: LoopOutcome;
  readonly hooks: HookRunner | undefined;
  /** Absent when the log could not be opened. */
  readonly log: RunLog | undefined;
  readonly children: readonly string[];
  /** Changes in the thread's worktree; absent: it has none. */
  readonly changes?: WorktreeChanges | undefined;
  /** Absent if the thread crashed: then its log decides the status of its deliveries. */
  readonly inbox?: Pick<ThreadInbox, 'close'> | undefined;
  /** Spend that the ledger was told last, in micro-dollars; absent: unknown. */
  readonly reported?: MicroUsd | undefined;
  /** The thread that continues this one after a handoff; it exists and is not linked yet. */
  readonly successor?: { readonly threadId: string; readonly spendUsd?: number } | undefined;
  /** The end that the log already has after a crash; the remaining steps are made up for. */
  readonly recorded?: Verdict;
}

/**
 * Ends a thread after any outcome of its loop: settles the budget, closes the log with a signed checkpoint, rewrites
 * thread.json, updates the registry, exports the knowledge entry and runs `after_complete` hooks. Each step is tried
 * even if an earlier one failed; until the registry has the end, a failed step turns a success into `error`, never the
 * reverse. If another process has taken the thread over, nothing more is written.
 */
export async function finalizeThread(
  env: Stored & Process & Exporting,
  request: FinalizeRequest,
): Promise<ThreadResult> {
  return await new Finalization(env, request).run();
}

class Finalization {
  readonly #env: Stored & Process & Exporting;
  readonly #request: FinalizeRequest;
  readonly #outputs: ThreadResult['outputs'];
  #verdict: Verdict;
  #isFenced = false;
  /** True once the registry has the end; later failures don't change it. */
  #isRecorded = false;
  /** The log has its last checkpoint. Without it, its end is not named: it can't be told from what a crash left. */
  #isSealed = false;

  constructor(env: Stored & Process & Exporting, request: FinalizeRequest) {
    const { outcome, recorded, successor } = request;
    this.#env = env;
    this.#request = request;
    this.#outputs = outcome.kind === 'completed' ? outcome.outputs : undefined;
    this.#verdict = recorded ?? judge(outcome, successor !== undefined);
  }

  async run(): Promise<ThreadResult> {
    const { started, outcome, hooks, log } = this.#request;
    const { ledger } = this.#env.store;
    const { threadId } = started;
    const observes = log !== undefined && hooks?.completion() === 'acts';
    const holdsBudget = hooks?.spendsAfterCompletion() ?? false;

    // the same epoch may be another's, if the store has lost the claim of this process
    if (outcome.kind === 'error' && outcome.error.code === 'thread_locked')
      await this.#isTakenOver();
    const spent = toMicroUsd(outcome.cost.spend);
    if (spent !== this.#request.reported) {
      await this.#attemptFenced('settling the budget', () =>
        ledger.report(threadId, spent, started.record.epoch),
      );
    }
    await this.#attempt('closing the log', () => this.#closeLog());
    await this.#attemptFenced(
      'settling its deliveries',
      async () => await this.#settleDeliveries(),
    );
    // before the registry: a program that waits for the end finds the signed entry, not the one of the running thread.
    // Before thread.json: the state that is remembered with it names the entry
    const exported = this.#verdict;
    if (log) await this.#export(log);
    // while hooks may still add to the log its end is not named, so that a crash in between leaves no contradiction
    const ending = this.#ending(!observes);
    await recordEnd(this.#env, ending, { attempt: this.#attemptStep, keepsBudget: holdsBudget });
    if (this.#verdict !== exported) {
      if (log) await this.#export(log);
      await this.#attempt('writing thread.json', () => this.#writeDocument(!observes));
    }
    if (observes) {
      await this.#afterComplete();
      await this.#attempt('writing thread.json', () => this.#writeDocument(true));
    }
    if (holdsBudget) {
      const release = async (): Promise<void> => await releaseBudget(this.#env, ending);
      await this.#attemptStep('releasing the budget', release);
    }
    await this.#close();
    return await resultOf(this.#env, this.#request, this.#verdict);
  }

  /** A failed export leaves the verdict: the log has everything, and recovery exports again. */
  async #export(log: RunLog): Promise<void> {
    const { started } = this.#request;
    await ownPass();
    if (await this.#isTakenOver()) return;
    log.live?.close();
    try {
      await exportThread(this.#env, started.plan, this.#document(true));
    } catch (error) {
      const { threadId, plan } = started;
      const { files } = this.#env;
      // what is there is the unsigned entry of the running thread
      files.removeKnowledge(files.knowledgePath(plan.directive.id, threadId));
      this.#env.onNotice(
        `thread ${threadId}: exporting the knowledge entry failed: ${messageOf(error)}`,
      );
    }
  }

  async #settleDeliveries(): Promise<void> {
    const { started, inbox } = this.#request;
    const { status } = this.#verdict;
    if (!inbox) await recoverDeliveries(this.#env, started.threadId, started.record.epoch);
    else if (status === 'completed') await inbox.close('completed');
    else await inbox.close(status === 'error' ? 'failed' : 'interrupted');
  }

  /** Tries a step that would change what another owner has. */
  async #attempt(what: string, step: () => unknown): Promise<void> {
    if (await this.#isTakenOver()) return;
    await this.#attemptFenced(what, step);
  }

  /** Tries a step that names its epoch, so that the store refuses it to an owner that lost the thread. */
  async #attemptFenced(what: string, step: () => unknown): Promise<void> {
    if (this.#isFenced) return;
    try {
      await step();
    } catch (cause) {
      if (await this.#isTakenOver()) return;
      const { threadId } = this.#request.started;
      const failure = toRyeError(cause, 'storage_failed');
      this.#env.onNotice(`thread ${threadId}: ${what} failed: ${failure.message}`);
      if (this.#verdict.status === 'completed' && !this.#isRecorded) {
        this.#verdict = { ...this.#verdict, status: 'error', error: failure.toJSON() };
      }
    }
  }

  /** A process that was stopped for long may find that it lost the thread: what is on disk is another's then. */
  async #isTakenOver(): Promise<boolean> {
    if (this.#isFenced) return true;
    const { threadId, record } = this.#request.started;
    try {
      const now = await this.#env.store.registry.get(threadId);
      this.#isFenced = now !== undefined && isAnothers(now, record);
    } catch {
      return false; // busy or gone: the step itself will tell
    }
    if (!this.#isFenced) return false;
    const message = `thread ${threadId} was taken over by another process while this one was paused`;
    const hint = `See: rye threads show ${threadId}`;
    this.#verdict = {
      status: 'error',
      result: '',
      error: { code: 'thread_locked', message, hint },
    };
    this.#env.onNotice(message);
    return true;
  }

  #document(isComplete: boolean): ThreadDocument {
    const { started, outcome, log, successor, changes } = this.#request;
    const { status, error } = this.#verdict;
    const now = isoTime(this.#env.clock.now());
    const { runs } = started.document;
    return {
      ...started.document,
      ...(runs ? { runs: endRun(runs, { ...this.#verdict, cost: outcome.cost }, now) } : {}),
      status,
      updated_at: now,
      cost: outcome.cost,
      result: this.#keptResult(),
      ...(this.#outputs ? { outputs: this.#outputs } : {}),
      ...(changes ? { changes } : {}),
      ...(error ? { error } : {}),
      ...(isWaiting(this.#verdict) ? { waiting_for: 'approval' as const } : {}),
      ...(log && isComplete && this.#isSealed ? { transcript: log.writer.state() } : {}),
      ...(successor && status === 'continued'
        ? { continuation_thread_id: successor.threadId }
        : {}),
    };
  }

  /** The result as thread.json and the registry hold it; without a log it is nowhere else. */
  #keptResult(): string {
    const { log, started } = this.#request;
    const { result } = this.#verdict;
    if (!log || result.length <= KEPT_RESULT_BYTES) return result;
    const place = `.ai/state/threads/${started.threadId}/transcript.jsonl`;
    return headAndPlace(result, KEPT_RESULT_BYTES, place);
  }

  /** The thread as {@link recordEnd} ends it. A step that fails before the registry has the end changes the verdict. */
  #ending(isComplete: boolean): EndingThread {
    const { started, outcome, successor } = this.#request;
    const { threadId, record, document } = started;
    return {
      threadId,
      epoch: record.epoch,
      end: () => ({
        status: this.#verdict.status,
        cost: outcome.cost,
        result: this.#keptResult(),
        outputs: this.#outputs,
        error: this.#verdict.error,
        run: document.runs?.length ?? 1,
        successor,
      }),
      writeDocument: async () => await this.#writeDocument(isComplete),
    };
  }

  readonly #attemptStep: Attempt = async (what, step) => {
    if (what === 'updating the registry') {
      await this.#attemptFenced(what, async () => {
        await step();
        this.#isRecorded = true;
      });
      return;
    }
    // a budget that is handed over names no epoch
    const isFenced = what === 'releasing the budget' && this.#request.successor === undefined;
    await (isFenced ? this.#attemptFenced(what, step) : this.#attempt(what, step));
  };

  async #writeDocument(isComplete: boolean): Promise<void> {
    // if its new name is lost, the thread is one whose log has ended, and recovery writes the document again
    await this.#env.files.writeDocument(this.#document(isComplete), 'content');
  }

  async #closeLog(): Promise<void> {
    const { log, outcome, recorded, hooks } = this.#request;
    if (!log) return;
    const { status, result, error } = this.#verdict;
    if (!recorded) {
      const outputs = this.#outputs;
      const payload = {
        status,
        result,
        cost: outcome.cost,
        ...(outputs ? { outputs } : {}),
        ...(error ? { error } : {}),
      };
      // signed and synced below
      log.recorder.record([{ event_type: 'thread_finished', payload, repeatable: true }]);
      // what only marks the end is signed and synced with it
      if (hooks?.completion() === 'marks') log.recorder.record(await this.#observed(hooks));
    }
    await log.recorder.checkpoint();
    this.#isSealed = true;
  }

  /** Best effort: what the hooks did is logged and signed, their failures change nothing. */
  async #afterComplete(): Promise<void> {
    const { hooks, log } = this.#request;
    if (!log || !hooks || (await this.#isTakenOver())) return;
    const drafts = await this.#observed(hooks);
    if (drafts.length === 0) return;
    try {
      log.recorder.record(drafts);
      await log.recorder.checkpoint();
    } catch (error) {
      this.#hooksFailed(error);
    }
  }

  /** Runs the `after_complete` hooks; returns what they leave for the log. */
  async #observed(hooks: HookRunner): Promise<readonly EventDraft[]> {
    const { started, outcome } = this.#request;
    const { error: failure } = this.#verdict;
    try {
      return await hooks.observeAfterComplete({
        thread_id: started.threadId,
        status: this.#verdict.status,
        result: this.#keptResult(),
        ...(this.#outputs ? { outputs: this.#outputs } : {}),
        ...(failure ? { error: { code: failure.code, message: failure.message } } : {}),
        cost: { ...outcome.cost },
        project_path: this.#env.projectPath,
      });
    } catch (error) {
      this.#hooksFailed(error);
      return [];
    }
  }

  #hooksFailed(error: unknown): void {
    const { threadId } = this.#request.started;
    this.#env.onNotice(`thread ${threadId}: after_complete hooks failed: ${messageOf(error)}`);
  }

  async #close(): Promise<void> {
    this.#request.log?.live?.close();
    try {
      await this.#request.log?.writer.close();
    } catch (error) {
      if (!this.#isFenced) throw error;
    }
  }
}

async function resultOf(
  env: Stored,
  { started, outcome, children, changes }: FinalizeRequest,
  verdict: Verdict,
): Promise<ThreadResult> {
  const { threadId, plan } = started;
  const { status, result, error } = verdict;
  const outputs = outcome.kind === 'completed' ? outcome.outputs : undefined;
  return {
    success: status === 'completed',
    thread_id: threadId,
    directive: plan.directive.id,
    status,
    result,
    ...(outputs ? { outputs } : {}),
    ...(error ? { error } : {}),
    ...waitingOf(verdict),
    cost: await familyCost(env.store.registry, { thread_id: threadId, cost: outcome.cost }),
    model: plan.model.id,
    ...(plan.parent_thread_id === null ? {} : { parent_thread_id: plan.parent_thread_id }),
    children,
    ...(changes ? { changes } : {}),
    ...(plan.warnings.length === 0 ? {} : { warnings: plan.warnings }),
    paths: {
      thread: env.files.folder(threadId),
      transcript: env.store.logs.location(threadId),
      knowledge: env.files.knowledgePath(plan.directive.id, threadId),
    },
  };
}

/** True if a row is no longer as this process claimed it: another one has, or the store has lost the claim. */
function isAnothers(now: ThreadRecord, claimed: ThreadRecord): boolean {
  if (now.epoch !== claimed.epoch) return true;
  if (now.pid === null) return false;
  return (
    now.pid !== claimed.pid ||
    now.process_start !== claimed.process_start ||
    now.host !== claimed.host
  );
}
