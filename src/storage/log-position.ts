import type { Hash } from 'node:crypto';
import { RyeError } from '../core/errors.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import { chainStart } from '../log/checkpoint.ts';
import { decodeLine, MAX_LINE_BYTES } from '../log/codec.ts';
import { advance, LOG_START, type LogCursor } from '../log/cursor.ts';
import { LineRegions, matchesAt, seqAt, typeDistance } from '../log/regions.ts';
import { createLogVerifier } from '../log/verifier.ts';
import type { WriterPosition } from './signed-writer.ts';

// streamed text is most of a long log and moves nothing but the seq
const DELTA_TYPES = ['token_delta', 'thinking_delta', 'toolcall_delta'].map((type) =>
  Buffer.from(`"event_type":"${type}"`),
);
const LF = 0x0a;

/** Where a writer continues a log, if every byte of it is signed; else where its signed part ends. */
export type FoundPosition =
  | { readonly position: WriterPosition }
  | { readonly signedBytes: number; readonly reason?: string };

/**
 * Finds the end of a log in one streaming pass: seq, leaf, running hash, and the last checkpoint. It is checked as
 * verification checks it; a log whose signed part was changed is refused with the code of that.
 */
export function findPosition(
  {
    location,
    threadId,
    verifier,
  }: { location: string; threadId: string; verifier: PayloadVerifier },
  chunks: Iterable<Uint8Array>,
): FoundPosition {
  const chain = createLogVerifier({ threadId, verifier });
  const lines = new CursorReader(threadId);
  for (const chunk of chunks) {
    if (!chain.push(chunk)) break;
    lines.push(chunk);
  }
  const verdict = chain.end();
  if (!verdict.ok && verdict.unsigned) return { signedBytes: 0, reason: verdict.reason };
  if (!verdict.ok) {
    const { code, reason, offset } = verdict;
    throw new RyeError(code, `${location} does not verify: ${reason} at byte ${offset}`, {
      hint: `See: rye verify thread ${threadId}`,
      details: { thread_id: threadId, offset },
    });
  }
  const { head, unverified_bytes: unverified } = verdict;
  if (unverified > 0) return { signedBytes: head.bytes };
  return { position: { head, cursor: lines.cursor, fileHash: chain.fileHash } };
}

/** The position in a file of which nothing is written yet. */
export function emptyPosition(
  threadId: string,
  facts: { readonly epoch: number; readonly fileHash: Hash },
): WriterPosition {
  const head = { bytes: 0, seq: 0, epoch: facts.epoch, sha256: chainStart(threadId) };
  return { head, cursor: LOG_START, fileHash: facts.fileHash };
}

/** Follows seq and leaf through the lines of a log. What is no event moves neither. */
class CursorReader {
  cursor: LogCursor = LOG_START;
  readonly #typeAt: number;
  readonly #regions = new LineRegions();

  constructor(threadId: string) {
    this.#typeAt = typeDistance(threadId);
  }

  push(chunk: Uint8Array): void {
    for (const region of this.#regions.push(chunk)) this.#lines(region);
    if (this.#regions.heldBytes > MAX_LINE_BYTES) this.#regions.skipLine();
  }

  #lines(bytes: Buffer): void {
    for (let start = 0; start < bytes.length; ) {
      const next = bytes.indexOf(LF, start) + 1;
      if (!this.#skipDelta(bytes, start)) {
        for (const piece of decodeLine(bytes.toString('utf8', start, next - 1))) {
          if ('event' in piece) this.cursor = advance(this.cursor, piece.event);
        }
      }
      start = next;
    }
  }

  /** Counts a line of streamed text without parsing it; false for every other line. */
  #skipDelta(bytes: Buffer, start: number): boolean {
    const found = seqAt(bytes, start);
    if (!found) return false;
    const typeAt = found.end + this.#typeAt;
    if (!DELTA_TYPES.some((type) => matchesAt(bytes, type, typeAt))) return false;
    this.cursor = { seq: found.seq, leafId: this.cursor.leafId };
    return true;
  }
}
