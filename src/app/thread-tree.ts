import type { ThreadRecord } from '../core/thread.ts';
import { toMicroUsd, toUsd } from '../core/usage.ts';
import type { ThreadTreeNode } from './rye.ts';

/** Parents with their children, oldest first; without an id every root, newest first. `records` are newest first. */
export function threadTree(
  records: readonly ThreadRecord[],
  threadId?: string,
): readonly ThreadTreeNode[] {
  const known = new Set(records.map(({ thread_id }) => thread_id));
  const children = new Map<string, ThreadRecord[]>();
  for (const record of records.toReversed()) {
    const { parent_id: parent } = record;
    if (parent === null) continue;
    const siblings = children.get(parent);
    if (siblings) siblings.push(record);
    else children.set(parent, [record]);
  }
  const node = (thread: ThreadRecord, above: ReadonlySet<string>): ThreadTreeNode => {
    const path = new Set([...above, thread.thread_id]);
    // a damaged registry could make a loop of parents
    const below = (children.get(thread.thread_id) ?? [])
      .filter(({ thread_id }) => !path.has(thread_id))
      .map((child) => node(child, path));
    const spend = below.reduce(
      (sum, { subtree_spend }) => sum + toMicroUsd(subtree_spend),
      toMicroUsd(thread.cost.spend),
    );
    return { thread, subtree_spend: toUsd(spend), children: below };
  };
  const isRoot = ({ parent_id: parent }: ThreadRecord): boolean =>
    parent === null || !known.has(parent);
  const roots =
    threadId === undefined
      ? records.filter(isRoot)
      : records.filter(({ thread_id }) => thread_id === threadId);
  return roots.map((root) => node(root, new Set()));
}
