import { closeSync, openSync, readSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { MAX_LINE_BYTES } from '../../log/codec.ts';

/** One line of a file without its line feed. `bytes` is undefined when the line is longer than a log allows. */
export interface FileLine {
  readonly offset: number;
  readonly bytes: Buffer | undefined;
  /** Bytes that the line takes in the file, its line feed included. */
  readonly length: number;
  /** False for the bytes behind the last line feed. */
  readonly ended: boolean;
}

const CHUNK_BYTES = 256 * 1024;
const LF = 0x0a;

/** Cuts a byte stream into lines; holds at most one line, and skips the rest of one that is too long. */
export class LineSplitter {
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  #start: number;

  /** `offset` is the file position of the first byte that will be pushed. */
  constructor(offset = 0) {
    this.#start = offset;
  }

  /** The lines that end in `chunk`. They share its memory where they lie in it as a whole. */
  *push(chunk: Buffer): Generator<FileLine, void, undefined> {
    let from = 0;
    for (let at = chunk.indexOf(LF); at !== -1; at = chunk.indexOf(LF, from)) {
      yield this.#line(chunk.subarray(from, at), true);
      from = at + 1;
    }
    if (from === chunk.length) return;
    const rest = chunk.subarray(from);
    this.#pieceBytes += rest.length;
    // the bytes of a line that is already too long are only counted
    if (this.#pieceBytes <= MAX_LINE_BYTES) this.#pieces.push(Buffer.from(rest));
    else this.#pieces = [];
  }

  /** What stands behind the last line feed, if anything. */
  end(): FileLine | undefined {
    return this.#pieceBytes === 0 ? undefined : this.#line(Buffer.alloc(0), false);
  }

  #line(last: Buffer, ended: boolean): FileLine {
    const length = this.#pieceBytes + last.length;
    const offset = this.#start;
    const bytes = length >= MAX_LINE_BYTES ? undefined : this.#join(last);
    const inFile = length + (ended ? 1 : 0);
    this.#start += inFile;
    this.#pieces = [];
    this.#pieceBytes = 0;
    return { offset, bytes, length: inFile, ended };
  }

  #join(last: Buffer): Buffer {
    return this.#pieces.length === 0 ? last : Buffer.concat([...this.#pieces, last]);
  }
}

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
