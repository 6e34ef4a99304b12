import { spawn } from 'node:child_process';
import { closeSync, constants, existsSync, openSync, writeSync } from 'node:fs';
import { readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import type { Clock } from '../../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import { parseJson } from '../../core/json.ts';
import { mapOf, TEXT } from '../../core/shape.ts';
import { makeFolders } from '../../disk/folders.ts';
import { writeWhole } from '../../disk/whole-file.ts';
import type { Owner, Owners } from '../../storage/store.ts';
import type { RunnerCommand } from '../ports.ts';

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
 * Starts a thread's process in a new session, so that neither its starter's end nor the hang-up of the terminal reaches
 * it. Resolves to its pid once it runs; `spawn_failed` if it can't be started.
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

/** Sends a text and waits until the process has it. A process that ends earlier reports that itself. */
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
  const value: unknown = parseJson(await readAll(process.stdin));
  return SECRETS.fits(value) ? value : undefined;
}

const SECRETS = mapOf(TEXT);

const FILE = 'handover.json';

/**
 * Writes the handover for the process that will run the thread, readable by its owner only. The file appears whole.
 */
export function leaveHandover(folder: string, text: string): void {
  makeFolders(folder, 0o700);
  writeWhole(join(folder, FILE), text, { mode: 0o600, follow: false });
}

/** Reads the handover; `spawn_failed` if there is none. */
export async function readHandover(folder: string): Promise<string> {
  try {
    return await readFile(join(folder, FILE), 'utf8');
  } catch (error) {
    throw new RyeError(
      'spawn_failed',
      `the handover of the thread cannot be read: ${messageOf(error)}`,
      { hint: 'Its starter may have died before it was written: start the directive again.' },
    );
  }
}

/** True if a thread waits for a process on this machine. */
export function hasHandover(folder: string): boolean {
  return existsSync(join(folder, FILE));
}

/** Removes the handover, read or not. */
export async function removeHandover(folder: string): Promise<void> {
  try {
    await unlink(join(folder, FILE));
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') throw error;
  }
}

/** An open `spawn.log` that takes what a detached process prints; never through a link. */
function openSpawnLog(folder: string): { readonly fd: number; close(): void } {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  const fd = openSync(join(folder, 'spawn.log'), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  return { fd, close: () => closeSync(fd) };
}

/** Time between SIGTERM and SIGKILL. */
const KILL_GRACE_MS = 3000;
/** Time that the kernel may take to end a process after SIGKILL. */
const DEATH_MS = 5000;
const LOOK_MS = 20;

export interface EndProcess {
  readonly owner: Owner;
  /** The process that the owner is. */
  readonly pid: number;
  /** True to signal the whole process group: only for a process that rye started in its own group. */
  readonly group: boolean;
  readonly owners: Owners;
  readonly clock: Clock;
  /** False once the process no longer runs the thread: it may have begun the next one, which must not be hit. */
  readonly isRunning: () => Promise<boolean>;
}

/**
 * Ends a process: SIGTERM, three seconds, SIGKILL. Checks its start time before each signal, so that a later process with
 * the same pid is never hit. Returns false if it was already gone, or runs the thread no more.
 */
export async function endProcess(request: EndProcess): Promise<boolean> {
  const { pid } = request;
  if (!isAlive(request) || !(await request.isRunning())) return false;
  signal(request, 'SIGTERM');
  if (await isGone(request, KILL_GRACE_MS)) return true;
  signal(request, 'SIGKILL');
  if (await isGone(request, DEATH_MS)) return true;
  throw new RyeError('thread_locked', `process ${pid} did not end after SIGKILL`, {
    hint: 'It hangs in the kernel, as on a lost network disk. Try again later.',
    details: { pid },
  });
}

async function isGone(request: EndProcess, withinMs: number): Promise<boolean> {
  const { clock } = request;
  const deadline = clock.monotonic() + withinMs;
  // one that can't be looked at has not ended
  while (request.owners.state(request.owner) !== 'gone') {
    if (clock.monotonic() >= deadline) return false;
    await clock.sleep(LOOK_MS);
  }
  return true;
}

function isAlive({ owner, owners }: EndProcess): boolean {
  return owners.state(owner) === 'alive';
}

function signal(request: EndProcess, name: 'SIGTERM' | 'SIGKILL'): void {
  const { pid, group } = request;
  if (!isAlive(request)) return;
  try {
    process.kill(group ? -pid : pid, name);
  } catch (error) {
    if (systemCodeOf(error) === 'ESRCH') return;
    throw new RyeError('state_unwritable', `process ${pid} can't be ended: ${messageOf(error)}`, {
      hint: 'It belongs to another user: ask that user to cancel the thread.',
      cause: error,
    });
  }
}

/** Notes where the output of a thread goes that runs in the process of an earlier one. */
export function noteSharedProcess(folder: string, pid: number, first: string): void {
  const log = openSpawnLog(folder);
  try {
    writeSync(log.fd, `runs in process ${pid}, whose output is in the spawn.log of ${first}\n`);
  } finally {
    log.close();
  }
}

/** True if the thread's process runs nothing else and leads its own group. */
export function wasLaunched(folder: string): boolean {
  return existsSync(join(folder, 'spawn.log'));
}
