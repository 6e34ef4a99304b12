import type { Message } from '../core/message.ts';

/** The call ids that the conversation already uses, so that a new answer cannot reuse one. */
export function usedCallIds(messages: readonly Message[]): Set<string> {
  return new Set(
    messages.flatMap((message) =>
      message.role === 'assistant'
        ? message.content.flatMap((block) => (block.type === 'tool_call' ? [block.call_id] : []))
        : [],
    ),
  );
}
