import { StringDecoder } from 'node:string_decoder';

/** Keeps the last `maxBytes` of a stream, in memory bounded by twice that, and counts the rest. */
export class TailBuffer {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #held = 0;
  #total = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): void {
    this.#total += chunk.length;
    this.#chunks.push(
      chunk.length > this.#maxBytes ? Buffer.from(chunk.subarray(-this.#maxBytes)) : chunk,
    );
    this.#held += Math.min(chunk.length, this.#maxBytes);
    if (this.#held <= 2 * this.#maxBytes && this.#chunks.length < 4096) return;
    const joined = Buffer.concat(this.#chunks);
    const tail = Buffer.from(joined.subarray(Math.max(0, joined.length - this.#maxBytes)));
    this.#chunks = [tail];
    this.#held = tail.length;
  }

  /** The kept text; a removed head is named as `…(N bytes truncated from head)…`. No code point is split. */
  text(): string {
    const whole = Buffer.concat(this.#chunks);
    let start = Math.max(0, whole.length - this.#maxBytes);
    // A removed head may have taken the first bytes of a code point with it.
    if (this.#total > whole.length - start) while (isContinuation(whole[start])) start += 1;
    const kept = whole.subarray(start);
    const removed = this.#total - kept.length;
    const text = kept.toString('utf8');
    return removed === 0 ? text : `…(${removed} bytes truncated from head)…\n${text}`;
  }
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Keeps the first `maxBytes` of a stream and says whether there was more. */
export class HeadBuffer {
  readonly #maxBytes: number;
  readonly #chunks: Buffer[] = [];
  #held = 0;
  #overflowed = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): void {
    const room = this.#maxBytes - this.#held;
    if (chunk.length > room) this.#overflowed = true;
    if (room <= 0) return;
    const kept = chunk.subarray(0, room);
    this.#chunks.push(kept);
    this.#held += kept.length;
  }

  get overflowed(): boolean {
    return this.#overflowed;
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString('utf8');
  }
}

/** Live output for people: decodes chunk by chunk and falls silent after `maxBytes`. */
export function boundedProgress(
  progress: (text: string) => void,
  maxBytes: number,
): (chunk: Buffer) => void {
  const decoder = new StringDecoder('utf8');
  let left = maxBytes;
  return (chunk) => {
    if (left <= 0) return;
    left -= chunk.length;
    const text = decoder.write(left < 0 ? chunk.subarray(0, chunk.length + left) : chunk);
    if (text !== '') progress(text);
    if (left <= 0) progress('\n…(further live output is not shown)…\n');
  };
}
