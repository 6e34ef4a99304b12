import { createHash, type Hash } from 'node:crypto';
import { chainStart, sha256Hex } from '../../log/checkpoint.ts';
import { decodeLine, MAX_LINE_BYTES } from '../../log/codec.ts';
import { advance, LOG_START, type LogCursor } from '../../log/cursor.ts';
import { LineRegions, matchesAt, seqAt, typeDistance } from '../../log/regions.ts';
import { readChunksSync } from './lines.ts';
import { malformedLog, parseHeader } from './log-reader.ts';
import type { WriterPosition } from './log-writer.ts';

// streamed text is most of a long log and moves nothing but the seq
const DELTA_TYPES = ['token_delta', 'thinking_delta', 'toolcall_delta'].map((type) =>
  Buffer.from(`"event_type":"${type}"`),
);
const LF = 0x0a;

/**
 * Finds where a log ends in one streaming pass: seq, leaf, running hashes, the checkpoint chain. The end is behind the
 * last whole line; what a crash left behind that is not counted.
 */
export function findPosition(path: string, threadId: string): WriterPosition {
  const finder = new PositionFinder(path, threadId);
  const regions = new LineRegions();
  for (const chunk of readChunksSync(path)) {
    for (const region of regions.push(chunk)) finder.take(region);
    if (regions.heldBytes > MAX_LINE_BYTES) throw malformedLog(path, 'a line is over 16 MiB');
  }
  return finder.end();
}

class PositionFinder {
  readonly #path: string;
  readonly #threadId: string;
  readonly #typeAt: number;
  readonly #fileHash = createHash('sha256');
  #segmentHash: Hash = createHash('sha256');
  #segmentFrom = 0;
  #prev: string;
  #bytes = 0;
  #cursor: LogCursor = LOG_START;
  #headerSeen = false;

  constructor(path: string, threadId: string) {
    this.#path = path;
    this.#threadId = threadId;
    this.#prev = chainStart(threadId);
    this.#typeAt = typeDistance(threadId);
  }

  /** Whole lines. Hashes runs of them at once, cut at checkpoints. */
  take(bytes: Buffer): void {
    this.#fileHash.update(bytes);
    let run = 0;
    for (let start = 0; start < bytes.length; ) {
      const next = bytes.indexOf(LF, start) + 1;
      if (!this.#headerSeen) {
        parseHeader(bytes.toString('utf8', start, next - 1), this.#path, this.#threadId);
        this.#headerSeen = true;
      } else if (!this.#skipDelta(bytes, start) && this.#read(bytes.subarray(start, next))) {
        this.#segmentHash = createHash('sha256');
        this.#segmentFrom = this.#bytes + next;
        run = next;
      }
      start = next;
    }
    this.#segmentHash.update(bytes.subarray(run));
    this.#bytes += bytes.length;
  }

  end(): WriterPosition {
    if (!this.#headerSeen) throw malformedLog(this.#path, 'it has no whole line');
    return {
      bytes: this.#bytes,
      cursor: this.#cursor,
      fileHash: this.#fileHash,
      segmentHash: this.#segmentHash,
      segmentFrom: this.#segmentFrom,
      prev: this.#prev,
    };
  }

  /** Reads a line with its line feed; true for a checkpoint. */
  #read(line: Buffer): boolean {
    if (line.length > MAX_LINE_BYTES) throw malformedLog(this.#path, 'a line is over 16 MiB');
    const pieces = decodeLine(line.toString('utf8', 0, line.length - 1));
    for (const piece of pieces) {
      if ('event' in piece) this.#cursor = advance(this.#cursor, piece.event);
    }
    const [first] = pieces;
    const isCheckpoint =
      first !== undefined && 'event' in first && first.event.event_type === 'checkpoint';
    if (isCheckpoint) this.#prev = sha256Hex(line);
    return isCheckpoint;
  }

  /** Counts a line of streamed text without parsing it; false for every other line. */
  #skipDelta(bytes: Buffer, start: number): boolean {
    const found = seqAt(bytes, start);
    if (!found) return false;
    const typeAt = found.end + this.#typeAt;
    if (!DELTA_TYPES.some((type) => matchesAt(bytes, type, typeAt))) return false;
    this.#cursor = { seq: found.seq, leafId: this.#cursor.leafId };
    return true;
  }
}
