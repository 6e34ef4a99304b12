import { join } from 'node:path';
import { RyeError } from '../../kernel/core/errors.ts';
import { makeFolders } from '../../kernel/disk/folders.ts';
import { type Lease, takeLease, UNSEEN_HINT } from '../../kernel/storage/files/lease.ts';
import { processOwners } from '../../kernel/storage/owners.ts';

/** The state of the schedules of a project. */
export function schedulesFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'schedules');
}

const WORK = {
  serve: 'serves the schedules of this project',
  edit: 'changes the schedules of this project',
} as const;

/**
 * Takes the right to serve or to change the schedules of a project. Throws `schedules_locked` while another living
 * process has it; the lock of a process that died is replaced, that of one which can't be seen from here after a minute
 * without a sign of life.
 */
export function lockSchedules(projectPath: string, work: keyof typeof WORK): Lease {
  // no schedule has a name that begins with a dot
  const folder = join(schedulesFolder(projectPath), `.${work}`);
  const owners = processOwners();
  makeFolders(folder, 0o700);
  const worded = <T>(action: () => T): T => {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof RyeError) || error.code !== 'thread_locked') throw error;
      const { pid, host }: { readonly pid?: unknown; readonly host?: unknown } =
        error.details ?? {};
      const who = typeof pid === 'number' ? `process ${pid} on ${String(host)}` : 'another process';
      const hint = work === 'serve' ? 'End it first, or leave the schedules to it.' : 'Try again.';
      throw new RyeError('schedules_locked', `${who} ${WORK[work]}`, {
        hint: error.hint === UNSEEN_HINT ? UNSEEN_HINT : hint,
        details: { pid, host },
      });
    }
  };
  const owner = owners.self();
  const lease = worded(() => takeLease({ folder, threadId: work, owner, epoch: 1, owners }));
  return { ...lease, assertHeld: () => worded(() => lease.assertHeld()) };
}
