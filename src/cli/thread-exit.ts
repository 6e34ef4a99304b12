import { EXIT, type ExitCode, exitCodeOf } from '../core/errors.ts';
import type { ThreadResult } from '../core/thread.ts';

/** The exit status that a thread's end leads to. */
export function exitCodeOfResult({ success, status, error }: ThreadResult): ExitCode {
  if (success) return EXIT.ok;
  if (status === 'cancelled') return EXIT.cancelled;
  return error === undefined ? EXIT.failed : exitCodeOf(error.code);
}
