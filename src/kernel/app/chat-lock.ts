import { rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { makeFolders } from '../disk/folders.ts';
import { type Lease, takeLease, UNSEEN_HINT } from '../storage/files/lease.ts';
import { processOwners } from '../storage/owners.ts';

/** The right of one process to hold a conversation in a thread. A run in the thread has its own lease. */
export interface ChatLock {
  /** Throws `thread_locked` if another process has the conversation now. */
  assertHeld(): void;
  release(): void;
}

/**
 * Takes the conversation of a thread for this process, in `.ai/state/chats/`. Refuses with `thread_locked` while another
 * living process has it; the lock of a process that died is replaced.
 */
export function lockChat(projectPath: string, threadId: string): ChatLock {
  const folder = join(projectPath, '.ai', 'state', 'chats', encodeURIComponent(threadId));
  const owners = processOwners();
  makeFolders(folder, 0o700);
  const worded = <T>(action: () => T): T => {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof RyeError) || error.code !== 'thread_locked') throw error;
      const pid = error.details?.['pid'];
      const who = typeof pid === 'number' ? `process ${pid}` : 'another process';
      const leave = `Leave that chat first, or talk in a copy: rye threads branch ${threadId} --at ENTRY --new`;
      throw new RyeError('thread_locked', `thread ${threadId} is open in a chat of ${who}`, {
        hint: error.hint === UNSEEN_HINT ? UNSEEN_HINT : leave,
        details: error.details,
      });
    }
  };
  const take = (): Lease => takeLease({ folder, threadId, owner: owners.self(), epoch: 1, owners });
  const lease = worded(() => {
    try {
      return take();
    } catch (error) {
      // the chat that just ended removed the folder
      if (systemCodeOf(error) !== 'ENOENT') throw error;
      makeFolders(folder, 0o700);
      return take();
    }
  });
  return {
    assertHeld: () => worded(() => lease.assertHeld()),
    release: () => {
      lease.release();
      try {
        rmdirSync(folder);
      } catch {
        // another chat has taken the lock since
      }
    },
  };
}
