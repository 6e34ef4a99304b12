import { createHash, type Hash } from 'node:crypto';
import { RyeError } from '../core/errors.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import { chainStart, type LogHead } from './checkpoint.ts';
import { decodeLine, matchesAt, seqAt, typeDistance } from './codec.ts';
import { advance, LOG_START, type LogCursor } from './cursor.ts';
import { eachLine, type LineVisitor, scanNow } from './scanner.ts';
import { LogVerifier } from './verifier.ts';

/** The state of a fully signed log that later bytes depend on. */
export interface WriterPosition {
  readonly cursor: LogCursor;
  /** Running SHA-256 of the file; the writer continues it. */
  readonly fileHash: Hash;
  readonly head: LogHead;
}

/** The position in an empty log. */
export function startPosition(threadId: string, epoch: number): WriterPosition {
  return { head: chainStart(threadId, epoch), cursor: LOG_START, fileHash: createHash('sha256') };
}

/** The position where a writer continues a log if all of it is signed; otherwise the end of its signed part. */
export type FoundPosition =
  | { readonly position: WriterPosition }
  | { readonly signedBytes: number; readonly reason?: string };

/** A log, and whose signatures count. */
export interface LogTarget {
  /** Names the log in errors. */
  readonly location: string;
  readonly threadId: string;
  readonly verifier: PayloadVerifier;
}

/**
 * Finds the end of a log in one streaming pass: seq, leaf, running hash, and the last checkpoint. It is checked as
 * verification checks it; a log whose signed part was changed is refused with the code of that.
 */
export function findPosition(
  { location, threadId, verifier }: LogTarget,
  chunks: Iterable<Uint8Array>,
): FoundPosition {
  const chain = new LogVerifier({ threadId, verifier });
  const place = new CursorFinder(threadId);
  scanNow(chunks, chain, place);
  const verdict = chain.verdict();
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
  return { position: { head, cursor: place.cursor, fileHash: chain.fileHash } };
}

// streamed text is most of a long log and moves nothing but the seq
const DELTA_TYPES = ['token_delta', 'thinking_delta', 'toolcall_delta'].map((type) =>
  Buffer.from(`"event_type":"${type}"`),
);

/** Follows seq and leaf through the lines of a log. What is no event moves neither. */
class CursorFinder implements LineVisitor {
  cursor: LogCursor = LOG_START;
  readonly #typeAt: number;

  constructor(threadId: string) {
    this.#typeAt = typeDistance(threadId);
  }

  lines(run: Buffer): boolean {
    return eachLine(run, (start, end) => {
      if (this.#skipDelta(run, start)) return true;
      for (const piece of decodeLine(run.toString('utf8', start, end - 1))) {
        if ('event' in piece) this.cursor = advance(this.cursor, piece.event);
      }
      return true;
    });
  }

  oversized(): boolean {
    return true;
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
