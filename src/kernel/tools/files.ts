import { constants } from 'node:fs';
import {
  access,
  type FileHandle,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  rmdir,
  stat,
  unlink,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { didYouMean } from '../core/text.ts';
import { diskReason } from '../disk/reasons.ts';
import { syncFolder } from '../disk/sync-folder.ts';
import { stageFile } from '../disk/whole-file.ts';
import { touchesRepository } from './guarded-paths.ts';
import {
  assertStillReal,
  type ConfinedPath,
  denied,
  exchanged,
  notFound,
  specialKind,
} from './paths.ts';

/** Largest file that a tool changes in memory. */
export const MAX_EDIT_BYTES = 16 * 1024 * 1024;

/**
 * Opens a confined file for reading. The last component is never followed as a link, a FIFO put there in the
 * meantime does not block, and a folder on the way that was exchanged is noticed. The caller closes the handle.
 */
export async function openForRead(path: ConfinedPath): Promise<FileHandle> {
  if (path.stats === undefined) throw await missing(path);
  if (path.stats.isDirectory()) {
    throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a folder`, {
      hint: 'List it with rye_file_system_ls.',
    });
  }
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    const handle = await open(
      path.real,
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    ).catch((error: unknown) => {
      throw openProblem(path, error);
    });
    if (await isNamedFile(handle, path)) return handle;
    // An editor may have replaced the file between the two looks; a swapped folder stays refused.
    await handle.close();
  }
  throw denied(path.shown, 'it keeps changing while it is being opened');
}

/** True if the confined path names the open file, so that no exchanged folder led elsewhere. */
async function isNamedFile(handle: FileHandle, path: ConfinedPath): Promise<boolean> {
  try {
    const opened = await handle.stat();
    const kind = specialKind(opened);
    if (kind !== undefined) throw denied(path.shown, `it is ${kind}, not a file`);
    await assertStillReal(path.real, path.shown);
    const named = await stat(path.real).catch(() => undefined);
    return named !== undefined && named.ino === opened.ino && named.dev === opened.dev;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** A text file read whole for a change, with the version that reveals a concurrent change. */
export interface LoadedText {
  readonly text: string;
  readonly bytes: Buffer;
  readonly mode: number;
  readonly version: string;
}

/** Reads a file of at most {@link MAX_EDIT_BYTES} as UTF-8; binary and malformed text is refused, never repaired. */
export async function loadText(path: ConfinedPath): Promise<LoadedText> {
  const handle = await openForRead(path);
  try {
    const stats = await handle.stat();
    if (stats.size > MAX_EDIT_BYTES) {
      throw new RyeError(
        'invalid_input',
        `${JSON.stringify(path.shown)} is too large to edit (${stats.size} bytes)`,
        { hint: 'Change it with a command of rye_bash, such as sed.' },
      );
    }
    const bytes = await handle.readFile();
    if (bytes.includes(0)) throw notText(path.shown, 'it is binary');
    try {
      const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
      return { text, bytes, mode: stats.mode & 0o7777, version: versionOf(stats) };
    } catch {
      throw notText(path.shown, 'it is not UTF-8 text');
    }
  } finally {
    await handle.close();
  }
}

/** Replaces or creates a file with `content`. `expected` is the version that was read; undefined means a new file. */
export interface WriteRequest {
  readonly path: ConfinedPath;
  readonly content: string | Uint8Array;
  readonly expected: string | undefined;
  readonly mode: number | undefined;
}

/**
 * Writes through a private file in the same folder and a rename, so that readers see the old or the new content and
 * a full disk leaves the old one. Keeps the permissions of an existing file. Missing folders are made. Refuses
 * when the file is no longer the expected version. Returns the new version.
 */
export async function writeText(request: WriteRequest): Promise<string> {
  const { path } = request;
  const folder = dirname(path.real);
  try {
    await makeFolder(folder, path.shown);
    return await inFolder(folder, path.shown, async (held) => await replaceIn(held, request));
  } catch (error) {
    if (error instanceof RyeError) throw error;
    throw new RyeError(
      'tool_failed',
      `${JSON.stringify(path.shown)} could not be written: ${diskReason(error)}`,
      { cause: error },
    );
  }
}

/** Replaces the file in a folder that is held open. */
async function replaceIn(
  folder: string,
  { path, content, expected, mode }: WriteRequest,
): Promise<string> {
  const name = basename(path.real);
  const target = join(folder, name);
  if (expected !== undefined) await access(target, constants.W_OK);
  const staged = stageFile(target, { follow: false, ...(mode === undefined ? {} : { mode }) });
  try {
    staged.write(content);
    await assertVersion(target, path.shown, expected);
    staged.commit();
    return versionOf(await stat(target));
  } finally {
    staged.discard();
  }
}

/** Removes a file durably. Refuses when it is no longer the expected version. */
export async function removeFile(path: ConfinedPath, expected: string): Promise<void> {
  await inFolder(dirname(path.real), path.shown, async (held) => {
    const target = join(held, basename(path.real));
    await assertVersion(target, path.shown, expected);
    await unlink(target);
    syncFolder(held);
  });
}

/** Removes a folder if it is empty; returns true if it did. */
export async function removeEmptyFolder({ real, shown }: ConfinedPath): Promise<boolean> {
  return await inFolder(dirname(real), shown, async (held) => {
    try {
      await rmdir(join(held, basename(real)));
      return true;
    } catch (error) {
      if (KEPT_FOLDER.has(systemCodeOf(error) ?? '')) return false;
      throw error;
    }
  });
}

/** System errors for a folder that is not empty, not a folder any more, or gone. */
const KEPT_FOLDER: ReadonlySet<string> = new Set(['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'ENOENT']);

/** Makes a folder and what is missing above it, each in the folder that it was meant for. */
async function makeFolder(folder: string, shown: string): Promise<void> {
  if (await isThere(folder)) return;
  const parent = dirname(folder);
  await makeFolder(parent, shown);
  await inFolder(parent, shown, async (held) => {
    await mkdir(join(held, basename(folder))).catch((error: unknown) => {
      if (systemCodeOf(error) !== 'EEXIST') throw error;
    });
  });
}

async function isThere(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}

/**
 * Works in the folder that `real` names, even if another folder or a link replaces it: on Linux through its descriptor,
 * elsewhere by its name, which is checked.
 */
async function inFolder<T>(
  real: string,
  shown: string,
  work: (held: string) => Promise<T>,
): Promise<T> {
  if (process.platform !== 'linux') {
    await assertStillReal(real, shown);
    return await work(real);
  }
  const handle = await open(real, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const held = `/proc/self/fd/${handle.fd}`;
    if ((await readlink(held)) !== real) throw exchanged(shown);
    return await work(held);
  } finally {
    await handle.close();
  }
}

async function assertVersion(
  target: string,
  shown: string,
  expected: string | undefined,
): Promise<void> {
  const found = await stat(target).then(versionOf, () => undefined);
  if (found === expected) return;
  throw new RyeError(
    'tool_failed',
    `${JSON.stringify(shown)} was changed by another program in the meantime`,
    { hint: 'Read it again and repeat the change.' },
  );
}

/** Identity of a file's content as far as the file system tells. */
export function versionOf(stats: { ino: number; size: number; mtimeMs: number }): string {
  return `${stats.ino}:${stats.size}:${stats.mtimeMs}`;
}

const REPOSITORY_QUEUE = 'repository';

/**
 * Runs a write alone when its name could complete a repository: of several such writes at once, each has to see what
 * the one before it made.
 */
export async function alone<T>(
  path: string,
  projectPath: string,
  change: () => Promise<T>,
): Promise<T> {
  if (!touchesRepository(path, projectPath)) return await change();
  return await exclusively(REPOSITORY_QUEUE, change);
}

const queues = new Map<string, Promise<unknown>>();

/** Runs changes of one file one after the other, within this process. */
export async function exclusively<T>(real: string, change: () => Promise<T>): Promise<T> {
  const before = queues.get(real) ?? Promise.resolve();
  const mine = before.then(change, change);
  queues.set(real, mine);
  try {
    return await mine;
  } finally {
    if (queues.get(real) === mine) queues.delete(real);
  }
}

/** The error for a path where nothing is, with near names from the same folder. */
export async function missing(path: ConfinedPath): Promise<RyeError> {
  const siblings = await readdir(dirname(path.real)).catch(() => []);
  const hint = didYouMean(basename(path.real), siblings.slice(0, 2000));
  return notFound(path.shown, 'no such file', hint ?? 'Look for it with rye_file_system_glob.');
}

function openProblem(path: ConfinedPath, error: unknown): RyeError {
  const code = systemCodeOf(error);
  if (code === 'ELOOP') return denied(path.shown, 'it became a symbolic link');
  if (code === 'ENOENT') return notFound(path.shown, 'it disappeared while it was being opened');
  if (code === 'EACCES' || code === 'EPERM') {
    return denied(path.shown, 'the operating system does not permit it');
  }
  return new RyeError(
    'tool_failed',
    `${JSON.stringify(path.shown)} could not be opened: ${messageOf(error)}`,
  );
}

function notText(shown: string, reason: string): RyeError {
  return new RyeError('invalid_input', `${JSON.stringify(shown)} cannot be edited: ${reason}`, {
    hint: 'Only UTF-8 text files can be edited; use rye_bash for others.',
  });
}

const CHUNK_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

/** One line of a file without its newline. */
export interface RawLine {
  /** Counts from 1. */
  readonly number: number;
  readonly bytes: Buffer;
  /** The line is longer than the bound; `bytes` is its head. */
  readonly cut: boolean;
  /** Bytes of the whole line, newline included. */
  readonly length: number;
}

/**
 * Streams the lines of an open file in memory bounded by `maxLineBytes` plus one chunk, independent of the size
 * of the file. Lines before `from` are counted, not kept: their `bytes` are empty. A final newline does not start
 * another line.
 */
export async function* readLines(
  handle: FileHandle,
  from: number,
  maxLineBytes: number,
): AsyncGenerator<RawLine, void> {
  const chunk = Buffer.alloc(CHUNK_BYTES);
  let pieces: Buffer[] = [];
  let kept = 0;
  let length = 0;
  let number = 1;
  const keep = (piece: Buffer) => {
    length += piece.length;
    if (number < from) return;
    const room = maxLineBytes - kept;
    if (room <= 0 || piece.length === 0) return;
    pieces.push(Buffer.from(piece.subarray(0, room)));
    kept += Math.min(room, piece.length);
  };
  const finish = (newline: number): RawLine => {
    const cut = number >= from && length > kept;
    const line = { number, bytes: Buffer.concat(pieces), cut, length: length + newline };
    pieces = [];
    kept = 0;
    length = 0;
    number += 1;
    return line;
  };
  for (;;) {
    const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, null);
    if (bytesRead === 0) break;
    const data = chunk.subarray(0, bytesRead);
    let start = 0;
    for (let end = data.indexOf(NEWLINE); end !== -1; end = data.indexOf(NEWLINE, start)) {
      keep(data.subarray(start, end));
      yield finish(1);
      start = end + 1;
    }
    keep(data.subarray(start));
  }
  if (length > 0) yield finish(0);
}

/** Decodes UTF-8 leniently and drops the bytes of a code point that a cut split. */
export function decodeCut(bytes: Buffer): string {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return decoder.decode(bytes, { stream: true });
}

/** A NUL byte in the first 8 KiB, the usual sign of a binary file. Does not move the handle's position. */
export async function startsBinary(handle: FileHandle): Promise<boolean> {
  const head = Buffer.alloc(8192);
  const { bytesRead } = await handle.read(head, 0, head.length, 0);
  return head.subarray(0, bytesRead).includes(0);
}

/** Returns how many of the bytes form whole code points: the last one may be cut. */
export function wholeBytes(bytes: Buffer): number {
  let start = bytes.length - 1;
  while (start >= 0 && bytes.length - start < 4 && ((bytes[start] ?? 0) & 0xc0) === 0x80)
    start -= 1;
  const first = bytes[start] ?? 0;
  const wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return start + wanted <= bytes.length ? bytes.length : Math.max(start, 0);
}
