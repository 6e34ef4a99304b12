import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, toRyeError } from '../../core/errors.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import { isKnown } from '../../log/tree.ts';
import type { Configured, Process, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { Isolating } from '../worktrees.ts';
import { removeWorktrees } from './gc-worktrees.ts';
import { assertIntact } from './successor.ts';
import { whileHeld } from './while-held.ts';

/** Copies of files that a collection removes. */
interface RemovedCopies {
  readonly files: number;
  readonly bytes: number;
}

/**
 * Removes a thread's copies of files that no undo can need: all of an archived thread, and of another one those that its log
 * does not name, which a crash before the record of a change leaves.
 */
async function removeCopies(
  env: Stored & Process,
  record: ThreadRecord,
  { isArchived, dryRun }: { readonly isArchived: boolean; readonly dryRun: boolean },
): Promise<RemovedCopies> {
  const { thread_id: threadId } = record;
  const { copies } = env.files;
  if (copies.list(threadId).length === 0) return NONE;
  const removed = await whileHeld(env, record, async () => {
    // nothing is appended to an archived log any more, no undo either
    const needed = isArchived ? new Set() : await namedCopies(env, threadId);
    const found = copies.list(threadId).filter(({ sha256 }) => !needed.has(sha256));
    if (!dryRun) {
      for (const { sha256 } of found) await copies.remove(threadId, sha256);
    }
    return { files: found.length, bytes: found.reduce((sum, { bytes }) => sum + bytes, 0) };
  });
  return removed ?? NONE;
}

const NONE: RemovedCopies = { files: 0, bytes: 0 };

/** Returns the copies that a log names. */
async function namedCopies(env: Stored, threadId: string): Promise<ReadonlySet<string>> {
  const events = await readSigned(env, threadId);
  const changes = events.flatMap((event) => {
    if (isKnown(event, 'file_change')) return [event.payload];
    return isKnown(event, 'files_restored') ? event.payload.files : [];
  });
  return new Set(changes.flatMap(({ before }) => before?.sha256 ?? []));
}

export interface RetentionRequest {
  /** Milliseconds since a thread ended after which its log is archived. */
  readonly olderThanMs: number;
  /** True to report what would be archived and change nothing. */
  readonly dryRun: boolean;
}

export interface ArchivedThread {
  readonly thread_id: string;
  readonly completed_at: string;
  /** Bytes of its log before and after; equal in a dry run. */
  readonly bytes_before: number | null;
  readonly bytes_after: number | null;
}

/** The result of a collection, with the reasons why threads were skipped. */
export interface Retention {
  readonly archived: readonly ArchivedThread[];
  /** Copies of files that no undo can need any more. */
  readonly copies: RemovedCopies;
  readonly failures: readonly { readonly thread_id: string; readonly error: ErrorInfo }[];
}

/**
 * Archives the logs of threads that ended long ago. Kept as they are: threads whose chain has a member that is young or
 * not over, since that may be resumed from them, and threads whose parent or children are not over. A log that does not
 * verify is left alone and reported.
 */
export async function collectThreads(
  env: Stored & Process & Configured & Isolating,
  { olderThanMs, dryRun }: RetentionRequest,
): Promise<Retention> {
  const before = isoTime(env.clock.now() - olderThanMs);
  const all = await env.store.registry.list({});
  const kept = keptThreads(all, before);
  const archived: ArchivedThread[] = [];
  const failures: { thread_id: string; error: ErrorInfo }[] = [];
  const copies = { files: 0, bytes: 0 };
  for (const record of all.toReversed()) {
    const { thread_id: id } = record;
    try {
      const wasArchived = await env.store.logs.isArchived(id);
      const done =
        kept.has(id) || wasArchived ? undefined : await archiveThread(env, record, dryRun);
      if (done) archived.push(done);
      const isArchived = wasArchived || done !== undefined;
      const removed = await removeCopies(env, record, { isArchived, dryRun });
      copies.files += removed.files;
      copies.bytes += removed.bytes;
    } catch (error) {
      failures.push({ thread_id: record.thread_id, error: toRyeError(error).toJSON() });
    }
  }
  if (!dryRun) await removeWorktrees(env);
  return { archived, copies, failures };
}

/** Ids of the threads that stay: young or open ones, their chains, and the parents and children of open ones. */
export function keptThreads(all: readonly ThreadRecord[], before: string): ReadonlySet<string> {
  const isOver = ({ status, completed_at: end }: ThreadRecord): boolean =>
    isFinal(status) && end !== null && end < before;
  const chains = new Set<string>();
  const kept = new Set<string>();
  const open = new Set(all.filter(({ status }) => !isFinal(status)).map((one) => one.thread_id));
  for (const record of all) {
    if (!isOver(record)) chains.add(record.chain_root_id ?? record.thread_id);
    if (open.has(record.thread_id) && record.parent_id !== null) kept.add(record.parent_id);
  }
  for (const { thread_id: id, chain_root_id: root, parent_id: parent } of all) {
    if (chains.has(root ?? id) || (parent !== null && open.has(parent))) kept.add(id);
  }
  return kept;
}

async function archiveThread(
  env: Stored & Process & Configured,
  record: ThreadRecord,
  dryRun: boolean,
): Promise<ArchivedThread | undefined> {
  const { thread_id: threadId, completed_at: completedAt } = record;
  const ended = { thread_id: threadId, completed_at: completedAt ?? '' };
  const document = await env.files.readDocument(threadId);
  // it never ran: there is no log
  if (document.cost === undefined) return undefined;
  if (dryRun) {
    await assertIntact(env, threadId);
    const bytes = document.transcript?.bytes ?? null;
    return { ...ended, bytes_before: bytes, bytes_after: bytes };
  }
  return await whileHeld(env, record, async () => {
    await assertIntact(env, threadId);
    const { before, after } = await env.store.logs.archive(threadId);
    return { ...ended, bytes_before: before, bytes_after: after };
  });
}
