/** `worktree`: the thread works in its own git worktree, which begins at the last commit. */
export const ISOLATIONS = ['worktree'] as const;
export type IsolationKind = (typeof ISOLATIONS)[number];

/** `patch` leaves the changes in a patch file; `merge` merges them into the files of the parent, or of the project. */
export const ISOLATION_RESULTS = ['patch', 'merge'] as const;
export type IsolationResult = (typeof ISOLATION_RESULTS)[number];

/** The isolation that a request asks for. */
export interface Isolation {
  readonly kind: IsolationKind;
  /** Default: `patch`. */
  readonly result?: IsolationResult;
}

/** The git worktree of a thread. */
export interface PlannedWorktree {
  /** Its folder, relative to the project. */
  readonly path: string;
  /** The project's folder within the repository, with a slash at the end; empty: the repository is the project. */
  readonly prefix: string;
  /** The commit that it begins at. */
  readonly base: string;
  readonly result: IsolationResult;
}

/** The changes that a thread made in its worktree. */
export interface WorktreeChanges {
  /**
   * `merge_conflict`: nothing was merged. `patch`: nothing was asked to be merged, or the thread did not complete.
   * `merge_interrupted`: its process died while it merged.
   */
  readonly status: 'none' | 'patch' | 'merged' | 'merge_conflict' | 'merge_interrupted';
  /** The commit that the worktree began at. */
  readonly base: string;
  /** Path of the patch, relative to the project; null without changes. */
  readonly patch: string | null;
  readonly files: readonly ChangedFile[];
  /** Files that could not be merged; absent: none. */
  readonly conflicts?: readonly { readonly path: string; readonly reason: string }[];
  /** Files that an interrupted merge has changed, the last one perhaps; absent: none. */
  readonly merged?: readonly string[];
  /** The commit with the changes, and the ref at the source's URL that it was pushed to; absent: not pushed. */
  readonly pushed?: PushedChanges;
}

/** The changes of a thread as a commit in the repository that its source came from. */
export interface PushedChanges {
  readonly ref: string;
  readonly commit: string;
}

/**
 * The content of a worktree at one moment, kept as a patch against its base, so that another machine can continue. It is
 * written before the results of the calls that changed the files.
 */
export interface SavedWorktree {
  /** The commit that the worktree began at. */
  readonly base: string;
  /** ID of git's tree of the content. */
  readonly tree: string;
  /** Path of the patch, relative to the project; null without changes. */
  readonly patch: string | null;
  /** SHA-256 hex of the patch; null without changes. */
  readonly sha256: string | null;
  readonly files: readonly ChangedFile[];
}

/** Describes changes in one sentence for people; empty if there are none. */
export function describeChanges(changes: WorktreeChanges): string {
  const { status, files, patch, conflicts = [], merged = [], pushed } = changes;
  if (patch === null) return '';
  const total = `${files.length} changed ${files.length === 1 ? 'file' : 'files'}`;
  const paths = conflicts.map(({ path, reason }) => `${path} (${reason})`).join(', ');
  const what = {
    none: '',
    patch: `${total} in the worktree, not applied`,
    merged: `${total} merged`,
    merge_conflict: `${total} not merged, because of ${paths}`,
    merge_interrupted: `${total}, and only these were merged before the process died: ${merged.join(', ')}`,
  }[status];
  const at = pushed ? `; the commit is ${pushed.ref}` : '';
  return `${what}; the patch is ${patch}${at}`;
}

/** A file that differs from the base. */
export interface ChangedFile {
  /** Relative to the project. */
  readonly path: string;
  readonly change: 'added' | 'modified' | 'deleted';
}
