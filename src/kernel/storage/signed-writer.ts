import type { Hash } from 'node:crypto';
import { type Clock, isoTime } from '../core/clock.ts';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { EventDraft, LogEvent, LogHeader } from '../core/events.ts';
import type { IdSource } from '../core/ids.ts';
import { diskReason } from '../disk/reasons.ts';
import {
  type Checkpoint,
  CheckpointChain,
  canWait,
  type LogHead,
  signCheckpoint,
} from '../log/checkpoint.ts';
import { encodeEvent, encodeHeader, eventBytes, tooLong } from '../log/codec.ts';
import { type LogCursor, placeEvent } from '../log/cursor.ts';
import { withoutLongTexts } from '../log/oversized.ts';
import {
  findPosition,
  type LogTarget,
  startPosition,
  type WriterPosition,
} from '../log/position.ts';
import { malformedLog } from '../log/reader.ts';
import type {
  LogExtent,
  LogReopenOptions,
  LogWriter,
  LogWriterOptions,
  QuarantinedPart,
} from './store.ts';

/** The place that a writer's bytes go to. */
export interface LogSink {
  /** Names the log in errors. */
  readonly location: string;
  /** True if `sync` may return a promise, so that a caller must await it before it shows what it appended. */
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
  close(): void | Promise<void>;
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
  readonly #chain: CheckpointChain;
  #lastCheckpoint: Checkpoint | undefined;
  #bytes: number;
  #cursor: LogCursor;
  /** Bytes were written since the last sync began. */
  #dirty = false;
  /** Resolves once the syncs that have begun are over, so that nothing closes the file under them. */
  #syncing: Promise<void> | undefined;
  #isSyncDue = false;
  #closed = false;
  #failure: RyeError | undefined;

  constructor(parts: WriterParts) {
    const { cursor, fileHash, head } = parts.position;
    this.#parts = parts;
    this.threadId = parts.threadId;
    this.#fileHash = fileHash;
    this.#chain = new CheckpointChain(head);
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
    return this.#chain.head;
  }

  get isSigned(): boolean {
    return this.head.bytes === this.#bytes;
  }

  get lastCheckpoint(): Checkpoint | undefined {
    return this.#lastCheckpoint;
  }

  /** Begins the file: its header, signed in the same write. */
  begin(header: LogHeader): void {
    this.#assertUsable();
    this.#writeSigned([Buffer.from(encodeHeader(header), 'utf8')], {
      cursor: this.#cursor,
      timestamp: this.#now(),
    });
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
    if (this.#parts.options.durability === 'off') return undefined;
    if (!this.#dirty) return this.#syncing;
    this.#dirty = false;
    const { sink } = this.#parts;
    const synced = this.#guard(() => sink.sync());
    // an earlier one may still be under way
    if (synced === undefined) return this.#syncing;
    const all = this.#synced(synced, this.#syncing).finally(() => {
      if (this.#syncing === all) this.#syncing = undefined;
    });
    this.#syncing = all;
    return all;
  }

  async #synced(synced: Promise<void>, before: Promise<void> | undefined): Promise<void> {
    try {
      await Promise.all([synced, before]);
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
    // a rebuilt registry may count epochs from the start
    const epoch = Math.max(this.#parts.options.epoch, this.head.epoch);
    const to = lines.reduce((sum, line) => sum + line.length, this.#bytes);
    for (const line of lines) this.#chain.cover(line);
    const seq = cursor.seq + 1;
    const { threadId } = this;
    const event = signCheckpoint(
      { threadId, seq, timestamp, epoch, ...this.#chain.close(to) },
      signer,
    );
    const line = Buffer.from(encodeEvent(event), 'utf8');
    this.#guard(() => this.#parts.sink.assertHeld());
    this.#put(joined([...lines, line]));
    this.#cursor = { ...cursor, seq };
    this.#chain.extend(line, { seq, epoch, to });
    this.#lastCheckpoint = event;
  }

  state(): LogExtent {
    return {
      bytes: this.#bytes,
      sha256: this.#fileHash.copy().digest('hex'),
      events: this.#cursor.seq,
    };
  }

  close(): void | Promise<void> {
    if (this.#closed) return undefined;
    let synced: void | Promise<void>;
    try {
      synced = this.#failure ? undefined : this.sync();
    } catch (error) {
      void this.#end();
      throw error;
    }
    return synced === undefined ? this.#end() : this.#endAfter(synced);
  }

  async #endAfter(synced: Promise<void>): Promise<void> {
    try {
      await synced;
    } finally {
      await this.#end();
    }
  }

  #end(): void | Promise<void> {
    if (this.#closed) return undefined;
    this.#closed = true;
    return this.#parts.sink.close();
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
    this.#chain.cover(bytes);
    this.#cursor = cursor;
  }

  /**
   * Appends all of `bytes`, or leaves the log as it was and fails for good. Only signing asks whether the log is still
   * held: unsigned bytes count for nothing, and the log of a taker is another file.
   */
  #put(bytes: Buffer): void {
    this.#guard(() => {
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
        hint: 'The log so far is intact. Repair the disk, then resume the thread.',
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

/** A log that is opened again, as its store keeps it. */
export interface ClosedLog extends Omit<LogTarget, 'verifier'> {
  chunks(): Iterable<Uint8Array>;
  /** Moves what follows the first `end` bytes out of the log. */
  quarantine(end: number): void;
  /** Returns the parts that were moved out of the log. */
  quarantined(): readonly QuarantinedPart[];
  writerAt(position: WriterPosition): SignedLogWriter;
}

/**
 * Opens a log for appending. What no signature covers is moved out of it; what was just moved, or by an opening that died,
 * is recorded in the log.
 */
export function openSigned(
  log: ClosedLog,
  { verifier, header, epoch }: LogReopenOptions,
): SignedLogWriter {
  const { location, threadId } = log;
  const target = { location, threadId, verifier };
  let found = findPosition(target, log.chunks());
  let isEmpty = false;
  if ('signedBytes' in found) {
    const { signedBytes, reason = '' } = found;
    isEmpty = signedBytes === 0;
    if (isEmpty && !header) throw malformedLog(location, reason);
    log.quarantine(signedBytes);
    found = isEmpty
      ? { position: startPosition(threadId, epoch) }
      : findPosition(target, log.chunks());
    if ('signedBytes' in found) throw malformedLog(location, 'it changed while it was opened');
  }
  const { position } = found;
  const writer = log.writerAt(position);
  if (isEmpty && header) writer.begin(header);
  const parts = log.quarantined().filter(({ offset }) => offset === position.head.bytes);
  writer.append(
    parts.map((payload) => ({ event_type: 'log_quarantined', payload, durable: true })),
  );
  return writer;
}
