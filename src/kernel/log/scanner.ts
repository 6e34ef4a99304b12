import { MAX_LINE_BYTES } from './codec.ts';

const LF = 0x0a;
/** Usual maximum of a run: texts much longer than this live among the large objects, which only a full collection frees. */
const RUN_BYTES = 64 * 1024;

/** Takes what a {@link LineScanner} finds, in order. A method that returns false ends the scan for all visitors. */
export interface LineVisitor {
  /** Takes each chunk before its lines. */
  chunk?(bytes: Uint8Array): void;
  /** Takes a run of whole lines, line feeds included, valid until the method returns; `offset` is that of its first byte. */
  lines(run: Buffer, offset: number): boolean;
  /** Notes a line over 16 MiB, which is skipped. Called as soon as it is too long; it may turn out to be torn. */
  oversized(offset: number): boolean;
  /** Takes the bytes after the last line feed at the end of the log; undefined if they are over 16 MiB. */
  torn?(bytes: Buffer | undefined, offset: number): void;
}

/**
 * Cuts the bytes of a log into runs of whole lines, in one pass for any number of visitors. The only code that knows
 * about the borders of chunks, torn tails and the longest line: the calls of the visitors do not depend on how the bytes are
 * cut, except for where a run ends. Memory is bounded by one line.
 */
export class LineScanner {
  readonly #visitors: readonly LineVisitor[];
  /** Copies of the bytes of the line that has not ended yet. */
  #pieces: Buffer[] = [];
  #held = 0;
  #offset: number;
  #isStopped = false;

  /** `offset` is the position in the log of the first byte that will be pushed. */
  constructor(visitors: readonly LineVisitor[], offset = 0) {
    this.#visitors = visitors;
    this.#offset = offset;
  }

  /** Position of the first line that has not ended yet. */
  get offset(): number {
    return this.#offset;
  }

  /** Takes the next chunk, which may be reused afterwards. False: a visitor has enough, more chunks change nothing. */
  push(chunk: Uint8Array): boolean {
    if (this.#isStopped) return false;
    for (const visitor of this.#visitors) visitor.chunk?.(chunk);
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let from = this.#held > 0 ? lineStartAfter(bytes, 0) : 0;
    if (from > 0) this.#endHeld(bytes.subarray(0, from));
    const end = lineStartBefore(bytes, bytes.length);
    while (from < end && !this.#isStopped) {
      const next = runEnd(bytes, from, end);
      this.#give(bytes.subarray(from, next));
      from = next;
    }
    if (from < bytes.length && !this.#isStopped) this.#hold(bytes.subarray(from));
    return !this.#isStopped;
  }

  /** Ends the log. */
  end(): void {
    if (this.#isStopped || this.#held === 0) return;
    const rest = this.#held > MAX_LINE_BYTES ? undefined : Buffer.concat(this.#pieces);
    for (const visitor of this.#visitors) visitor.torn?.(rest, this.#offset);
  }

  #hold(bytes: Buffer): void {
    const isKnown = this.#held > MAX_LINE_BYTES;
    this.#held += bytes.length;
    if (this.#held <= MAX_LINE_BYTES) {
      // the caller may reuse its buffer
      this.#pieces.push(Buffer.from(bytes));
    } else if (!isKnown) {
      this.#pieces = [];
      this.#tell((visitor) => visitor.oversized(this.#offset));
    }
  }

  #endHeld(last: Buffer): void {
    if (this.#held > MAX_LINE_BYTES) this.#offset += this.#held + last.length;
    else this.#give(Buffer.concat([...this.#pieces, last]));
    this.#pieces = [];
    this.#held = 0;
  }

  /** Passes on whole lines: some, or one that may be too long. */
  #give(run: Buffer): void {
    this.#tell((visitor) =>
      run.length > MAX_LINE_BYTES
        ? visitor.oversized(this.#offset)
        : visitor.lines(run, this.#offset),
    );
    this.#offset += run.length;
  }

  #tell(visit: (visitor: LineVisitor) => boolean): void {
    this.#isStopped = !this.#visitors.every(visit);
  }
}

/** The end of a short run of the whole lines from `from` to `end`, or of one long line. */
function runEnd(bytes: Buffer, from: number, end: number): number {
  if (end - from <= RUN_BYTES) return end;
  const last = lineStartBefore(bytes, from + RUN_BYTES);
  return last > from ? last : lineStartAfter(bytes, from + RUN_BYTES);
}

/** Scans chunks as they come, to their end or until a visitor has enough. */
export async function scan(
  chunks: AsyncIterable<Uint8Array>,
  ...visitors: readonly LineVisitor[]
): Promise<void> {
  const scanner = new LineScanner(visitors);
  for await (const chunk of chunks) if (!scanner.push(chunk)) break;
  scanner.end();
}

/** Like {@link scan}, for callers that may not wait. */
export function scanNow(chunks: Iterable<Uint8Array>, ...visitors: readonly LineVisitor[]): void {
  const scanner = new LineScanner(visitors);
  for (const chunk of chunks) if (!scanner.push(chunk)) break;
  scanner.end();
}

/**
 * Calls `visit` with the start and the end of each line of a run, its line feed included, until it returns false. Returns
 * whether all lines were visited.
 */
export function eachLine(run: Buffer, visit: (start: number, end: number) => boolean): boolean {
  for (let start = 0; start < run.length; ) {
    const end = lineStartAfter(run, start);
    if (!visit(start, end)) return false;
    start = end;
  }
  return true;
}

/** Position after the first line feed at or after `from`; 0 if there is none. */
export function lineStartAfter(bytes: Buffer, from: number): number {
  return bytes.indexOf(LF, from) + 1;
}

/** Position after the last line feed before `end`; 0 if there is none. */
export function lineStartBefore(bytes: Buffer, end: number): number {
  return end === 0 ? 0 : bytes.lastIndexOf(LF, end - 1) + 1;
}
