import { RyeError } from '../../core/errors.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import type { Registry } from '../../storage/store.ts';

/** A thread and those that it continues, the first one first: what one of them started is a child of them all. */
async function selfAndBefore(registry: Registry, threadId: string): Promise<readonly string[]> {
  const ids = [threadId];
  let record = await registry.get(threadId);
  while (record?.continuation_of && !ids.includes(record.continuation_of)) {
    ids.unshift(record.continuation_of);
    record = await registry.get(record.continuation_of);
  }
  return ids;
}

/** The children of a thread and of those that it continues, oldest first. */
export async function childrenOf(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  const ids = await selfAndBefore(registry, threadId);
  return (await Promise.all(ids.map((id) => registry.listChildren(id)))).flat();
}

/** All threads below `threadId`, children before grandchildren; continuations stand beside what they continue. */
async function descendantsOf(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  const found = new Map<string, ThreadRecord>();
  const own = await selfAndBefore(registry, threadId);
  for (let open = own; open.length > 0; ) {
    const next: string[] = [];
    for (const id of open) {
      for (const child of await registry.listChildren(id)) {
        if (own.includes(child.thread_id) || found.has(child.thread_id)) continue;
        found.set(child.thread_id, child);
        next.push(child.thread_id);
      }
    }
    open = next;
  }
  return [...found.values()];
}

/** Descendants that are not at their end. */
export async function openDescendants(
  registry: Registry,
  threadId: string,
): Promise<readonly ThreadRecord[]> {
  return (await descendantsOf(registry, threadId)).filter(({ status }) => !isFinal(status));
}

/**
 * Refuses with `not_descendant` unless `threadId` stands below `callerId`, or below a thread that the caller continues.
 * An unknown thread is refused in the same words: nobody learns which threads of others there are.
 */
export async function assertDescendant(
  registry: Registry,
  callerId: string,
  threadId: string,
): Promise<void> {
  const own = new Set((await registry.chain(callerId)).map(({ thread_id }) => thread_id));
  const seen = new Set<string>();
  let parent = (await registry.get(threadId))?.parent_id ?? null;
  while (parent !== null && !seen.has(parent)) {
    if (own.has(parent)) return;
    seen.add(parent);
    parent = (await registry.get(parent))?.parent_id ?? null;
  }
  throw new RyeError('not_descendant', `${threadId} is no descendant of ${callerId}`, {
    hint: 'A thread may act only on the threads that it or its children started: list_children names them.',
    details: { thread_id: threadId, caller: callerId },
  });
}

/** The end of the chain that starts with `threadId`: itself, when nothing continues it. */
export async function chainEnd(
  registry: Registry,
  threadId: string,
): Promise<ThreadRecord | undefined> {
  const seen = new Set<string>();
  let record = await registry.get(threadId);
  while (record?.continuation_thread_id && !seen.has(record.thread_id)) {
    seen.add(record.thread_id);
    record = (await registry.get(record.continuation_thread_id)) ?? record;
  }
  return record;
}
