/** The content of a file, by its hash, and its permissions. */
export interface FileState {
  /** SHA-256 hex of its bytes. */
  readonly sha256: string;
  readonly bytes: number;
  /** Permission bits; absent: those that a new file gets. */
  readonly mode?: number;
}

/** A change of one file. */
export interface FileChange {
  /** Relative to the project with forward slashes; absolute outside of it. */
  readonly path: string;
  /** null: there was no file. */
  readonly before: FileState | null;
  /** null: there is no file. */
  readonly after: FileState | null;
  /** Folders that were made for the file, the outermost first; absent: none. */
  readonly made?: readonly string[];
  /** True if the change is the merge of a worktree into the files around it; absent: false. */
  readonly merged?: true;
  /** Why no copy of `before` is kept; absent: there is one. */
  readonly unkept?: string;
}

/**
 * Keeps a file's content and records the change that follows. Resolves when both are durable; rejects if they can't be, and
 * then the file must not be changed. Without `bytes` the change has a reason in `unkept`.
 */
export type KeepFile = (
  callId: string,
  change: FileChange,
  bytes: Uint8Array | undefined,
) => Promise<void>;

/** Files above this size are not copied before a change. */
export const MAX_COPY_BYTES = 64 * 1024 * 1024;
