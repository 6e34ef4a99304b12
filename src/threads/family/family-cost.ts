import type { CostedThread, ThreadRecord } from '../../core/thread.ts';
import { addShare, type CostShare, type FamilyCost, shareOf } from '../../core/usage.ts';
import type { Registry } from '../../storage/store.ts';

/** Returns the cost of a thread with what its descendants have cost so far. Reads only the rows of descendants. */
export async function familyCost(
  registry: Pick<Registry, 'list'>,
  thread: Pick<ThreadRecord, 'thread_id' | 'cost'>,
): Promise<FamilyCost> {
  const own = shareOf(thread.cost);
  // a damaged registry could make a loop of parents
  const seen = new Set([thread.thread_id]);
  const below = async (parentId: string): Promise<CostShare> => {
    let sum: CostShare = { spend: 0, tokens: 0, turns: 0 };
    for (const child of await registry.list({ parentId })) {
      if (seen.has(child.thread_id)) continue;
      seen.add(child.thread_id);
      sum = addShare(sum, shareOf(child.cost));
      if (child.spawn_count > 0) sum = addShare(sum, await below(child.thread_id));
    }
    return sum;
  };
  return { ...thread.cost, own, total: addShare(own, await below(thread.thread_id)) };
}

/** Adds the cost of its descendants to a row of the registry, which counts its children. */
export async function withFamily<T extends ThreadRecord>(
  registry: Pick<Registry, 'list'>,
  thread: T,
): Promise<T & CostedThread> {
  const own = shareOf(thread.cost);
  const alone = { ...thread.cost, own, total: own };
  const cost = thread.spawn_count > 0 ? await familyCost(registry, thread) : alone;
  return { ...thread, cost };
}
