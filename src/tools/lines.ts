import type { FileHandle } from 'node:fs/promises';

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
 * Streams the lines of an open file in memory bounded by `maxLineBytes` plus one chunk, whatever the size of the
 * file. Lines before `from` are counted, not kept: their `bytes` are empty. A final newline does not start
 * another line.
 */
export async function* readLines(
  handle: FileHandle,
  { from, maxLineBytes }: { readonly from: number; readonly maxLineBytes: number },
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

/** How many of the bytes form whole code points: the last one may be cut. */
export function wholeBytes(bytes: Buffer): number {
  let start = bytes.length - 1;
  while (start >= 0 && bytes.length - start < 4 && ((bytes[start] ?? 0) & 0xc0) === 0x80)
    start -= 1;
  const first = bytes[start] ?? 0;
  const wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return start + wanted <= bytes.length ? bytes.length : Math.max(start, 0);
}
