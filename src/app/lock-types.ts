import type { ErrorInfo } from '../core/errors.ts';
import type { FoundLock, GuardChange, Pin } from '../trust/lock.ts';

/** What `rye lock` reports. */
export interface LockReport {
  readonly path: string;
  readonly state: FoundLock['state'];
  /** Version of the lock file; null if there is none that counts. */
  readonly serial: number | null;
  readonly key_id: string | null;
  /** What is pinned: by the user space, else by the lock file. */
  readonly files: readonly Pin[];
  readonly changes: readonly GuardChange[];
  /** Power files that are not obeyed, one sentence each. */
  readonly ignored: readonly string[];
  /** The refusal of runs; null while they are allowed. */
  readonly refusal: ErrorInfo | null;
}

/** What `rye lock accept` did. */
export interface AcceptedLock {
  readonly path: string;
  readonly serial: number;
  readonly files: readonly Pin[];
  /** What was accepted. */
  readonly changes: readonly GuardChange[];
}
