import { toRyeError } from '../../core/errors.ts';
import { describeChanges, type WorktreeChanges } from '../../core/isolation.ts';
import type { LoopOutcome } from '../../loop/ports.ts';
import { openDescendants } from '../family/children.ts';
import { settleChildren } from '../family/settle-children.ts';
import type { Launching, Recovering } from '../ports.ts';
import { fileKeeper } from './keep-file.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';

type IsolationEnv = Recovering & Launching;

/** The worktree of one run: it is made before the tools, and gives its changes at the end. */
export class ThreadWorktree {
  readonly #env: IsolationEnv;
  readonly #started: StartedThread;

  constructor(env: IsolationEnv, started: StartedThread) {
    this.#env = env;
    this.#started = started;
  }

  /** Makes the worktree, or finds that of an earlier run again. Does nothing for a thread that is not isolated. */
  async open(): Promise<void> {
    const { plan, document } = this.#started;
    if (!plan.worktree) return;
    await this.#env.worktrees.open(plan.worktree, document.changes?.patch ?? undefined);
  }

  /**
   * Ends the work in the worktree: waits for the children that work in it, writes its changes as a patch, merges those of a
   * thread that completed if its plan asks for it, and records them. A failure ends the thread as an error and leaves the
   * worktree as it is.
   */
  async end(
    ended: LoopOutcome,
    recorder: Recorder | undefined,
    cancelled: AbortSignal,
  ): Promise<{ readonly outcome: LoopOutcome; readonly changes?: WorktreeChanges }> {
    const { worktree } = this.#started.plan;
    // its next run, or its successor, works on
    if (!worktree || !recorder || ended.kind === 'suspended' || ended.kind === 'handoff') {
      return { outcome: ended };
    }
    let outcome: LoopOutcome = ended;
    try {
      outcome = await this.#afterChildren(ended, cancelled);
      const changes = await this.#collect(outcome.kind === 'completed', recorder);
      recorder.record([{ event_type: 'changes_collected', payload: changes, durable: true }]);
      await recorder.settled();
      this.#notice(changes);
      return { outcome, changes };
    } catch (error) {
      const { cost, last_text } = outcome;
      const { code, message } = toRyeError(error);
      const hint = `The changes are still in ${worktree.path}. Resume it with: rye threads resume ${this.#started.threadId}`;
      const failure = { code, message: `the changes were not collected: ${message}`, hint };
      return { outcome: { kind: 'error', error: failure, cost, last_text } };
    }
  }

  /** Removes the worktree once the thread has ended; a running child may still work in it. */
  async remove(changes: WorktreeChanges | undefined): Promise<void> {
    const { threadId, plan } = this.#started;
    if (!plan.worktree || !changes) return;
    const open = await openDescendants(this.#env.store.registry, threadId);
    if (open.length > 0) return;
    await this.#env.worktrees.remove(plan.worktree).catch((error: unknown) => {
      this.#env.onNotice(
        `the worktree of ${threadId} was not removed: ${toRyeError(error).message}`,
      );
    });
  }

  /** Waits for the children of a thread that completed, unless it is cancelled meanwhile; cancels those of others. */
  async #afterChildren(ended: LoopOutcome, cancelled: AbortSignal): Promise<LoopOutcome> {
    const { threadId } = this.#started;
    const until = ended.kind === 'completed' ? cancelled : undefined;
    await settleChildren(this.#env, { threadId, until });
    if (!until?.aborted) return ended;
    const { cost, last_text } = ended;
    return { kind: 'cancelled', reason: String(until.reason), cost, last_text };
  }

  /** Tells a person about the changes of a root; a parent reads those of its children. */
  #notice(changes: WorktreeChanges): void {
    const text = this.#started.parent ? '' : describeChanges(changes);
    if (text !== '') this.#env.onNotice(text);
  }

  async #collect(isComplete: boolean, recorder: Recorder): Promise<WorktreeChanges> {
    const { worktrees, files } = this.#env;
    const { plan, threadId, parent } = this.#started;
    const { worktree } = plan;
    if (!worktree) throw new Error('the thread has no worktree');
    const { base, result } = worktree;
    const collected = await worktrees.collect(worktree);
    const changed = collected.files.map(({ path, change }) => ({ path, change }));
    if (changed.length === 0) return { status: 'none', base, patch: null, files: [] };
    // beside the results of the parent, whose tools may read them
    const reader = parent?.thread_id ?? threadId;
    const patch = await files.writePatch(reader, `${threadId}-changes`, collected.patch);
    const facts = { base, patch, files: changed };
    if (result === 'patch' || !isComplete) return { status: 'patch', ...facts };
    const keep = fileKeeper(this.#env, threadId, recorder);
    const conflicts = await worktrees.merge(worktree, {
      plan,
      threadId,
      target: parent?.work_path ?? '',
      keep: async (change, bytes) => await keep('merge', change, bytes),
    });
    if (conflicts.length === 0) return { status: 'merged', ...facts };
    return { status: 'merge_conflict', ...facts, conflicts };
  }
}
