import type { EventDraft, LogEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import { type Message, userText } from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import { isCutAfter } from '../log/interruption.ts';
import { ContextView, type ContextViewOptions, projectContext } from './context-view.ts';
import { ContextMeter, Preamble } from './meters.ts';
import type { Outbox } from './outbox.ts';
import type { LoopPorts, StreamWatcher } from './ports.ts';

/** A full context that could not be made shorter is asked about again after it grew by this factor. */
const GROWTH_BEFORE_ASKING_AGAIN = 1.1;

/**
 * The messages that the model sees, and the only way to the log. A message enters the conversation after it is in the
 * log, never before.
 */
export class Conversation {
  readonly #ports: Pick<LoopPorts, 'definitions' | 'watchStream'>;
  readonly #outbox: Outbox;
  readonly #meter = new ContextMeter();
  readonly #preamble: Preamble;
  readonly #view: ContextView;
  #messages: Message[];
  /** Drafts that wait until the results of an answer are complete; undefined if nothing waits. */
  #held: EventDraft[] | undefined;
  /** Tokens of the context when the hooks were last asked about a full one; 0 if it was not full since. */
  #askedAtTokens = 0;
  #watcher: StreamWatcher | undefined;
  #isCut = false;

  constructor(ports: LoopPorts, outbox: Outbox, view: ContextViewOptions) {
    this.#ports = ports;
    this.#outbox = outbox;
    this.#preamble = new Preamble(ports.system);
    this.#view = new ContextView(view);
    this.#messages = [...ports.history];
    this.#meter.reset(this.#messages);
  }

  get messages(): readonly Message[] {
    return this.#messages;
  }

  /** Returns the messages as the next request to `model` carries them. */
  outgoing({ provider, id }: PlannedModel): readonly Message[] {
    return projectContext(this.#view.project(this.#messages), { provider, model: id });
  }

  /** Bytes that every request repeats before its messages. */
  get preambleBytes(): number {
    return this.#preamble.bytes(this.#ports.definitions());
  }

  /** Returns a fair estimate of the next request in tokens. */
  likelyTokens(): number {
    return this.#meter.likelyTokens(this.preambleBytes);
  }

  /** Returns an estimate of the next request in tokens on the high side, for spending caps. */
  worstTokens(): number {
    return this.#meter.worstTokens(this.preambleBytes);
  }

  /** Takes the provider's count of a request that held every message so far. */
  calibrate(inputTokens: number): void {
    this.#meter.calibrate(inputTokens, this.preambleBytes);
  }

  /** Writes drafts that are not part of the conversation. */
  write(...drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    return this.#outbox.write(drafts);
  }

  /** Writes drafts, then adds the messages among them to the conversation. */
  async record(...drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> {
    const written = await this.#outbox.write(drafts);
    for (const draft of drafts) {
      if (draft.event_type === 'message') this.#append(draft.payload.message);
      if (draft.event_type === 'custom_message') this.#append(userText(draft.payload.content));
      this.#isCut = isCutAfter(draft, this.#isCut);
    }
    return written;
  }

  /** True if an interrupted answer is the last word of the conversation. */
  get isCut(): boolean {
    return this.#isCut;
  }

  #append(message: Message): void {
    this.#messages.push(message);
    this.#meter.add(message);
  }

  /** Writes `records` at once, and records `drafts` as soon as no answer waits for its results. */
  async inject(drafts: readonly EventDraft[], records: readonly EventDraft[] = []): Promise<void> {
    if (this.#held) {
      this.#held.push(...drafts);
      await this.write(...records);
    } else await this.record(...records, ...drafts);
  }

  /** Makes injected drafts wait, so that an answer and its results stay together. */
  holdInjections(): void {
    this.#held ??= [];
  }

  async releaseInjections(): Promise<void> {
    const held = this.#held ?? [];
    this.#held = undefined;
    await this.record(...held);
  }

  /** Replaces the conversation by a compacted one. */
  replace(messages: readonly Message[]): void {
    this.#messages = [...messages];
    this.#meter.reset(messages);
    this.#view.reset();
  }

  /** True if the hooks should be asked about a context of so many tokens, which is full. */
  shouldAskAboutSize(tokens: number): boolean {
    // a context that can't be made shorter would ask, and pay, on every turn
    if (tokens < this.#askedAtTokens * GROWTH_BEFORE_ASKING_AGAIN) return false;
    this.#askedAtTokens = tokens;
    return true;
  }

  /** Forgets that the context was full. */
  noteRoom(): void {
    this.#askedAtTokens = 0;
  }

  /** Watches the newest answer, or watched it once it is complete. */
  get watcher(): StreamWatcher | undefined {
    return this.#watcher;
  }

  /** Starts to watch an answer; the earlier answer is watched no longer. */
  watchAnswer(turn: number): StreamWatcher | undefined {
    this.#watcher = this.#ports.watchStream?.(turn, (draft) => this.#outbox.post(draft));
    return this.#watcher;
  }
}

export function note(text: string, details?: JsonObject): EventDraft {
  return { event_type: 'note', payload: { text, ...(details ? { details } : {}) } };
}

/** Returns a text that the model gets as a user message and that people do not see. */
export function hiddenMessage(customType: string, content: string): EventDraft {
  return {
    event_type: 'custom_message',
    payload: { custom_type: customType, content, display: false },
  };
}
