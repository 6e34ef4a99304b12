import { RyeError } from '../../core/errors.ts';
import {
  eachLimit,
  LIMITS,
  type Limits,
  limitsForChild,
  type PartialLimits,
  USED_LIMIT_NAMES,
} from '../../core/limits.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { addFamilyCost, type Cost, type MicroUsd, toMicroUsd, toUsd } from '../../core/usage.ts';
import { carryTail } from '../../log/continuation.ts';
import { buildTree } from '../../log/tree.ts';
import type { Heir } from '../../policy/budget.ts';
import { limitsOfRun, type UsedLimits } from '../../policy/run-limits.ts';
import type { LogVerification } from '../../storage/store.ts';
import { chainEnd } from '../family/children.ts';
import type { Configured, Preparing, Process, Stored } from '../ports.ts';
import { planAtLeaf } from '../prepare/plan-at-head.ts';
import type { Conversation } from '../run/opening.ts';
import type { Recorder } from '../run/recorder.ts';
import { createThread, type StartedThread } from '../run/start.ts';
import { holdsMoney, waitingOf } from '../run/waiting.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { partOf, tamperedError, verifyLog } from '../verified-log.ts';
import { continuationMessage, continuedConversation } from './continuation.ts';

/** Returns the remaining limits of a thread for its continuation; never below 0. Depth is not used up. */
export function remainingLimits(limits: Limits, used: UsedLimits): Limits {
  return limitsOfRun(limits, used).run;
}

/** Limits with a person's overrides, within what the parent may give. */
export function overrideLimits(
  limits: Limits,
  overrides: PartialLimits,
  parent: ThreadDocument | undefined,
): Limits {
  const caps = parent && limitsForChild(parent.limits);
  return eachLimit((name) =>
    Math.min(overrides[name] ?? limits[name], caps?.[name] ?? Number.POSITIVE_INFINITY),
  );
}

/** Refuses a continuation that could not make one turn, before anything is written. */
export function assertSomethingLeft(
  threadId: string,
  limits: Limits,
  { limits: before, granted_limits: granted }: Pick<ThreadPlan, 'limits' | 'granted_limits'>,
): void {
  for (const name of USED_LIMIT_NAMES) {
    // a limit of 0 from the start is one that the model does not need, such as the spend of a run without a model
    if (limits[name] > 0 || before[name] === 0) continue;
    throw new RyeError(`limit_${name}`, `${threadId} has no ${LIMITS[name].left} left`, {
      // a run that was granted more has a total above what the next one may be granted
      hint: `Grant it more: rye threads resume ${threadId} --limit ${name}=${granted?.[name] ?? before[name]}`,
      details: { thread_id: threadId, max: before[name] },
    });
  }
}

/** Returns the nearest ancestor that runs or waits, or the end of its chain that does: it pays for a descendant that continues. */
export async function payingAncestor(
  env: Pick<Stored, 'store'>,
  parentId: string | null,
): Promise<string | undefined> {
  return (await payerAbove(env, parentId))?.payer;
}

/** Returns the ancestor whose successor pays for a descendant that continues; undefined if none was handed off. */
export async function heirAbove(
  env: Pick<Stored, 'store'>,
  parentId: string | null,
): Promise<Heir | undefined> {
  const found = await payerAbove(env, parentId);
  if (!found || found.payer === found.ancestor) return undefined;
  return { ancestorId: found.ancestor, successorId: found.payer };
}

/**
 * Returns what the root of a thread has left, which is all that a descendant may still spend if no thread above it pays any
 * more. Undefined: one does, or there is none.
 */
export async function leftByRoot(
  env: Pick<Stored, 'store'>,
  parentId: string | null,
): Promise<MicroUsd | undefined> {
  if (await payerAbove(env, parentId)) return undefined;
  const { registry, ledger } = env.store;
  let root: string | undefined;
  for (let at = parentId; at !== null; ) {
    const last = await chainEnd(registry, at);
    root = last?.thread_id;
    at = last?.parent_id ?? null;
  }
  return root === undefined ? undefined : await ledger.remaining(root);
}

async function payerAbove({ store: { registry } }: Pick<Stored, 'store'>, parentId: string | null) {
  let at = parentId;
  while (at !== null) {
    const record = await registry.get(at);
    if (!record) return undefined;
    const last = (await chainEnd(registry, at)) ?? record;
    if (holdsMoney(last)) return { ancestor: at, payer: last.thread_id };
    at = record.parent_id;
  }
  return undefined;
}

/**
 * Refuses to continue a log whose signed part was changed. With `lenient` it only gives notice; then what precedes the
 * change counts, and nothing after it.
 */
export async function assertIntact(
  env: Stored & Pick<Process, 'onNotice'> & Configured,
  threadId: string,
): Promise<{ readonly document: ThreadDocument; readonly verdict: LogVerification }> {
  const { document, verdict } = await verifyLog(env, threadId);
  if (verdict.ok) return { document, verdict };
  const error = tamperedError(
    threadId,
    verdict,
    `See \`rye verify thread ${threadId}\`. With transcript_integrity: lenient, the part before that is used.`,
  );
  const { recovery } = env.config;
  // an older state has no fault that could be skipped
  if (recovery.transcriptIntegrity === 'lenient' && verdict.code !== 'thread_rolled_back') {
    env.onNotice(
      `${error.message}; transcript_integrity is lenient, so the ${verdict.verified_bytes} signed bytes before it are used`,
    );
    return { document, verdict };
  }
  throw error;
}

/** A thread that is ready to run, and how it begins. */
export interface Successor {
  readonly started: StartedThread;
  readonly conversation: Conversation | undefined;
  /** Releases the predecessor; the conversation does so too, and a second call has no effect. */
  readonly release?: () => void | Promise<void>;
}

const UNFUNDED = { max: 0, reserved: 0, actual: 0, status: 'active' } as const;

export interface HandoffRequest {
  readonly started: StartedThread;
  readonly cost: Cost;
  readonly recorder: Recorder;
}

/** Tokens of the latest messages that a successor takes along. */
const CEILING_TOKENS = 16_000;
/** Maximum share of the model's window, if that is small. */
const CEILING_PART = 0.25;

/**
 * Prepares the thread that continues one whose context is full: verifies the log, then creates the successor with the
 * same parent, inputs and model and the remaining limits. The caller links both when it finalizes.
 */
export async function startHandoff(
  env: Preparing,
  { started, cost, recorder }: HandoffRequest,
): Promise<Successor> {
  const { threadId, plan: before, document, parent } = started;
  await recorder.checkpoint();
  const { verdict } = await assertIntact(env, threadId);
  const { registry, ledger } = env.store;
  await ledger.report(threadId, toMicroUsd(cost.spend), started.record.epoch);
  const limits = remainingLimits(document.limits, {
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
    reason: 'The context of the previous thread was full. Continue where it stopped.',
  });
  return {
    started: await createThread(
      env,
      { ...plan, limits },
      { parent, continuationOf: threadId },
      // the predecessor hands its budget over when it ends; until then it has none, which a crash must not make unknown
      async (id) => {
        const { parent_thread_id: parentId } = before;
        await ledger.restore([{ ...UNFUNDED, thread_id: id, parent_id: parentId }]);
      },
    ),
    conversation: continuedConversation({
      previousThreadId: threadId,
      traits: env.models.traits,
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
    ...waitingOf(last),
    model,
    ...(parent_thread_id === undefined ? {} : { parent_thread_id }),
    paths,
    cost: results.map(({ cost }) => cost).reduce(addFamilyCost),
    continuation_thread_id: last.thread_id,
    children: results.flatMap(({ children }) => children),
  };
}
