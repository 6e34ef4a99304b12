import { createHash } from 'node:crypto';
import { type Clock, overReason } from '../../core/clock.ts';
import type { EventDraft, EventType, LogEvent } from '../../core/events.ts';
import { isPiece, type LogHead } from '../../log/checkpoint.ts';
import type { LogWriter } from '../../storage/store.ts';

/** The way streamed text reaches the log; see `transcript.token_deltas`. */
export type DeltaMode = 'every' | 'coalesced' | 'off';

const COALESCE_MS = 50;
const COALESCE_CHARS = 4096;
/** Maximum time that streamed text stays unsigned while it arrives. */
const UNSIGNED_MS = 1000;

export interface RecorderOptions {
  readonly writer: LogWriter;
  readonly clock: Clock;
  readonly deltas: DeltaMode;
  /** Called with each event after it is in the log; a subscriber that throws is dropped from then on. */
  readonly onEvent?: ((event: LogEvent) => void) | undefined;
}

interface PendingDelta {
  readonly type: 'token_delta' | 'thinking_delta' | 'toolcall_delta';
  readonly callId: string;
  readonly parts: string[];
  chars: number;
}

/**
 * The only way from producers to the log: writes first, publishes second ("durable before visible"), and
 * coalesces streamed deltas so that a log does not grow by a line per token.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  #pending: PendingDelta | undefined;
  #timer: AbortController | undefined;
  #failure: Error | undefined;
  #subscriber: ((event: LogEvent) => void) | undefined;
  /** Batches of events that wait for a sync before subscribers are shown them. */
  #waiting = 0;
  /** Resolves once the last of these batches was shown; never rejects. */
  #syncing: Promise<void> | undefined;
  /** The last checkpoint that subscribers were, or will be, shown. */
  #shown: LogEvent | undefined;
  #signedMs: number;
  /** Waits to sign streamed text that nothing follows. */
  #unsigned: AbortController | undefined;
  /** The answer that streams in has signed text. */
  #hasText = false;
  #isSigningSoon = false;
  #isSyncingSoon = false;
  /** The end of the part that is signed and durable. */
  #durable: LogHead | undefined;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#subscriber = options.onEvent;
    this.#shown = options.writer.lastCheckpoint;
    this.#signedMs = options.clock.monotonic();
  }

  get leafId(): string | null {
    return this.#options.writer.leafId;
  }

  /** Appends the drafts in order; deltas may be held back for up to 50 ms and yield no event. */
  record(drafts: readonly EventDraft[]): readonly LogEvent[] {
    if (this.#failure) throw this.#failure;
    const batch: EventDraft[] = [];
    for (const draft of drafts) {
      if (isDelta(draft)) {
        this.#buffer(draft, batch);
      } else {
        this.#drain(batch);
        batch.push(draft);
      }
    }
    return this.#write(batch);
  }

  /** Writes what is held back. */
  flush(): void {
    const batch: EventDraft[] = [];
    this.#drain(batch);
    this.#write(batch);
  }

  /** Returns the end of the part that is signed and durable; undefined before the first sync. */
  get durable(): LogHead | undefined {
    return this.#durable;
  }

  /** Signs everything so far. */
  sign(): void {
    this.flush();
    this.#options.writer.checkpoint();
    this.#publishCheckpoint();
  }

  /** Signs everything so far and makes it durable. Returns the end of the part that is signed and durable. */
  async checkpoint(): Promise<LogHead> {
    this.flush();
    const synced = this.#sync();
    const { head } = this.#options.writer;
    this.#publishCheckpoint(synced);
    await this.settled();
    return head;
  }

  /**
   * Signs everything so far and makes it durable, together with the next event that has to be durable if one comes in
   * the same work, which spares a sync. A failure surfaces as one of a timer does.
   */
  checkpointSoon(): void {
    if (this.#isSyncingSoon) return;
    this.#isSyncingSoon = true;
    setImmediate(() => {
      const isDue = this.#isSyncingSoon && !this.#failure;
      this.#isSyncingSoon = false;
      if (isDue) this.#inBackground(() => this.#publishCheckpoint(this.#sync()));
    });
  }

  /** Resolves once everything recorded so far that must be durable is durable, and subscribers were shown it. */
  async settled(): Promise<void> {
    await this.#syncing;
    if (this.#failure) throw this.#failure;
  }

  #buffer(draft: DeltaDraft, batch: EventDraft[]): void {
    const { deltas } = this.#options;
    if (deltas === 'off') return;
    if (deltas === 'every') {
      batch.push(draft);
      return;
    }
    const callId = draft.event_type === 'toolcall_delta' ? draft.payload.call_id : '';
    const text = draft.event_type === 'toolcall_delta' ? draft.payload.json : draft.payload.text;
    if (
      this.#pending &&
      (this.#pending.type !== draft.event_type || this.#pending.callId !== callId)
    ) {
      this.#drain(batch);
    }
    this.#pending ??= { type: draft.event_type, callId, parts: [], chars: 0 };
    this.#pending.parts.push(text);
    this.#pending.chars += text.length;
    if (this.#pending.chars >= COALESCE_CHARS) this.#drain(batch);
    else this.#armTimer();
  }

  #drain(batch: EventDraft[]): void {
    const pending = this.#pending;
    if (!pending) return;
    this.#pending = undefined;
    this.#timer?.abort(overReason());
    this.#timer = undefined;
    const text = pending.parts.join('');
    if (pending.type === 'toolcall_delta') {
      batch.push({
        event_type: 'toolcall_delta',
        payload: { call_id: pending.callId, json: text },
      });
    } else {
      batch.push({ event_type: pending.type, payload: { text } });
    }
  }

  #armTimer(): void {
    if (this.#timer) return;
    const timer = new AbortController();
    this.#timer = timer;
    void this.#flushLater(timer.signal);
  }

  async #flushLater(cancelled: AbortSignal): Promise<void> {
    await this.#options.clock.sleep(COALESCE_MS, cancelled);
    if (cancelled.aborted) return;
    this.#inBackground(() => this.flush());
  }

  /** A failure surfaces at the producer's next record(), because a timer has no caller. */
  #inBackground(write: () => void): void {
    try {
      write();
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
    }
  }

  /**
   * Signs what the writer left unsigned: the first text of an answer at once and more of it once a second, because only
   * signed text survives the death of the process; everything else as soon as what is under way now has been written,
   * which often signs it anyway.
   */
  #signLater(batch: readonly EventDraft[]): void {
    const { writer, clock } = this.#options;
    const isStreaming = batch.every(isPiece);
    const isFirst = !this.#hasText && batch.some(({ event_type: type }) => type === 'token_delta');
    this.#hasText = isStreaming && (this.#hasText || isFirst);
    const waitMs = UNSIGNED_MS - (clock.monotonic() - this.#signedMs);
    if (!writer.isSigned && !isStreaming) this.#signSoon();
    else if (!writer.isSigned && !isFirst && waitMs > 0) {
      void this.#signAfter(waitMs);
      return;
    } else {
      writer.checkpoint();
      this.#signedMs = clock.monotonic();
    }
    this.#unsigned?.abort(overReason());
    this.#unsigned = undefined;
  }

  async #signAfter(ms: number): Promise<void> {
    if (this.#unsigned) return;
    const { clock, writer } = this.#options;
    const timer = new AbortController();
    this.#unsigned = timer;
    await clock.sleep(ms, timer.signal);
    if (timer.signal.aborted) return;
    this.#unsigned = undefined;
    if (this.#failure || writer.isSigned) return;
    this.#inBackground(() => {
      writer.checkpoint();
      this.#signedMs = clock.monotonic();
      this.#publishCheckpoint();
    });
  }

  #signSoon(): void {
    if (this.#isSigningSoon) return;
    this.#isSigningSoon = true;
    setImmediate(() => {
      this.#isSigningSoon = false;
      if (this.#failure || this.#options.writer.isSigned) return;
      this.#inBackground(() => {
        this.#options.writer.checkpoint();
        this.#publishCheckpoint();
      });
    });
  }

  #publishCheckpoint(synced: void | Promise<void> = this.#syncIfDue()): void {
    const { lastCheckpoint } = this.#options.writer;
    const isNew = lastCheckpoint !== undefined && lastCheckpoint !== this.#shown;
    if (isNew) this.#shown = lastCheckpoint;
    this.#publishAfter(synced, isNew ? [lastCheckpoint] : []);
  }

  #syncIfDue(): void | Promise<void> {
    return this.#options.writer.isSyncDue ? this.#sync() : undefined;
  }

  #sync(): void | Promise<void> {
    const { writer } = this.#options;
    const synced = writer.sync();
    const { head } = writer;
    this.#isSyncingSoon = false;
    if (synced) return this.#noteDurable(synced, head);
    this.#durable = head;
    return undefined;
  }

  async #noteDurable(synced: Promise<void>, head: LogHead): Promise<void> {
    await synced;
    this.#durable = head;
  }

  #write(batch: readonly EventDraft[]): readonly LogEvent[] {
    if (batch.length === 0) return [];
    const events = this.#options.writer.append(batch);
    const synced = this.#syncIfDue();
    this.#signLater(batch);
    this.#publishAfter(synced, events);
    this.#publishCheckpoint();
    return events;
  }

  /** Publishes in the order of the log: after `synced`, and after all events that already wait for a sync. */
  #publishAfter(synced: void | Promise<void>, events: readonly LogEvent[]): void {
    if (!synced && this.#waiting === 0) {
      this.#publish(events);
      return;
    }
    this.#waiting += 1;
    const before = [this.#syncing, synced].map(async (one) => await one);
    this.#syncing = this.#publishLater(Promise.all(before), events);
  }

  async #publishLater(before: Promise<unknown>, events: readonly LogEvent[]): Promise<void> {
    try {
      await before;
      if (!this.#failure) this.#publish(events);
    } catch (error) {
      this.#failure ??= error instanceof Error ? error : new Error(String(error));
    }
    this.#waiting -= 1;
  }

  #publish(events: readonly LogEvent[]): void {
    for (const event of events) {
      try {
        this.#subscriber?.(event);
      } catch {
        this.#subscriber = undefined; // an observer can't fail a run
      }
    }
  }
}

type DeltaDraft = Extract<
  EventDraft,
  { event_type: 'token_delta' | 'thinking_delta' | 'toolcall_delta' }
>;

const DELTA_TYPES: ReadonlySet<EventType> = new Set([
  'token_delta',
  'thinking_delta',
  'toolcall_delta',
]);

function isDelta(draft: EventDraft): draft is DeltaDraft {
  return DELTA_TYPES.has(draft.event_type);
}

/** Hashes of the artifacts of one run, so that the log names the bytes that it refers to. */
export class ArtifactHashes {
  readonly #hashes = new Map<string, string>();

  note(path: string, text: string): void {
    this.#hashes.set(path, createHash('sha256').update(text).digest('hex'));
  }

  /** The draft with the hash of the artifact that it names. */
  named(draft: EventDraft): EventDraft {
    if (draft.event_type !== 'tool_settled' || draft.payload.artifact === undefined) return draft;
    const artifact_sha256 = this.#hashes.get(draft.payload.artifact);
    if (artifact_sha256 === undefined) return draft;
    return { ...draft, payload: { ...draft.payload, artifact_sha256 } };
  }
}
