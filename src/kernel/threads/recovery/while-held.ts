import { RyeError } from '../../core/errors.ts';
import { isActive, type ThreadRecord } from '../../core/thread.ts';
import type { Process, Stored } from '../ports.ts';

/**
 * Acts under the hold of a thread's log, so that no process continues the thread meanwhile. Returns undefined without
 * acting if the thread was continued since it was found.
 */
export async function whileHeld<T>(
  { store, owner }: Pick<Stored, 'store'> & Pick<Process, 'owner'>,
  found: ThreadRecord,
  act: () => Promise<T>,
): Promise<T | undefined> {
  const { thread_id: threadId, epoch } = found;
  const isAsFound = async (): Promise<boolean> => {
    const now = await store.registry.get(threadId);
    return now?.status === found.status && now.epoch === epoch;
  };
  if (isActive(found.status) || !(await isAsFound())) return undefined;
  const hold = await store.logs.hold(threadId, owner, epoch).catch(async (error: unknown) => {
    const isHeld = error instanceof RyeError && error.code === 'thread_locked';
    if (isHeld && !(await isAsFound())) return undefined;
    throw error;
  });
  try {
    return hold && (await isAsFound()) ? await act() : undefined;
  } finally {
    await hold?.release();
  }
}
