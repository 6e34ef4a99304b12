import { closeSync, openSync, readSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

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
  const fd = openSync(path, 'r');
  try {
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    for (let at = 0, count = -1; count !== 0; at += count) {
      count = readSync(fd, buffer, 0, buffer.length, at);
      if (count > 0) yield buffer.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}

/** Opens a file for reading, hands it to `use`, and closes it whatever happens. */
export async function withFile<T>(
  path: string,
  use: (handle: FileHandle) => Promise<T>,
): Promise<T> {
  const handle = await open(path, 'r');
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}
