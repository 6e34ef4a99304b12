import { closeSync, createReadStream, existsSync, fstatSync, readSync, statSync } from 'node:fs';
import { type FileHandle, rm, stat } from 'node:fs/promises';
import { RyeError } from '../../core/errors.ts';
import { openRegular, openRegularSync } from '../../disk/regular-file.ts';
import { stageFile } from '../../disk/whole-file.ts';
import type { LogRange } from '../store.ts';

/** Path of the archived form of a log. */
function archivePath(path: string): string {
  return `${path}.gz`;
}

/** True when a log is there in its compressed form alone. */
export function isArchived(path: string): boolean {
  return !existsSync(path) && existsSync(archivePath(path));
}

/**
 * A log as short as this is read without the thread pool: chunks that another processor read are slow to reach this one,
 * and nothing runs between them but collections of a heap that still grows.
 */
const AT_ONCE_BYTES = 8 * 1024 * 1024;

/** The bytes of a log, compressed or not, or its first `end`; each chunk is only valid until the next one is asked for. */
export async function* logChunks(
  path: string,
  end = Number.POSITIVE_INFINITY,
): AsyncGenerator<Buffer, void, undefined> {
  let left = end;
  for await (const chunk of allChunks(path)) {
    if (left <= 0) return;
    yield chunk.length <= left ? chunk : chunk.subarray(0, left);
    left -= chunk.length;
  }
}

async function* allChunks(path: string): AsyncGenerator<Buffer, void, undefined> {
  if (isArchived(path)) {
    const { createGunzip } = await import('node:zlib');
    const unpacked = createGunzip();
    const archive = await openRegular(archivePath(path));
    const { size: packed } = await archive.stat();
    const source = archive.createReadStream();
    source.on('error', (error) => unpacked.destroy(error));
    let size = 0;
    for await (const chunk of source.pipe(unpacked)) {
      size += (chunk as Buffer).length;
      if (isBomb(size, packed)) throw bomb(archivePath(path));
      yield chunk as Buffer;
    }
    return;
  }
  const { size } = statSync(path);
  if (size <= AT_ONCE_BYTES) {
    yield* readChunksSync(path);
    return;
  }
  const handle = await openRegular(path);
  try {
    yield* readChunks(handle, 0);
  } finally {
    await handle.close();
  }
}

/** The bytes of a log in a range, compressed or not; none if there is no log. Each is only valid until the next. */
export async function* logBytes(
  path: string,
  { from = 0, end = Number.POSITIVE_INFINITY }: LogRange = {},
): AsyncGenerator<Buffer, void, undefined> {
  if (end <= from || !(existsSync(path) || isArchived(path))) return;
  if (!isArchived(path)) {
    const handle = await openRegular(path);
    try {
      let left = end - from;
      for await (const chunk of readChunks(handle, from)) {
        yield chunk.length <= left ? chunk : chunk.subarray(0, left);
        left -= chunk.length;
        if (left <= 0) return;
      }
    } finally {
      await handle.close();
    }
    return;
  }
  let at = 0;
  for await (const chunk of logChunks(path, end)) {
    if (at + chunk.length > from) yield chunk.subarray(Math.max(0, from - at));
    at += chunk.length;
  }
}

/** Bytes that an archived log took before and takes now. */
export interface Archived {
  readonly before: number;
  readonly after: number;
}

/** Compresses a log. The plain file goes only once the compressed one is on the disk. */
export async function archiveLog(path: string): Promise<Archived> {
  const { size: before } = await stat(path);
  const { pipeline } = await import('node:stream/promises');
  const { createGzip } = await import('node:zlib');
  let after = 0;
  const archive = stageFile(archivePath(path), { mode: 0o600, follow: false });
  try {
    await pipeline(createReadStream(path), createGzip({ level: 9 }), async (packed) => {
      for await (const chunk of packed) {
        archive.write(chunk as Buffer);
        after += (chunk as Buffer).length;
      }
    });
    // readers would refuse its archive, so the log stays as it is
    if (isBomb(before, after)) return { before, after: before };
    archive.commit();
  } finally {
    archive.discard();
  }
  await rm(path);
  return { before, after: (await stat(archivePath(path))).size };
}

/** Bytes of a log that any archive may hold, and how many times as long as the archive a longer log may be. */
const MAX_FREE_BYTES = 64 * 1024 * 1024;
const MAX_RATIO = 100;

/** True for an archive that unpacks to more than a log does, which keeps its readers busy. */
function isBomb(size: number, packed: number): boolean {
  return size > MAX_FREE_BYTES && size > packed * MAX_RATIO;
}

function bomb(path: string): RyeError {
  return new RyeError(
    'thread_damaged',
    `${path} is no archive of a log: it is far longer than one`,
    {
      hint: 'Remove the folder of the thread, or restore it from a backup.',
      location: { path },
    },
  );
}

const CHUNK_BYTES = 256 * 1024;

/**
 * Chunks of the file from `position` to its present end; each is only valid until the next one is asked for. The next
 * one is read while the caller works on this one.
 */
export async function* readChunks(
  handle: FileHandle,
  position: number,
): AsyncGenerator<Buffer, void, undefined> {
  let at = position;
  let spare = Buffer.allocUnsafe(CHUNK_BYTES);
  let reading = handle.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES, at);
  try {
    for (;;) {
      const { bytesRead, buffer } = await reading;
      if (bytesRead === 0) return;
      at += bytesRead;
      reading = handle.read(spare, 0, CHUNK_BYTES, at);
      spare = buffer;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    // a caller that has enough does not ask how the last read went
    await reading.catch(() => {});
  }
}

/** Like {@link readChunks} over a whole file, for callers that may not wait. */
export function* readChunksSync(path: string): Generator<Buffer, void, undefined> {
  const fd = openRegularSync(path);
  try {
    // one byte more than the file has finds its end
    const size = Math.min(CHUNK_BYTES, fstatSync(fd).size + 1);
    const buffer = Buffer.allocUnsafe(size);
    for (let at = 0, count = -1; count !== 0; at += count) {
      count = readSync(fd, buffer, 0, buffer.length, at);
      if (count > 0) yield buffer.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}

/** Opens a file for reading, passes it to `use`, and always closes it. */
export async function withFile<T>(
  path: string,
  use: (handle: FileHandle) => Promise<T>,
): Promise<T> {
  const handle = await openRegular(path);
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}
