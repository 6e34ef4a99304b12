import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import type { Owner, ProcessTable } from '../../storage/store.ts';

/** Time between SIGTERM and SIGKILL. */
const KILL_GRACE_MS = 3000;
/** How long the kernel may take to end a process after SIGKILL. */
const DEATH_MS = 5000;
const LOOK_MS = 20;

export interface EndProcess {
  readonly owner: Owner;
  /** The whole process group: only of a process that rye gave a group of its own. */
  readonly group: boolean;
  readonly processes: ProcessTable;
  readonly clock: Clock;
}

/**
 * Ends a process: SIGTERM, three seconds, SIGKILL. Before each signal its start time is checked, so that a process that
 * got the same pid later is never hit. False when it was gone before.
 */
export async function endProcess(request: EndProcess): Promise<boolean> {
  const { owner, processes } = request;
  if (!processes.isAlive(owner)) return false;
  signal(request, 'SIGTERM');
  if (await isGone(request, KILL_GRACE_MS)) return true;
  signal(request, 'SIGKILL');
  if (await isGone(request, DEATH_MS)) return true;
  throw new RyeError('thread_locked', `process ${owner.pid} did not end after SIGKILL`, {
    hint: 'It hangs in the kernel, as on a lost network disk. Try again later.',
    details: { pid: owner.pid },
  });
}

async function isGone({ owner, processes, clock }: EndProcess, withinMs: number): Promise<boolean> {
  const deadline = clock.monotonic() + withinMs;
  while (processes.isAlive(owner)) {
    if (clock.monotonic() >= deadline) return false;
    await clock.sleep(LOOK_MS);
  }
  return true;
}

function signal({ owner, group, processes }: EndProcess, name: 'SIGTERM' | 'SIGKILL'): void {
  if (!processes.isAlive(owner)) return;
  try {
    process.kill(group ? -owner.pid : owner.pid, name);
  } catch (error) {
    if (systemCodeOf(error) === 'ESRCH') return;
    throw new RyeError(
      'state_unwritable',
      `process ${owner.pid} can't be ended: ${messageOf(error)}`,
      {
        hint: 'It belongs to another user: ask that user to cancel the thread.',
        cause: error,
      },
    );
  }
}

/** Whether the thread's process was started for it alone, in a group of its own. */
export function wasLaunched(folder: string): boolean {
  return existsSync(join(folder, 'spawn.log'));
}
