import type { EventDraft, LogEvent, UnknownEvent } from '../core/events.ts';
import { toolCallsOf } from '../core/message.ts';
import { encodeEvent, encodeHeader } from '../log/codec.ts';
import { extractDrafts } from '../log/continuation.ts';
import { LOG_START, placeEvent } from '../log/cursor.ts';
import { isKnown, pathTo, type TreeEntry } from '../log/tree.ts';
import type { ExportSource } from './source.ts';

/**
 * Exports the path to the leaf as a separate log: same ids and times, new chain, numbered from 1, current labels set again
 * at the end with the ids of the entries that set them. The header names the original. Of events outside of entries it
 * keeps only the starts of calls, so that the context folds to the same messages. It is not signed.
 */
export function* exportPathLog(source: ExportSource): Iterable<string> {
  const { header, tree, leafId } = source;
  const { thread_id: threadId } = header;
  const from = leafId === null ? {} : { branched_from: { thread_id: threadId, entry_id: leafId } };
  yield encodeHeader({ ...header, ...from });
  if (leafId === null) return;
  const newestLabels = labelEntries(source.events);
  const starts = startsOfCalls(pathTo(tree, leafId), source.events);
  let cursor = LOG_START;
  const place = (draft: EventDraft, { timestamp, id }: { timestamp: string; id?: string }) => {
    const placed = placeEvent(cursor, draft, { threadId, timestamp, entryId: () => id ?? '' });
    cursor = placed.cursor;
    return encodeEvent(placed.event);
  };
  for (const draft of extractDrafts(tree, leafId)) {
    const origin =
      draft.event_type === 'label'
        ? newestLabels.get(draft.payload.target_id)
        : tree.byId.get(draft.id ?? '');
    yield place(draft, origin ?? { timestamp: header.created_at });
    for (const { event_type, payload, timestamp } of starts.get(draft.id ?? '') ?? []) {
      yield place({ event_type, payload }, { timestamp });
    }
  }
}

/** The entry that set each label, by what it names. */
function labelEntries(
  events: readonly (LogEvent | UnknownEvent)[],
): ReadonlyMap<string, { readonly timestamp: string; readonly id: string }> {
  const newest = new Map<string, { timestamp: string; id: string }>();
  for (const event of events) {
    if (!isKnown(event, 'label') || event.id === undefined) continue;
    newest.set(event.payload.target_id, { timestamp: event.timestamp, id: event.id });
  }
  return newest;
}

type CallStart = Extract<LogEvent, { event_type: 'tool_call_start' }>;

/** By the entry that made the call. */
function startsOfCalls(
  path: readonly TreeEntry[],
  events: ExportSource['events'],
): ReadonlyMap<string, readonly CallStart[]> {
  const callers = new Map<string, string>();
  for (const entry of path) for (const id of callsOf(entry)) callers.set(id, entry.id);
  const starts = new Map<string, CallStart[]>();
  for (const event of events) {
    if (!isKnown(event, 'tool_call_start')) continue;
    const caller = callers.get(event.payload.call_id);
    if (caller !== undefined) starts.set(caller, [...(starts.get(caller) ?? []), event]);
  }
  return starts;
}

function callsOf(entry: TreeEntry): readonly string[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'assistant') return [];
  return toolCallsOf(entry.payload.message).map(({ call_id: id }) => id);
}
