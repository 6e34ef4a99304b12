import type { ThreadRecord } from '../../core/thread.ts';
import type { Stored } from '../ports.ts';
import type { Isolating } from '../worktrees.ts';

/**
 * Removes the worktrees that no thread can need any more, such as those that a crash left, and returns their paths. `isKept`
 * decides about the threads that did not complete.
 */
export async function removeWorktrees(
  env: Pick<Stored, 'store' | 'files'> & Isolating,
  isKept: (record: ThreadRecord) => boolean,
): Promise<readonly string[]> {
  const found = await env.worktrees.list();
  if (found.length === 0) return [];
  const needed: string[] = [];
  for (const record of await env.store.registry.list({})) {
    if (record.status === 'completed' || !isKept(record)) continue;
    if (!env.files.exists(record.thread_id)) continue;
    // its record is damaged: it can't be known what it needs
    const document = await env.files.readDocument(record.thread_id).catch(() => undefined);
    if (!document) return [];
    if (document.work_path !== undefined) needed.push(document.work_path);
  }
  const removed = found.filter(
    (path) => !needed.some((place) => place === path || place.startsWith(`${path}/`)),
  );
  for (const path of removed) await env.worktrees.remove({ path });
  return removed;
}
