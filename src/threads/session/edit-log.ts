import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import { isActive, type ThreadRecord } from '../../core/thread.ts';
import { type Cost, NO_COST, toMicroUsd } from '../../core/usage.ts';
import { buildTree, type SessionTree } from '../../log/tree.ts';
import type { LogVerification, LogWriter } from '../../storage/store.ts';
import type { ThreadEnv } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { tamperedError, verifyLog } from '../verified-log.ts';

/** A log that is open for an edit: what is in it, and what is known of its thread. */
export interface OpenEdit {
  readonly tree: SessionTree;
  readonly document: ThreadDocument;
  readonly record: ThreadRecord;
  readonly writer: LogWriter;
  /** To be awaited before anything is appended while the edit is still being made. */
  readonly begin: () => Promise<void>;
}

/** What an edit adds; `cost` stands for the thread's whole cost after it. */
export interface LogEdit {
  readonly drafts: readonly EventDraft[];
  readonly cost?: Cost;
}

async function recordOf({ store }: ThreadEnv, threadId: string): Promise<ThreadRecord> {
  const record = await store.registry.get(threadId);
  if (record) return record;
  throw new RyeError('thread_not_found', `there is no thread ${threadId}`, {
    hint: 'Run: rye threads list',
  });
}

/** A thread's signed document and its row, for a log that verifies. */
export async function readVerified(
  env: ThreadEnv,
  threadId: string,
): Promise<{
  readonly document: ThreadDocument;
  readonly record: ThreadRecord;
  readonly verdict: LogVerification;
}> {
  const record = await recordOf(env, threadId);
  const { document, verdict } = await verifyLog(env, threadId);
  if (verdict.ok) return { document, record, verdict };
  throw tamperedError(threadId, verdict);
}

/**
 * Appends to the log of a thread that no process runs, under its lease, and signs the new end. thread.json names no
 * end while the log grows: a crash in between leaves a log that verifies up to its last checkpoint, as a crash of a
 * running thread does. Returns the events written; without drafts nothing changes.
 */
export async function editLog(
  env: ThreadEnv,
  threadId: string,
  make: (open: OpenEdit) => LogEdit | Promise<LogEdit>,
): Promise<readonly LogEvent[]> {
  const { document, record, writer } = await openVerified(env, threadId);
  let hasBegun = false;
  const begin = async (): Promise<void> => {
    if (hasBegun) return;
    hasBegun = true;
    const { transcript: _end, ...rest } = document;
    await env.files.writeDocument(rest);
  };
  const close = async (cost?: Cost): Promise<void> => {
    if (!hasBegun) return;
    writer.sync();
    await env.files.writeDocument({
      ...document,
      ...(cost ? { cost } : {}),
      updated_at: isoTime(env.clock.now()),
      transcript: writer.state(),
    });
  };
  try {
    const { events: before } = await env.store.logs.readEntries(threadId);
    const edit = await make({ tree: buildTree(before), document, record, writer, begin });
    if (edit.drafts.length > 0) await begin();
    const events = writer.append(edit.drafts);
    await close(edit.cost);
    if (edit.cost) await bookCost(env, record, edit.cost);
    return events;
  } catch (error) {
    await close();
    throw error;
  } finally {
    writer.close();
  }
}

/** What is verified is what is written to: nobody else writes from before the first look on. */
async function openVerified(
  env: ThreadEnv,
  threadId: string,
): Promise<Pick<OpenEdit, 'document' | 'record' | 'writer'>> {
  const { epoch } = assertIdle(await recordOf(env, threadId));
  const { owner } = env;
  const hold = env.store.logs.hold(threadId, owner, epoch);
  try {
    const { document, record } = await readVerified(env, threadId);
    assertIdle(record);
    const { verifier } = env;
    const signer = env.signer();
    const { epoch: current } = record;
    const writer = hold.open({ signer, verifier, durability: 'turn', owner, epoch: current });
    return { document, record, writer };
  } catch (error) {
    hold.release();
    throw error;
  }
}

/** What a model call on a finished thread cost counts for the thread, and so for its ancestors. */
async function bookCost(env: ThreadEnv, record: ThreadRecord, cost: Cost): Promise<void> {
  const { thread_id: id, epoch } = record;
  await env.store.ledger.report(id, toMicroUsd(cost.spend), epoch);
  await env.store.registry.heartbeat(id, epoch, isoTime(env.clock.now()), { cost });
}

/** The cost of a thread so far. */
export function costOf({ cost }: ThreadDocument): Cost {
  return cost ?? NO_COST;
}

function assertIdle(record: ThreadRecord): ThreadRecord {
  const { thread_id: id, status } = record;
  if (!isActive(status)) return record;
  throw new RyeError(
    'thread_locked',
    `thread ${id} is ${status}: only its own process writes its log`,
    {
      hint: `Wait for its end or cancel it; if its process is gone, \`rye threads recover ${id}\` ends it in order.`,
      details: { thread_id: id, status },
    },
  );
}
