import type { FileState } from '../core/file-change.ts';
import type { ThreadPlan } from '../core/plan.ts';

/** Files of a project, under the rules of the file tools of one thread. A path is written as in a {@link FileChange}. */
export interface ProjectFiles {
  /** Returns what is at a path; null if nothing is. Throws `path_denied` for a path that must not be restored. */
  look(path: string): Promise<FileState | null>;
  read(path: string): Promise<Uint8Array>;
  /** Gives a path its earlier content, null for none. Throws `file_changed` if it no longer is what {@link look} returned. */
  restore(
    path: string,
    seen: FileState | null,
    earlier: { readonly bytes: Uint8Array; readonly mode?: number } | null,
  ): Promise<void>;
  /** Removes a folder if it is empty; returns true if it did. */
  removeFolder(path: string): Promise<boolean>;
}

/** Reaches the files that threads changed. */
export interface Restoring {
  readonly filesOf: (plan: ThreadPlan, threadId: string) => Promise<ProjectFiles>;
}
