import { toRyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { leftOutOf, type WorktreeChanges } from '../../core/isolation.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { beginsRun } from '../../log/runs.ts';
import { isKnown } from '../../log/tree.ts';
import { openDescendants } from '../family/children.ts';
import type { Process, Stored } from '../ports.ts';
import type { Recorder } from '../run/recorder.ts';
import type { Isolating } from '../worktrees.ts';

interface DeadWorktree {
  readonly threadId: string;
  readonly plan: ThreadPlan;
  readonly parentId: string | null;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  /** True if the log has the end of the thread. */
  readonly hasEnded: boolean;
  /** True if another run continues it, without a person. */
  readonly isParked: boolean;
  /** Absent if the log takes no more. */
  readonly recorder?: Recorder | undefined;
}

/**
 * Returns the changes in the worktree of a thread whose process died: those that it recorded, else what is there, which is
 * written as a patch. Tells which files a merge that was cut off has changed. A failure leaves the worktree to a resume.
 */
export async function changesOfDead(
  env: Stored & Process & Isolating,
  dead: DeadWorktree,
): Promise<WorktreeChanges | undefined> {
  const { threadId, plan, recorder, hasEnded } = dead;
  const { worktree } = plan;
  if (!worktree) return undefined;
  const { recorded, isCurrent, merged } = recordedIn(dead.events);
  if (isCurrent || hasEnded || !recorder) return recorded;
  const kept = keptIn(dead);
  if (kept) return record(recorder, dead.isParked ? undefined : kept.changes) ?? recorded;
  try {
    // without the whole worktree the run had not begun
    if (!(await env.worktrees.isMade(worktree))) return recorded;
    const { patch: bytes, files: found, leftOut } = await env.worktrees.collect(worktree);
    const { base } = worktree;
    const files = found.map(({ path, change }) => ({ path, change }));
    const patch =
      files.length === 0
        ? null
        : await env.files.writePatch(dead.parentId ?? threadId, `${threadId}-changes`, bytes);
    const facts = { base, patch, files, ...leftOutOf(worktree, leftOut) };
    const changes: WorktreeChanges =
      merged.length > 0
        ? { status: 'merge_interrupted', ...facts, merged }
        : { status: files.length === 0 ? 'none' : 'patch', ...facts };
    return record(recorder, changes);
  } catch (error) {
    const { message } = toRyeError(error);
    env.onNotice(
      `the changes of ${threadId} were not collected: ${message}. They are still in ${worktree.path}.`,
    );
    return undefined;
  }
}

/**
 * Returns what a thread of a fleet has kept of its worktree; undefined for others. This machine may have an older state of
 * the files, or none.
 */
function keptIn({
  plan,
  events,
}: Pick<DeadWorktree, 'plan' | 'events'>):
  | { readonly changes: WorktreeChanges | undefined }
  | undefined {
  const saved = events.findLast((event) => isKnown(event, 'worktree_saved'))?.payload;
  if (!saved) return plan.fleet?.source ? { changes: undefined } : undefined;
  const { base, patch, files } = saved;
  return { changes: { status: patch === null ? 'none' : 'patch', base, patch, files } };
}

/** True if a log has what the last run changed in its worktree. */
export function areChangesKept(plan: ThreadPlan, events: DeadWorktree['events']): boolean {
  const { recorded, isCurrent } = recordedIn(events);
  if (recorded?.left_out) return false;
  return isCurrent || keptIn({ plan, events }) !== undefined;
}

function record(
  recorder: Recorder,
  changes: WorktreeChanges | undefined,
): WorktreeChanges | undefined {
  if (changes)
    recorder.record([{ event_type: 'changes_collected', payload: changes, durable: true }]);
  return changes;
}

/** Removes the worktree of a dead thread whose changes are known, unless a child may still work in it. */
export async function removeDead(
  env: Pick<Stored, 'store'> & Process & Isolating,
  { threadId, plan }: Pick<DeadWorktree, 'threadId' | 'plan'>,
  changes: WorktreeChanges | undefined,
): Promise<void> {
  if (!plan.worktree || !changes || changes.left_out) return;
  const { registry, owners } = env.store;
  const isAlive = (child: ThreadRecord): boolean => {
    const owner = owners.ofRecord(child);
    return !owner || owners.state(owner) !== 'gone';
  };
  if ((await openDescendants(registry, threadId)).some(isAlive)) return;
  await env.worktrees.remove(plan.worktree).catch((error: unknown) => {
    env.onNotice(`the worktree of ${threadId} was not removed: ${toRyeError(error).message}`);
  });
}

/** Reads the last recorded changes, whether the last run made them, and the files that its merge has changed. */
function recordedIn(events: DeadWorktree['events']) {
  let recorded: WorktreeChanges | undefined;
  let isCurrent = false;
  let merged: string[] = [];
  for (const event of events) {
    if (beginsRun(event)) {
      isCurrent = false;
      merged = [];
    } else if (isKnown(event, 'changes_collected')) {
      recorded = event.payload;
      isCurrent = true;
    } else if (isKnown(event, 'file_change') && event.payload.merged === true) {
      merged.push(event.payload.path);
    }
  }
  return { recorded, isCurrent, merged };
}
