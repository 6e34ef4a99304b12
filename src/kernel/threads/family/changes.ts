import type { WorktreeChanges } from '../../core/isolation.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { Stored } from '../ports.ts';

/** Returns the changes in a thread's worktree; undefined if it was not isolated, or has no readable record. */
export async function changesOf(
  { files }: Pick<Stored, 'files'>,
  record: ThreadRecord | undefined,
): Promise<WorktreeChanges | undefined> {
  if (!record) return undefined;
  const document = await files.readDocument(record.thread_id).catch(() => undefined);
  // a child of another machine leaves the patch with the files of its parent
  if (document?.changes?.patch && record.parent_id !== null)
    await files.pull(record.parent_id).catch(() => undefined);
  return document?.changes;
}
