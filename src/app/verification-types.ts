import type { ErrorInfo } from '../core/errors.ts';

export interface ThreadVerification {
  readonly thread_id: string;
  readonly ok: boolean;
  readonly checks: readonly {
    readonly name:
      | 'thread.json'
      | 'transcript'
      | 'plan'
      | 'capabilities'
      | 'knowledge'
      | 'artifacts'
      | 'head';
    readonly ok: boolean;
    readonly error?: ErrorInfo;
    /** Byte offset in the transcript where verification failed. */
    readonly offset?: number;
    readonly detail?: string;
  }[];
  /** What could not be compared, and files that are none of the thread's. */
  readonly warnings: readonly string[];
}

/** Whether a reader may trust the log that it shows. */
export interface LogMark {
  /** Null if it was not checked: there is no log yet, or it is larger than 64 MiB. */
  readonly verified: boolean | null;
  /** Byte offset of the first part that no good signature covers. */
  readonly unverified_from?: number;
  readonly error?: ErrorInfo;
}
