import type { CostedThread, ThreadRecord } from '../../core/thread.ts';
import { type CostShare, type FamilyCost, familyCostOf } from '../../core/usage.ts';
import type { Registry } from '../../storage/store.ts';

type Member = Pick<ThreadRecord, 'thread_id' | 'cost'>;

/** Returns the cost of a thread with what its descendants have cost so far. Reads only the rows of descendants. */
export async function familyCost(
  registry: Pick<Registry, 'list'>,
  thread: Member,
): Promise<FamilyCost> {
  // a damaged registry could make a loop of parents
  const seen = new Set([thread.thread_id]);
  const withChildren = async ({ thread_id: parentId, cost }: Member): Promise<FamilyCost> => {
    const totals: CostShare[] = [];
    for (const child of await registry.list({ parentId })) {
      if (seen.has(child.thread_id)) continue;
      seen.add(child.thread_id);
      const isParent = child.spawn_count > 0;
      totals.push((isParent ? await withChildren(child) : familyCostOf(child.cost, [])).total);
    }
    return familyCostOf(cost, totals);
  };
  return await withChildren(thread);
}

/** Adds the cost of its descendants to a row of the registry, which counts its children. */
export async function withFamily<T extends ThreadRecord>(
  registry: Pick<Registry, 'list'>,
  thread: T,
): Promise<T & CostedThread> {
  const isParent = thread.spawn_count > 0;
  const cost = isParent ? await familyCost(registry, thread) : familyCostOf(thread.cost, []);
  return { ...thread, cost };
}
