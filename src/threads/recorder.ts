import { overReason } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import type { EventDraft, EventType, LogEvent } from '../core/events.ts';
import type { LogWriter } from '../storage/store.ts';

/** How streamed text reaches the log; see `transcript.token_deltas`. */
export type DeltaMode = 'every' | 'coalesced' | 'off';

const COALESCE_MS = 50;
const COALESCE_CHARS = 4096;

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

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#subscriber = options.onEvent;
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

  /** Appends a signed checkpoint over everything so far and forces it to the disk. */
  checkpoint(): void {
    this.flush();
    this.#publish([this.#options.writer.checkpoint()]);
    this.#options.writer.sync();
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
    try {
      this.flush();
    } catch (error) {
      // surfaces at the producer's next record(): a timer has nobody to throw to
      this.#failure = error instanceof Error ? error : new Error(String(error));
    }
  }

  #write(batch: readonly EventDraft[]): readonly LogEvent[] {
    if (batch.length === 0) return [];
    const events = this.#options.writer.append(batch);
    if (batch.some((draft) => draft.durable)) this.#options.writer.sync();
    this.#publish(events);
    return events;
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
