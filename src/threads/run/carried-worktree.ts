import { leftOutOf, type PlannedWorktree, type SavedWorktree } from '../../core/isolation.ts';
import { jsonEquals } from '../../core/json.ts';
import { sha256Hex } from '../../log/checkpoint.ts';
import { isKnown } from '../../log/tree.ts';
import type { SavingWorktree } from '../fleet-port.ts';
import type { Launching, Process, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { Isolating } from '../worktrees.ts';
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
export async function saveWorktree(
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
