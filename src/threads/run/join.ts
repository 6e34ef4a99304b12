import { RyeError } from '../../core/errors.ts';
import { isActive, type ThreadRecord, type ThreadResult } from '../../core/thread.ts';
import { cancelThread } from '../family/cancel.ts';
import { chainEnd, type JoinedChild } from '../family/children.ts';
import { familyCost } from '../family/family-cost.ts';
import { signedEnd } from '../family/signed-end.ts';
import { waitThreads } from '../family/wait.ts';
import type { ThreadEnv } from '../ports.ts';
import { isWaiting, waitingOf } from './waiting.ts';

/** Time before a thread that another process resumes just now is looked at again. */
const LOOK_MS = 50;

/** Resumes a thread in this process. */
type Resume = (threadId: string) => Promise<ThreadResult>;

/**
 * Waits for the end of a thread that waited for people. One about which they have decided is resumed here unless another
 * process does so; one that cannot be resumed is an error of the call that needs it. Cancels the thread if `signal` aborts.
 */
export async function joinThread(
  env: ThreadEnv,
  threadId: string,
  { signal, resume }: { readonly signal: AbortSignal; readonly resume: Resume },
): Promise<JoinedChild> {
  const { registry } = env.store;
  const onAbort = (): void => {
    const reason = 'the call that waits for it was stopped';
    void cancelThread(env, { threadId, reason, tree: false }).catch(() => undefined);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    for (;;) {
      const last = await chainEnd(registry, threadId);
      if (!last) throw new RyeError('thread_not_found', `thread not found: ${threadId}`);
      const stored = async (): Promise<JoinedChild> => ({
        result: await storedResult(env, threadId, await trusted(env, last)),
        run: await registry.runOf(last.thread_id),
      });
      if (signal.aborted) return await stored();
      if (isActive(last.status)) {
        const request = { threadIds: [threadId], mode: 'all' as const, signal };
        await waitThreads(env, { ...request, timeoutMs: undefined });
      } else if (isWaiting(last)) {
        try {
          const result = await resume(threadId);
          return { result, run: await registry.runOf(result.thread_id) };
        } catch (error) {
          const code = error instanceof RyeError ? error.code : undefined;
          if (code === 'approval_pending') return await stored();
          if (code !== 'thread_locked') throw error;
          await env.clock.sleep(LOOK_MS, signal);
        }
      } else {
        return await stored();
      }
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

async function trusted(env: ThreadEnv, last: ThreadRecord): Promise<ThreadRecord> {
  return await signedEnd(env, last, await env.store.registry.runOf(last.thread_id));
}

/** Returns the end of a thread, or its wait, as the registry has it. */
async function storedResult(
  env: ThreadEnv,
  threadId: string,
  last: ThreadRecord,
): Promise<ThreadResult> {
  const { status, directive, result, outputs, error, model, parent_id: parent } = last;
  const { changes } = await env.files.readDocument(last.thread_id);
  // the patch is beside the results of the parent, and may come from another machine
  if (changes?.patch && parent !== null) await env.files.pull(parent);
  return {
    success: status === 'completed',
    thread_id: threadId,
    directive,
    status,
    result: result ?? '',
    ...(outputs ? { outputs } : {}),
    ...(error ? { error } : {}),
    ...waitingOf(last),
    cost: await familyCost(env.store.registry, last),
    model: model ?? '',
    ...(parent === null ? {} : { parent_thread_id: parent }),
    ...(last.thread_id === threadId ? {} : { continuation_thread_id: last.thread_id }),
    children: [],
    ...(changes ? { changes } : {}),
    paths: {
      thread: env.files.folder(last.thread_id),
      transcript: env.store.logs.location(last.thread_id),
      knowledge: env.files.knowledgePath(directive, last.thread_id),
    },
  };
}
