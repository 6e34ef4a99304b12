import { toRyeError } from '../../core/errors.ts';
import {
  describeChanges,
  leftOutOf,
  type PlannedWorktree,
  type SavedWorktree,
  type WorktreeChanges,
} from '../../core/isolation.ts';
import { jsonEquals } from '../../core/json.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { sha256Hex } from '../../log/checkpoint.ts';
import { isKnown } from '../../log/tree.ts';
import type { LoopOutcome } from '../../loop/ports.ts';
import { openDescendants } from '../family/children.ts';
import { settleChildren } from '../family/settle-children.ts';
import type { SavingWorktree } from '../fleet-port.ts';
import type { Launching, Process, Recovering, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { Isolating } from '../worktrees.ts';
import { fileKeeper } from './keep-file.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';

type CarryEnv = Stored & Process & Isolating & Launching;

/**
 * The worktree of a thread whose next run may be on another machine. Its content is kept with the thread before the results
 * of the calls that changed it are recorded: a machine that is lost takes only the effects of calls in flight with it.
 */
export class CarriedWorktree implements SavingWorktree {
  readonly #env: CarryEnv;
  readonly #threadId: string;
  readonly #worktree: PlannedWorktree;
  readonly #recorder: Recorder;
  #saved: SavedWorktree | undefined;
  #saving: Promise<void> = Promise.resolve();

  private constructor(
    env: CarryEnv,
    threadId: string,
    worktree: PlannedWorktree,
    recorder: Recorder,
  ) {
    this.#env = env;
    this.#threadId = threadId;
    this.#worktree = worktree;
    this.#recorder = recorder;
  }

  /** Makes the worktree with the content that the first of `logs` kept last that kept any. */
  static async open(
    env: CarryEnv,
    { threadId, worktree }: { readonly threadId: string; readonly worktree: PlannedWorktree },
    { recorder, logs }: { readonly recorder: Recorder; readonly logs: readonly string[] },
  ): Promise<CarriedWorktree> {
    const opened = new CarriedWorktree(env, threadId, worktree, recorder);
    const made = env.fleet?.leg?.worktrees;
    const last = await lastSaved(env, logs);
    if (made?.has(worktree.path) !== true) {
      const patch = last && (await patchOf(env, last.threadId, last.saved));
      await env.worktrees.open(worktree, patch, { isFresh: true });
    }
    made?.set(worktree.path, opened);
    if (last?.threadId === threadId) opened.#saved = last.saved;
    // what a predecessor left is this thread's from here on
    else await opened.save();
    return opened;
  }

  async save(): Promise<void> {
    const saving = this.#saving.catch(() => undefined).then(async () => await this.#save());
    this.#saving = saving;
    await saving;
  }

  async #save(): Promise<void> {
    const { worktrees } = this.#env;
    const found = await worktrees.save(this.#worktree, this.#saved?.tree);
    const { tree, leftOut, changes } = found;
    const left = leftOutOf(this.#worktree, leftOut);
    const { left_out: before, ...known } = this.#saved ?? this.#unchanged(tree);
    if (!changes && jsonEquals(left.left_out ?? null, before ?? null)) return;
    if (!before && left.left_out) this.#tell(leftOut);
    const saved: SavedWorktree = { ...known, ...left, ...(changes && (await this.#kept(found))) };
    this.#recorder.record([{ event_type: 'worktree_saved', payload: saved, durable: true }]);
    await this.#recorder.settled();
    this.#saved = saved;
  }

  /** Keeps the patch beside the one before, which a crash must not lose. */
  async #kept({
    tree,
    changes: { patch, files } = { patch: new Uint8Array(), files: [] },
  }: Awaited<ReturnType<CarryEnv['worktrees']['save']>>): Promise<Omit<SavedWorktree, 'base'>> {
    const isEmpty = patch.length === 0;
    const slot = this.#saved?.patch?.includes('worktree-0') === true ? 1 : 0;
    return {
      tree,
      patch: isEmpty ? null : await this.#env.files.writeSaved(this.#threadId, slot, patch),
      sha256: isEmpty ? null : sha256Hex(patch),
      files: files.map(({ path, change }) => ({ path, change })),
    };
  }

  #unchanged(tree: string): SavedWorktree {
    return { base: this.#worktree.base, tree, patch: null, sha256: null, files: [] };
  }

  #tell(leftOut: readonly string[]): void {
    const named = leftOut.slice(0, 5).join(', ');
    const more = leftOut.length > 5 ? ` and ${leftOut.length - 5} more` : '';
    this.#env.onNotice(
      `no patch of ${this.#threadId} has ${named}${more}: another machine would continue without them`,
    );
  }
}

/** Keeps what the tools of a child have changed in the worktree of a thread in the same process. */
async function saveWorktree(
  { fleet }: Pick<Launching, 'fleet'>,
  { plan }: Pick<StartedThread, 'plan'>,
): Promise<void> {
  const { work_path: place } = plan;
  if (place === undefined) return;
  for (const [path, worktree] of fleet?.leg?.worktrees ?? [])
    if (`${place}/`.startsWith(`${path}/`)) await worktree.save();
}

async function lastSaved(
  env: CarryEnv,
  threadIds: readonly string[],
): Promise<{ readonly threadId: string; readonly saved: SavedWorktree } | undefined> {
  for (const threadId of threadIds) {
    const events = await readSigned(env, threadId);
    const saved = events.findLast((event) => isKnown(event, 'worktree_saved'))?.payload;
    if (saved) return { threadId, saved };
  }
  return undefined;
}

async function patchOf(
  { files }: Pick<Stored, 'files'>,
  threadId: string,
  { patch, sha256 }: SavedWorktree,
): Promise<string | undefined> {
  if (patch === null || sha256 === null) return undefined;
  return await files.savedPatch(threadId, { patch, sha256 });
}

type IsolationEnv = Recovering & Launching;

/** The worktree of one run: it is made before the tools, and gives its changes at the end. */
export class ThreadWorktree {
  readonly #env: IsolationEnv;
  readonly #started: StartedThread;
  #carried: CarriedWorktree | undefined;

  constructor(env: IsolationEnv, started: StartedThread) {
    this.#env = env;
    this.#started = started;
  }

  /**
   * Makes the worktree, or finds that of an earlier run again. Does nothing for a thread that is not isolated. `logs`: the
   * threads whose work this run continues, the newest first.
   */
  async open(recorder: Recorder, logs: () => Promise<readonly string[]>): Promise<void> {
    const { plan, document, threadId } = this.#started;
    const { worktree } = plan;
    if (!worktree) return;
    if (isCarried(this.#env, plan)) {
      const thread = { threadId, worktree };
      const from = { recorder, logs: await logs() };
      this.#carried = await CarriedWorktree.open(this.#env, thread, from);
      return;
    }
    await this.#env.worktrees.open(worktree, document.changes?.patch ?? undefined);
  }

  /** Keeps what tools have changed in the worktree that they work in, if its thread may continue on another machine. */
  async save(): Promise<void> {
    if (this.#carried) await this.#carried.save();
    else await saveWorktree(this.#env, this.#started);
  }

  /**
   * Ends the work in the worktree: waits for the children that work in it, writes its changes as a patch, merges the changes of a
   * thread that completed if its plan asks for it, and records them. A failure ends the thread as an error and leaves the
   * worktree as it is.
   */
  async end(
    ended: LoopOutcome,
    recorder: Recorder | undefined,
    cancelled: AbortSignal,
  ): Promise<{ readonly outcome: LoopOutcome; readonly changes?: WorktreeChanges }> {
    const { worktree } = this.#started.plan;
    if (!worktree || !recorder) return { outcome: ended };
    // its next run, or its successor, works on
    if (ended.kind === 'suspended' || ended.kind === 'handoff') {
      await this.#carried?.save().catch((error: unknown) => this.#unsaved(error));
      return { outcome: ended };
    }
    let outcome: LoopOutcome = ended;
    try {
      if (this.#env.fleet?.leg) await this.#carried?.save();
      else outcome = await this.#afterChildren(ended, cancelled);
      const collected = await this.#collect(outcome.kind === 'completed', recorder);
      const changes = await this.#pushed(collected);
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
    if (!plan.worktree || !changes || changes.left_out) return;
    const { fleet, store } = this.#env;
    const open = fleet?.leg ? [] : await openDescendants(store.registry, threadId);
    if (open.length > 0) return;
    fleet?.leg?.worktrees.delete(plan.worktree.path);
    await this.#env.worktrees.remove(plan.worktree).catch((error: unknown) => {
      this.#env.onNotice(
        `the worktree of ${threadId} was not removed: ${toRyeError(error).message}`,
      );
    });
  }

  #unsaved(error: unknown): void {
    const { threadId } = this.#started;
    const { message } = toRyeError(error);
    this.#env.onNotice(`the last changes of ${threadId} were not kept: ${message}`);
  }

  /** Pushes the changes to where the source came from, if the plan asks for it and the server takes them. */
  async #pushed(changes: WorktreeChanges): Promise<WorktreeChanges> {
    const { plan, threadId, document } = this.#started;
    const push = this.#env.fleet?.leg?.push;
    if (!push || !plan.worktree || !plan.fleet?.source || changes.patch === null) return changes;
    const before = document.changes?.pushed?.commit;
    const pushed = await push({ threadId, worktree: plan.worktree, before }).catch(
      (error: unknown) => toRyeError(error).message,
    );
    if (typeof pushed !== 'string') return { ...changes, pushed };
    this.#env.onNotice(
      `the changes of ${threadId} are a patch only, they were not pushed: ${pushed}`,
    );
    return changes;
  }

  /** Waits for the children of a thread that completed, unless it is cancelled meanwhile; cancels the children of other threads. */
  async #afterChildren(ended: LoopOutcome, cancelled: AbortSignal): Promise<LoopOutcome> {
    const { threadId } = this.#started;
    const until = ended.kind === 'completed' ? cancelled : undefined;
    await settleChildren(this.#env, { threadId, until });
    if (!until?.aborted) return ended;
    const { cost, last_text } = ended;
    return { kind: 'cancelled', reason: String(until.reason), cost, last_text };
  }

  /** Tells a person about the changes of a root; a parent reads the changes of its children. */
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
    const leftOut = leftOutOf(worktree, collected.leftOut);
    if (changed.length === 0) return { status: 'none', base, patch: null, files: [], ...leftOut };
    // beside the results of the parent, whose tools may read them
    const reader = parent?.thread_id ?? threadId;
    const patch = await files.writePatch(reader, `${threadId}-changes`, collected.patch);
    const facts = { base, patch, files: changed, ...leftOut };
    if (result === 'patch' || !isComplete) return { status: 'patch', ...facts };
    const keep = fileKeeper(this.#env, threadId, recorder);
    const { conflicts, merged } = await worktrees.merge(worktree, {
      plan,
      threadId,
      target: parent?.work_path ?? '',
      keep: async (change, bytes) => await keep('merge', change, bytes),
    });
    if (conflicts.length === 0) return { status: 'merged', ...facts };
    const left = merged.length === 0 ? {} : { merged };
    return { status: 'merge_conflict', ...facts, conflicts, ...left };
  }
}

/** True if the next run of a thread may be on another machine. */
function isCarried({ fleet }: Pick<IsolationEnv, 'fleet'>, { fleet: place }: ThreadPlan): boolean {
  return fleet?.leg !== undefined || place?.source !== undefined;
}
