import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, RyeError, toRyeError } from '../../core/errors.ts';
import { isActive, isFinal, type ThreadRecord } from '../../core/thread.ts';
import { NO_COST, toMicroUsd } from '../../core/usage.ts';
import type { LedgerRow } from '../../storage/store.ts';
import type { ThreadEnv } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { rebuildDocument } from './rebuild.ts';

/** What was put back from the signed files of a project's threads. */
export interface Restored {
  /** Threads that the registry lists again. */
  readonly threads: readonly string[];
  /** Threads whose budget is in the ledger again. */
  readonly budgets: readonly string[];
  /** Threads that are on disk and could not be read. */
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/**
 * Adds to the registry and the ledger what they lack of the threads on disk. Rows that are there stay as they are, so that
 * it can be done again, and beside other processes. A thread whose record says `running` gets a dead owner: the next
 * recovery ends it.
 */
export async function restoreThreads(env: ThreadEnv): Promise<Restored> {
  const { registry, ledger } = env.store;
  const failures: { thread_id: string; error: ErrorInfo }[] = [];
  const documents = new Map<string, ThreadDocument>();
  for (const threadId of env.files.list()) {
    try {
      documents.set(threadId, await documentOf(env, threadId));
    } catch (error) {
      failures.push({ thread_id: threadId, error: toRyeError(error).toJSON() });
    }
  }
  const ordered = [...documents.values()].toSorted((left, right) =>
    left.created_at < right.created_at ? -1 : left.created_at > right.created_at ? 1 : 0,
  );
  const threads: string[] = [];
  for (const document of ordered) {
    const record = recordOf(env, document, documents);
    if (await registry.restore(record)) threads.push(record.thread_id);
  }
  const rows = parentsFirst(ordered, documents);
  return { threads, budgets: await ledger.restore(rows.map(budgetOf)), failures };
}

/** Threads on disk that the registry does not list. */
export async function unlistedThreads(
  env: Pick<ThreadEnv, 'files' | 'store'>,
): Promise<readonly string[]> {
  const unlisted: string[] = [];
  for (const threadId of env.files.list()) {
    if ((await env.store.registry.get(threadId)) === undefined) unlisted.push(threadId);
  }
  return unlisted;
}

/**
 * Replaces a thread.json that is damaged or forged by what the signed log says. What is replaced is kept beside it. The
 * registry's row stays; a thread that it does not list is listed again.
 */
export async function rebuildThread(
  env: ThreadEnv,
  threadId: string,
): Promise<{ readonly document: ThreadDocument; readonly kept: string | undefined }> {
  const holder = env.store.logs.holder(threadId);
  if (holder) throw stillRuns(threadId, holder.pid);
  const record = await env.store.registry.get(threadId);
  const rebuilt = await rebuildDocument(env, threadId);
  if (!rebuilt) {
    throw new RyeError(
      'thread_damaged',
      `the log of ${threadId} has no signed event to rebuild from`,
      {
        hint: 'Start its directive again.',
        details: { thread_id: threadId },
      },
    );
  }
  const { document: found } = rebuilt;
  const isLost = record !== undefined && isFinal(record.status) && !isFinal(found.status);
  const document: ThreadDocument = isLost
    ? { ...found, status: record.status, ...(record.error ? { error: record.error } : {}) }
    : found;
  const kept = env.files.setAside(threadId);
  await env.files.writeDocument(document);
  await env.store.registry.restore(recordOf(env, document, new Map([[threadId, document]])));
  await env.store.ledger.restore([budgetOf(document)]);
  return { document, kept };
}

/** Refuses while a process writes a thread of this project: what is rebuilt under it would contradict it. */
export function assertIdle(env: ThreadEnv): void {
  for (const threadId of env.files.list()) {
    const holder = env.store.logs.holder(threadId);
    if (holder) throw stillRuns(threadId, holder.pid);
  }
}

function stillRuns(threadId: string, pid: number): RyeError {
  return new RyeError('thread_locked', `thread ${threadId} is running in process ${pid}`, {
    hint: `Wait for it, or stop it with: kill ${pid}`,
    details: { thread_id: threadId, pid },
  });
}

/** The signed record, or what the signed log says in place of a damaged or missing one. A forged one is refused. */
async function documentOf(env: ThreadEnv, threadId: string): Promise<ThreadDocument> {
  try {
    return await env.files.readDocument(threadId);
  } catch (error) {
    const isLost = error instanceof RyeError && LOST.has(error.code);
    const rebuilt = isLost ? await rebuildDocument(env, threadId) : undefined;
    if (!rebuilt) throw error;
    env.files.setAside(threadId);
    await env.files.writeDocument(rebuilt.document);
    return rebuilt.document;
  }
}

const LOST: ReadonlySet<string> = new Set(['thread_not_found', 'thread_damaged']);

/** A process that can't be: threads without a living owner are ended by recovery. */
const GONE = { pid: 0, process_start: 'gone' } as const;

function recordOf(
  env: ThreadEnv,
  document: ThreadDocument,
  all: ReadonlyMap<string, ThreadDocument>,
): ThreadRecord {
  const { thread_id: threadId, status, updated_at: updatedAt } = document;
  const successor = [...all.values()].find(({ continuation_of: of }) => of === threadId);
  const isOpen = isActive(status);
  return {
    thread_id: threadId,
    directive: document.directive,
    parent_id: document.parent_thread_id,
    status: isOpen ? 'running' : status,
    created_at: document.created_at,
    updated_at: updatedAt,
    completed_at: isFinal(status) ? updatedAt : null,
    ...(isOpen
      ? { ...GONE, host: env.owner.host }
      : { pid: null, process_start: null, host: null }),
    // a takeover has to be newer than the lease of the process that died
    epoch: Math.max(1, env.store.logs.heldEpoch(threadId)),
    heartbeat_at: isOpen ? isoTime(0) : null,
    model: document.model,
    cost: document.cost ?? NO_COST,
    spawn_count: [...all.values()].filter(
      (one) => one.parent_thread_id === threadId && one.continuation_of === undefined,
    ).length,
    result: document.result ?? null,
    outputs: document.outputs ?? null,
    error: document.error ?? null,
    continuation_of: document.continuation_of ?? null,
    continuation_thread_id:
      document.continuation_thread_id ??
      (status === 'continued' ? (successor?.thread_id ?? null) : null),
    chain_root_id: rootOf(document, all),
    cancel_requested: null,
  };
}

/** The first thread of a chain; null for one that continues none and is continued by none. */
function rootOf(document: ThreadDocument, all: ReadonlyMap<string, ThreadDocument>): string | null {
  let first = document;
  const seen = new Set([first.thread_id]);
  for (;;) {
    const before = first.continuation_of === undefined ? undefined : all.get(first.continuation_of);
    if (!before || seen.has(before.thread_id)) break;
    seen.add(before.thread_id);
    first = before;
  }
  const isChained = first !== document || document.continuation_thread_id !== undefined;
  return isChained ? first.thread_id : null;
}

function budgetOf(document: ThreadDocument): LedgerRow {
  const { thread_id, parent_thread_id: parentId, limits, cost, status } = document;
  const max = toMicroUsd(Number.isFinite(limits.spend) ? limits.spend : 0);
  return {
    thread_id,
    parent_id: parentId,
    max,
    reserved: parentId === null ? 0 : max,
    actual: toMicroUsd(cost?.spend ?? 0),
    status: isActive(status) ? 'active' : 'released',
  };
}

function parentsFirst(
  documents: readonly ThreadDocument[],
  all: ReadonlyMap<string, ThreadDocument>,
): readonly ThreadDocument[] {
  const placed = new Set<string>();
  const order: ThreadDocument[] = [];
  const place = (document: ThreadDocument): void => {
    if (placed.has(document.thread_id)) return;
    placed.add(document.thread_id);
    const { parent_thread_id: parentId } = document;
    const parent = parentId === null ? undefined : all.get(parentId);
    if (parent) place(parent);
    order.push(document);
  };
  for (const document of documents) place(document);
  return order;
}
