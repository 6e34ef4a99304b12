import { messageOf } from '../../core/errors.ts';
import type { Launching, Process, Stored } from '../ports.ts';
import { chainEnd } from './children.ts';
import { launchProcess } from './process-fs.ts';

/**
 * Starts a process that resumes a thread which waits for people; false if it does not wait, or could not be started. Of
 * two processes that resume one thread, one gets it.
 */
export async function resumeInBackground(
  env: Stored & Process & Launching,
  threadId: string,
): Promise<boolean> {
  const thread = await chainEnd(env.store.registry, threadId);
  if (thread?.status !== 'suspended' || thread.error?.code !== 'approval_pending') return false;
  return await launchResume(env, thread.thread_id);
}

/** Starts a process that resumes a thread. */
export async function launchResume(
  env: Stored & Process & Launching,
  threadId: string,
): Promise<boolean> {
  try {
    const runner = await env.runner();
    await launchProcess({
      runner: { ...runner, args: [...runner.args.slice(0, -1), 'threads', 'resume'] },
      threadId,
      folder: env.files.folder(threadId),
      cwd: env.projectPath,
    });
    return true;
  } catch (error) {
    env.onNotice(`thread ${threadId} was not resumed: ${messageOf(error)}`);
    return false;
  }
}
