import { messageOf } from '../../core/errors.ts';
import { isActive, type ThreadRecord } from '../../core/thread.ts';
import type { Registry } from '../../storage/store.ts';
import type { Launching, Process, Stored } from '../ports.ts';
import { awaitedApprovals, awaitedThreads, isParked, isWaiting } from '../run/waiting.ts';
import { chainEnd } from './children.ts';
import { launchProcess } from './process-fs.ts';

/** The hidden command that resumes a thread if its last run has the epoch that is given first. */
const RESUME_RUN = '__resume-run';

/** Resumes a thread: a process of this machine, or a worker of a fleet. */
export interface Resumer {
  /** True once it is certain that it does nothing any more. */
  hasEnded(): boolean;
}

/**
 * Starts a process that resumes a thread which waits for people; undefined if it does not wait, or could not be started. Of
 * two processes that resume one thread, one gets it.
 */
export async function resumeInBackground(
  env: Stored & Process & Launching,
  threadId: string,
): Promise<Resumer | undefined> {
  const thread = await chainEnd(env.store.registry, threadId);
  return thread && isWaiting(thread) ? await launchResume(env, thread) : undefined;
}

/** Resumes the threads above one that has ended, or that waits for other requests than before, if they wait for it. */
export async function resumeWaitingAncestors(
  env: Stored & Process & Launching,
  threadId: string,
): Promise<void> {
  const { registry } = env.store;
  const chain = await registry.chain(threadId);
  const last = chain.at(-1);
  if (!last || isActive(last.status)) return;
  const ids = new Set(chain.map(({ thread_id: id }) => id));
  const seen = new Set<string>();
  for (let at = last.parent_id; at !== null && !seen.has(at); ) {
    seen.add(at);
    const above = await chainEnd(registry, at);
    if (!above) return;
    const isNeeded = awaitedThreads(above).some((id) => ids.has(id));
    if (isNeeded && isParked(above)) {
      if (await areAtRest(registry, above)) await launchResume(env, above);
    } else if (isNeeded && isWaiting(above)) {
      const known = new Set(awaitedApprovals(above));
      const isKnown = isWaiting(last) && awaitedApprovals(last).every((id) => known.has(id));
      if (!isKnown) await launchResume(env, above);
    }
    at = above.parent_id;
  }
}

/** True if all threads for which a leg was parked have ended or wait for people. */
export async function areAtRest(
  registry: Pick<Registry, 'get'>,
  above: ThreadRecord,
): Promise<boolean> {
  for (const id of awaitedThreads(above)) {
    const thread = await chainEnd(registry as Registry, id);
    if (thread && (isActive(thread.status) || isParked(thread))) return false;
  }
  return true;
}

/**
 * Starts a process that continues this run of a thread, and no later one: it may have ended by then. One of a fleet is
 * resumed by a worker. Undefined if that failed.
 */
export async function launchResume(
  env: Stored & Process & Launching,
  { thread_id: threadId, epoch }: ThreadRecord,
): Promise<Resumer | undefined> {
  try {
    if ((await env.fleet?.resume(threadId)) === true) return { hasEnded: () => false };
    const runner = await env.runner();
    const pid = await launchProcess({
      runner: { ...runner, args: [...runner.args.slice(0, -1), RESUME_RUN, String(epoch)] },
      threadId,
      folder: env.files.folder(threadId),
      cwd: env.projectPath,
    });
    const { owners } = env.store;
    const owner = owners.ofProcess(pid);
    return { hasEnded: () => owner === undefined || owners.state(owner) === 'gone' };
  } catch (error) {
    env.onNotice(`thread ${threadId} was not resumed: ${messageOf(error)}`);
    return undefined;
  }
}
