import { RyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { runsOf } from '../../log/runs.ts';
import type { Stored } from '../ports.ts';
import { headerOf, openDocument, type ThreadDocument } from '../thread-document.ts';
import { bareDocument, LOST_DOCUMENT, rebuildDocument } from './repair.ts';

/**
 * Returns thread.json of a thread whose end is to be written, with the runs that its log records. A run that is only in
 * thread.json has not begun: neither its limits nor its plan apply.
 */
export async function asLogged(
  env: Stored,
  document: ThreadDocument,
  events: readonly (LogEvent | UnknownEvent)[],
): Promise<ThreadDocument> {
  const open = openDocument(document);
  // a log that was not read tells nothing
  if (events.length === 0) return open;
  const { runs: announced = [], ...rest } = open;
  const runs = runsOf(headerOf(document), events);
  const before =
    announced.length > runs.length
      ? (await rebuildDocument(env, document.thread_id))?.document
      : undefined;
  const { runs: _runs, ...logged } = { ...rest, ...(before ? openDocument(before) : {}) };
  return runs.length === 1 ? logged : { ...logged, runs };
}

export interface SignedRecord {
  readonly document?: ThreadDocument;
  readonly isRebuilt?: boolean;
}

/**
 * Returns the signed thread.json, or one derived from the signed log if it is missing or damaged; no document if the
 * thread crashed before it had one. A forged one is refused: only a person may replace it.
 */
export async function documentOf(env: Stored, record: ThreadRecord): Promise<SignedRecord> {
  const { thread_id: threadId } = record;
  try {
    return { document: await env.files.readDocument(threadId) };
  } catch (error) {
    if (!(error instanceof RyeError) || !LOST_DOCUMENT.has(error.code)) throw error;
    const rebuilt = await rebuildDocument(env, threadId).catch(() => undefined);
    if (rebuilt) return { document: openDocument(rebuilt.document), isRebuilt: true };
    if (error.code === 'thread_not_found') return {};
    return { document: bareDocument(record), isRebuilt: true };
  }
}

/** True if the thread's log holds something that was signed. */
export async function hasRun(env: Stored, threadId: string): Promise<boolean> {
  return (await rebuildDocument(env, threadId).catch(() => true)) !== undefined;
}
