import { isJsonObject, isRecord, type JsonObject } from '../../core/json.ts';
import type { AssistantBlock } from '../../core/message.ts';
import { GrowingText } from '../../core/text.ts';
import { laterUsage, NO_USAGE, type Usage } from '../../core/usage.ts';
import {
  callOfJson,
  type Decoded,
  distinctId,
  type IdSet,
  type StreamDecoder,
  type ToolNames,
} from '../adapter.ts';
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
      readonly given: JsonObject;
      readonly json: GrowingText;
    }
  | { readonly kind: 'other' };

const OTHER: OpenBlock = { kind: 'other' };

/**
 * Decodes the stream of the Messages API. `takenIds` are call ids of the conversation so far; an id that comes twice is
 * made distinct, because results could not be told apart. Unknown events and blocks are ignored.
 */
export function streamDecoder(takenIds: IdSet, names: ToolNames): StreamDecoder {
  const blocks = new Map<number, OpenBlock>();
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
    content_block_start: (data) => {
      const block = openBlock(asObject(data['content_block']), takenIds, names);
      blocks.set(asIndex(data['index']), block);
      return { events: opening(block) };
    },
    content_block_delta: (data) => ({
      events: applyDelta(blocks.get(asIndex(data['index'])) ?? OTHER, asObject(data['delta'])),
    }),
    content_block_stop: (data) => ({
      events: closing(blocks.get(asIndex(data['index'])) ?? OTHER),
    }),
    message_delta: (data) => {
      const reason = asObject(data['delta'])['stop_reason'];
      if (typeof reason === 'string') stopReason = reason;
      return { events: withUsage(data['usage']) };
    },
    message_stop: () => {
      const content = [...blocks.values()].flatMap((block) => finished(block, names));
      const reason = stopReasonOf(stopReason ?? undefined, content);
      return typeof reason === 'string'
        ? { events: [{ type: 'finish', reason, content }], done: true }
        : { events: [], error: reason };
    },
    error: (data) => {
      const error = asObject(data['error']);
      return {
        events: [],
        error: { type: asText(error['type']) || 'api_error', message: asText(error['message']) },
      };
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
        given: asObject(block['input']),
        json: new GrowingText(),
      };
    }
    default:
      return OTHER;
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
    const json = asText(delta['partial_json']);
    block.json.add(json);
    return json === '' ? [] : [{ type: 'toolcall_delta', call_id: block.callId, json }];
  }
  return [];
}

function closing(block: OpenBlock): ModelEvent[] {
  if (block.kind !== 'tool') return [];
  const end: ModelEvent = { type: 'toolcall_end', call_id: block.callId };
  if (!block.json.isEmpty || Object.keys(block.given).length === 0) return [end];
  // some servers send the whole input with the start of the block
  return [
    { type: 'toolcall_delta', call_id: block.callId, json: JSON.stringify(block.given) },
    end,
  ];
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
      const json = block.json.isEmpty ? JSON.stringify(block.given) : block.json.toString();
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
