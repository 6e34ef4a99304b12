import { RyeError } from '../../core/errors.ts';
import { isActive } from '../../core/thread.ts';
import type { Launching, Recovering, Supervising } from '../ports.ts';
import { cancelThread } from './cancel.ts';
import { openDescendants } from './children.ts';
import { waitThreads } from './wait.ts';

/** Time that cancelled children have to end. */
const END_MS = 60_000;

interface SettleRequest {
  readonly threadId: string;
  /** Children may work to their end, until this is aborted; absent: they are cancelled at once. */
  readonly until?: AbortSignal | undefined;
}

/**
 * Resolves when no thread below is active: the worktree in which they work, or into which they merge, is complete then.
 * Throws `thread_locked` if one does not end.
 */
export async function settleChildren(
  env: Recovering & Launching & Supervising,
  { threadId, until }: SettleRequest,
): Promise<void> {
  // one that waits for people may do so for days
  const open = async (): Promise<readonly string[]> =>
    (await openDescendants(env.store.registry, threadId))
      .filter(({ status }) => isActive(status))
      .map(({ thread_id: id }) => id);
  // an ended child may have started others meanwhile
  for (let ids = await open(); ids.length > 0; ids = await open()) {
    if (!until || until.aborted) break;
    await waitThreads(env, { threadIds: ids, mode: 'all', signal: until });
  }
  const left = await open();
  if (left.length === 0) return;
  const reason = `its parent ${threadId} ended`;
  for (const id of left) await cancelThread(env, { threadId: id, reason, tree: true });
  const { signal } = new AbortController();
  await waitThreads(env, { threadIds: left, mode: 'all', timeoutMs: END_MS, signal });
  const [stuck] = await open();
  if (stuck === undefined) return;
  throw new RyeError('thread_locked', `its child ${stuck} does not end`, {
    hint: `Run: rye threads kill ${stuck}`,
  });
}
