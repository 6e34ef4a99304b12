/** An entry that a program gave to a thread whose log another process writes. */
export interface QueuedEntry {
  /** The id that the entry has in the log. */
  readonly entryId: string;
  readonly threadId: string;
  /** The entry, as JSON. */
  readonly draft: string;
}

/** Entries on their way into logs: kept until the owner of the log has written them. */
export interface Appends {
  /** Keeps an entry until it is in the log. */
  add(entry: QueuedEntry, now: string): Promise<void>;
  /** Returns the entries for these threads, in the order of their arrival. */
  list(threadIds: readonly string[]): Promise<readonly QueuedEntry[]>;
  /** Forgets entries that are in a log. */
  remove(entryIds: readonly string[]): Promise<void>;
}
