import { type ErrorInfo, toRyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { LogWriter } from '../../storage/store.ts';
import type { ThreadEnv } from '../ports.ts';
import { headerOf, type ThreadDocument } from '../thread-document.ts';
import { rollbackHint, tamperedError, verifyAgainstHead } from '../verified-log.ts';

/** A thread that was taken over from a dead process. */
interface DeadOwner {
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  readonly plan: ThreadPlan;
}

/** The log of a thread whose process died. */
export type DeadLog =
  | {
      readonly writer: LogWriter;
      readonly events: readonly (LogEvent | UnknownEvent)[];
      /** Bytes that no signature covered. */
      readonly unverified_bytes?: number;
    }
  /** Nothing is added to a log that is not what was signed. */
  | { readonly failure: ErrorInfo };

/** What a report of the recovery says about bytes that no signature covered. */
export function unverifiedIn(log: DeadLog): { readonly unverified_bytes?: number } {
  if (!('writer' in log) || log.unverified_bytes === undefined) return {};
  return { unverified_bytes: log.unverified_bytes };
}

/** Opens the log of a dead thread for its end. What no signature covers is moved out of it first. */
export async function openDeadLog(env: ThreadEnv, dead: DeadOwner): Promise<DeadLog> {
  const { record, document, plan } = dead;
  const { logs } = env.store;
  const threadId = record.thread_id;
  const options = {
    signer: env.signer(),
    durability: plan.settings.durability,
    owner: env.owner,
    epoch: record.epoch,
  };
  const { verifier } = env;
  try {
    const expected = document.transcript;
    const verdict = await verifyAgainstHead(env.store, threadId, { verifier, expected });
    if (!verdict.ok && !verdict.unsigned)
      return { failure: tamperedError(threadId, verdict).toJSON() };
    const rollback = await env.heads.rollbackOf(document);
    if (rollback !== undefined) {
      const hint = rollbackHint(threadId);
      return { failure: { code: 'thread_rolled_back', message: rollback, hint } };
    }
    const writer = logs.reopen(threadId, { ...options, verifier, header: headerOf(document) });
    const { events } = await logs.read(threadId, { end: writer.head.bytes });
    const end = verdict.verified_bytes;
    const moved = logs.quarantined(threadId).findLast(({ offset }) => offset === end);
    return { writer, events, ...(moved ? { unverified_bytes: moved.bytes } : {}) };
  } catch (error) {
    const failure = toRyeError(error, 'storage_failed');
    // it died between its thread.json and its log
    if (failure.code === 'thread_not_found')
      return { writer: logs.create(headerOf(document), options), events: [] };
    if (failure.code === 'thread_locked') throw failure;
    return { failure: failure.toJSON() };
  }
}
