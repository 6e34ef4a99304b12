import type { ApprovalDecided } from '../../core/approval.ts';
import { isoTime } from '../../core/clock.ts';
import type { EventDraft } from '../../core/events.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { type AwaitedCall, awaitedCalls } from '../../log/open-calls.ts';
import type { Exporting, Process, Stored } from '../ports.ts';
import { bookedCost } from '../recovery/crashed-log.ts';
import { ApprovalHistory } from '../run/approval-history.ts';
import { finalizeThread } from '../run/finalize.ts';
import { Recorder } from '../run/recorder.ts';
import { writerOptions } from '../run/start.ts';
import { isPaused } from '../run/waiting.ts';
import { openDocument } from '../thread-document.ts';

/**
 * Ends a suspended thread that waits for people, or for its next leg, as cancelled: its requests are withdrawn, in the log and for everyone who
 * could decide them. Returns the children that its open calls run and wait for; undefined for a thread that does not wait.
 */
export async function endWaiting(
  env: Stored & Process & Exporting,
  waiting: ThreadRecord,
  reason: string,
): Promise<readonly string[] | undefined> {
  if (!isPaused(waiting)) return undefined;
  const { thread_id: threadId } = waiting;
  const { registry, logs, approvals } = env.store;
  const now = isoTime(env.clock.now());
  const ids = await approvals.pendingIds(threadId);
  const record = await registry.claim(threadId, env.owner, now);
  for (const id of ids) await approvals.close(id, 'withdrawn', now);
  const ended = await env.files.readDocument(threadId);
  const plan = await env.files.readPlan(ended);
  const document = openDocument(ended);
  const started = { threadId, plan, record, document, parent: undefined };
  const { verifier } = env;
  const writer = await logs.reopen(threadId, { ...writerOptions(env, started), verifier });
  const recorder = new Recorder({ writer, clock: env.clock, deltas: 'off' });
  const { events } = await logs.read(threadId, { end: writer.head.bytes });
  const open = awaitedCalls(events);
  recorder.record([
    ...withdrawals(new ApprovalHistory(events), reason),
    ...[...open].map(([callId, call]) => stopped(callId, call, reason)),
  ]);
  await finalizeThread(env, {
    started,
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
  return [...open.values()].flatMap(({ owned, threads }) => (owned ? threads : []));
}

function stopped(callId: string, { tool }: AwaitedCall, reason: string): EventDraft {
  const why = `the thread was cancelled while its child waited for people: ${reason}`;
  const end = { duration_ms: 0, output_bytes: 0, reason: why };
  const payload = { call_id: callId, tool, outcome: 'aborted', ...end } as const;
  return { event_type: 'tool_settled', payload };
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
