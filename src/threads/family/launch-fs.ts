import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { messageOf, RyeError } from '../../core/errors.ts';
import { isJsonObject, parseJson } from '../../core/json.ts';
import type { RunnerCommand } from '../ports.ts';
import { openSpawnLog } from './handover-fs.ts';

export interface LaunchProcess {
  readonly runner: RunnerCommand;
  readonly threadId: string;
  /** The thread's folder, for its `spawn.log`. */
  readonly folder: string;
  readonly cwd: string;
  /** Values of secret inputs, written to a pipe that only the process can read. */
  readonly secrets?: Readonly<Record<string, string>> | undefined;
}

/**
 * Starts the process of a thread in a session of its own, so that neither its starter's end nor the hang-up of the
 * terminal reaches it. Resolves to its pid once it runs; `spawn_failed` when it can't be started.
 */
export async function launchProcess(request: LaunchProcess): Promise<number> {
  const { runner, threadId, folder, cwd, secrets } = request;
  const log = openSpawnLog(folder);
  try {
    const child = spawn(runner.command, [...runner.args, threadId], {
      cwd,
      env: runner.environment,
      stdio: [secrets === undefined ? 'ignore' : 'pipe', log.fd, log.fd],
      detached: true,
      windowsHide: true,
    });
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', reject);
    });
    if (secrets !== undefined) await sendSecrets(child.stdin, JSON.stringify(secrets));
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

/** Waits until the process has the text. One that ends before it reads it says so itself. */
async function sendSecrets(pipe: Writable | null, json: string): Promise<void> {
  if (pipe === null) return;
  await new Promise<void>((resolve) => {
    pipe.once('error', () => resolve());
    pipe.once('close', () => resolve());
    pipe.end(json, () => resolve());
  });
  pipe.destroy();
}

/** Reads what {@link launchProcess} sent to this process; undefined if its starter died before. */
export async function receiveSecrets(): Promise<Readonly<Record<string, string>> | undefined> {
  const value = parseJson(await text(process.stdin));
  return value !== undefined && isJsonObject(value)
    ? (value as Readonly<Record<string, string>>)
    : undefined;
}
