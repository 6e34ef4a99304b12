import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fstatSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  type Stats,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import { compact, isRecord, parseJson } from '../../core/json.ts';
import { writesLog } from '../../core/thread-errors.ts';
import { writeFully } from '../../disk/whole-file.ts';
import { ownerOf, processOf } from '../owners.ts';
import type { Owner, OwnerState, Owners } from '../store.ts';

/** The right to append to one thread's log, held as `lease.json` in the thread's folder. */
export interface Lease {
  /**
   * Refuses with `thread_locked` when another process has taken the thread over, and with `state_missing` when the folder
   * is no longer there: bytes that only an open file holds are lost. Costs one `stat`.
   */
  assertHeld(): void;
  release(): void;
  /** It was taken from a process that is stopped or hangs but may wake up, so its open descriptor must lead nowhere. */
  readonly isFromLiving: boolean;
}

export interface LeaseRequest {
  readonly folder: string;
  readonly threadId: string;
  readonly owner: Owner;
  readonly epoch: number;
  readonly owners: Owners;
  /** Milliseconds without a sign of life after which a holder that can't be seen from here has lost it. Default: 60 s. */
  readonly staleMs?: number | undefined;
}

/** The content of `lease.json`. */
export interface LeaseRecord {
  readonly owner: Owner;
  readonly epoch: number;
}

const FILE = 'lease.json';
/** Looks, 1 ms apart, for a lease that was moved. */
const LOOKS = 20;
const NEVER = new Int32Array(new SharedArrayBuffer(4));
/** The next step when the holder is on another host or in another container. */
export const UNSEEN_HINT = "It can't be seen from here. If it has ended, try again a minute later.";
/** A holder writes its lease again this often: the time of the file is its sign of life. */
const BEAT_MS = 5000;
const STALE_MS = 60_000;

/**
 * Takes the lease. A living holder of the same epoch or a holder with a higher one is refused with `thread_locked`; the
 * lease of a dead process is replaced, and so is one of a lower epoch, which the registry took from its holder. A holder on
 * another host or in another container lives for as long as it gives signs of life. The file appears whole, through a link of a finished temporary file. Of two processes that
 * replace the same dead lease at once the later rename wins and the other one finds out at its first append;
 * the registry's `claim`, which gives each taker its own epoch, keeps it from getting that far.
 */
export function takeLease(request: LeaseRequest): Lease {
  const { folder, owner, epoch } = request;
  const path = join(folder, FILE);
  const { pid, process_start, host } = processOf(owner);
  const temporary = join(folder, `.lease-${pid}-${randomBytes(6).toString('hex')}`);
  const text = `${JSON.stringify({ pid, process_start, host, epoch })}\n`;
  const fd = openSync(temporary, 'wx', 0o600);
  try {
    writeFully(fd, text);
    const isFromLiving = placeLease(temporary, path, { ...request, nowMs: fstatSync(fd).mtimeMs });
    return heldLease(path, fd, { ...request, isFromLiving, text });
  } catch (error) {
    closeSync(fd);
    removeFile(temporary);
    throw error;
  }
}

interface Taking extends LeaseRequest {
  /** The time by the clock that also sets the time of the lease in place. */
  readonly nowMs: number;
}

/** True when the lease was taken from a process that may still be alive. */
function placeLease(temporary: string, path: string, request: Taking): boolean {
  try {
    linkSync(temporary, path);
    removeFile(temporary);
    return false;
  } catch (error) {
    if (systemCodeOf(error) !== 'EEXIST') throw error;
  }
  const holder = readLease(request.folder);
  const isFromLiving = holder !== undefined && assertTakeable(holder, path, request);
  renameSync(temporary, path);
  return isFromLiving;
}

function assertTakeable(holder: LeaseRecord, path: string, request: Taking): boolean {
  const { threadId, epoch, owners } = request;
  const state = owners.state(holder.owner);
  const mayBeAlive = state !== 'gone';
  // a higher epoch means that the registry found the holder gone or stale
  if (holder.epoch < epoch) return mayBeAlive;
  const isLost = state === 'gone' || (state === 'unknown' && isSilent(path, request));
  if (holder.epoch === epoch && isLost) return mayBeAlive;
  throw lockedError(threadId, holder, state);
}

/** True if the last sign of life is too old, or from before the clock was set back. */
function isSilent(path: string, { nowMs, staleMs = STALE_MS }: Taking): boolean {
  const beatenMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  return beatenMs !== undefined && Math.abs(nowMs - beatenMs) > staleMs;
}

function lockedError(
  threadId: string,
  holder: LeaseRecord | undefined,
  state?: OwnerState,
): RyeError {
  const process = holder && processOf(holder.owner);
  const who = process
    ? `process ${process.pid} on ${process.host}, epoch ${holder.epoch},`
    : 'another process';
  const hint = state === 'unknown' ? UNSEEN_HINT : undefined;
  return writesLog(threadId, who, compact({ hint, pid: process?.pid, host: process?.host }));
}

/** True while the path names this file: a taker's rename puts another one there, a removed folder leaves none. */
function isFileAt(path: string, { ino, dev }: Stats): boolean {
  const named = statSync(path, { throwIfNoEntry: false });
  return named?.ino === ino && named.dev === dev;
}

function missingFolder({ threadId, folder }: LeaseRequest): RyeError {
  return new RyeError(
    'state_missing',
    `the folder of thread ${threadId} was removed or renamed while it ran: ${folder}`,
    {
      hint: 'Put the folder back, then run: rye threads recover',
      details: { thread_id: threadId, path: folder },
    },
  );
}

function heldLease(
  path: string,
  fd: number,
  request: LeaseRequest & { readonly isFromLiving: boolean; readonly text: string },
): Lease {
  let released = false;
  const beat = setInterval(() => giveSign(fd, request.text), BEAT_MS);
  beat.unref();
  // the file stays open until then, so that no other file gets its number
  const own = fstatSync(fd);
  const isHeld = (): boolean => !released && isFileAt(path, own);
  const isStillHeld = (): boolean => {
    for (let look = 0; look < LOOKS; look += 1) {
      if (isHeld()) return true;
      // a holder before this one, which gives its lease up, may have moved this one and puts it back
      if (released || existsSync(path) || !existsSync(request.folder)) return false;
      Atomics.wait(NEVER, 0, 0, 1);
    }
    return false;
  };
  return {
    isFromLiving: request.isFromLiving,
    assertHeld() {
      if (isStillHeld()) return;
      if (!existsSync(request.folder)) throw missingFolder(request);
      throw lockedError(request.threadId, readLease(request.folder));
    },
    release() {
      if (released) return;
      clearInterval(beat);
      if (isHeld()) removeOwn(path, own);
      released = true;
      closeSync(fd);
    },
  };
}

/** Removes the lease unless a taker replaces it at this moment: only a file that was moved is known for sure. */
function removeOwn(path: string, own: Stats): void {
  const moved = `${path}-${randomBytes(6).toString('hex')}`;
  try {
    renameSync(path, moved);
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return;
    throw error;
  }
  if (!isFileAt(moved, own)) putBack(moved, path);
  removeFile(moved);
}

function putBack(moved: string, path: string): void {
  try {
    linkSync(moved, path);
  } catch (error) {
    // the next taker was faster
    if (systemCodeOf(error) !== 'EEXIST') throw error;
  }
}

/** Renews the time of the file, also where it is set by the clock of a server. */
function giveSign(fd: number, text: string): void {
  try {
    writeSync(fd, text, 0);
  } catch {
    // the next one may succeed
  }
}

/** The lease of a thread's folder; undefined when there is none or when a crash left no readable one. */
export function readLease(folder: string): LeaseRecord | undefined {
  let text: string;
  try {
    text = readFileSync(join(folder, FILE), 'utf8');
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  const value = parseJson(text);
  if (!isRecord(value)) return undefined;
  const { pid, process_start, host, epoch } = value;
  if (typeof pid !== 'number' || typeof epoch !== 'number') return undefined;
  if (typeof process_start !== 'string' || typeof host !== 'string') return undefined;
  return { owner: ownerOf({ pid, process_start, host }), epoch };
}

function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') throw error;
  }
}
