import type { ThreadTreeNode } from '../../app/rye.ts';
import { formatUsd } from '../../core/amounts.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { oneLine } from '../terminal-text.ts';

/** One line for each thread, drawn as a tree: status, id, spend, and what went wrong. */
export function drawThreadTree(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap((node) => [describe(node), ...drawChildren(node.children, '')]);
}

function drawChildren(nodes: readonly ThreadTreeNode[], indent: string): readonly string[] {
  return nodes.flatMap((node, index) => {
    const isLast = index === nodes.length - 1;
    return [
      `${indent}${isLast ? '└─' : '├─'} ${describe(node)}`,
      ...drawChildren(node.children, `${indent}${isLast ? '   ' : '│  '}`),
    ];
  });
}

function describe({ thread, subtree_spend, children }: ThreadTreeNode): string {
  const { cost, error, continuation_of: previous } = thread;
  const spend =
    children.length === 0
      ? formatUsd(cost.spend)
      : `${formatUsd(cost.spend)}, ${formatUsd(subtree_spend)} with all below`;
  const parts = [
    stateOf(thread),
    thread.thread_id,
    `(${spend})`,
    ...(previous === null ? [] : [`↪ continues ${previous}`]),
    ...(error === null ? [] : [`${error.message} [${error.code}]`]),
  ];
  return oneLine(parts.join(' '));
}

/** The status as people read it: a thread that waits for a slot is queued. */
export function stateOf({ status, pid }: ThreadRecord): string {
  return status === 'created' && pid === null ? 'queued' : status;
}
