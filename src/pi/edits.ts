import type { EventPayloads } from '../core/events.ts';
import { toolCallsOf } from '../core/message.ts';
import { editedMessage } from '../log/context.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from '../log/tree.ts';

type Edit = EventPayloads['context_edit'];

/**
 * The entries that a context edit changed on every branch that has them, as they are after it; undefined if nothing of an
 * entry is in the context any more. pi 0.73 ignores edits, so they are exported like this. An edit that only some of the
 * branches have is left to newer versions of pi.
 */
export function editedEntries(
  tree: SessionTree,
  leafId: string | null,
  isOwn: (entry: TreeEntry) => boolean,
): ReadonlyMap<string, TreeEntry | undefined> {
  const edited = new Map<string, TreeEntry | undefined>();
  const edits = tree.entries.filter((entry) => isKnown(entry, 'context_edit')).filter(isOwn);
  if (edits.length === 0) return edited;
  const ends = branchEnds(tree, leafId);
  for (const { id, payload } of edits) {
    const target = tree.byId.get(payload.target_id);
    if (!target || ends.get(id) !== ends.get(target.id)) continue;
    if (pathTo(tree, id).includes(target)) edited.set(target.id, editedEntry(target, payload));
  }
  for (const id of resultsWithoutCall(tree, edited)) edited.set(id, undefined);
  return edited;
}

/** The number of branches that end at or below each entry; one ends at the head, too. */
function branchEnds(tree: SessionTree, leafId: string | null): ReadonlyMap<string, number> {
  const ends = new Map<string, number>();
  for (const entry of tree.entries.toReversed()) {
    const { id, parent_id: parent } = entry;
    const below = ends.get(id) ?? 0;
    const isEnd = (below === 0 && !isKnown(entry, 'leaf')) || (below > 0 && id === leafId);
    const count = below + (isEnd ? 1 : 0);
    ends.set(id, count);
    if (parent !== null) ends.set(parent, (ends.get(parent) ?? 0) + count);
  }
  return ends;
}

/** Results of omitted answers: without their calls, they are in no context. */
function resultsWithoutCall(
  { entries, byId }: SessionTree,
  edited: ReadonlyMap<string, TreeEntry | undefined>,
): readonly string[] {
  const calls = new Set<string>();
  for (const [id, after] of edited) {
    const before = byId.get(id);
    if (after || !before || !isKnown(before, 'message')) continue;
    const { message } = before.payload;
    if (message.role !== 'assistant') continue;
    for (const { call_id: callId } of toolCallsOf(message)) calls.add(callId);
  }
  return entries.flatMap((entry) => {
    const message = isKnown(entry, 'message') ? entry.payload.message : undefined;
    return message?.role === 'tool_result' && calls.has(message.call_id) ? [entry.id] : [];
  });
}

function editedEntry(entry: TreeEntry, edit: Edit): TreeEntry | undefined {
  const { content: text = '' } = edit;
  const isOmitted = edit.action === 'omit';
  if (isKnown(entry, 'message')) {
    const message = editedMessage(entry.payload.message, edit);
    return message && { ...entry, payload: { ...entry.payload, message } };
  }
  if (isKnown(entry, 'custom_message')) {
    return isOmitted ? undefined : { ...entry, payload: { ...entry.payload, content: text } };
  }
  if (isKnown(entry, 'branch_summary')) {
    return isOmitted ? undefined : { ...entry, payload: { ...entry.payload, summary: text } };
  }
  // a compaction also decides which messages are in the context, so it stays
  if (isKnown(entry, 'compaction'))
    return { ...entry, payload: { ...entry.payload, summary: text } };
  return entry;
}
