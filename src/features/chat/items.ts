import type { ChatItem } from '../../kernel/app/api/chat.ts';
import { accountOf, deliveryOf, taskOf } from '../../kernel/app/api/trees.ts';
import type { EventPayloads, EventType, LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import {
  type AssistantMessage,
  type Message,
  textOf,
  toolCallsOf,
} from '../../kernel/core/message.ts';

type Call = Extract<ChatItem, { readonly kind: 'call' }>;
type Told = Pick<LogEvent | UnknownEvent, 'event_type' | 'payload'>;

/** Characters of a call's output that are kept for a screen; the log has all of it. */
const MAX_OUTPUT = 64 * 1024;

/** Folds the events of a thread into the parts of a conversation that a screen shows. */
export class ChatItems {
  readonly #items: ChatItem[] = [];
  readonly #changed = new Set<number>();
  /** Positions of the calls that have not ended. */
  readonly #calls = new Map<string, number>();
  /** Position of the answer that streams now. */
  #streaming: number | undefined;

  get all(): readonly ChatItem[] {
    return this.#items;
  }

  /** Returns the positions that changed since the last call. */
  takeChanged(): ReadonlySet<number> {
    const changed = new Set(this.#changed);
    this.#changed.clear();
    return changed;
  }

  clear(): void {
    for (const at of this.#items.keys()) this.#changed.add(at);
    this.#items.length = 0;
    this.#calls.clear();
    this.#streaming = undefined;
  }

  /** Takes the next event. */
  take(event: Told): void {
    const message = payloadOf(event, 'message')?.message;
    if (message) this.#message(message);
    else if (!this.#stream(event) && !this.#call(event) && !this.#delivered(event))
      this.#notice(event);
  }

  #message(message: Message): void {
    if (message.role === 'user') {
      const text = taskOf(message)?.task ?? textOf(message.content);
      this.#push({ kind: 'user', text });
    } else if (message.role === 'assistant') this.#answer(message);
    else {
      const { call_id: id, content, outcome } = message;
      this.#update(id, () => ({ state: outcome, output: endOf(textOf(content)) }));
      this.#calls.delete(id);
    }
  }

  /** Replaces the streamed pieces by the whole answer. */
  #answer(message: AssistantMessage): void {
    const at = this.#streaming;
    this.#streaming = undefined;
    const thinking = message.content
      .flatMap((block) => (block.type === 'thinking' ? [block.text] : []))
      .join('\n');
    const text = textOf(message.content);
    const state = message.stop_reason === 'aborted' ? 'cut' : 'done';
    const item: ChatItem = { kind: 'assistant', text, thinking, state };
    if (at !== undefined) this.#put(at, item);
    else if (text !== '' || thinking !== '') this.#push(item);
    for (const { call_id: id, name, input } of toolCallsOf(message)) {
      this.#calls.set(
        id,
        this.#push({ kind: 'call', callId: id, name, input, state: 'requested', output: '' }),
      );
    }
  }

  #stream(event: Told): boolean {
    const text = payloadOf(event, 'token_delta')?.text;
    const thinking = payloadOf(event, 'thinking_delta')?.text;
    if (event.event_type === 'turn_started' || event.event_type === 'request_started')
      this.#dropStreamed();
    if (text === undefined && thinking === undefined) return event.event_type === 'toolcall_delta';
    this.#streaming ??= this.#push({
      kind: 'assistant',
      text: '',
      thinking: '',
      state: 'streaming',
    });
    const item = this.#items[this.#streaming];
    if (item?.kind === 'assistant') {
      this.#put(this.#streaming, {
        ...item,
        text: item.text + (text ?? ''),
        thinking: item.thinking + (thinking ?? ''),
      });
    }
    return true;
  }

  /** An answer that is asked for again starts again: nothing of the first one is in the conversation. */
  #dropStreamed(): void {
    if (this.#streaming === undefined) return;
    this.#put(this.#streaming, { kind: 'assistant', text: '', thinking: '', state: 'cut' });
    this.#streaming = undefined;
  }

  #call(event: Told): boolean {
    const started = payloadOf(event, 'tool_call_start');
    const progress = payloadOf(event, 'tool_call_progress');
    const settled = payloadOf(event, 'tool_settled');
    const request = payloadOf(event, 'approval_requested')?.request;
    if (started) this.#update(started.call_id, () => ({ state: 'running', input: started.input }));
    else if (progress) {
      this.#update(progress.call_id, ({ output }) => ({
        output: endOf(output + progress.text),
      }));
    } else if (settled) {
      const { call_id: id, outcome, reason } = settled;
      this.#update(id, () => ({ state: outcome, ...(reason === undefined ? {} : { reason }) }));
    } else if (request) this.#update(request.call_id, () => ({ state: 'waiting' }));
    return [started, progress, settled, request].some((one) => one !== undefined);
  }

  #update(id: string, change: (call: Call) => Partial<Call>): void {
    const at = this.#calls.get(id);
    const item = at === undefined ? undefined : this.#items[at];
    if (at !== undefined && item?.kind === 'call') this.#put(at, { ...item, ...change(item) });
  }

  /** Shows what a person has sent to the running answer as their message. */
  #delivered(event: Told): boolean {
    const delivered = deliveryOf(payloadOf(event, 'custom_message')?.content ?? '');
    if (delivered?.isPerson !== true) return false;
    this.#push({ kind: 'user', text: delivered.text });
    return true;
  }

  #notice(event: Told): void {
    const account = accountOf(event as LogEvent);
    if (!account?.readers.includes('watcher')) return;
    const { tone, lead, mark, text, reason } = account;
    const why = reason === undefined || reason === '' ? '' : `: ${reason}`;
    this.#push({ kind: 'notice', tone, text: `${lead}${mark}${text}${why}` });
  }

  #push(item: ChatItem): number {
    this.#changed.add(this.#items.length);
    return this.#items.push(item) - 1;
  }

  #put(at: number, item: ChatItem): void {
    this.#items[at] = item;
    this.#changed.add(at);
  }
}

/** Returns the end of a text, without half of a character. */
function endOf(text: string): string {
  return text.length <= MAX_OUTPUT ? text : text.slice(-MAX_OUTPUT).replace(/^[\uDC00-\uDFFF]/, '');
}

/** Returns the payload of an event of this type. */
export function payloadOf<T extends EventType>(
  { event_type: type, payload }: Told,
  wanted: T,
): EventPayloads[T] | undefined {
  // an event of this type has this payload, or comes from a foreign log
  return type === wanted ? (payload as EventPayloads[T]) : undefined;
}
