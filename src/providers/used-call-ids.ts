import { type AssistantMessage, type Message, toolCallsOf } from '../core/message.ts';

/** Messages never change, and a conversation sends all of them again with each turn. */
const idsOf = new WeakMap<AssistantMessage, readonly string[]>();

/** The call ids that the conversation already uses, so that a new answer cannot reuse one. */
export function usedCallIds(messages: readonly Message[]): Set<string> {
  const used = new Set<string>();
  for (const message of messages) {
    if (message.role !== 'assistant') continue;
    let ids = idsOf.get(message);
    if (ids === undefined) {
      ids = toolCallsOf(message).map(({ call_id }) => call_id);
      idsOf.set(message, ids);
    }
    for (const id of ids) used.add(id);
  }
  return used;
}
