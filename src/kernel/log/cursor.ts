import { type EventDraft, isEntryType, type LogEvent, type UnknownEvent } from '../core/events.ts';

/** The place for the next event: the last `seq` used, and the parent of the next entry. */
export interface LogCursor {
  readonly seq: number;
  readonly leafId: string | null;
}

/** The position before the first event; the first event gets `seq` 1. */
export const LOG_START: LogCursor = { seq: 0, leafId: null };

/** The values that turn a draft into an event. */
export interface EventContext {
  readonly threadId: string;
  readonly timestamp: string;
  readonly entryId: () => string;
}

/** Gives a draft its place in the log; entries hang on the leaf and become it, `leaf` moves it to its target. */
export function placeEvent(
  cursor: LogCursor,
  draft: EventDraft,
  context: EventContext,
): { readonly event: LogEvent; readonly cursor: LogCursor } {
  const { event_type, payload } = draft;
  const envelope = {
    seq: cursor.seq + 1,
    timestamp: context.timestamp,
    thread_id: context.threadId,
    event_type,
    payload,
    // an unknown type that is copied from another thread brings its id
    ...(isEntryType(event_type) || draft.id !== undefined
      ? { id: draft.id ?? context.entryId(), parent_id: cursor.leafId }
      : {}),
  };
  // a draft pairs type and payload, which spreading loses from the type
  const event = envelope as LogEvent;
  return { event, cursor: advance(cursor, event) };
}

/** The cursor after an event that is already in the log; this is how a reader finds the leaf. */
export function advance(cursor: LogCursor, event: LogEvent | UnknownEvent): LogCursor {
  return { seq: event.seq, leafId: leafAfter(cursor.leafId, event) };
}

/** The leaf after `event`: unmoved by log-only events, the target of a `leaf` event, else the entry itself. */
export function leafAfter(leafId: string | null, event: LogEvent | UnknownEvent): string | null {
  if (event.id === undefined) return leafId;
  if (event.event_type !== 'leaf') return event.id;
  const target = (event as { readonly payload: { readonly target_id?: unknown } }).payload
    .target_id;
  return typeof target === 'string' ? target : null;
}
