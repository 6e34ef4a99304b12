/** A file of a thread. */
export interface StoredFile {
  /** Its path in the thread's folder, such as `plan.json`. `knowledge.md` is the thread's export. */
  readonly name: string;
  readonly bytes: Uint8Array;
  /** Proves who wrote these bytes under this name. The store does not check it. */
  readonly signature: string;
}

/** A file of a thread in a list. */
export interface ListedFile {
  readonly name: string;
  /** SHA-256 hex. */
  readonly sha256: string;
  /** Bytes. */
  readonly size: number;
}

/**
 * The files of threads, for a store that many machines share. The reader checks the signature of a file, as if it came from
 * a disk: the store is only a courier.
 */
export interface ThreadDocuments {
  /**
   * Writes a file durably and replaces the one of this name. `epoch` is that of the writer's claim: refused with
   * `thread_locked` if the thread's row has a higher one.
   */
  put(threadId: string, file: StoredFile, epoch: number): Promise<void>;
  /** Returns undefined for an unknown file. Refuses bytes that do not match their hash with `thread_tampered`. */
  get(threadId: string, name: string): Promise<StoredFile | undefined>;
  /** Lists the files of a thread by name. */
  list(threadId: string): Promise<readonly ListedFile[]>;
}
