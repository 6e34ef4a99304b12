/**
 * A signed statement over the bytes `[from, to)` of the log, chained to the previous one. The signature also covers the
 * thread id, `seq` and `timestamp` of its line.
 */
export interface CheckpointPayload {
  readonly version: 2;
  /** Number of times that a process has claimed the thread; it never decreases in a log. */
  readonly epoch: number;
  readonly from: number;
  readonly to: number;
  /** SHA-256 hex of the bytes `[from, to)`. */
  readonly sha256: string;
  /** SHA-256 hex of the previous checkpoint's line with its line feed, or of the thread id for the first one. */
  readonly prev: string;
  readonly key_id: string;
  /** Ed25519, base64url, over canonical JSON. */
  readonly signature: string;
}

/** The older form of a checkpoint, which is read and no longer written. */
export interface FirstCheckpointPayload {
  readonly from: number;
  readonly to: number;
  readonly sha256: string;
  readonly prev: string;
  /** `seq` and `timestamp` of the checkpoint's own line: repeated here so that the signature covers them. */
  readonly seq: number;
  readonly timestamp: string;
  readonly key_id: string;
  /** Ed25519, base64url, over the canonical JSON of this payload without `signature`. */
  readonly signature: string;
}
