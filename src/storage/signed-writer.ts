import { createHash, type Hash } from 'node:crypto';
import { type Clock, isoTime } from '../core/clock.ts';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { EventDraft, LogEvent } from '../core/events.ts';
import type { IdSource } from '../core/ids.ts';
import type { PayloadVerifier } from '../core/signing.ts';
import { diskReason } from '../disk/reasons.ts';
import {
  type Checkpoint,
  canWait,
  chainStart,
  type LogHead,
  sha256Hex,
  signCheckpoint,
} from '../log/checkpoint.ts';
import { decodeLine, encodeEvent, eventBytes, MAX_LINE_BYTES, tooLong } from '../log/codec.ts';
import { advance, LOG_START, type LogCursor, placeEvent } from '../log/cursor.ts';
import { withoutLongTexts } from '../log/oversized.ts';
import { LineRegions, matchesAt, seqAt, typeDistance } from '../log/regions.ts';
import { createLogVerifier } from '../log/verifier.ts';
import type { LogState, LogWriter, LogWriterOptions } from './store.ts';

/** The state of a fully signed log that later bytes depend on. */
export interface WriterPosition {
  readonly cursor: LogCursor;
  /** Running SHA-256 of the file; the writer continues it. */
  readonly fileHash: Hash;
  readonly head: LogHead;
}

/** The place that a writer's bytes go to. */
export interface LogSink {
  /** Names the log in errors. */
  readonly location: string;
  /** True if `sync` returns a promise, so that a caller must await it before it shows what it appended. */
  readonly isAsync: boolean;
  /** Refuses with `thread_locked` when another owner has taken the thread over. */
  assertHeld(): void;
  write(bytes: Buffer): void;
  /** Removes what a failed `write` left after the first `length` bytes. */
  truncate(length: number): void;
  /** Makes everything written durable. */
  sync(): void | Promise<void>;
  /** Keeps a text that is too long for a line; returns where it is. */
  saveText(text: string): string;
  /** Closes the log and gives the lease back. */
  close(): void;
}

export interface WriterParts {
  readonly threadId: string;
  readonly sink: LogSink;
  readonly position: WriterPosition;
  readonly options: LogWriterOptions;
  readonly clock: Clock;
  readonly ids: IdSource;
}

/**
 * The appending end of one log, over a sink. An append that returned is in the sink. A batch that matters is signed in
 * the same write, so that no crash comes between it and its signature.
 */
export class SignedLogWriter implements LogWriter {
  readonly threadId: string;
  readonly #parts: WriterParts;
  readonly #fileHash: Hash;
  #segmentHash = createHash('sha256');
  #head: LogHead;
  #lastCheckpoint: Checkpoint | undefined;
  #bytes: number;
  #cursor: LogCursor;
  /** Bytes were written since the last sync began. */
  #dirty = false;
  #isSyncDue = false;
  #closed = false;
  #failure: RyeError | undefined;

  constructor(parts: WriterParts) {
    const { cursor, fileHash, head } = parts.position;
    this.#parts = parts;
    this.threadId = parts.threadId;
    this.#fileHash = fileHash;
    this.#head = head;
    this.#bytes = head.bytes;
    this.#cursor = cursor;
  }

  get isSyncDue(): boolean {
    return this.#isSyncDue;
  }

  get leafId(): string | null {
    return this.#cursor.leafId;
  }

  get head(): LogHead {
    return this.#head;
  }

  get isSigned(): boolean {
    return this.#head.bytes === this.#bytes;
  }

  get lastCheckpoint(): Checkpoint | undefined {
    return this.#lastCheckpoint;
  }

  /** Begins the file: its header, signed in the same write. */
  begin(header: Buffer): void {
    this.#assertUsable();
    this.#writeSigned([header], { cursor: this.#cursor, timestamp: this.#now() });
  }

  append(drafts: readonly EventDraft[]): readonly LogEvent[] {
    this.#assertUsable();
    if (drafts.length === 0) return [];
    const timestamp = this.#now();
    const events: LogEvent[] = [];
    const lines: Buffer[] = [];
    let cursor = this.#cursor;
    for (const draft of drafts) {
      const placed = placeEvent(cursor, draft, {
        threadId: this.threadId,
        timestamp,
        entryId: () => this.#parts.ids.entryId(),
      });
      const { event, bytes } = this.#encoded(placed.event);
      events.push(event);
      lines.push(bytes);
      cursor = placed.cursor;
    }
    const { durability } = this.#parts.options;
    const isDurable = durability === 'always' || drafts.some(({ durable }) => durable);
    if (isDurable || !drafts.every(canWait)) this.#writeSigned(lines, { cursor, timestamp });
    else this.#write(joined(lines), cursor);
    if (isDurable) this.#makeDurable();
    return events;
  }

  /** An event too long for a line keeps its place, and its long texts go to artifacts. */
  #encoded(event: LogEvent): { readonly event: LogEvent; readonly bytes: Buffer } {
    const bytes = eventBytes(event);
    if (bytes !== undefined) return { event, bytes };
    const { sink } = this.#parts;
    const payload = this.#guard(() => {
      sink.assertHeld();
      return withoutLongTexts(event.payload, (text) => sink.saveText(text));
    });
    const shorter = { ...event, payload } as LogEvent;
    const shorterBytes = eventBytes(shorter);
    if (shorterBytes === undefined) throw tooLong(event.event_type);
    return { event: shorter, bytes: shorterBytes };
  }

  sync(): void | Promise<void> {
    this.checkpoint();
    this.#isSyncDue = false;
    if (!this.#dirty || this.#parts.options.durability === 'off') return undefined;
    this.#dirty = false;
    const { sink } = this.#parts;
    const synced = this.#guard(() => sink.sync());
    return synced && this.#synced(synced);
  }

  async #synced(synced: Promise<void>): Promise<void> {
    try {
      await synced;
    } catch (error) {
      this.#failure ??= error instanceof RyeError ? error : this.#failed(diskReason(error), error);
      throw this.#failure;
    }
  }

  /** Syncs at once where the sink can; otherwise the caller has to. */
  #makeDurable(): void {
    if (this.#parts.sink.isAsync) this.#isSyncDue = this.#parts.options.durability !== 'off';
    else void this.sync();
  }

  checkpoint(): void {
    this.#assertUsable();
    if (this.isSigned) return;
    this.#writeSigned([], { cursor: this.#cursor, timestamp: this.#now() });
    if (this.#parts.options.durability === 'always') this.#makeDurable();
  }

  /** Writes lines and the checkpoint that covers them, and all unsigned ones before, at once. */
  #writeSigned(
    lines: readonly Buffer[],
    { cursor, timestamp }: { readonly cursor: LogCursor; readonly timestamp: string },
  ): void {
    const { signer } = this.#parts.options;
    const { bytes: from, sha256: prev } = this.#head;
    // a rebuilt registry may count epochs from the start
    const epoch = Math.max(this.#parts.options.epoch, this.#head.epoch);
    const to = lines.reduce((sum, line) => sum + line.length, this.#bytes);
    for (const line of lines) this.#segmentHash.update(line);
    const sha256 = this.#segmentHash.digest('hex');
    this.#segmentHash = createHash('sha256');
    const seq = cursor.seq + 1;
    const { threadId } = this;
    const event = signCheckpoint(
      { threadId, seq, timestamp, epoch, from, to, sha256, prev },
      signer,
    );
    const line = Buffer.from(encodeEvent(event), 'utf8');
    this.#put(joined([...lines, line]));
    this.#cursor = { ...cursor, seq };
    this.#head = { bytes: this.#bytes, seq, epoch, sha256: sha256Hex(line) };
    this.#lastCheckpoint = event;
  }

  state(): LogState {
    return {
      bytes: this.#bytes,
      sha256: this.#fileHash.copy().digest('hex'),
      events: this.#cursor.seq,
    };
  }

  close(): void | Promise<void> {
    if (this.#closed) return undefined;
    let pending = false;
    try {
      const synced = this.#failure ? undefined : this.sync();
      pending = synced !== undefined;
      return synced?.finally(() => this.#end());
    } finally {
      if (!pending) this.#end();
    }
  }

  #end(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.sink.close();
  }

  #now(): string {
    return isoTime(this.#parts.clock.now());
  }

  #assertUsable(): void {
    if (this.#failure) throw this.#failure;
    if (this.#closed) throw this.#failed('the log is closed', undefined);
  }

  #write(bytes: Buffer, cursor: LogCursor): void {
    this.#put(bytes);
    this.#segmentHash.update(bytes);
    this.#cursor = cursor;
  }

  /** Appends all of `bytes`, or leaves the log as it was and fails for good. */
  #put(bytes: Buffer): void {
    this.#guard(() => {
      this.#parts.sink.assertHeld();
      this.#dirty = true;
      this.#parts.sink.write(bytes);
    });
    this.#bytes += bytes.length;
    this.#fileHash.update(bytes);
  }

  #guard<T>(effect: () => T): T {
    try {
      return effect();
    } catch (error) {
      this.#failure = error instanceof RyeError ? error : this.#failed(diskReason(error), error);
      if (!(error instanceof RyeError)) this.#cutBack();
      throw this.#failure;
    }
  }

  /** Removes a half-written batch; if that fails too, the next opening does it. */
  #cutBack(): void {
    try {
      this.#parts.sink.truncate(this.#bytes);
    } catch {
      // the first failure is the one to report
    }
  }

  #failed(reason: string, cause: unknown): RyeError {
    const system = systemCodeOf(cause);
    return new RyeError(
      'log_write_failed',
      `cannot append to ${this.#parts.sink.location}: ${reason}`,
      {
        hint: 'What is in the log so far is kept. Repair the disk, then resume the thread.',
        details: { thread_id: this.threadId, ...(system === undefined ? {} : { system }) },
        cause,
      },
    );
  }
}

function joined(lines: readonly Buffer[]): Buffer {
  const [only] = lines;
  return only !== undefined && lines.length === 1 ? only : Buffer.concat(lines);
}

// streamed text is most of a long log and moves nothing but the seq
const DELTA_TYPES = ['token_delta', 'thinking_delta', 'toolcall_delta'].map((type) =>
  Buffer.from(`"event_type":"${type}"`),
);
const LF = 0x0a;

/** The position where a writer continues a log if all of it is signed; otherwise the end of its signed part. */
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

/** The position in an empty log. */
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
