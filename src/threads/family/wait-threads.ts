import { join } from 'node:path';
import { messageOf } from '../../core/errors.ts';
import type { ThreadRecord } from '../../core/thread.ts';
import type { ThreadEnv } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { threadsFolder } from '../thread-files-fs.ts';
import { startQueued } from './spawn.ts';
import { type WaitReport, type WaitRequest, waitForThreads } from './wait.ts';
import { watchFile } from './watch-fs.ts';

/** A waiter that looks after the queue does so no more often than this: whoever ends a thread does it too. */
const QUEUE_MS = 500;

/** {@link waitForThreads} over a project's registry; the waiter also starts what is queued and ends what is lost. */
export async function waitThreads(env: ThreadEnv, request: WaitRequest): Promise<WaitReport> {
  const watch = watchFile(join(threadsFolder(env.projectPath), 'registry.db'));
  let nextQueueMs = 0;
  const onLook = async (): Promise<void> => {
    await request.onLook?.();
    if (env.clock.monotonic() < nextQueueMs) return;
    nextQueueMs = env.clock.monotonic() + QUEUE_MS;
    await startQueued(env);
  };
  try {
    return await waitForThreads(
      {
        store: env.store,
        monotonic: () => env.clock.monotonic(),
        watch,
        settle: async (thread) => await settleLost(env, thread),
      },
      { ...request, onLook },
    );
  } finally {
    watch.close();
    // secret inputs in the memory of this process let no other one start what the end of these threads made room for
    await startQueued(env);
  }
}

/** Ends a thread whose process died; false when somebody else does, or when it can't be done. */
async function settleLost(env: ThreadEnv, { thread_id }: ThreadRecord): Promise<boolean> {
  try {
    await recoverThread(env, thread_id);
    return true;
  } catch (error) {
    env.onNotice(`thread ${thread_id} lost its process and was not ended: ${messageOf(error)}`);
    return false;
  }
}
