import { spawn } from 'node:child_process';
import { messageOf, RyeError } from '../core/errors.ts';
import { openSpawnLog } from './handover-fs.ts';
import type { RunnerCommand } from './ports.ts';

export interface LaunchProcess {
  readonly runner: RunnerCommand;
  readonly threadId: string;
  /** The thread's folder, for its `spawn.log`. */
  readonly folder: string;
  readonly cwd: string;
}

/**
 * Starts the process of a thread in a session of its own, so that neither its starter's end nor the hang-up of the
 * terminal reaches it. Resolves to its pid once it runs; `spawn_failed` when it can't be started.
 */
export async function launchProcess(request: LaunchProcess): Promise<number> {
  const { runner, threadId, folder, cwd } = request;
  const log = openSpawnLog(folder);
  try {
    const child = spawn(runner.command, [...runner.args, threadId], {
      cwd,
      env: runner.environment,
      stdio: ['ignore', log.fd, log.fd],
      detached: true,
      windowsHide: true,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    child.unref();
    return child.pid ?? 0;
  } catch (error) {
    throw new RyeError(
      'spawn_failed',
      `the process of thread ${threadId} could not be started: ${messageOf(error)}`,
      {
        hint: 'Check the number of processes and the memory that are left, then start it again.',
        cause: error,
      },
    );
  } finally {
    log.close();
  }
}
