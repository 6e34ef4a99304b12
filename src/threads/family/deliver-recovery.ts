import { isoTime } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { DELIVERY_ENTRY, deliveryFacts } from '../../log/delivery-facts.ts';
import { buildTree, isKnown, pathTo } from '../../log/tree.ts';
import type { ThreadEnv } from '../ports.ts';
import type { StartedThread } from '../run/start.ts';
import { readSigned } from '../verified-log.ts';

/** T8 for a thread whose owner is gone: what its log proves decides what became of its deliveries. */
export async function recoverDeliveries(
  env: ThreadEnv,
  threadId: string,
  epoch: number,
): Promise<void> {
  const facts = deliveryFacts(await eventsOf(env, threadId));
  const now = isoTime(env.clock.now());
  await env.store.deliveries.recover({ threadId, epoch, facts, now });
}

/** Entries of deliveries that the conversation of a continued thread begins with. */
export async function carriedEntries(
  env: ThreadEnv,
  threadId: string,
): Promise<ReadonlySet<string>> {
  const tree = buildTree(await eventsOf(env, threadId));
  const path = pathTo(tree, tree.leafId);
  const carried = path.filter(
    (entry) => isKnown(entry, 'custom_message') && entry.payload.custom_type === DELIVERY_ENTRY,
  );
  return new Set(carried.map(({ id }) => id));
}

/** The threads that this one continues, first to last. */
export async function predecessorsOf(
  env: ThreadEnv,
  { document }: StartedThread,
): Promise<readonly string[]> {
  const previous = document.continuation_of;
  if (previous === undefined) return [];
  const ids = (await env.store.registry.chain(previous)).map(({ thread_id }) => thread_id);
  return ids.slice(0, ids.indexOf(previous) + 1);
}

async function eventsOf(
  env: ThreadEnv,
  threadId: string,
): Promise<readonly (LogEvent | UnknownEvent)[]> {
  try {
    return (await readSigned(env, threadId)).events;
  } catch (error) {
    // it died before it had a log, or has one that proves nothing
    if (error instanceof RyeError) return [];
    throw error;
  }
}
