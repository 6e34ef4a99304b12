import type { ApprovalDecided } from '../../core/approval.ts';
import { isoTime } from '../../core/clock.ts';
import { messageOf, RyeError } from '../../core/errors.ts';
import type { EventDraft } from '../../core/events.ts';
import { isFinal, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import { type AwaitedCall, awaitedCalls } from '../../log/open-calls.ts';
import type { Configured, Exporting, Process, Stored } from '../ports.ts';
import { bookedCost } from '../recovery/crashed-log.ts';
import { ApprovalHistory } from '../run/approval-history.ts';
import { finalizeThread } from '../run/finalize.ts';
import { deathOf } from '../run/liveness.ts';
import { Recorder } from '../run/recorder.ts';
import { endUnstarted, writerOptions } from '../run/start.ts';
import { isPaused } from '../run/waiting.ts';
import type { ChildPolicy, Coordination } from '../thread-config.ts';
import { openDocument } from '../thread-document.ts';
import { chainEnd, openDescendants } from './children.ts';
import { eachOne } from './each-one.ts';
import { removeHandover } from './process-fs.ts';

/**
 * Cancels all descendants of a thread if `child_policy` asks for that at its end. Every path that ends a thread calls this,
 * a crash included, and recovery calls it before the end is on record: a second crash repeats it. A descendant that
 * crashed too is left to its own recovery; one that can't be cancelled keeps neither its siblings nor the end.
 */
export async function endChildren(
  env: Stored & Process & Exporting & Configured,
  threadId: string,
  status: ThreadResult['status'],
): Promise<void> {
  const { coordination, recovery } = env.config;
  if (policyAt(status, coordination) !== 'cancel') return;
  for (const child of await openDescendants(env.store.registry, threadId)) {
    if (deathOf(env, child, recovery.staleSeconds) === 'gone') continue;
    try {
      await cancelOne(env, child, `its parent ${threadId} ended as ${status}`);
    } catch (error) {
      env.onNotice(`thread ${child.thread_id} could not be cancelled: ${messageOf(error)}`);
    }
  }
}

function policyAt(status: ThreadResult['status'], policies: Coordination): ChildPolicy {
  if (status === 'cancelled') return policies.onParentCancel;
  if (status === 'error') return policies.onParentError;
  return status === 'completed' ? policies.onParentComplete : 'keep';
}

/** Asks a thread to stop; ends it here if it waits or has not started. */
export async function cancelOne(
  env: Stored & Process & Exporting,
  record: ThreadRecord,
  reason: string,
): Promise<void> {
  const { thread_id: threadId, status } = record;
  const needed = await endWaiting(env, record, reason);
  if (needed) {
    // a call of the thread waited for these: nothing needs them any more
    await eachOne(needed, async (id) => {
      const below = await chainEnd(env.store.registry, id);
      if (below && !isFinal(below.status)) await cancelOne(env, below, reason);
    });
    return;
  }
  await env.store.registry.requestCancel(threadId, reason, isoTime(env.clock.now()));
  if (status !== 'created') return;
  const error = { code: 'cancelled', message: `the thread was cancelled: ${reason}` } as const;
  // if it was claimed meanwhile, its owner sees the request
  if (await endUnstarted(env, threadId, { status: 'cancelled', error })) {
    await removeHandover(env.files.folder(threadId));
  }
}

/**
 * Ends a suspended thread that waits for people, or for its next leg, as cancelled: its requests are withdrawn, in the log and for everyone who
 * could decide them. Returns the children that its open calls run and wait for; undefined for a thread that does not wait,
 * or that another process continues: that one is asked to stop. One that can't be ended stays as it is.
 */
async function endWaiting(
  env: Stored & Process & Exporting,
  waiting: ThreadRecord,
  reason: string,
): Promise<readonly string[] | undefined> {
  if (!isPaused(waiting)) return undefined;
  const { thread_id: threadId } = waiting;
  const now = isoTime(env.clock.now());
  // a recovery after a crash of this process ends it as cancelled
  await env.store.registry.requestCancel(threadId, reason, now);
  await signedParts(env, threadId);
  const record = await claimPaused(env, waiting);
  if (!record) return undefined;
  try {
    return await endClaimed(env, record, reason);
  } catch (error) {
    await suspendAgain(env, waiting, record.epoch);
    throw error;
  }
}

/** Gives a thread that could not be ended its state back. A failure leaves it to recovery, which ends it. */
async function suspendAgain(
  { store, clock }: Pick<Stored, 'store'> & Pick<Process, 'clock'>,
  { thread_id: threadId, cost, result, outputs, error }: ThreadRecord,
  epoch: number,
): Promise<void> {
  const end = {
    status: 'suspended' as const,
    now: isoTime(clock.now()),
    cost,
    result: result ?? '',
    epoch,
    ...(outputs ? { outputs } : {}),
    ...(error ? { error } : {}),
  };
  await store.registry.finish(threadId, end).catch(() => undefined);
}

async function signedParts(env: Stored, threadId: string) {
  const document = await env.files.readDocument(threadId);
  return { document, plan: await env.files.readPlan(document) };
}

/** Claims a thread for its end; undefined if another process has resumed it. */
async function claimPaused(
  env: Stored & Process,
  { thread_id: threadId }: ThreadRecord,
): Promise<ThreadRecord | undefined> {
  try {
    return await env.store.registry.claim(threadId, env.owner, isoTime(env.clock.now()));
  } catch (error) {
    if (error instanceof RyeError && error.code === 'thread_locked') return undefined;
    throw error;
  }
}

async function endClaimed(
  env: Stored & Process & Exporting,
  record: ThreadRecord,
  reason: string,
): Promise<readonly string[]> {
  const { thread_id: threadId } = record;
  const { logs, approvals } = env.store;
  const { document: ended, plan } = await signedParts(env, threadId);
  const document = openDocument(ended);
  const started = { threadId, plan, record, document, parent: undefined };
  const { verifier } = env;
  const writer = await logs.reopen(threadId, { ...writerOptions(env, started), verifier });
  const { events } = await logs.read(threadId, { end: writer.head.bytes });
  const now = isoTime(env.clock.now());
  for (const id of await approvals.pendingIds(threadId))
    await approvals.close(id, 'withdrawn', now);
  const recorder = new Recorder({ writer, clock: env.clock, deltas: 'off' });
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
