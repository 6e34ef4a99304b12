import type { LogVerification } from '../storage/store.ts';
import type { ThreadEnv } from './ports.ts';
import type { ThreadDocument } from './thread-document.ts';

/** How often a thread that is being written to is looked at again. */
const LOOKS = 5;

/**
 * A thread's signed document, and whether its log is what that says. What another process writes in between is no damage:
 * then both are read again.
 */
export async function verifyLog(
  { files, store, verifier }: Pick<ThreadEnv, 'files' | 'store' | 'verifier'>,
  threadId: string,
): Promise<{ readonly document: ThreadDocument; readonly verdict: LogVerification }> {
  let document = await files.readDocument(threadId);
  for (let look = 1; ; look += 1) {
    const expected = document.transcript;
    const verdict = await store.logs.verify(threadId, { verifier, expected });
    if (verdict.ok || look === LOOKS) return { document, verdict };
    const after = await files.readDocument(threadId);
    if (JSON.stringify(after) === JSON.stringify(document)) return { document, verdict };
    document = after;
  }
}
