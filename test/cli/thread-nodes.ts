import type { ThreadTreeNode } from '../../src/kernel/app/api/threads.ts';
import type { ThreadRecord } from '../../src/kernel/core/thread.ts';
import { familyCostOf, NO_COST } from '../../src/kernel/core/usage.ts';

export const NOON = Date.parse('2026-02-17T12:00:00.000Z');

/** Returns a thread with defaults for the members that a test does not set. */
export function record(
  threadId: string,
  status: ThreadRecord['status'],
  more: Partial<ThreadRecord> = {},
): ThreadRecord {
  return {
    thread_id: threadId,
    directive: 'team/job',
    parent_id: null,
    status,
    created_at: '2026-02-17T11:59:00.000Z',
    updated_at: '2026-02-17T11:59:00.000Z',
    completed_at: null,
    pid: 7,
    process_start: 'then',
    host: 'here',
    epoch: 1,
    heartbeat_at: null,
    model: 'literal',
    cost: NO_COST,
    spawn_count: 0,
    result: null,
    outputs: null,
    error: null,
    continuation_of: null,
    continuation_thread_id: null,
    chain_root_id: null,
    cancel_requested: null,
    worker: null,
    ...more,
  };
}

/** A node whose subtree spent what its threads did. */
export function node(thread: ThreadRecord, ...children: readonly ThreadTreeNode[]): ThreadTreeNode {
  const below = children.reduce((sum, { subtree_spend }) => sum + subtree_spend, 0);
  const totals = children.map((child) => child.thread.cost.total);
  const costed = { ...thread, cost: familyCostOf(thread.cost, totals) };
  return { thread: costed, subtree_spend: thread.cost.spend + below, children };
}
