import { type Clock, overReason } from '../core/clock.ts';
import type { AnswerBody } from '../startup/http-fetch.ts';
import { AnswerTooLarge } from './failure.ts';

/** Watches one connection, and carries the one signal that ends it. */
export interface StallWatch {
  /** Aborts when the caller's signal does, when the connection stalls and when the watch ends. */
  readonly signal: AbortSignal;
  stalled(): boolean;
  /** Waits for a response of the server. */
  wait<T>(promise: Promise<T>): Promise<T>;
  /** The same bytes; each read is waited on. */
  bytes(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array>;
  /** The answer was read as far as it matters: the watch leaves its connection open. */
  settle(body: AnswerBody): void;
  /** Stops the timer, and closes the connection unless the answer was read. */
  end(): void;
}

export interface StallOptions {
  readonly clock: Clock;
  readonly stallMs: number;
  /** The caller's signal. */
  readonly signal: AbortSignal;
}

/**
 * A connection stalls when no byte came for `stallMs` while a read was waiting. Time that the reader spends
 * elsewhere does not count, so that a slow consumer is not taken for a dead server. One timer in all, not one per
 * read.
 */
export function stallWatch({ clock, stallMs, signal }: StallOptions): StallWatch {
  const connection = new AbortController();
  const finished = new AbortController();
  let waitingSince: number | undefined;
  let stalled = false;
  let isSettled = false;
  const abort = (): void => connection.abort(overReason());
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });

  const watch = async (): Promise<void> => {
    while (!finished.signal.aborted) {
      const waited = waitingSince === undefined ? 0 : clock.monotonic() - waitingSince;
      if (waited >= stallMs) {
        stalled = true;
        abort();
        return;
      }
      await clock.sleep(stallMs - waited, finished.signal);
    }
  };
  void watch();

  const wait = async <T>(promise: Promise<T>): Promise<T> => {
    waitingSince = clock.monotonic();
    try {
      return await promise;
    } finally {
      waitingSince = undefined;
    }
  };

  return {
    signal: connection.signal,
    stalled: () => stalled,
    wait,
    async *bytes(body) {
      const reader = body[Symbol.asyncIterator]();
      try {
        for (
          let read = await wait(reader.next());
          read.done !== true;
          read = await wait(reader.next())
        )
          yield read.value;
      } finally {
        await reader.return?.();
      }
    },
    settle: (body) => {
      isSettled = true;
      signal.removeEventListener('abort', abort);
      body.letGo();
    },
    end: () => {
      signal.removeEventListener('abort', abort);
      finished.abort(overReason());
      if (!isSettled) connection.abort(overReason());
    },
  };
}

/** Limits of the size of an answer. */
export interface AnswerLimits {
  /** Bytes of one server-sent event. */
  readonly eventBytes: number;
  /** Bytes of all events, with their envelopes. */
  readonly totalBytes: number;
}

const KIB = 1024;
/** A separator is at most four bytes, so that three of them may lie in an earlier piece. */
const SEAM_BYTES = 3;
const SEPARATORS = ['\n\n', '\r\n\r\n', '\r\r'];

/**
 * The limits of an answer to a request with this `max_tokens`. They are far above what a server sends that obeys it:
 * an event may hold the whole answer, and each token may come in an envelope of 2 KiB.
 */
export function answerLimits(maxTokens: number): AnswerLimits {
  return {
    eventBytes: 256 * KIB + 16 * maxTokens,
    totalBytes: KIB * KIB + 2 * KIB * maxTokens,
  };
}

/**
 * The same bytes in pieces that end with an event. Parsers copy and search an unfinished event again with each piece,
 * which takes minutes for a line that never ends; here a piece is looked at once. Throws {@link AnswerTooLarge} for an
 * event or an answer past its limit.
 */
export async function* wholeEvents(
  pieces: AsyncIterable<Uint8Array>,
  { eventBytes, totalBytes }: AnswerLimits,
): AsyncGenerator<Uint8Array> {
  let open: Uint8Array[] = [];
  let openBytes = 0;
  let tail: Uint8Array = new Uint8Array();
  let total = 0;
  for await (const piece of pieces) {
    total += piece.length;
    if (total > totalBytes) throw tooLarge(`the answer has more than ${totalBytes} bytes`);
    const end = endOfLastEvent(tail, piece);
    tail = Buffer.concat([tail, piece.subarray(-SEAM_BYTES)]).subarray(-SEAM_BYTES);
    if (end > 0) {
      yield joined([...open, piece.subarray(0, end)]);
      open = [];
      openBytes = 0;
    }
    if (end < piece.length) {
      open.push(piece.subarray(end));
      openBytes += piece.length - end;
    }
    if (openBytes > eventBytes) throw tooLarge(`an event has more than ${eventBytes} bytes`);
  }
  if (openBytes > 0) yield joined(open);
}

function tooLarge(what: string): AnswerTooLarge {
  return new AnswerTooLarge(`${what}, so the answer was stopped`);
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const [only] = pieces;
  return pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces);
}

/** Returns the offset after the last complete event in `piece`, which follows the bytes `tail`; 0 if none does. */
function endOfLastEvent(tail: Uint8Array, piece: Uint8Array): number {
  const inside = endOfLastSeparator(piece);
  if (inside > 0) return inside;
  const end = endOfLastSeparator(Buffer.concat([tail, piece.subarray(0, SEAM_BYTES)]));
  return Math.max(0, end - tail.length);
}

function endOfLastSeparator(bytes: Uint8Array): number {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Math.max(
    ...SEPARATORS.map((separator) => {
      const at = buffer.lastIndexOf(separator);
      return at < 0 ? 0 : at + separator.length;
    }),
  );
}
