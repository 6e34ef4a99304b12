const LF = 0x0a;

/**
 * Gathers a byte stream into regions of whole lines, so that hashing works on long runs of bytes while a line that is
 * cut by a chunk's end is held back.
 */
export class LineRegions {
  #pieces: Buffer[] = [];
  #held = 0;
  #isSkipping = false;

  /** Bytes after the last line feed so far, which are held back. */
  get heldBytes(): number {
    return this.#held;
  }

  /**
   * The lines that end in `chunk`, line feeds included, as at most two regions: the line that was held back, and the
   * others where they lie. Valid until the chunk is reused.
   */
  push(chunk: Uint8Array): readonly Buffer[] {
    const bytes = this.#unskipped(chunk);
    const end = bytes.lastIndexOf(LF) + 1;
    const regions: Buffer[] = [];
    let from = 0;
    if (end > 0 && this.#held > 0) {
      from = bytes.indexOf(LF) + 1;
      regions.push(Buffer.concat([...this.#pieces, bytes.subarray(0, from)]));
    }
    if (from < end) regions.push(bytes.subarray(from, end));
    if (end > 0) this.#clear();
    if (end < bytes.length) {
      // the caller may reuse its buffer
      this.#pieces.push(Buffer.from(bytes.subarray(end)));
      this.#held += bytes.length - end;
    }
    return regions;
  }

  /** Drops what is held back and the rest of its line, so that a line without an end takes no memory. */
  skipLine(): void {
    this.#clear();
    this.#isSkipping = true;
  }

  /** The bytes after the last line feed. */
  rest(): Buffer {
    return Buffer.concat(this.#pieces);
  }

  #unskipped(chunk: Uint8Array): Buffer {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    if (!this.#isSkipping) return bytes;
    const end = bytes.indexOf(LF) + 1;
    this.#isSkipping = end === 0;
    return bytes.subarray(this.#isSkipping ? bytes.length : end);
  }

  #clear(): void {
    this.#pieces = [];
    this.#held = 0;
  }
}

/** True if `bytes` contains `needle` at offset `at`. */
export function matchesAt(bytes: Buffer, needle: Buffer, at: number): boolean {
  if (at + needle.length > bytes.length) return false;
  for (let index = 0; index < needle.length; index += 1) {
    if (bytes[at + index] !== needle[index]) return false;
  }
  return true;
}

const SEQ_PREFIX = Buffer.from('{"seq":');

/** The seq of the line at `start` and where its digits end, if the line starts as the encoder writes it. */
export function seqAt(
  bytes: Buffer,
  start: number,
): { readonly seq: number; readonly end: number } | undefined {
  if (!matchesAt(bytes, SEQ_PREFIX, start)) return undefined;
  let seq = 0;
  let end = start + SEQ_PREFIX.length;
  for (let byte = bytes[end] ?? 0; byte >= 0x30 && byte <= 0x39; byte = bytes[end] ?? 0) {
    seq = seq * 10 + byte - 0x30;
    end += 1;
  }
  return seq === 0 ? undefined : { seq, end };
}

/** Bytes between the digits of the seq and the event type, as the encoder lays out the lines of a thread. */
export function typeDistance(threadId: string): number {
  const between = `,"timestamp":"2026-01-01T00:00:00.000Z","thread_id":${JSON.stringify(threadId)},`;
  return Buffer.byteLength(between);
}
