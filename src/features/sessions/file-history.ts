import type { FileChange, FileState } from '../../kernel/core/file-change.ts';

/** A change of a file by a thread of a session. */
export interface PastChange extends FileChange {
  readonly thread_id: string;
  /** Milliseconds since the epoch; never decreases within a thread. */
  readonly time: number;
  /** True if it surely took effect; an undo or a call that failed may have ended before it did. */
  readonly isCertain: boolean;
  /** True if an undo takes it back. */
  readonly isUndone: boolean;
}

/** The part of an undo for one file. */
export interface FilePlan {
  readonly path: string;
  /** The thread that first changed the file after the moment, and has the copy. */
  readonly thread_id: string;
  /** null: the file is removed. */
  readonly target: FileState | null;
  /** Why there is no copy of the target. */
  readonly unkept?: string;
  /** Hashes that the file may have if only the thread changed it; null: no file. */
  readonly expected: ReadonlySet<string | null>;
  /** Folders that were made for the file, the outermost first. */
  readonly made: readonly string[];
  /** True if the file was changed outside the thread between two changes of it. */
  readonly isMixed: boolean;
}

/**
 * Plans how each file goes back to what it was at a moment: to its content before the first change that is undone. `changes`
 * are in the order of their threads; the plans are sorted by path.
 */
export function planFiles(changes: readonly PastChange[]): readonly FilePlan[] {
  const byPath = new Map<string, PastChange[]>();
  for (const change of inOrder(changes)) {
    const known = byPath.get(change.path);
    if (known) known.push(change);
    else byPath.set(change.path, [change]);
  }
  const plans = [...byPath.values()].flatMap(planOf);
  return plans.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}

function planOf(history: readonly PastChange[]): readonly FilePlan[] {
  const first = history.find(({ isUndone }) => isUndone);
  if (!first) return [];
  let expected: ReadonlySet<string | null> = new Set([hashOf(history[0]?.before)]);
  let isMixed = false;
  for (const { before, after, isCertain, isUndone } of history) {
    if (isUndone && !expected.has(hashOf(before))) isMixed = true;
    expected = new Set(isCertain ? [hashOf(after)] : [hashOf(before), hashOf(after)]);
  }
  const { path, thread_id, before: target, unkept } = first;
  const made = history.filter(({ isUndone }) => isUndone).flatMap((change) => change.made ?? []);
  return [
    {
      path,
      thread_id,
      target,
      ...(unkept === undefined ? {} : { unkept }),
      expected,
      made: [...new Set(made)],
      isMixed,
    },
  ];
}

/** Orders changes of several threads by time; of two in one millisecond, the change that the other continues comes first. */
function inOrder(changes: readonly PastChange[]): readonly PastChange[] {
  return changes.toSorted((a, b) => {
    if (a.time !== b.time) return a.time - b.time;
    if (a.path !== b.path || a.thread_id === b.thread_id) return 0;
    if (hashOf(a.before) === hashOf(b.after)) return 1;
    return hashOf(b.before) === hashOf(a.after) ? -1 : 0;
  });
}

function hashOf(state: FileState | null | undefined): string | null {
  return state?.sha256 ?? null;
}
