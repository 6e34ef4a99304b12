import type { JsonObject } from '../core/json.ts';
import {
  type AssistantBlock,
  type AssistantMessage,
  type ContentBlock,
  isErrorOutcome,
  type Message,
  type StopReason,
} from '../core/message.ts';
import { totalTokens, type Usage } from '../core/usage.ts';

/** A message as pi stores it; `timestamp` is Unix milliseconds. */
export function piMessage(message: Message, timestamp: number): JsonObject {
  switch (message.role) {
    case 'user':
      return { role: 'user', content: message.content.map(contentBlock), timestamp };
    case 'assistant':
      return answer(message, timestamp);
    case 'tool_result':
      return {
        role: 'toolResult',
        toolCallId: message.call_id,
        toolName: message.name,
        content: message.content.map(contentBlock),
        ...(message.data ? { details: message.data } : {}),
        isError: isErrorOutcome(message.outcome),
        timestamp,
      };
  }
}

const STOP_REASONS = {
  end: 'stop',
  tool_calls: 'toolUse',
  max_tokens: 'length',
  content_filtered: 'error',
  aborted: 'aborted',
} as const satisfies Record<StopReason, string>;

const APIS: Readonly<Record<string, string>> = {
  anthropic: 'anthropic-messages',
  openai: 'openai-completions',
};

function answer(message: AssistantMessage, timestamp: number): JsonObject {
  const { content, provider, model, stop_reason, usage } = message;
  return {
    role: 'assistant',
    content: content.map(answerBlock),
    api: APIS[provider] ?? provider,
    provider,
    model,
    usage: usageOf(usage),
    stopReason: STOP_REASONS[stop_reason],
    timestamp,
  };
}

function usageOf(usage: Usage): JsonObject {
  return {
    input: usage.input_tokens,
    output: usage.output_tokens,
    cacheRead: usage.cache_read_tokens,
    cacheWrite: usage.cache_write_tokens,
    totalTokens: totalTokens(usage),
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
  };
}

function contentBlock(block: ContentBlock): JsonObject {
  return block.type === 'text'
    ? { type: 'text', text: block.text }
    : { type: 'image', data: block.data, mimeType: block.media_type };
}

function answerBlock(block: AssistantBlock): JsonObject {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'thinking': {
      const { text, signature, redacted } = block;
      return redacted === undefined
        ? { type: 'thinking', thinking: text, thinkingSignature: signature }
        : { type: 'thinking', thinking: text, thinkingSignature: redacted, redacted: true };
    }
    case 'tool_call':
      return { type: 'toolCall', id: block.call_id, name: block.name, arguments: block.input };
  }
}
