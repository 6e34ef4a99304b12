import { statSync } from 'node:fs';
import { verifyLog } from '../threads/verified-log.ts';
import type { Foundation } from './foundation.ts';
import type { LogMark } from './rye.ts';
import { threadFiles } from './thread-files.ts';
import { ThreadHeads } from './thread-heads.ts';
import { infoOf } from './verify-parts.ts';

/** Readers check logs up to this size at each look; `rye verify thread` checks any. */
const MAX_BYTES = 64 * 1024 * 1024;

/** Tells readers of a log whether to trust what they show. Costs one pass over the log, and never throws for what is on disk. */
export async function markLog(base: Foundation, threadId: string): Promise<LogMark> {
  const { store, keyring } = base;
  const stats = statSync(store.logs.path(threadId), { throwIfNoEntry: false });
  const isThere = stats !== undefined || store.logs.isArchived(threadId);
  if (!isThere || (stats?.size ?? 0) > MAX_BYTES) return { verified: null };
  try {
    const { verdict } = await verifyLog(
      {
        files: threadFiles(base),
        store,
        verifier: keyring.payloadVerifier,
        heads: new ThreadHeads(base),
      },
      threadId,
    );
    const isLive = store.logs.holder(threadId) !== undefined;
    if (verdict.ok && (isLive || verdict.unverified_bytes === 0)) return { verified: true };
    if (verdict.ok) {
      const { verified_bytes: from, unverified_bytes: bytes } = verdict;
      const message = `the last ${bytes} bytes of the log of ${threadId} are not signed, from byte ${from}`;
      const error = { code: 'transcript_tampered', message } as const;
      return { verified: false, unverified_from: from, error };
    }
    const { code, offset, reason } = verdict;
    const message = `the log of ${threadId} does not verify from byte ${offset}: ${reason}`;
    return { verified: false, unverified_from: offset, error: { code, message } };
  } catch (error) {
    // nothing vouches for a log whose thread.json does not verify
    return { verified: false, unverified_from: 0, error: infoOf(error) };
  }
}
