import { createHash, type Hash } from 'node:crypto';
import { RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import { chainStart, type LogHead } from './checkpoint.ts';
import { LOG_START, type LogCursor, leafAfter } from './cursor.ts';
import { EventReader } from './reader.ts';
import { scanNow } from './scanner.ts';
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
 * Finds the end of a log in one streaming pass: seq, leaf, running hash, and the last checkpoint. The log is checked as
 * verification checks it; a log whose signed part was changed is refused with the code of that.
 */
export function findPosition(
  { location, threadId, verifier }: LogTarget,
  chunks: Iterable<Uint8Array>,
): FoundPosition {
  const chain = new LogVerifier({ threadId, verifier });
  let { leafId } = LOG_START;
  const event = (one: LogEvent | UnknownEvent): void => {
    leafId = leafAfter(leafId, one);
  };
  scanNow(chunks, chain, new EventReader({ event }, { threadId, entriesOnly: true }));
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
  return { position: { head, cursor: { seq: head.seq, leafId }, fileHash: chain.fileHash } };
}
