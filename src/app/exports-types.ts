import type { ErrorInfo } from '../core/errors.ts';
import type { ExportFormat } from '../core/thread.ts';
import type { LogProblem } from '../log/problem.ts';

export interface ExportOptions {
  readonly format: ExportFormat;
  /** Only the path to this entry, by id or a unique start of it; `leaf` for the one that is open. */
  readonly branch?: string;
  /** Without what tools were given and gave, thinking, hook state, images and what looks like a secret. */
  readonly redact?: boolean;
}

/** A thread's log in another form. */
export interface ThreadExport {
  readonly thread_id: string;
  readonly format: ExportFormat;
  /** Last entry of the path; null for a log without entries. */
  readonly leaf_id: string | null;
  /** Entries of the log, or of the branch. */
  readonly entries: number;
  /** Values that were taken out, where that was asked for. */
  readonly redactions?: number;
  /** Defects of the log; what is readable is exported. */
  readonly problems: readonly LogProblem[];
  /** What does not verify, or null: the text is that of the log as it stands. */
  readonly tampered: ErrorInfo | null;
  /** The text, made as it is taken; once only. */
  readonly chunks: Iterable<string>;
}

/** Threads in forms for people and for other programs. Nothing of the thread is written. */
export interface ExportsService {
  export(threadId: string, options: ExportOptions): Promise<ThreadExport>;
}
