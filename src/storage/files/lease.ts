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
} from 'node:fs';
import { join } from 'node:path';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import { compact, isRecord, parseJson } from '../../core/json.ts';
import { writeFully } from '../../disk/whole-file.ts';
import { ownerOf, processOf } from '../owners.ts';
import type { Owner, Owners } from '../store.ts';

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
}

/** The content of `lease.json`. */
export interface LeaseRecord {
  readonly owner: Owner;
  readonly epoch: number;
}

const FILE = 'lease.json';

/**
 * Takes the lease. A living holder of the same epoch or a holder with a higher one is refused with `thread_locked`; the
 * lease of a dead process is replaced, and so is one of a lower epoch, which the registry took from its holder. The file appears whole, through a link of a finished temporary file. Of two processes that
 * replace the same dead lease at once the later rename wins and the other one finds out at its first append;
 * the registry's `claim`, which gives each taker its own epoch, keeps it from getting that far.
 */
export function takeLease(request: LeaseRequest): Lease {
  const { folder, owner, epoch } = request;
  const path = join(folder, FILE);
  const { pid, process_start, host } = processOf(owner);
  const temporary = join(folder, `.lease-${pid}-${randomBytes(6).toString('hex')}`);
  const record = { pid, process_start, host, epoch };
  const fd = openSync(temporary, 'wx', 0o600);
  try {
    writeFully(fd, `${JSON.stringify(record)}\n`);
    const isFromLiving = placeLease(temporary, path, request);
    return heldLease(path, fd, { ...request, isFromLiving });
  } catch (error) {
    closeSync(fd);
    removeFile(temporary);
    throw error;
  }
}

/** True when the lease was taken from a process that may still be alive. */
function placeLease(temporary: string, path: string, request: LeaseRequest): boolean {
  try {
    linkSync(temporary, path);
    removeFile(temporary);
    return false;
  } catch (error) {
    if (systemCodeOf(error) !== 'EEXIST') throw error;
  }
  const holder = readLease(request.folder);
  const isFromLiving = holder !== undefined && assertTakeable(holder, request);
  renameSync(temporary, path);
  return isFromLiving;
}

function assertTakeable(holder: LeaseRecord, { threadId, epoch, owners }: LeaseRequest): boolean {
  const isAlive = owners.state(holder.owner) !== 'gone';
  // a higher epoch means that the registry found the holder gone or stale
  if (holder.epoch < epoch || (holder.epoch === epoch && !isAlive)) return isAlive;
  throw lockedError(threadId, holder);
}

function lockedError(threadId: string, holder: LeaseRecord | undefined): RyeError {
  const process = holder && processOf(holder.owner);
  const who = process
    ? `process ${process.pid} on ${process.host}, epoch ${holder.epoch},`
    : 'another process';
  return new RyeError('thread_locked', `${who} writes the log of thread ${threadId}`, {
    hint: 'Wait for it to end, or cancel the thread with `rye threads cancel`.',
    details: compact({ thread_id: threadId, pid: process?.pid, host: process?.host }),
  });
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
  request: LeaseRequest & { readonly isFromLiving: boolean },
): Lease {
  let released = false;
  // the file stays open until then, so that no other file gets its number
  const own = fstatSync(fd);
  const isHeld = (): boolean => !released && isFileAt(path, own);
  return {
    isFromLiving: request.isFromLiving,
    assertHeld() {
      if (isHeld()) return;
      if (!existsSync(request.folder)) throw missingFolder(request);
      throw lockedError(request.threadId, readLease(request.folder));
    },
    release() {
      if (released) return;
      if (isHeld()) removeFile(path);
      released = true;
      closeSync(fd);
    },
  };
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
