import { createHash, type Hash } from 'node:crypto';
import { closeSync, fdatasyncSync, ftruncateSync } from 'node:fs';
import { type Clock, isoTime } from '../../core/clock.ts';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import type { EventDraft, LogEvent } from '../../core/events.ts';
import type { IdSource } from '../../core/ids.ts';
import { diskReason } from '../../disk/reasons.ts';
import { writeFully } from '../../disk/whole-file.ts';
import { sha256Hex, signCheckpoint } from '../../log/checkpoint.ts';
import { encodeEvent, eventBytes, tooLong } from '../../log/codec.ts';
import { type LogCursor, placeEvent } from '../../log/cursor.ts';
import { withoutLongTexts } from '../../log/oversized.ts';
import type { LogState, LogWriter, LogWriterOptions } from '../store.ts';
import type { Lease } from './lease.ts';
import { saveArtifact } from './log-artifact.ts';

/** Where a writer goes on: everything about the bytes already in the file that later bytes depend on. */
export interface WriterPosition {
  readonly bytes: number;
  readonly cursor: LogCursor;
  /** Running SHA-256 of the file, and of what follows the last checkpoint; the writer goes on with them. */
  readonly fileHash: Hash;
  readonly segmentHash: Hash;
  readonly segmentFrom: number;
  /** SHA-256 hex of the last checkpoint's line, or the start of the chain. */
  readonly prev: string;
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

/** The appending end of one `transcript.jsonl`. Synchronous: an append that returned is in the file. */
export class FileLogWriter implements LogWriter {
  readonly threadId: string;
  readonly #parts: WriterParts;
  readonly #fileHash: Hash;
  #segmentHash: Hash;
  #segmentFrom: number;
  #prev: string;
  #bytes: number;
  #cursor: LogCursor;
  #dirty = false;
  #closed = false;
  #failure: RyeError | undefined;

  constructor(parts: WriterParts) {
    const { position } = parts;
    this.#parts = parts;
    this.threadId = parts.threadId;
    this.#fileHash = position.fileHash;
    this.#segmentHash = position.segmentHash;
    this.#segmentFrom = position.segmentFrom;
    this.#prev = position.prev;
    this.#bytes = position.bytes;
    this.#cursor = position.cursor;
  }

  get leafId(): string | null {
    return this.#cursor.leafId;
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
    const [only] = lines;
    const bytes = only !== undefined && lines.length === 1 ? only : Buffer.concat(lines);
    this.#write(bytes);
    this.#segmentHash.update(bytes);
    this.#cursor = cursor;
    if (this.#parts.options.durability === 'always' || drafts.some(({ durable }) => durable)) {
      this.sync();
    }
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
    this.#assertUsable();
    if (!this.#dirty || this.#parts.options.durability === 'off') return;
    this.#guard(() => {
      fdatasyncSync(this.#parts.fd);
    });
    this.#dirty = false;
  }

  checkpoint(): LogEvent {
    this.#assertUsable();
    const timestamp = this.#now();
    const seq = this.#cursor.seq + 1;
    const payload = signCheckpoint(
      {
        from: this.#segmentFrom,
        to: this.#bytes,
        sha256: this.#segmentHash.copy().digest('hex'),
        prev: this.#prev,
        seq,
        timestamp,
      },
      this.#parts.options.signer,
    );
    const event = {
      seq,
      timestamp,
      thread_id: this.threadId,
      event_type: 'checkpoint',
      payload,
    } as const;
    const line = Buffer.from(encodeEvent(event), 'utf8');
    this.#write(line);
    this.#cursor = { ...this.#cursor, seq };
    this.#segmentFrom = this.#bytes;
    this.#segmentHash = createHash('sha256');
    this.#prev = sha256Hex(line);
    if (this.#parts.options.durability === 'always') this.sync();
    return event;
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

  /** Puts all of `bytes` behind the end of the log, or leaves the log as it was and fails for good. */
  #write(bytes: Buffer): void {
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
