import type { ThreadRecord } from '../core/thread.ts';
import type { StoredHead } from '../storage/store.ts';
import type { ThreadDocument } from './thread-document.ts';

/** The last end of a thread's log that rye signed, kept apart from the thread's folder: rollbacks are found by it. */
export interface ThreadHead extends StoredHead {
  /** SHA-256 hex of a thread.json that a person accepted in spite of what the heads say. */
  readonly accepted?: string;
}

/** Where a head was found. */
export interface KnownHead {
  readonly head: ThreadHead;
  readonly place: 'the registry' | 'your user space';
}

/** What a thread's folder and row are now. */
export interface PresentState {
  readonly document: ThreadDocument;
  /** Undefined if the registry does not know the thread, or cannot be read. */
  readonly record: ThreadRecord | undefined;
  /** Bytes of the log, whole or compressed; undefined if there is none. */
  readonly logBytes: number | undefined;
  /** SHA-256 hex of the first bytes of the log. */
  readonly hashOfPrefix: (bytes: number) => Promise<string | undefined>;
}

/** Why a thread is older than a head that is known of it; undefined if it is that state or continues it. */
export async function findRollback(
  known: readonly KnownHead[],
  present: PresentState,
): Promise<string | undefined> {
  // a registry that was rebuilt has rows without heads, and counts their epochs from the beginning
  const isRebuilt = !known.some(({ place }) => place === 'the registry');
  for (const { head, place } of known) {
    const problem =
      (isRebuilt ? undefined : olderRow(head, present)) ??
      olderDocument(head, present) ??
      (await olderLog(head, present));
    if (problem !== undefined) return `${problem}; ${place} knows a newer state`;
  }
  return undefined;
}

function olderRow(head: ThreadHead, { record }: PresentState): string | undefined {
  if (record === undefined || record.epoch >= head.epoch) return undefined;
  return `its row in the registry has epoch ${record.epoch}, not ${head.epoch}`;
}

function olderDocument(head: ThreadHead, { document }: PresentState): string | undefined {
  if (document.updated_at >= head.updated_at) return undefined;
  return `its thread.json is of ${document.updated_at} (${document.status}), not of ${head.updated_at} (${head.status})`;
}

async function olderLog(head: ThreadHead, present: PresentState): Promise<string | undefined> {
  const { transcript } = present.document;
  const bytes = transcript?.bytes ?? present.logBytes ?? 0;
  if (bytes < head.bytes) return `its log has ${bytes} bytes, not ${head.bytes}`;
  const found =
    transcript?.bytes === head.bytes ? transcript.sha256 : await present.hashOfPrefix(head.bytes);
  return found === head.sha256 ? undefined : `its log is not the one of ${head.bytes} bytes`;
}

/** The head that a document names; undefined while its log is open. */
export function headOfDocument(
  { thread_id, status, updated_at, transcript }: ThreadDocument,
  { epoch, knowledge_sha256 }: Pick<ThreadHead, 'epoch' | 'knowledge_sha256'>,
): ThreadHead | undefined {
  return transcript && { thread_id, status, epoch, updated_at, knowledge_sha256, ...transcript };
}
