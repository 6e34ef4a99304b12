import type { LogMark } from '../../app/api/threads.ts';
import type { Io } from '../io.ts';
import { oneLine } from '../terminal-text.ts';

/** One line on stderr for a log that is not what was signed, also with --quiet. */
export function warnUnverified({ error }: LogMark, io: Io): void {
  if (error === undefined) return;
  io.stderr.write(`rye: warning: ${oneLine(error.message)} [${error.code}]\n`);
}

/** What JSON documents of readers say about the log that they show. */
export function markMembers({ verified, unverified_from }: LogMark): {
  verified: boolean | null;
  unverified_from?: number;
} {
  return { verified, ...(unverified_from === undefined ? {} : { unverified_from }) };
}
