import { type ErrorInfo, RyeError, toRyeError } from '../core/errors.ts';
import { isActive, type ThreadResult } from '../core/thread.ts';
import { startQueued } from '../threads/family/spawn.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import { collectThreads } from '../threads/recovery/gc.ts';
import {
  findDead,
  type RecoveredThread,
  type RecoverySweep,
  recoverEach,
  recoverThread,
} from '../threads/recovery/recover.ts';
import { rebuildThread } from '../threads/recovery/repair.ts';
import { runResumed } from '../threads/run/lifecycle.ts';
import type { Foundation } from './foundation.ts';
import type { RecoveryReport, ResumeThreadRequest, RetentionReport } from './recovery-types.ts';
import { threadEnv } from './thread-env.ts';
import { observer } from './thread-runs.ts';

/** Goes on with a thread, to its end, in this process. */
export async function resumeThread(
  base: Foundation,
  request: ResumeThreadRequest,
): Promise<ThreadResult> {
  const { allowUnsigned = false, secrets = {}, ...rest } = request;
  const env = threadEnv(base, { allowUnsigned });
  const onEvent = observer(env, request.onEvent);
  return await runResumed(env, { ...rest, allowUnsigned, secrets, onEvent });
}

/** Ends dead threads in order, and goes on with them where `recovery.mode` says so. */
export async function recoverThreads(
  base: Foundation,
  {
    threadId,
    rebuild = false,
    signal,
  }: { readonly threadId?: string; readonly rebuild?: boolean; readonly signal?: AbortSignal },
): Promise<RecoveryReport> {
  const env = threadEnv(base, { allowUnsigned: false });
  if (rebuild && threadId !== undefined) {
    const rebuilt = await rebuildOne(env, threadId);
    return { recovered: [rebuilt], failures: [], resumed: [] };
  }
  const { recovered, failures } = await sweep(env, threadId);
  await startQueued(env);
  const { recovery } = await env.config();
  const resumed: ThreadResult[] = [];
  const refused: { thread_id: string; error: ErrorInfo }[] = [];
  for (const one of recovery.mode === 'resume' ? recovered : []) {
    if (signal?.aborted || !(await shouldResume(env, one))) continue;
    try {
      resumed.push(
        await resumeThread(base, { threadId: one.thread_id, ...(signal ? { signal } : {}) }),
      );
    } catch (error) {
      refused.push({ thread_id: one.thread_id, error: toRyeError(error).toJSON() });
    }
  }
  return { recovered, failures: [...failures, ...refused], resumed };
}

/** Replaces a thread.json that recovery refuses; a thread whose process died is ended as well. */
async function rebuildOne(env: ThreadEnv, threadId: string): Promise<RecoveredThread> {
  const { document, kept } = await rebuildThread(env, threadId);
  const reason = kept === undefined ? 'thread.json was missing' : `the old thread.json is ${kept}`;
  const record = await env.store.registry.get(threadId);
  if (!record || !isActive(record.status)) {
    return { thread_id: threadId, status: document.status, action: 'rebuilt', reason };
  }
  return { ...(await recoverThread(env, threadId)), action: 'rebuilt', reason };
}

async function sweep(env: ThreadEnv, threadId: string | undefined): Promise<RecoverySweep> {
  if (threadId === undefined)
    return await recoverEach(env, await findDead(env, { onlyGone: false }));
  return { recovered: [await recoverThread(env, threadId)], failures: [] };
}

/** A child goes on only while its parent runs: else the parent, when it goes on, decides about it. */
async function shouldResume(
  env: ThreadEnv,
  { thread_id: id, action }: RecoveredThread,
): Promise<boolean> {
  if (action !== 'failed') return false;
  const record = await env.store.registry.get(id);
  if (record?.error?.code !== 'thread_crashed') return false;
  if (record.parent_id === null) return true;
  const parent = await env.store.registry.get(record.parent_id);
  return parent !== undefined && isActive(parent.status);
}

/** Archives the logs of threads that ended long ago. */
export async function collectLogs(
  base: Foundation,
  { olderThanMs, dryRun = false }: { readonly olderThanMs: number; readonly dryRun?: boolean },
): Promise<RetentionReport> {
  if (!Number.isFinite(olderThanMs) || olderThanMs < 0) {
    throw new RyeError('invalid_input', `${olderThanMs} ms is no age`, {
      hint: 'Such as --older-than 30d.',
    });
  }
  return await collectThreads(threadEnv(base, { allowUnsigned: false }), { olderThanMs, dryRun });
}
