import { createHash, type Hash } from 'node:crypto';
import { closeSync, fdatasyncSync, ftruncateSync } from 'node:fs';
import { type Clock, isoTime } from '../../core/clock.ts';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import type { IdSource } from '../../core/ids.ts';
import { diskReason } from '../../disk/reasons.ts';
import { writeFully } from '../../disk/whole-file.ts';
import {
  type Checkpoint,
  canWait,
  type LogHead,
  sha256Hex,
  signCheckpoint,
} from '../../log/checkpoint.ts';
import { encodeEvent, eventBytes, tooLong } from '../../log/codec.ts';
import { type LogCursor, placeEvent } from '../../log/cursor.ts';
import { withoutLongTexts } from '../../log/oversized.ts';
import type { LogState, LogWriter, LogWriterOptions } from '../store.ts';
import type { Lease } from './lease.ts';
import { saveArtifact } from './log-artifact.ts';

/** Where a writer continues: everything about the bytes in the file that later bytes depend on. All are signed. */
export interface WriterPosition {
  readonly cursor: LogCursor;
  /** Running SHA-256 of the file; the writer continues it. */
  readonly fileHash: Hash;
  readonly head: LogHead;
}

export interface WriterParts {
  readonly threadId: string;
  readonly path: string;
  /** Opened for appending (O_APPEND). */
  readonly fd: number;
  readonly lease: Lease;
  readonly position: WriterPosition;
  readonly options: LogWriterOptions;
  readonly clock: Clock;
  readonly ids: IdSource;
}

/**
 * The appending end of one `transcript.jsonl`. Synchronous: an append that returned is in the file. A batch that matters
 * is signed in the same `write`, so that no crash comes between it and its signature.
 */
export class FileLogWriter implements LogWriter {
  readonly threadId: string;
  readonly #parts: WriterParts;
  readonly #fileHash: Hash;
  #segmentHash = createHash('sha256');
  #head: LogHead;
  #lastCheckpoint: Checkpoint | undefined;
  #bytes: number;
  #cursor: LogCursor;
  #dirty = false;
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

  /** An append that must be durable is synced before it returns. */
  readonly isSyncDue = false;

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
    if (isDurable) this.sync();
    return events;
  }

  /** An event too long for a line keeps its place, and its long texts go to artifacts. */
  #encoded(event: LogEvent): { readonly event: LogEvent; readonly bytes: Buffer } {
    const bytes = eventBytes(event);
    if (bytes !== undefined) return { event, bytes };
    const { path, lease } = this.#parts;
    let payload: object = {};
    this.#guard(() => {
      lease.assertHeld();
      payload = withoutLongTexts(event.payload, (text) => saveArtifact(path, this.threadId, text));
    });
    const shorter = { ...event, payload } as LogEvent;
    const shorterBytes = eventBytes(shorter);
    if (shorterBytes === undefined) throw tooLong(event.event_type);
    return { event: shorter, bytes: shorterBytes };
  }

  sync(): void {
    this.checkpoint();
    if (!this.#dirty || this.#parts.options.durability === 'off') return;
    this.#guard(() => {
      fdatasyncSync(this.#parts.fd);
    });
    this.#dirty = false;
  }

  checkpoint(): void {
    this.#assertUsable();
    if (this.isSigned) return;
    this.#writeSigned([], { cursor: this.#cursor, timestamp: this.#now() });
    if (this.#parts.options.durability === 'always') this.sync();
  }

  /** Writes lines and the checkpoint that covers them, and all unsigned ones before, at once. */
  #writeSigned(
    lines: readonly Buffer[],
    { cursor, timestamp }: { readonly cursor: LogCursor; readonly timestamp: string },
  ): void {
    const { signer } = this.#parts.options;
    const { bytes: from, sha256: prev } = this.#head;
    // a registry that was made again from other records may count from the start
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

  close(): void {
    if (this.#closed) return;
    try {
      if (!this.#failure) this.sync();
    } finally {
      this.#closed = true;
      closeSync(this.#parts.fd);
      this.#parts.lease.release();
    }
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

  /** Puts all of `bytes` behind the end of the log, or leaves the log as it was and fails for good. */
  #put(bytes: Buffer): void {
    this.#guard(() => {
      this.#parts.lease.assertHeld();
      this.#dirty = true;
      writeFully(this.#parts.fd, bytes);
    });
    this.#bytes += bytes.length;
    this.#fileHash.update(bytes);
  }

  #guard(effect: () => void): void {
    try {
      effect();
    } catch (error) {
      this.#failure = error instanceof RyeError ? error : this.#failed(diskReason(error), error);
      if (!(error instanceof RyeError)) this.#cutBack();
      throw this.#failure;
    }
  }

  /** Takes a half-written batch off again; where that fails too, the next opening does it. */
  #cutBack(): void {
    try {
      ftruncateSync(this.#parts.fd, this.#bytes);
    } catch {
      // the first failure is the one to report
    }
  }

  #failed(reason: string, cause: unknown): RyeError {
    const system = systemCodeOf(cause);
    return new RyeError('log_write_failed', `cannot append to ${this.#parts.path}: ${reason}`, {
      hint: 'What is in the log so far is kept. Repair the disk, then resume the thread.',
      details: { thread_id: this.threadId, ...(system === undefined ? {} : { system }) },
      cause,
    });
  }
}

function joined(lines: readonly Buffer[]): Buffer {
  const [only] = lines;
  return only !== undefined && lines.length === 1 ? only : Buffer.concat(lines);
}
