import { isJsonObject, isRecord, type JsonObject } from '../../core/json.ts';
import type { AssistantBlock } from '../../core/message.ts';
import { GrowingText } from '../../core/text.ts';
import { laterUsage, NO_USAGE, type Usage } from '../../core/usage.ts';
import {
  type Decoded,
  distinctId,
  type IdSet,
  type StreamDecoder,
  type ToolNames,
} from '../adapter.ts';
import { argumentText, callOfJson, joined } from '../call-json.ts';
import type { ModelEvent } from '../provider.ts';
import { stopReasonOf } from '../stop-reason.ts';

type OpenBlock =
  | { readonly kind: 'text'; readonly text: GrowingText }
  | { readonly kind: 'thinking'; readonly text: GrowingText; signature: string }
  | { readonly kind: 'redacted'; readonly data: string }
  | {
      readonly kind: 'tool';
      readonly callId: string;
      readonly name: string;
      /** The input that came with the start of the block, as JSON. */
      readonly given: string;
      readonly pieces: string[];
      isClosed: boolean;
    }
  | { readonly kind: 'other' };

/** The kind of block that a delta belongs to. */
const KINDS: ReadonlyMap<unknown, OpenBlock['kind']> = new Map([
  ['text_delta', 'text'],
  ['thinking_delta', 'thinking'],
  ['signature_delta', 'thinking'],
  ['input_json_delta', 'tool'],
]);

/**
 * Decodes the stream of the Messages API. `takenIds` are call ids of the conversation so far; an id that comes twice is
 * made distinct, because results could not be told apart. Unknown events and blocks are ignored.
 */
export function streamDecoder(takenIds: IdSet, names: ToolNames): StreamDecoder {
  const blocks = new Blocks(takenIds, names);
  let usage: Usage = NO_USAGE;
  let stopReason: string | null = null;

  const withUsage = (raw: unknown): ModelEvent[] => {
    if (!isRecord(raw)) return [];
    usage = laterUsage(usage, {
      input_tokens: count(raw['input_tokens'], usage.input_tokens),
      output_tokens: count(raw['output_tokens'], usage.output_tokens),
      cache_read_tokens: count(raw['cache_read_input_tokens'], usage.cache_read_tokens),
      cache_write_tokens: count(raw['cache_creation_input_tokens'], usage.cache_write_tokens),
    });
    return [{ type: 'usage', usage }];
  };

  const handlers: Readonly<Record<string, (data: JsonObject) => Decoded>> = {
    message_start: (data) => {
      const message = asObject(data['message']);
      return {
        events: [
          { type: 'start', model: asText(message['model']) },
          ...withUsage(message['usage']),
        ],
      };
    },
    content_block_start: ({ index, content_block: block }) => ({
      events: blocks.start(asIndex(index), asObject(block)),
    }),
    content_block_delta: ({ index, delta }) => ({
      events: blocks.add(asIndex(index), asObject(delta)),
    }),
    content_block_stop: ({ index }) => ({ events: blocks.stop(asIndex(index)) }),
    message_delta: (data) => {
      const reason = asObject(data['delta'])['stop_reason'];
      if (typeof reason === 'string') stopReason = reason;
      return { events: withUsage(data['usage']) };
    },
    message_stop: () => {
      const ends = blocks.stopAll();
      const content = blocks.content();
      const reason = stopReasonOf(stopReason ?? undefined, content);
      return typeof reason === 'string'
        ? { events: [...ends, { type: 'finish', reason, content }], done: true }
        : { events: ends, error: reason };
    },
    error: (data) => {
      const { error: given } = data;
      const error = asObject(given);
      const message = asText(error['message']) || asText(given);
      return { events: [], error: { type: asText(error['type']) || 'api_error', message } };
    },
  };

  const push = (data: JsonObject): Decoded => {
    const type = asText(data['type']);
    const handle = Object.hasOwn(handlers, type) ? handlers[type] : undefined;
    return handle?.(data) ?? { events: [] };
  };
  return {
    push,
    whole: (message) => wholeMessage(message, push),
    end: () => ({
      events: [],
      error: {
        type: 'incomplete_stream',
        message: 'the answer ended before its last event',
      },
    }),
  };
}

/** Decodes a message that came whole by the events that it would have come in. */
function wholeMessage(message: JsonObject, push: (data: JsonObject) => Decoded): Decoded {
  if (message['type'] !== 'message') return push(message);
  const content = Array.isArray(message['content']) ? message['content'] : [];
  const steps = [
    { type: 'message_start', message },
    ...content.flatMap((content_block, index) => [
      { type: 'content_block_start', index, content_block },
      { type: 'content_block_stop', index },
    ]),
    { type: 'message_delta', delta: message, usage: message['usage'] ?? null },
    { type: 'message_stop' },
  ].map(push);
  const error = steps.at(-1)?.error;
  return { events: steps.flatMap(({ events }) => events), ...(error ? { error } : {}) };
}

/**
 * The blocks of an answer, in their order. Gateways give two open blocks one index, omit the start or the end of one, or
 * send a delta with the index of a block of another kind: no text of theirs is lost.
 */
class Blocks {
  readonly #takenIds: IdSet;
  readonly #names: ToolNames;
  readonly #all: OpenBlock[] = [];
  readonly #open = new Map<number, OpenBlock>();

  constructor(takenIds: IdSet, names: ToolNames) {
    this.#takenIds = takenIds;
    this.#names = names;
  }

  start(index: number, given: JsonObject): ModelEvent[] {
    const ends = this.stop(index);
    const block = openBlock(given, this.#takenIds, this.#names);
    this.#all.push(block);
    this.#open.set(index, block);
    return [...ends, ...opening(block)];
  }

  add(index: number, delta: JsonObject): ModelEvent[] {
    const kind = KINDS.get(delta['type']);
    const open = this.#open.get(index);
    if (kind === undefined || open?.kind === 'other') return [];
    const block = open?.kind === kind ? open : this.#otherOf(kind);
    return block ? applyDelta(block, delta) : [];
  }

  /** Returns the block of a delta whose index has none of its kind. */
  #otherOf(kind: OpenBlock['kind']): OpenBlock | undefined {
    if (kind === 'tool') return this.#all.findLast((one) => one.kind === 'tool' && !one.isClosed);
    const last = this.#all.at(-1);
    if (last?.kind === kind) return last;
    if (kind !== 'text' && kind !== 'thinking') return undefined;
    const block = openBlock({ type: kind }, this.#takenIds, this.#names);
    this.#all.push(block);
    return block;
  }

  stop(index: number): ModelEvent[] {
    const block = this.#open.get(index);
    this.#open.delete(index);
    return block ? closing(block) : [];
  }

  stopAll(): ModelEvent[] {
    return this.#all.flatMap(closing);
  }

  content(): AssistantBlock[] {
    return this.#all.flatMap((block) => finished(block, this.#names));
  }
}

function openBlock(block: JsonObject, takenIds: IdSet, names: ToolNames): OpenBlock {
  switch (asText(block['type'])) {
    case 'text':
      return { kind: 'text', text: new GrowingText(asText(block['text'])) };
    case 'thinking':
      return {
        kind: 'thinking',
        text: new GrowingText(asText(block['thinking'])),
        signature: asText(block['signature']),
      };
    case 'redacted_thinking':
      return { kind: 'redacted', data: asText(block['data']) };
    case 'tool_use': {
      const callId = distinctId(asText(block['id']), takenIds);
      return {
        kind: 'tool',
        callId,
        name: names.full(asText(block['name'])),
        given: argumentText(block['input']) || '{}',
        pieces: [],
        isClosed: false,
      };
    }
    default:
      return { kind: 'other' };
  }
}

function opening(block: OpenBlock): ModelEvent[] {
  if (block.kind === 'tool') {
    return [{ type: 'toolcall_start', call_id: block.callId, name: block.name }];
  }
  if (block.kind !== 'text' && block.kind !== 'thinking') return [];
  return block.text.isEmpty ? [] : [{ type: `${block.kind}_delta`, text: block.text.toString() }];
}

function applyDelta(block: OpenBlock, delta: JsonObject): ModelEvent[] {
  const type = delta['type'];
  if (block.kind === 'text' && type === 'text_delta') {
    const text = asText(delta['text']);
    block.text.add(text);
    return text === '' ? [] : [{ type: 'text_delta', text }];
  }
  if (block.kind === 'thinking' && type === 'thinking_delta') {
    const text = asText(delta['thinking']);
    block.text.add(text);
    return text === '' ? [] : [{ type: 'thinking_delta', text }];
  }
  if (block.kind === 'thinking' && type === 'signature_delta') {
    block.signature += asText(delta['signature']);
    return [];
  }
  if (block.kind === 'tool' && type === 'input_json_delta') {
    const json = argumentText(delta['partial_json']);
    if (json !== '') block.pieces.push(json);
    return json === '' ? [] : [{ type: 'toolcall_delta', call_id: block.callId, json }];
  }
  return [];
}

function closing(block: OpenBlock): ModelEvent[] {
  if (block.kind !== 'tool' || block.isClosed) return [];
  block.isClosed = true;
  const { callId: call_id, given: json, pieces } = block;
  const end: ModelEvent = { type: 'toolcall_end', call_id };
  if (pieces.length > 0 || json === '{}') return [end];
  // some servers send the whole input with the start of the block
  return [{ type: 'toolcall_delta', call_id, json }, end];
}

function finished(block: OpenBlock, names: ToolNames): AssistantBlock[] {
  switch (block.kind) {
    case 'text':
      return block.text.isEmpty ? [] : [{ type: 'text', text: block.text.toString() }];
    case 'thinking':
      return [
        {
          type: 'thinking',
          text: block.text.toString(),
          ...(block.signature === '' ? {} : { signature: block.signature }),
        },
      ];
    case 'redacted':
      return [{ type: 'thinking', text: '', redacted: block.data }];
    case 'tool': {
      const json = block.pieces.length === 0 ? block.given : joined(block.pieces);
      return [names.own(callOfJson({ callId: block.callId, name: block.name, json }))];
    }
    case 'other':
      break;
  }
  return [];
}

function count(value: unknown, fallback: number): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : fallback;
}

function asIndex(value: unknown): number {
  return typeof value === 'number' ? value : -1;
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function asObject(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}
