import { spawn } from 'node:child_process';
import process from 'node:process';
import type { OpenRyeOptions } from '../app/api/rye.ts';
import { EXIT } from '../core/errors.ts';

/** Milliseconds within which repeated signals count once: npm forwards signals that the terminal also sends. */
const SAME_SIGNAL_MS = 200;
/** Milliseconds for tools and the finalization after a second signal. */
const HURRY_MS = 5000;
/** Milliseconds after the second signal before a third one stops the finalization. */
const PATIENCE_MS = 1000;
/** Maximum milliseconds for the cancellation request in the registry, which recovery reads. */
const NOTE_MS = 1000;

const STOPPING = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
type StoppingSignal = (typeof STOPPING)[number];

export interface Cancellation {
  /** Returns a signal that aborts with the first stopping signal. Listens from the first call on. */
  readonly signal: () => AbortSignal;
  /** Names the project whose threads this process may run. */
  readonly opened: (options: OpenRyeOptions) => void;
}

/**
 * Turns SIGINT, SIGTERM and SIGHUP into one cancellation. A second signal, or a SIGQUIT, kills the process groups of
 * tools instead of waiting for them. If the run does not end soon after, the process exits and starts a `rye threads
 * recover`, which finalizes its threads as cancelled.
 */
export function createCancellation(): Cancellation {
  const controller = new AbortController();
  let isListening = false;
  let project: OpenRyeOptions | undefined;
  let firstAt: number | undefined;
  let hurriedAt: number | undefined;
  let isStopping = false;

  const stopHard = async (): Promise<void> => {
    if (isStopping) return;
    isStopping = true;
    if (project !== undefined) await leaveToRecovery(project);
    process.exit(EXIT.cancelled);
  };
  const hurry = (now: number): void => {
    hurriedAt = now;
    void killTools();
    setTimeout(() => void stopHard(), HURRY_MS).unref();
  };
  const stop = (name: StoppingSignal): void => {
    const now = performance.now();
    if (firstAt === undefined) {
      firstAt = now;
      controller.abort(`interrupted by ${name}`);
      if (name === 'SIGQUIT') hurry(now);
    } else if (hurriedAt !== undefined) {
      if (now - hurriedAt >= PATIENCE_MS) void stopHard();
    } else if (now - firstAt >= SAME_SIGNAL_MS || name === 'SIGQUIT') hurry(now);
  };
  return {
    signal: () => {
      if (!isListening) {
        isListening = true;
        for (const name of STOPPING) process.on(name, stop);
      }
      return controller.signal;
    },
    opened: (options) => {
      project = options;
    },
  };
}

async function killTools(): Promise<void> {
  const { hurryGroups } = await import('../app/thread-list.ts');
  hurryGroups();
}

/** Requests the cancellation of this process's threads and starts the command that finalizes them after it exits. */
async function leaveToRecovery(options: OpenRyeOptions): Promise<void> {
  const { projectPath, userSpacePath } = options;
  const { requestOwnCancel } = await import('../app/thread-list.ts');
  const noted = await Promise.race([
    requestOwnCancel(options).catch(() => 0),
    new Promise<number>((resolve) => {
      setTimeout(resolve, NOTE_MS, 1);
    }),
  ]);
  const [, program] = process.argv;
  if (noted === 0 || program === undefined || process.platform === 'win32') return;
  // the pipe closes when this process exits, which ends the shell's read
  const recovery = spawn(
    '/bin/sh',
    [
      '-c',
      'read -r _; exec "$@"',
      'sh',
      process.execPath,
      program,
      '--project',
      projectPath,
      '--user-space',
      userSpacePath,
      'threads',
      'recover',
    ],
    { cwd: projectPath, detached: true, stdio: ['pipe', 'ignore', 'ignore'] },
  );
  recovery.on('error', () => undefined);
  recovery.stdin.on('error', () => undefined);
  recovery.unref();
}
