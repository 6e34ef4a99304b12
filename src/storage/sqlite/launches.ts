import { columnsOf } from '../owners.ts';
import type { LaunchLimits, Owner, OwnerColumns, Owners } from '../store.ts';
import type { LazyDatabase } from './database.ts';
import { ACTIVE_STATUSES } from './registry-rows.ts';

/** What the queue of threads that wait for a process works on. */
export interface LaunchTables {
  readonly database: LazyDatabase;
  readonly owners: Owners;
}

interface OwnerRow extends OwnerColumns {
  readonly parent_id: string | null;
}

/**
 * Takes a queued thread for `owner`, in the caller's transaction: only while it is `created` without owner and a slot is
 * free. Threads whose process is dead hold no slot.
 */
export function takeLaunch(
  { database, owners }: LaunchTables,
  { threadId, owner, limits, now }: LaunchRequest,
): boolean {
  const queued = database.get(
    `SELECT parent_id FROM threads WHERE thread_id = ? AND status = 'created' AND pid IS NULL`,
    threadId,
  ) as { readonly parent_id: string | null } | undefined;
  if (!queued) return false;
  const owned = database.all(
    `SELECT parent_id, pid, process_start, host FROM threads WHERE status IN (${ACTIVE_STATUSES}) AND pid IS NOT NULL`,
  ) as readonly OwnerRow[];
  const alive = owned.filter((row) => {
    const found = owners.ofRecord(row);
    return found !== undefined && owners.state(found) !== 'gone';
  });
  const siblings = alive.filter(({ parent_id }) => parent_id === queued.parent_id).length;
  if (!hasSlot({ total: alive.length, siblings, isRoot: queued.parent_id === null }, limits))
    return false;
  return assign(database, { threadId, owner, now });
}

export interface LaunchRequest {
  readonly threadId: string;
  readonly owner: Owner;
  readonly limits: LaunchLimits;
  readonly now: string;
}

/**
 * A parent may always have one child running, whatever runs elsewhere: else parents that wait for queued children
 * could hold all slots for ever.
 */
function hasSlot(
  running: { readonly total: number; readonly siblings: number; readonly isRoot: boolean },
  { maxChildren, maxTotal }: LaunchLimits,
): boolean {
  if (running.isRoot) return running.total < maxTotal;
  if (running.siblings === 0) return true;
  return running.siblings < maxChildren && running.total < maxTotal;
}

/**
 * Sets or clears the owner of a `created` thread; false when it is not `created` any more. One that waits for a process of
 * its own is a background thread: its end becomes a delivery.
 */
export function assign(
  database: LazyDatabase,
  { threadId, owner, now }: { threadId: string; owner: Owner | null; now: string },
): boolean {
  const changed = database.run(
    `UPDATE threads SET pid = ?, process_start = ?, host = ?, updated_at = ?, background = max(background, ?)
      WHERE thread_id = ? AND status = 'created'`,
    ...columnsOf(owner),
    now,
    Number(owner === null),
    threadId,
  );
  return changed > 0;
}
