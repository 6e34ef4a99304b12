import type { EventDraft } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { entryById, isKnown, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** Moves the leaf to an entry, or before the first one with `null`; the next entry starts a branch there. */
export function branchDraft(tree: SessionTree, targetId: string | null): EventDraft {
  if (targetId !== null) entryById(tree, targetId);
  return { event_type: 'leaf', payload: { target_id: targetId }, durable: true };
}

/** Moves the leaf and hangs a summary of the branch that is left there; the abandoned leaf must exist. */
export function branchWithSummaryDrafts(
  tree: SessionTree,
  targetId: string | null,
  { summary, details }: { readonly summary: string; readonly details?: JsonObject },
): readonly EventDraft[] {
  const payload = { from_id: tree.leafId ?? '', summary, ...(details ? { details } : {}) };
  return [branchDraft(tree, targetId), { event_type: 'branch_summary', payload, durable: true }];
}

/** Names an entry, or removes its name with `null`. */
export function labelDraft(tree: SessionTree, targetId: string, label: string | null): EventDraft {
  entryById(tree, targetId);
  return { event_type: 'label', payload: { target_id: targetId, label } };
}

/**
 * Drafts that rebuild the path to `entryId` in a new thread, ids kept. Label entries are taken out of the chain and
 * the labels in force on the path are set anew at its end; a compaction that kept from one keeps from the entry
 * after it.
 */
export function extractDrafts(tree: SessionTree, entryId: string): readonly EventDraft[] {
  const path = pathTo(tree, entryId);
  const kept = path.filter((entry) => !isDropped(entry));
  const successor = successors(path);
  const copies = kept.map((entry) => copyDraft(entry, successor));
  const labels = kept.flatMap(({ id }): EventDraft[] => {
    const label = tree.labels.get(id);
    return label === undefined ? [] : [{ event_type: 'label', payload: { target_id: id, label } }];
  });
  return [...copies, ...labels];
}

/** Labels are set anew, and a leaf that names no entry has its place on a path but moves nothing. */
function isDropped(entry: TreeEntry): boolean {
  return isKnown(entry, 'label') || isKnown(entry, 'leaf');
}

/** For each entry that is dropped the next one that stays. */
function successors(path: readonly TreeEntry[]): ReadonlyMap<string, string | null> {
  const next = new Map<string, string | null>();
  let following: string | null = null;
  for (const entry of path.toReversed()) {
    if (isDropped(entry)) next.set(entry.id, following);
    else following = entry.id;
  }
  return next;
}

function copyDraft(entry: TreeEntry, successor: ReadonlyMap<string, string | null>): EventDraft {
  const { id } = entry;
  if (isKnown(entry, 'compaction')) {
    const first = entry.payload.first_kept_entry_id;
    const first_kept_entry_id = first === null ? null : (successor.get(first) ?? first);
    return { event_type: 'compaction', payload: { ...entry.payload, first_kept_entry_id }, id };
  }
  const { event_type, payload } = entry;
  // an unknown type is copied as it is; a draft pairs type and payload, which the union loses here
  return { event_type, payload, id } as EventDraft;
}
