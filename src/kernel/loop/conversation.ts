import type { EventDraft, LogEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import {
  type AssistantBlock,
  type AssistantMessage,
  injectedMessage,
  isErrorOutcome,
  type Message,
  type ToolResultMessage,
  toolCallsOf,
} from '../core/message.ts';
import type { PlannedModel } from '../core/plan.ts';
import { isCutAfter } from '../log/interruption.ts';
import { isProtectedTool } from '../log/protected-tools.ts';
import { fileCallOf, READERS, WRITERS } from '../log/summary-prompt.ts';
import type { TailOptions } from './behavior.ts';
import { ContextMeter, Preamble } from './meters.ts';
import type { Outbox } from './outbox.ts';
import type { LoopPorts, StreamWatcher } from './ports.ts';

interface ContextViewOptions {
  readonly tail: TailOptions | undefined;
  readonly elideStaleReads: boolean;
  /** Called when something leaves the view: what refers to an earlier result would now refer to nothing. */
  readonly onShrink: () => void;
}

/** A step frees at least this part of the threshold, or it is not taken: each one costs the cached prefix. */
const MIN_STEP = 1 / 4;
const STALE_STEP_BYTES = 16 * 1024;

interface SeenResult {
  readonly callId: string;
  readonly bytes: number;
  /** Number of the answer that asked for it. */
  readonly turn: number;
  readonly isProtected: boolean;
  readonly readPath: string | undefined;
}

type Reason = 'old' | 'stale';

const STUBS: Readonly<Record<Reason, string>> = {
  old: 'omitted to save space. Call the tool again if it is needed.',
  stale: 'omitted, because the file was changed after this read. Read it again if it is needed.',
};

/**
 * The part of a conversation that is sent: old tool results become stubs, in outgoing messages only. The stubs
 * change in steps and stay the same between them, so that the cached prefix of requests survives all other turns.
 * Costs O(new messages) beside the copy.
 */
export class ContextView {
  readonly #options: ContextViewOptions;
  readonly #left = new Map<string, Reason>();
  #seen: SeenResult[] = [];
  #calls = new Map<string, { readonly name: string; readonly path: string | undefined }>();
  #stale: SeenResult[] = [];
  #counted = 0;
  #turns = 0;
  #shownBytes = 0;

  constructor(options: ContextViewOptions) {
    this.#options = options;
  }

  /** Counts everything again after the context was replaced. Omitted results stay omitted. */
  reset(): void {
    this.#seen = [];
    this.#calls = new Map();
    this.#stale = [];
    this.#counted = 0;
    this.#turns = 0;
    this.#shownBytes = 0;
  }

  project(messages: readonly Message[]): readonly Message[] {
    const { tail, elideStaleReads } = this.#options;
    if (!tail && !elideStaleReads) return messages;
    for (const message of messages.slice(this.#counted)) this.#count(message);
    this.#counted = messages.length;
    const freed = this.#leaveStale() + (tail ? this.#leaveOld(tail) : 0);
    if (freed > 0) this.#options.onShrink();
    if (this.#left.size === 0) return messages;
    return messages.map((message) => this.#shown(message));
  }

  #count(message: Message): void {
    if (message.role === 'user') return;
    if (message.role === 'assistant') {
      this.#turns += 1;
      for (const call of toolCallsOf(message)) this.#calls.set(call.call_id, fileCallOf(call));
      return;
    }
    const call = this.#calls.get(message.call_id);
    const hasPath = call?.path !== undefined && !isErrorOutcome(message.outcome);
    if (hasPath && WRITERS.has(call.name)) this.#becomesStale(call.path);
    if (this.#left.has(message.call_id)) return;
    const result: SeenResult = {
      callId: message.call_id,
      bytes: textBytes(message),
      turn: this.#turns,
      isProtected: isProtectedTool(message.name),
      readPath: hasPath && READERS.has(call.name) ? call.path : undefined,
    };
    this.#seen.push(result);
    this.#shownBytes += result.bytes;
  }

  #becomesStale(path: string): void {
    if (!this.#options.elideStaleReads) return;
    for (const result of this.#seen) {
      if (result.readPath === path && !this.#stale.includes(result)) this.#stale.push(result);
    }
  }

  #leaveStale(): number {
    const bytes = this.#stale.reduce((sum, result) => sum + result.bytes, 0);
    if (bytes < STALE_STEP_BYTES) return 0;
    const stale = this.#stale;
    this.#stale = [];
    return this.#leave(stale, 'stale');
  }

  #leaveOld({ thresholdBytes, keepTurns }: TailOptions): number {
    if (this.#shownBytes <= thresholdBytes) return 0;
    const old = this.#seen.filter(
      ({ turn, isProtected }) => turn <= this.#turns - keepTurns && !isProtected,
    );
    const bytes = old.reduce((sum, result) => sum + result.bytes, 0);
    return bytes < thresholdBytes * MIN_STEP ? 0 : this.#leave(old, 'old');
  }

  #leave(results: readonly SeenResult[], reason: Reason): number {
    let bytes = 0;
    for (const result of results) {
      this.#left.set(result.callId, reason);
      bytes += result.bytes;
    }
    this.#shownBytes -= bytes;
    const gone = new Set(results);
    this.#seen = this.#seen.filter((result) => !gone.has(result));
    this.#stale = this.#stale.filter((result) => !gone.has(result));
    return bytes;
  }

  #shown(message: Message): Message {
    const reason = message.role === 'tool_result' ? this.#left.get(message.call_id) : undefined;
    if (message.role !== 'tool_result' || reason === undefined) return message;
    const text = `[${textBytes(message)} bytes of this result were ${STUBS[reason]}]`;
    const images = message.content.filter(({ type }) => type === 'image');
    return { ...message, content: [{ type: 'text', text }, ...images] };
  }
}

function textBytes({ content }: ToolResultMessage): number {
  let bytes = 0;
  for (const block of content) if (block.type === 'text') bytes += Buffer.byteLength(block.text);
  return bytes;
}

/** The model that gets a context. */
interface Reader {
  readonly provider: string;
  readonly model: string;
}

/**
 * Returns the messages as `reader` may get them: without empty answers, and without reasoning that another
 * provider or model signed, since only its author takes it back.
 */
export function projectContext(messages: readonly Message[], reader: Reader): readonly Message[] {
  const kept: Message[] = [];
  for (const message of messages) {
    const shown = message.role === 'assistant' ? shownTo(message, reader) : message;
    if (shown) kept.push(shown);
  }
  return kept;
}

/** Most answers are shown as they are, and all of them are looked at in each turn. */
function shownTo(message: AssistantMessage, reader: Reader): AssistantMessage | undefined {
  const foreign = message.provider !== reader.provider || message.model !== reader.model;
  const isHidden = (block: AssistantBlock): boolean =>
    isEmptyText(block) || (foreign && block.type === 'thinking');
  const content = message.content.some(isHidden)
    ? message.content.filter((block) => !isHidden(block))
    : message.content;
  if (content.every((block) => block.type === 'thinking')) return undefined;
  return content === message.content ? message : { ...message, content };
}

function isEmptyText(block: AssistantBlock): boolean {
  return block.type === 'text' && block.text.trim() === '';
}

/** A full context that could not be made shorter is asked about again after it grew by this factor. */
const GROWTH_BEFORE_ASKING_AGAIN = 1.1;

/**
 * The messages that the model sees, and the only way to the log. A message enters the conversation after it is in the
 * log, never before.
 */
export class Conversation {
  readonly #ports: Pick<LoopPorts, 'definitions' | 'watchStream' | 'noteMessage'>;
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

  /** The system text that the next request carries, or the last one carried. */
  get system(): string {
    return this.#preamble.system;
  }

  set system(text: string) {
    this.#preamble.system = text;
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
      if (draft.event_type === 'custom_message') this.#append(injectedMessage(draft.payload));
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
    this.#ports.noteMessage?.(message);
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
