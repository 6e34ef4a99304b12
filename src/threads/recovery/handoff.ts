import type { ThreadResult } from '../../core/thread.ts';
import { addUsage, type Cost, toMicroUsd, toUsd } from '../../core/usage.ts';
import { carryTail } from '../../log/continuation.ts';
import { buildTree } from '../../log/tree.ts';
import type { ThreadEnv } from '../ports.ts';
import { planAtLeaf } from '../prepare/plan-at-head.ts';
import type { Conversation } from '../run/opening.ts';
import type { Recorder } from '../run/recorder.ts';
import type { StartedThread } from '../run/start.ts';
import { partOf } from '../verified-log.ts';
import { continuationMessage } from './continuation-message.ts';
import { continuedConversation } from './continued-conversation.ts';
import { assertIntact, createSuccessor, remainingLimits } from './successor.ts';

/** A thread that is ready to run, and how it begins. */
export interface Successor {
  readonly started: StartedThread;
  readonly conversation: Conversation | undefined;
  /** Lets go of the predecessor; done by the conversation too, and twice is as good as once. */
  readonly release?: () => void;
}

export interface HandoffRequest {
  readonly started: StartedThread;
  readonly cost: Cost;
  readonly recorder: Recorder;
}

/** Tokens of the latest messages that a successor takes along. */
const CEILING_TOKENS = 16_000;
/** At most this part of the model's window, where that is small. */
const CEILING_PART = 0.25;

/**
 * Prepares the thread that goes on where this one's context is full: verifies the log, then creates the successor with the
 * same parent, inputs and model and what is left of the limits. The caller links both when it finalizes.
 */
export async function startHandoff(
  env: ThreadEnv,
  { started, cost, recorder }: HandoffRequest,
): Promise<Successor> {
  const { threadId, plan: before, parent } = started;
  recorder.checkpoint();
  const { verdict } = await assertIntact(env, threadId);
  const { registry, ledger } = env.store;
  await ledger.report(threadId, toMicroUsd(cost.spend), started.record.epoch);
  const limits = remainingLimits(before.limits, {
    cost,
    subtreeSpend: toUsd(await ledger.subtreeSpend(threadId)),
    spawns: (await registry.get(threadId))?.spawn_count ?? 0,
  });
  const { events } = await env.store.logs.read(threadId, partOf(threadId, verdict));
  const tree = buildTree(events);
  const plan = await planAtLeaf(env, before, { tree, leafId: tree.leafId });
  const ceiling = Math.min(CEILING_TOKENS, plan.model.context_window * CEILING_PART);
  const carried = carryTail({ tree, events, leafId: tree.leafId }, ceiling);
  const message = await continuationMessage(env, {
    plan,
    previousThreadId: threadId,
    reason: 'The context of the previous thread was full. Go on where it stopped.',
  });
  return {
    started: await createSuccessor(env, {
      predecessorId: threadId,
      plan: { ...plan, limits },
      parent,
    }),
    conversation: continuedConversation({
      previousThreadId: threadId,
      messages: carried.messages,
      carry: () => carried,
      message,
    }),
  };
}

/** The result of a chain of threads: named after the first, ended as the last, cost and children of all. */
export function joinChain(results: readonly ThreadResult[]): ThreadResult {
  const first = results[0];
  const last = results.at(-1);
  if (!first || !last) throw new Error('a chain has at least one thread');
  if (first === last) return first;
  const { thread_id, directive, model, parent_thread_id, paths } = first;
  return {
    success: last.success,
    thread_id,
    directive,
    status: 'continued',
    result: last.result,
    ...(last.outputs ? { outputs: last.outputs } : {}),
    ...(last.error ? { error: last.error } : {}),
    model,
    ...(parent_thread_id === undefined ? {} : { parent_thread_id }),
    paths,
    cost: results.map(({ cost }) => cost).reduce(addCost),
    continuation_thread_id: last.thread_id,
    children: results.flatMap(({ children }) => children),
  };
}

function addCost(left: Cost, right: Cost): Cost {
  return {
    ...addUsage(left, right),
    turns: left.turns + right.turns,
    spend: toUsd(toMicroUsd(left.spend) + toMicroUsd(right.spend)),
    elapsed_seconds: Math.round((left.elapsed_seconds + right.elapsed_seconds) * 1000) / 1000,
  };
}
