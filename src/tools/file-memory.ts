/** What a thread last saw of a file: the slice it read and the content it was cut from. */
interface Seen {
  readonly slice: string;
  readonly sliceHash: string;
  readonly contentHash: string | undefined;
}

export interface FileMemoryOptions {
  /** Answer an identical re-read with a stub. Default true. */
  readonly dedupReads?: boolean;
  /** Refuse edits of files that were not read, or that changed since. Default false. */
  readonly requireReadBeforeEdit?: boolean;
}

/**
 * What one thread has read, keyed by real path. It mirrors what the model can still see: whoever removes tool
 * results from the context (compaction, result persistence, resume) must call {@link FileMemory.clear}, or stubs
 * would point at nothing.
 */
export class FileMemory {
  readonly dedupReads: boolean;
  readonly requireReadBeforeEdit: boolean;
  readonly #seen = new Map<string, Seen>();

  constructor(options: FileMemoryOptions = {}) {
    this.dedupReads = options.dedupReads ?? true;
    this.requireReadBeforeEdit = options.requireReadBeforeEdit ?? false;
  }

  /** Records a read; true when it repeats the last one of this file and may be answered with a stub. */
  recordRead(real: string, seen: Seen): boolean {
    const last = this.#seen.get(real);
    this.#seen.set(real, seen);
    return (
      this.dedupReads &&
      last !== undefined &&
      last.slice === seen.slice &&
      last.sliceHash === seen.sliceHash
    );
  }

  /** Why an edit of content with this hash is refused, or undefined. */
  editProblem(real: string, contentHash: string): string | undefined {
    if (!this.requireReadBeforeEdit) return undefined;
    const last = this.#seen.get(real);
    if (last === undefined) return 'it has not been read yet';
    return last.contentHash === contentHash ? undefined : 'it changed since it was read';
  }

  /** After an own change: edits chain, and the next read shows the new content. */
  recordChange(real: string, contentHash: string): void {
    this.#seen.set(real, { slice: '', sliceHash: '', contentHash });
  }

  clear(): void {
    this.#seen.clear();
  }
}
