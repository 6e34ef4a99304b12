import { isoTime } from '../../core/clock.ts';
import { type ErrorInfo, messageOf, RyeError, toRyeError } from '../../core/errors.ts';
import { assertNewThreadId, threadIdCandidate } from '../../core/ids.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import { NO_COST, toMicroUsd } from '../../core/usage.ts';
import { type EndingThread, recordEnd } from '../end.ts';
import type { Preparation, Process, Stored, ThreadFiles } from '../ports.ts';
import { startDocument, type ThreadDocument } from '../thread-document.ts';

/** A thread that exists: registered, its budget reserved, its signed thread.json and its plan written. */
export interface StartedThread {
  readonly threadId: string;
  readonly plan: ThreadPlan;
  readonly record: ThreadRecord;
  readonly document: ThreadDocument;
  /** The parent's verified document, whose limits bound escalations. */
  readonly parent: ThreadDocument | undefined;
}

export interface StartRequest {
  readonly threadId?: string | undefined;
  /** The parent's verified document; its `spawns` limit is counted atomically with the registration. */
  readonly parent?: ThreadDocument | undefined;
  readonly continuationOf?: string | undefined;
}

const MAX_ID_ATTEMPTS = 1000;

/** Starts a plan: registers and claims it, reserves its budget, writes thread.json and the plan. */
export async function startThread(
  env: Stored & Process & Pick<Preparation, 'guards'>,
  plan: ThreadPlan,
  request: StartRequest,
): Promise<StartedThread> {
  await readyToStart(env, request);
  return await createThread(env, plan, request, async (threadId) => {
    await reserveBudget(env, plan, threadId);
  });
}

/** Refuses what would fail after the registration, then remembers the guards. */
export async function readyToStart(
  env: Process & Pick<Preparation, 'guards'>,
  { threadId }: Pick<StartRequest, 'threadId'>,
): Promise<void> {
  if (threadId !== undefined) assertNewThreadId(threadId);
  await env.readySigner();
  await env.guards.remember();
}

/** As {@link startThread} without the guards; `fund` sets the budget aside. */
export async function createThread(
  env: Stored & Process,
  plan: ThreadPlan,
  request: StartRequest,
  fund: (threadId: string) => Promise<void>,
): Promise<StartedThread> {
  const { parent, continuationOf } = request;
  const record = await registerThread(env, plan, { ...request, isClaimed: true });
  const { thread_id: threadId } = record;
  return await endIfFails(env, threadId, async () => {
    await fund(threadId);
    const now = isoTime(env.clock.now());
    const document = startDocument(plan, { threadId, now, continuationOf });
    // the log has it too, and is synced before anything has an effect
    await env.files.writeDocument(document, 'none');
    await env.files.writePlan(threadId, plan);
    return { threadId, plan, record, document, parent };
  });
}

/** Runs a step of the start of a thread. If it fails, the thread ends as `error`, and what was reserved is freed. */
export async function endIfFails<T>(
  env: Stored & Process,
  threadId: string,
  step: () => Promise<T>,
): Promise<T> {
  try {
    return await step();
  } catch (error) {
    await endUnstarted(env, threadId, { status: 'error', error: toRyeError(error).toJSON() });
    throw error;
  }
}

/** Returns the options with which this process opens the log of a thread that it has claimed. */
export function writerOptions(
  env: Process,
  { plan, record }: Pick<StartedThread, 'plan' | 'record'>,
) {
  const { durability } = plan.settings;
  return { signer: env.signer(), durability, owner: env.owner, epoch: record.epoch };
}

/** Reads and verifies the thread.json of a thread's parent; undefined for a root. */
export async function readParent(
  files: Pick<ThreadFiles, 'readDocument'>,
  { parent_thread_id: parentId }: Pick<ThreadPlan, 'parent_thread_id'>,
): Promise<ThreadDocument | undefined> {
  return parentId === null ? undefined : await files.readDocument(parentId);
}

/**
 * Registers a plan under its own or the next free id, owned by this process, and claimed by it if that is given; a
 * parent's spawns are counted. Without a
 * signing key nothing is registered: `key_missing`.
 */
export async function registerThread(
  env: Stored & Process,
  plan: ThreadPlan,
  {
    threadId,
    parent,
    continuationOf,
    isClaimed = false,
  }: StartRequest & { readonly isClaimed?: boolean },
): Promise<ThreadRecord> {
  env.signer();
  const now = env.clock.now();
  const params = {
    directive: plan.directive.id,
    parentId: plan.parent_thread_id,
    model: plan.model.id,
    now: isoTime(now),
    owner: env.owner,
    isClaimed,
    ...(parent ? { maxSpawns: parent.limits.spawns } : {}),
    ...(continuationOf === undefined ? {} : { continuationOf }),
  };
  if (threadId !== undefined) {
    assertNewThreadId(threadId);
    await assertNoFiles(env, threadId);
    return await env.store.registry.register({ ...params, threadId });
  }
  for (let attempt = 1; attempt <= MAX_ID_ATTEMPTS; attempt += 1) {
    try {
      const candidate = threadIdCandidate(plan.directive.id, now, attempt);
      await assertNoFiles(env, candidate);
      return await env.store.registry.register({ ...params, threadId: candidate });
    } catch (error) {
      const isTaken = error instanceof RyeError && TAKEN.has(error.code);
      if (!isTaken) throw error;
    }
  }
  throw new RyeError(
    'thread_id_taken',
    `no free id for directive ${plan.directive.id} in this second`,
    {
      hint: 'Choose one with --thread-id.',
    },
  );
}

const TAKEN: ReadonlySet<string> = new Set(['thread_id_taken', 'thread_exists']);

/**
 * Refuses an id whose folder holds a thread that is missing in the registry, as after a lost registry: a start would
 * replace that thread's signed record.
 */
async function assertNoFiles(env: Stored, threadId: string): Promise<void> {
  if (!env.files.exists(threadId)) return;
  if ((await env.store.registry.get(threadId)) !== undefined) return;
  const folder = env.files.folder(threadId);
  throw new RyeError('thread_exists', `${folder} holds a thread that the registry does not list`, {
    hint: 'Run `rye doctor --repair` to list it again, or choose another --thread-id.',
    details: { thread_id: threadId, path: folder },
  });
}

/** Registers a root's budget, or sets a child's aside from its parent's. */
export async function reserveBudget(
  env: Stored,
  plan: ThreadPlan,
  threadId: string,
): Promise<void> {
  const { ledger } = env.store;
  const amount = toMicroUsd(plan.limits.spend);
  const { parent_thread_id: parentId } = plan;
  if (parentId === null) return await ledger.register(threadId, amount);
  // siblings of one answer are prepared side by side: only here is it known what the others got
  const keep = await ledger.nextCall(parentId);
  return await ledger.reserve(threadId, amount, parentId, keep);
}

/** Why a thread ends that never ran. */
export interface UnstartedEnd {
  readonly status: 'error' | 'cancelled';
  readonly error: ErrorInfo;
}

/**
 * Ends a thread that never ran: registry, budget, and thread.json where there is one. Never throws, because a second
 * failure must not hide the first. False where another process was faster.
 */
export async function endUnstarted(
  env: Stored & Process,
  threadId: string,
  { status, error }: UnstartedEnd,
): Promise<boolean> {
  try {
    const record = await env.store.registry.get(threadId);
    const ending: EndingThread = {
      threadId,
      epoch: record?.epoch ?? 0,
      end: () => ({ status, error, result: '', cost: NO_COST }),
      writeDocument: async (_, now) => {
        const document = await documentOf(env, threadId);
        if (document)
          await env.files.writeDocument({
            ...document,
            status,
            error,
            result: '',
            updated_at: now,
          });
      },
    };
    await recordEnd(env, ending, { isUnclaimed: true });
    return true;
  } catch (failure) {
    env.onNotice(`thread ${threadId} could not be finalized: ${messageOf(failure)}`);
    return false;
  }
}

async function documentOf(
  env: Pick<Stored, 'files'>,
  threadId: string,
): Promise<ThreadDocument | undefined> {
  try {
    return await env.files.readDocument(threadId);
  } catch {
    return undefined; // it failed before there was one
  }
}
