import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  realpathSync,
} from 'node:fs';
import { sep } from 'node:path';
import { type ErrorCode, RyeError, systemCodeOf } from '../core/errors.ts';
import type { SignableType } from '../core/ids.ts';
import { LruMap } from '../core/lru.ts';
import { resourceError } from '../disk/reasons.ts';

const MAX_ITEM_BYTES = 4 * 1024 * 1024;
/** Larger files are read again each time, so that the kept ones take at most 16 MiB. */
const MAX_KEPT_BYTES = 32 * 1024;
const KEPT_FILES = 512;
/** A file that changed this recently may change again without another time stamp, in nanoseconds. */
const UNSETTLED_NS = 2_000_000_000n;

/** A file as it was read: a change of its content changes its `stats`. */
interface KeptFile {
  readonly stats: BigIntStats;
  readonly bytes: Uint8Array;
}

const kept = new LruMap<string, KeptFile>(KEPT_FILES);

/** The file that errors name. */
interface ItemFile {
  readonly type: SignableType;
  readonly id: string;
  readonly path: string;
}

/**
 * Reads a file that must be below a folder after resolving links. Opens the descriptor first and then compares it with the
 * real path, so that a swapped link is detected. A file that did not change since this process last read it is not opened
 * again, and gives the same bytes: callers must not write to them.
 */
export function readInside(file: ItemFile, folderOf: () => string): Uint8Array {
  const { path } = file;
  const linked = lstatSync(path, { throwIfNoEntry: false, bigint: true });
  const isLink = linked?.isSymbolicLink() ?? true;
  if (linked !== undefined && !isLink) assertRegular(linked, path);
  const known = kept.get(path);
  if (known && linked && isSame(known.stats, linked)) return known.bytes;
  const read = readChecked(file, folderOf);
  if (!isLink && isSettled(read.stats) && read.bytes.length <= MAX_KEPT_BYTES) kept.set(path, read);
  return read.bytes;
}

function readChecked(file: ItemFile, folderOf: () => string): KeptFile {
  const { path } = file;
  let descriptor: number;
  try {
    descriptor = openForReading(path);
  } catch (error) {
    throw (
      resourceError(path, error) ??
      denied(path, `it cannot be opened (${systemCodeOf(error) ?? 'unknown error'})`)
    );
  }
  try {
    const stats = fstatSync(descriptor, { bigint: true });
    assertRegular(stats, path);
    const real = realPathOf(path);
    const named =
      real === undefined ? undefined : lstatSync(real, { throwIfNoEntry: false, bigint: true });
    if (real === undefined || named?.ino !== stats.ino || named.dev !== stats.dev) {
      throw denied(path, 'it changed while being read');
    }
    const folder = folderOf();
    if (!real.startsWith(folder + sep)) {
      throw denied(path, `it is a symbolic link out of ${folder}`);
    }
    return { stats, bytes: readAll(descriptor, file) };
  } finally {
    closeSync(descriptor);
  }
}

function isSame(before: BigIntStats, now: BigIntStats): boolean {
  return (
    before.ino === now.ino &&
    before.dev === now.dev &&
    before.size === now.size &&
    before.mtimeNs === now.mtimeNs &&
    before.ctimeNs === now.ctimeNs
  );
}

/** True if a later change gets a later time: file systems count time in steps of up to seconds. */
function isSettled({ ctimeNs, mtimeNs }: BigIntStats): boolean {
  const now = BigInt(Math.round(performance.timeOrigin + performance.now())) * 1_000_000n;
  return now - ctimeNs > UNSETTLED_NS && now - mtimeNs > UNSETTLED_NS;
}

function readAll(descriptor: number, { path, type, id }: ItemFile): Uint8Array {
  const expected = Math.min(fstatSync(descriptor).size, MAX_ITEM_BYTES);
  // one extra byte reveals a growing file
  const bytes = readUpTo(descriptor, expected + 1);
  if (bytes.length <= expected) return bytes;
  if (bytes.length > MAX_ITEM_BYTES) {
    throw new RyeError('item_too_large', `${type} ${id} is larger than 4 MiB`, {
      location: { path },
      hint: 'Keep data out of items; put it into a file that a tool reads.',
    });
  }
  throw denied(path, 'it changed while being read');
}

/** Opens a file for reading, with further flags. Without O_NONBLOCK a FIFO would hang the program. */
export function openForReading(path: string, flags = 0): number {
  return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | flags);
}

/** Reads up to `length` bytes from a descriptor; fewer only at the end of the file. */
export function readUpTo(descriptor: number, length: number): Buffer {
  const buffer = Buffer.allocUnsafe(length);
  let done = 0;
  while (done < length) {
    const count = readSync(descriptor, buffer, done, length - done, null);
    if (count === 0) break;
    done += count;
  }
  return buffer.subarray(0, done);
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Decodes an item's bytes; throws `code` unless they are UTF-8 without NUL. */
export function decode(bytes: Uint8Array, { path, type, id }: ItemFile, code: ErrorCode): string {
  const nul = bytes.indexOf(0);
  if (nul === -1) {
    try {
      return UTF8.decode(bytes);
    } catch {
      // reported below, together with NUL
    }
  }
  throw new RyeError(code, `${type} ${id} is not UTF-8 text`, {
    location: nul === -1 ? { path } : { path, line: lineOf(bytes, nul) },
    hint: 'Items are text files; save it as UTF-8.',
  });
}

function lineOf(bytes: Uint8Array, offset: number): number {
  let line = 1;
  for (const byte of bytes.subarray(0, offset)) if (byte === 0x0a) line += 1;
  return line;
}

function assertRegular(stats: BigIntStats, path: string): void {
  if (!stats.isFile()) throw denied(path, 'it is not a regular file');
}

/** Returns the error for a path that is not a readable file or folder of its space. */
export function denied(path: string, why: string): RyeError {
  return new RyeError('path_denied', `${path} is refused: ${why}`, {
    hint: 'Items must be regular files inside their space.',
    details: { path },
  });
}

/** Returns the real path of a file or folder; undefined if it does not exist. */
export function realPathOf(path: string): string | undefined {
  try {
    // in one call, where Node would ask for each folder of the path
    return realpathSync.native(path);
  } catch {
    return undefined;
  }
}
