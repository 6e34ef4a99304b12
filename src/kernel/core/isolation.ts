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
   * `merge_conflict`: nothing was merged, except the files in `merged`. `patch`: nothing was asked to be merged, or the thread did not complete.
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
  /**
   * Files that have the change although the merge did not complete; absent: none. Of `merge_interrupted`, the last one
   * perhaps; of `merge_conflict`, those that were changed again before theirs was taken back.
   */
  readonly merged?: readonly string[];
  /**
   * What the patch does not have, such as ignored files and those in submodules; a folder ends with a slash. It is in the
   * worktree, which stays. Absent: nothing.
   */
  readonly left_out?: LeftOut;
  /** The commit with the changes, and the ref at the source's URL that it was pushed to; absent: not pushed. */
  readonly pushed?: PushedChanges;
}

/** Files of a worktree that no patch has. */
interface LeftOut {
  /** Relative to the project; at most {@link MAX_LEFT_OUT}. */
  readonly paths: readonly string[];
  readonly total: number;
  /** The folder of the worktree, relative to the project. */
  readonly worktree: string;
}

const MAX_LEFT_OUT = 100;

/** Names what a worktree has beside its patch, as a member of its changes. */
export function leftOutOf(
  { path }: Pick<PlannedWorktree, 'path'>,
  paths: readonly string[],
): Pick<WorktreeChanges, 'left_out'> {
  const { length: total } = paths;
  if (total === 0) return {};
  return { left_out: { paths: paths.slice(0, MAX_LEFT_OUT), total, worktree: path } };
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
  /** Present if the machine has files that the patch does not have. */
  readonly left_out?: LeftOut;
}

/** Describes changes in one sentence for people; empty if there are none. */
export function describeChanges(changes: WorktreeChanges): string {
  return [describePatch(changes), describeLeftOut(changes)]
    .filter((part) => part !== '')
    .join('; ');
}

function describeLeftOut({ left_out: left }: WorktreeChanges): string {
  if (!left) return '';
  const named = left.paths.slice(0, 5);
  const more = left.total > named.length ? ` and ${left.total - named.length} more` : '';
  return `the patch does not have ${named.join(', ')}${more}, kept in ${left.worktree}`;
}

function describePatch(changes: WorktreeChanges): string {
  const { status, files, patch, conflicts = [], merged = [], pushed } = changes;
  if (patch === null) return '';
  const total = `${files.length} changed ${files.length === 1 ? 'file' : 'files'}`;
  const paths = conflicts.map(({ path, reason }) => `${path} (${reason})`).join(', ');
  const left = merged.length === 0 ? '' : `, except these: ${merged.join(', ')}`;
  const what = {
    none: '',
    patch: `${total} in the worktree, not applied`,
    merged: `${total} merged`,
    merge_conflict: `${total} not merged, because of ${paths}${left}`,
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
