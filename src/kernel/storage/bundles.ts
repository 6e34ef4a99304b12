/** The signed items of a thread, as they are stored. */
export interface StoredBundle {
  /** SHA-256 hex of `tar`. */
  readonly digest: string;
  /** The plan that the statement names. */
  readonly planSha256: string;
  readonly tar: Uint8Array;
  /** The signed statement about the tar and the plan. The store does not check it. */
  readonly envelope: string;
}

/** Bundles of a fleet. Threads with the same items share one tar; each plan has its own statement. */
export interface Bundles {
  /** Writes a bundle durably. Writing it again changes nothing. Refuses bytes of another digest with `invalid_input`. */
  put(bundle: StoredBundle): Promise<void>;
  /** Returns undefined for an unknown bundle. Refuses bytes of another digest with `thread_tampered`. */
  get(digest: string, planSha256: string): Promise<StoredBundle | undefined>;
}
