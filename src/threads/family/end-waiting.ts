import type { ApprovalDecided } from '../../core/approval.ts';
import { isoTime } from '../../core/clock.ts';
import type { EventDraft } from '../../core/events.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { Exporting, Process, Stored } from '../ports.ts';
import { bookedCost } from '../recovery/crashed-log.ts';
import { ApprovalHistory } from '../run/approval-history.ts';
import { finalizeThread } from '../run/finalize.ts';
import { Recorder } from '../run/recorder.ts';
import { writerOptions } from '../run/start.ts';
import { isWaiting } from '../run/waiting.ts';
import { openDocument } from '../thread-document.ts';

/**
 * Ends a suspended thread that waits for people as cancelled: its requests are withdrawn, in the log and for everyone who
 * could decide them. Returns false for a thread that does not wait.
 */
export async function endWaiting(
  env: Stored & Process & Exporting,
  waiting: ThreadRecord,
  reason: string,
): Promise<boolean> {
  if (!isWaiting(waiting)) return false;
  const { thread_id: threadId } = waiting;
  const { registry, logs, approvals } = env.store;
  const now = isoTime(env.clock.now());
  const ids = await approvals.pendingIds(threadId);
  const record = await registry.claim(threadId, env.owner, now);
  for (const id of ids) await approvals.close(id, 'withdrawn', now);
  const ended = await env.files.readDocument(threadId);
  const plan = await env.files.readPlan(ended);
  const document = openDocument(ended);
  const owned = { threadId, plan, record, document, parent: undefined };
  const { verifier } = env;
  const writer = await logs.reopen(threadId, { ...writerOptions(env, owned), verifier });
  const recorder = new Recorder({ writer, clock: env.clock, deltas: 'off' });
  const { events } = await logs.read(threadId, { end: writer.head.bytes });
  recorder.record(withdrawals(new ApprovalHistory(events), reason));
  await finalizeThread(env, {
    started: owned,
    outcome: {
      kind: 'cancelled',
      reason,
      cost: bookedCost(events),
      last_text: ended.result ?? '',
    },
    hooks: undefined,
    log: { writer, recorder },
    children: [],
  });
  return true;
}

function withdrawals(history: ApprovalHistory, reason: string): readonly EventDraft[] {
  return history.open().map(({ requested }): EventDraft => {
    const payload: ApprovalDecided = {
      approval_id: requested.request.id,
      request_sha256: requested.request_sha256,
      outcome: 'withdrawn',
      decisions: [],
      reason: `the thread was cancelled: ${reason}`,
    };
    return { event_type: 'approval_decided', payload, durable: true };
  });
}
