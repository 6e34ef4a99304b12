import { toRyeError } from '../../core/errors.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import { openDescendants } from '../family/children.ts';
import type { Process, Stored } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { Isolating } from '../worktrees.ts';
import { areChangesKept } from './crashed-worktree.ts';
import { whileHeld } from './while-held.ts';

type Env = Stored & Process & Isolating;

/**
 * Removes the worktrees that no thread needs, such as those that a crash left. A thread needs the worktree that it works in
 * until it has ended and its changes are kept elsewhere.
 */
export async function removeWorktrees(env: Env): Promise<void> {
  // first: a thread is recorded before its worktree is made
  const paths = await env.worktrees.list();
  if (paths.length === 0) return;
  const places = await placesOf(env);
  if (!places) return;
  for (const path of paths) {
    const users = places.filter(({ place }) => place === path || place.startsWith(`${path}/`));
    try {
      await removeUnused(
        env,
        path,
        users.map(({ threadId }) => threadId),
      );
    } catch (error) {
      env.onNotice(`the worktree ${path} was not removed: ${toRyeError(error).message}`);
    }
  }
}

interface Place {
  readonly threadId: string;
  readonly place: string;
}

/** The folders in which threads work; undefined if a record is damaged, so that it can't be known what it needs. */
async function placesOf(env: Env): Promise<readonly Place[] | undefined> {
  const places: Place[] = [];
  for (const { thread_id: threadId } of await env.store.registry.list({})) {
    if (!env.files.exists(threadId)) continue;
    const document = await env.files.readDocument(threadId).catch(() => undefined);
    if (!document) return undefined;
    if (document.work_path !== undefined) places.push({ threadId, place: document.work_path });
  }
  return places;
}

/** Removes a worktree while all threads that work in it are held, as they are at that moment. */
async function removeUnused(env: Env, path: string, users: readonly string[]): Promise<void> {
  const [threadId, ...others] = users;
  if (threadId === undefined) {
    await env.worktrees.remove({ path });
    return;
  }
  const record = await env.store.registry.get(threadId);
  if (!record || !isFinal(record.status)) return;
  await whileHeld(env, record, async () => {
    if (await needs(env, record, path)) return;
    await removeUnused(env, path, others);
  });
}

/** True if a thread that has ended still needs the worktree: for its children, or as the only copy of its changes. */
async function needs(env: Env, record: ThreadRecord, path: string): Promise<boolean> {
  const { thread_id: threadId, status } = record;
  if ((await openDescendants(env.store.registry, threadId)).length > 0) return true;
  const plan = await env.files.readPlan(await env.files.readDocument(threadId));
  const { worktree } = plan;
  // the thread that made it, or that continues the work in it, answers for the changes
  if (worktree?.path !== path || status === 'continued') return false;
  if (!(await env.worktrees.isMade(worktree))) return false;
  if (areChangesKept(plan, await readSigned(env, threadId))) return false;
  const { files, leftOut } = await env.worktrees.collect(worktree);
  return files.length > 0 || leftOut.length > 0;
}
