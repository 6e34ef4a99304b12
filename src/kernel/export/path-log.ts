import { encodeEvent, encodeHeader } from '../log/codec.ts';
import { copyPath } from '../log/continuation.ts';
import { LOG_START, placeEvent } from '../log/cursor.ts';
import type { ExportSource } from './source.ts';

/**
 * Exports the path to the leaf as a separate log: same ids and times, new chain, numbered from 1, current labels set again
 * at the end with the ids of the entries that set them. The header names the original. Of events outside of entries it
 * keeps only the starts of calls, so that the context folds to the same messages. It is not signed.
 */
export function* exportPathLog(source: ExportSource): Iterable<string> {
  const { header, tree, leafId, events } = source;
  const { thread_id: threadId } = header;
  const from = leafId === null ? {} : { branched_from: { thread_id: threadId, entry_id: leafId } };
  yield encodeHeader({ ...header, ...from });
  if (leafId === null) return;
  let cursor = LOG_START;
  for (const { draft, origin } of copyPath(tree, events, leafId)) {
    const { timestamp, id = '' } = origin;
    const placed = placeEvent(cursor, draft, { threadId, timestamp, entryId: () => id });
    cursor = placed.cursor;
    yield encodeEvent(placed.event);
  }
}
