import { spawn } from 'node:child_process';
import process from 'node:process';
import type { OpenRyeOptions } from '../app/api/rye.ts';
import { EXIT } from '../core/errors.ts';

/** Signals that come this close together are one wish: npm passes on what the terminal has already sent. */
const SAME_WISH_MS = 200;
/** How long tools and the finalization have after a second signal. */
const HURRY_MS = 5000;
/** How long a third signal leaves to the finalization that the second one hurried. */
const PATIENCE_MS = 1000;
/** How long the note in the registry may take that recovery reads. */
const NOTE_MS = 1000;

const STOPPING = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
type StoppingSignal = (typeof STOPPING)[number];

export interface Cancellation {
  /** Aborts with the first stopping signal; listens from the first call on. */
  readonly signal: () => AbortSignal;
  /** Names the project whose threads this process may run. */
  readonly opened: (options: OpenRyeOptions) => void;
}

/**
 * Turns SIGINT, SIGTERM and SIGHUP into one cancellation. A second signal, or a SIGQUIT, kills the process groups of
 * tools instead of waiting for them. If the run still has not ended soon after, the process exits, and a `rye threads
 * recover` that it leaves finalizes its threads as cancelled.
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
    } else if (now - firstAt >= SAME_WISH_MS || name === 'SIGQUIT') hurry(now);
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

/** Asks for the cancellation of what this process runs, and starts the command that finalizes it after this process. */
async function leaveToRecovery(options: OpenRyeOptions): Promise<void> {
  const { projectPath, userSpacePath } = options;
  const { requestOwnCancel } = await import('../app/thread-list.ts');
  const noted = await Promise.race([
    requestOwnCancel(projectPath).catch(() => 0),
    new Promise<number>((resolve) => {
      setTimeout(resolve, NOTE_MS, 1);
    }),
  ]);
  const [, program] = process.argv;
  if (noted === 0 || program === undefined || process.platform === 'win32') return;
  // the shell's read ends when this process does, and with it the pipe
  const heir = spawn(
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
  heir.on('error', () => undefined);
  heir.stdin.on('error', () => undefined);
  heir.unref();
}
