import {
  closeSync,
  constants,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  unlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { systemCodeOf } from '../../core/errors.ts';
import { makeFolders } from '../../disk/folders.ts';
import { writeWhole } from '../../disk/whole-file.ts';
import { assertOwnPath } from '../own-path-fs.ts';
import type { RunnerCommand } from '../ports.ts';
import { watchFile } from './watch-fs.ts';

/** Time in which a process that was taken gets its thread. Without one, the process that took it has died. */
const TAKEN_MS = 5000;
const LOOK_MS = 50;

/** An idle process that was taken out of the offer: no other process can take it. */
export interface TakenProcess {
  readonly pid: number;
  /** The thread that it was started for, whose `spawn.log` has its output. */
  readonly startedFor: string;
  /** Hands it a thread that it owns in the registry; undefined lets it look for another one. */
  give(threadId: string | undefined): void;
}

export interface Offer {
  readonly projectPath: string;
  readonly pid: number;
  readonly clock: Clock;
  /** Milliseconds to wait for a thread. */
  readonly waitMs: number;
  /** Ends the offer. A thread that was handed over until then is still returned. */
  readonly signal: AbortSignal;
}

function idleFolder(projectPath: string): string {
  return join(projectPath, '.ai', 'state', 'idle');
}

/**
 * Offers this process, whose thread has ended, to those that start threads. Resolves to the thread that it got; undefined
 * if none came. Its file in a folder of the project is the offer: removing that file takes the process, and of two that
 * remove it one succeeds.
 */
export async function offerProcess(offer: Offer): Promise<string | undefined> {
  const { projectPath, pid, clock, signal } = offer;
  // only there can another process see how this one was started
  if (process.platform !== 'linux' || signal.aborted) return undefined;
  const folder = idleFolder(projectPath);
  assertOwnPath(join(projectPath, '.ai'), folder);
  makeFolders(folder, 0o700);
  const [idle, next] = [join(folder, `${pid}.idle`), join(folder, `${pid}.next`)];
  const watch = watchFile(join(folder, `${pid}.`));
  const never = new AbortController().signal;
  const end = clock.monotonic() + offer.waitMs;
  try {
    // of an earlier process with this pid
    removeFile(next);
    createEmpty(idle);
    for (;;) {
      const left = signal.aborted ? 0 : end - clock.monotonic();
      if (left > 0) await watch.next(Math.min(left, LOOK_MS), signal);
      const given = takeText(next);
      if (given !== undefined && given !== '') return given;
      if (given === '') createEmpty(idle);
      if (left > 0) continue;
      if (removeFile(idle)) return undefined;
      // it was taken: the thread comes now
      const until = clock.monotonic() + TAKEN_MS;
      let late = takeText(next);
      while (late === undefined && clock.monotonic() < until) {
        await watch.next(LOOK_MS, never);
        late = takeText(next);
      }
      return late === '' ? undefined : late;
    }
  } finally {
    watch.close();
  }
}

/**
 * Takes an idle process that is exactly what the command would start: the same program, arguments, environment, working
 * folder and user. Undefined if there is none.
 */
export function takeIdle(
  projectPath: string,
  runner: RunnerCommand,
  cwd: string,
): TakenProcess | undefined {
  if (process.platform !== 'linux') return undefined;
  const folder = idleFolder(projectPath);
  for (const name of namesIn(folder)) {
    const pid = Number(/^(\d+)\.idle$/.exec(name)?.[1] ?? 0);
    if (pid === 0) continue;
    const startedFor = threadOf(pid, runner, cwd);
    // one that is not alive offers nothing
    if (startedFor === 'gone') removeFile(join(folder, name));
    if (startedFor === 'gone' || startedFor === undefined) continue;
    if (!removeFile(join(folder, name))) continue;
    const give = (threadId = ''): void =>
      writeWhole(join(folder, `${pid}.next`), threadId, {
        mode: 0o600,
        follow: false,
        sync: 'none',
      });
    return { pid, startedFor: startedFor.threadId, give };
  }
  return undefined;
}

/** The thread that a process was started for; undefined if a start with this command would differ from it. */
function threadOf(
  pid: number,
  runner: RunnerCommand,
  cwd: string,
): { readonly threadId: string } | 'gone' | undefined {
  try {
    const read = (name: string): readonly string[] =>
      readFileSync(`/proc/${pid}/${name}`, 'utf8').split('\0').slice(0, -1);
    const words = read('cmdline');
    const wanted = [runner.command, ...runner.args];
    const isSameCommand =
      words.length === wanted.length + 1 && wanted.every((word, at) => words[at] === word);
    if (!isSameCommand) return undefined;
    const variables = new Set(read('environ'));
    const given = Object.entries(runner.environment).map(([name, value]) => `${name}=${value}`);
    if (variables.size !== given.length || !given.every((one) => variables.has(one)))
      return undefined;
    // a program that was replaced since has another name here
    const isSamePlace =
      readlinkSync(`/proc/${pid}/exe`) === realpathSync(runner.command) &&
      readlinkSync(`/proc/${pid}/cwd`) === realpathSync(cwd);
    return isSamePlace ? { threadId: words.at(-1) ?? '' } : undefined;
  } catch (error) {
    return systemCodeOf(error) === 'ENOENT' ? 'gone' : undefined;
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function createEmpty(path: string): void {
  const { O_WRONLY, O_CREAT, O_NOFOLLOW } = constants;
  closeSync(openSync(path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0o600));
}

/** Removes a file; false if it was not there. */
function removeFile(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Reads and removes a file; undefined if there is none. */
function takeText(path: string): string | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    unlinkSync(path);
    return text;
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
