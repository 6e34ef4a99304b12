import { StringDecoder } from 'node:string_decoder';
import { wholeBytes } from './files.ts';

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

  /** The kept bytes, without a split code point at their start, and how many came before them. */
  kept(): { readonly bytes: Buffer; readonly omitted: number } {
    const whole = Buffer.concat(this.#chunks);
    let start = Math.max(0, whole.length - this.#maxBytes);
    // A removed head may have taken the first bytes of a code point with it.
    if (this.#total > whole.length - start) while (isContinuation(whole[start])) start += 1;
    const bytes = whole.subarray(start);
    return { bytes, omitted: this.#total - bytes.length };
  }

  /** The kept text; a removed head is named as `…(N bytes truncated from head)…`. No code point is split. */
  text(): string {
    const { bytes, omitted } = this.kept();
    const text = bytes.toString('utf8');
    return omitted === 0 ? text : `…(${omitted} bytes truncated from head)…\n${text}`;
  }
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/**
 * Keeps the first and the last half of `maxBytes` of a stream. The beginning shows what ran, the end how it went; what is
 * omitted between them is named.
 */
export class HeadTailBuffer {
  readonly #head: HeadBuffer;
  readonly #tail: TailBuffer;
  #room: number;

  constructor(maxBytes: number) {
    this.#room = Math.floor(maxBytes / 2);
    this.#head = new HeadBuffer(this.#room);
    this.#tail = new TailBuffer(maxBytes - this.#room);
  }

  push(chunk: Buffer): void {
    const kept = chunk.subarray(0, this.#room);
    if (kept.length > 0) this.#head.push(kept);
    this.#room -= kept.length;
    if (kept.length < chunk.length) this.#tail.push(chunk.subarray(kept.length));
  }

  /** Bytes between the two that are not kept. */
  get omitted(): number {
    return this.#tail.kept().omitted;
  }

  /** The kept text, with `…(N bytes omitted)…` on a separate line in place of a missing part. No code point is split. */
  text(): string {
    const { omitted, bytes } = this.#tail.kept();
    const head = this.#head.bytes();
    if (omitted === 0) return Buffer.concat([head, bytes]).toString('utf8');
    const cut = wholeBytes(head);
    const missing = omitted + head.length - cut;
    return `${head.toString('utf8', 0, cut)}\n…(${missing} bytes omitted)…\n${bytes.toString('utf8')}`;
  }
}

/** Keeps the first `maxBytes` of a stream and records whether there was more. */
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

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  text(): string {
    return this.bytes().toString('utf8');
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
