import { join } from 'node:path';
import type { FileChange } from '../core/file-change.ts';
import type { IdSource } from '../core/ids.ts';
import type {
  ChangedFile,
  Isolation,
  IsolationResult,
  PlannedWorktree,
  WorktreeChanges,
} from '../core/isolation.ts';
import type { PlannedSource, ThreadPlan } from '../core/plan.ts';
import type { ThreadDocument } from './thread-document.ts';

/** Folder of worktrees, relative to the project. */
const WORKTREES = '.ai/state/worktrees';

/** The git worktrees of isolated threads. */
export interface Worktrees {
  /** Plans a worktree at the last commit, and makes nothing. Throws `isolation_unavailable` if there is none. */
  plan(id: string, result: IsolationResult): Promise<PlannedWorktree>;
  /**
   * Makes the worktree, or finds it again unless `isFresh` asks for a new one; `patch` is the path of its earlier changes.
   */
  open(
    worktree: PlannedWorktree,
    patch?: string,
    options?: { readonly isFresh?: boolean },
  ): Promise<void>;
  /** True if the worktree is there as a whole: its making was not cut off. */
  isMade(worktree: PlannedWorktree): Promise<boolean>;
  /** Compares the worktree with its base. */
  collect(worktree: PlannedWorktree): Promise<{
    readonly patch: Uint8Array;
    readonly files: readonly ChangedFile[];
    /** Paths that the patch does not have although something is there. */
    readonly leftOut: readonly string[];
  }>;
  /** As `collect`; no `changes` if the content is still the tree `before` or, without one, that of the base. */
  save(
    worktree: PlannedWorktree,
    before?: string,
  ): Promise<{
    readonly tree: string;
    readonly leftOut: readonly string[];
    readonly changes?: { readonly patch: Uint8Array; readonly files: readonly ChangedFile[] };
  }>;
  /** Makes a commit of the content on top of the base, and returns its ID. */
  commit(worktree: PlannedWorktree, message: string): Promise<string>;
  /** Merges the changes into a folder: all, or none if a file conflicts, save those in `merged`. */
  merge(
    worktree: PlannedWorktree,
    request: WorktreeMerge,
  ): Promise<Required<Pick<WorktreeChanges, 'conflicts' | 'merged'>>>;
  remove(worktree: Pick<PlannedWorktree, 'path'>): Promise<void>;
  /** Paths of the worktrees that are there, relative to the project. */
  list(): Promise<readonly string[]>;
}

export interface WorktreeMerge {
  readonly plan: ThreadPlan;
  readonly threadId: string;
  /** The folder that the changes are merged into, relative to the project; empty: the project. */
  readonly target: string;
  /** Keeps what a file has and records the change that follows. */
  readonly keep: (change: FileChange, bytes: Uint8Array | undefined) => Promise<void>;
}

/** Makes worktrees for isolated threads. */
export interface Isolating {
  readonly worktrees: Worktrees;
}

/** The part of a plan that decides where its tools work. */
export type PlannedPlace = Pick<ThreadPlan, 'worktree' | 'work_path'>;

/** Plans the place where a thread's tools work: its own worktree, or the place of its parent. */
export async function planPlace(
  { worktrees, ids }: Isolating & { readonly ids: IdSource },
  isolation: Isolation | undefined,
  parent: ThreadDocument | undefined,
): Promise<PlannedPlace> {
  if (!isolation) return parent?.work_path === undefined ? {} : { work_path: parent.work_path };
  const worktree = await worktrees.plan(ids.uuid(), isolation.result ?? 'patch');
  return placeOf(worktree);
}

/** Returns a plan for a copy of a thread, which has its own worktree if the thread has one, and else works in the project. */
export function inFreshPlace(
  { worktree, work_path: _inherited, ...plan }: ThreadPlan,
  ids: IdSource,
): ThreadPlan {
  if (!worktree) return plan;
  const folder = worktree.path.slice(0, worktree.path.lastIndexOf('/'));
  return { ...plan, ...placeOf({ ...worktree, path: `${folder}/${ids.uuid()}` }) };
}

/** Returns the folder that a thread's tools take for the project. */
export function workFolder(
  { projectPath }: { readonly projectPath: string },
  { work_path: path }: Pick<ThreadPlan, 'work_path'>,
): string {
  return path === undefined ? projectPath : join(projectPath, path);
}

/**
 * Returns the place of a thread whose legs run on the workers of a fleet: its own worktree at the commit of the source. A
 * worker cannot merge into the files of another machine.
 */
export function placeInSource(
  { worktree }: Pick<ThreadPlan, 'worktree'>,
  { commit, prefix }: Pick<PlannedSource, 'commit' | 'prefix'>,
  ids: IdSource,
): PlannedPlace {
  const path = worktree?.path ?? `${WORKTREES}/${ids.uuid()}`;
  return placeOf({ path, prefix, base: commit, result: 'patch' });
}

function placeOf(worktree: PlannedWorktree): PlannedPlace {
  const work_path = `${worktree.path}/${worktree.prefix}`.replace(/\/$/, '');
  return { worktree, work_path };
}
