import type { EventDraft } from '../core/events.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { threadNotFound } from '../core/thread-errors.ts';
import { joinContents } from '../hooks/dispatch.ts';
import type { SessionTree } from '../log/tree.ts';
import { entryByPrefix, isKnown, pathTo } from '../log/tree.ts';
import type { LogVerification } from '../storage/store.ts';
import type { Stored } from './ports.ts';
import type { ThreadDocument } from './thread-document.ts';
import { tamperedError, verifyLog } from './verified-log.ts';

/** Returns the row of a thread; throws if there is none. */
export async function recordOf(
  { store }: Pick<Stored, 'store'>,
  threadId: string,
): Promise<ThreadRecord> {
  const record = await store.registry.get(threadId);
  if (record) return record;
  throw threadNotFound(threadId);
}

/** Reads a thread's signed document and its row. Throws if the log does not verify. */
export async function readVerified(
  env: Stored,
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

/** Finds an entry by its id or a unique prefix. `root` is the system prompt, or null before the first entry. */
export function entryAt(tree: SessionTree, reference: string): string | null {
  return reference === 'root' ? rootOf(tree) : entryByPrefix(tree, reference).id;
}

/**
 * Asks the opening message again: the first message of the path to the head, or a person's message with the context of
 * the directive around it.
 */
export function openingDrafts(
  tree: SessionTree,
  plan: ThreadPlan,
  message: string | undefined,
): readonly EventDraft[] {
  if (message !== undefined) {
    const before = joinContents(plan.context, 'before');
    const after = joinContents(plan.context, 'after');
    return [userDraft([before, message, after].filter((part) => part !== '').join('\n\n'))];
  }
  const first = pathTo(tree, tree.leafId).find(
    (entry) => isKnown(entry, 'message') && entry.payload.message.role === 'user',
  );
  if (first === undefined || !isKnown(first, 'message')) return [];
  return [{ event_type: 'message', payload: { message: first.payload.message } }];
}

/** Returns the system prompt that the path to the head begins with; null if there is none. */
function rootOf(tree: SessionTree): string | null {
  const first = pathTo(tree, tree.leafId)[0] ?? tree.entries[0];
  return first !== undefined && isKnown(first, 'system_prompt') ? first.id : null;
}

export function userDraft(text: string): EventDraft {
  return {
    event_type: 'message',
    payload: { message: { role: 'user', content: [{ type: 'text', text }] } },
  };
}
