import type { ThreadRecord } from '../../core/thread.ts';
import { isKnown } from '../../log/tree.ts';
import type { Process, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import { whileHeld } from './while-held.ts';

/** Copies of files that a collection removes. */
export interface RemovedCopies {
  readonly files: number;
  readonly bytes: number;
}

/**
 * Removes a thread's copies of files that no undo can need: all of an archived thread, and of another one those that its log
 * does not name, which a crash before the record of a change leaves.
 */
export async function removeCopies(
  env: Stored & Process,
  record: ThreadRecord,
  { isArchived, dryRun }: { readonly isArchived: boolean; readonly dryRun: boolean },
): Promise<RemovedCopies> {
  const { thread_id: threadId } = record;
  const { copies } = env.files;
  if (copies.list(threadId).length === 0) return NONE;
  const removed = await whileHeld(env, record, async () => {
    // nothing is appended to an archived log any more, no undo either
    const needed = isArchived ? new Set() : await namedCopies(env, threadId);
    const found = copies.list(threadId).filter(({ sha256 }) => !needed.has(sha256));
    if (!dryRun) {
      for (const { sha256 } of found) await copies.remove(threadId, sha256);
    }
    return { files: found.length, bytes: found.reduce((sum, { bytes }) => sum + bytes, 0) };
  });
  return removed ?? NONE;
}

const NONE: RemovedCopies = { files: 0, bytes: 0 };

/** Returns the copies that a log names. */
async function namedCopies(env: Stored, threadId: string): Promise<ReadonlySet<string>> {
  const events = await readSigned(env, threadId);
  const changes = events.flatMap((event) => {
    if (isKnown(event, 'file_change')) return [event.payload];
    return isKnown(event, 'files_restored') ? event.payload.files : [];
  });
  return new Set(changes.flatMap(({ before }) => before?.sha256 ?? []));
}
