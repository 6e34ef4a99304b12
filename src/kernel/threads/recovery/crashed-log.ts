import { type ErrorInfo, RyeError, toRyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { type Cost, NO_COST } from '../../core/usage.ts';
import { beginsRun } from '../../log/runs.ts';
import { isKnown } from '../../log/tree.ts';
import type { LogWriter } from '../../storage/store.ts';
import type { Process, Stored, ThreadFiles } from '../ports.ts';
import { writerOptions } from '../run/start.ts';
import { headerOf, type ThreadDocument } from '../thread-document.ts';
import { rollbackHint, tamperedError, verifyAgainstHead } from '../verified-log.ts';

/** A thread that was taken over from a dead process. */
interface DeadOwner {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  readonly plan: ThreadPlan;
}

/** Returns the stored plan if it is the one whose hash was signed; another one is as good as none. */
export async function usablePlan(
  files: Pick<ThreadFiles, 'readPlan'>,
  document: Parameters<ThreadFiles['readPlan']>[0],
): Promise<ThreadPlan | undefined> {
  try {
    return await files.readPlan(document);
  } catch (error) {
    if (error instanceof RyeError && LOST_PLAN.has(error.code)) return undefined;
    throw error;
  }
}

const LOST_PLAN: ReadonlySet<string> = new Set(['file_not_found', 'thread_tampered']);

/** The log of a thread whose process died. */
export interface DeadLog {
  /** Absent if the log is not what was signed: nothing is added to it, and `failure` tells why. */
  readonly writer?: LogWriter;
  readonly failure?: ErrorInfo;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  /** Bytes that no signature covered, for the recovery report. */
  readonly unverified?: { readonly unverified_bytes: number };
}

/** Opens the log of a dead thread for its end. What no signature covers is moved out of it first. */
export async function openDeadLog(env: Stored & Process, dead: DeadOwner): Promise<DeadLog> {
  const { record, document } = dead;
  const { logs } = env.store;
  const threadId = record.thread_id;
  const options = writerOptions(env, dead);
  const { verifier } = env;
  try {
    const expected = document.transcript;
    const verdict = await verifyAgainstHead(env.store, threadId, { verifier, expected });
    if (!verdict.ok && !verdict.unsigned)
      return { failure: tamperedError(threadId, verdict).toJSON(), events: [] };
    const rollback = await env.heads.rollbackOf(document);
    if (rollback !== undefined) {
      const hint = rollbackHint(threadId);
      return { failure: { code: 'thread_rolled_back', message: rollback, hint }, events: [] };
    }
    const writer = await logs.reopen(threadId, {
      ...options,
      verifier,
      header: headerOf(document),
    });
    const { events } = await logs.read(threadId, { end: writer.head.bytes });
    const end = verdict.verified_bytes;
    const moved = (await logs.quarantined(threadId)).findLast(({ offset }) => offset === end);
    const unverified = moved && { unverified_bytes: moved.bytes };
    return { writer, events, ...(unverified ? { unverified } : {}) };
  } catch (error) {
    const failure = toRyeError(error, 'storage_failed');
    // it died between its thread.json and its log
    if (failure.code === 'thread_not_found')
      return { writer: await logs.create(headerOf(document), options), events: [] };
    if (failure.code === 'thread_locked') throw failure;
    return { failure: failure.toJSON(), events: [] };
  }
}

type Event = LogEvent | UnknownEvent;

/** Returns the event of the end that a log records, unless another run began since. */
export function recordedEnd(
  events: readonly Event[],
): Extract<LogEvent, { readonly event_type: 'thread_finished' }> | undefined {
  const end = events.findLast((event) => isKnown(event, 'thread_finished'));
  const continues = events.some((event) => beginsRun(event) && event.seq > (end?.seq ?? 0));
  return continues ? undefined : end;
}

/** Returns the cost that a log has booked last: after a turn, at the end of a run, or by an edit since. */
export function bookedCost(events: readonly Event[]): Cost {
  const last = events.findLast(
    (event) => isKnown(event, 'cost') || isKnown(event, 'thread_finished'),
  );
  if (last && isKnown(last, 'cost')) return last.payload.total;
  return last && isKnown(last, 'thread_finished') ? last.payload.cost : NO_COST;
}
