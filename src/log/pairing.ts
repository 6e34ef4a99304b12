import type {
  AssistantMessage,
  Message,
  ToolCallBlock,
  ToolResultMessage,
} from '../core/message.ts';
import { toolCallsOf } from '../core/message.ts';

/** Messages of a context, and at the same index the entry that each comes from; null for one that was made up. */
export interface Conversation {
  readonly messages: readonly Message[];
  readonly sources: readonly (string | null)[];
}

interface Item {
  readonly entryId: string | null;
  readonly message: Message;
}

/**
 * Makes every tool call have exactly one result, right behind its message and in the order of the calls. Results
 * without a call and second results are dropped; a missing one is made up, and says whether the call was started.
 */
export function repairPairing(
  conversation: Conversation,
  wasStarted: (callId: string) => boolean,
): Conversation {
  const { messages, sources } = conversation;
  if (isPaired(messages)) return conversation;
  const items = messages.map((message, at): Item => ({ message, entryId: sources[at] ?? null }));
  const repaired = repairedItems(items, wasStarted);
  return {
    messages: repaired.map(({ message }) => message),
    sources: repaired.map(({ entryId }) => entryId),
  };
}

/** True where each call has its result in its place and nothing else looks like one. */
function isPaired(messages: readonly Message[]): boolean {
  for (let at = 0; at < messages.length; ) {
    const message = messages[at];
    at += 1;
    if (message?.role === 'tool_result') return false;
    if (message?.role !== 'assistant') continue;
    for (const block of message.content) {
      if (block.type !== 'tool_call') continue;
      const answer = messages[at];
      if (answer?.role !== 'tool_result' || answer.call_id !== block.call_id) return false;
      at += 1;
    }
  }
  return true;
}

function repairedItems(
  items: readonly Item[],
  wasStarted: (callId: string) => boolean,
): readonly Item[] {
  const repaired: Item[] = [];
  let index = 0;
  while (index < items.length) {
    const current = items[index];
    index += 1;
    if (!current || current.message.role === 'tool_result') continue;
    repaired.push(current);
    if (current.message.role !== 'assistant') continue;
    const end = nextAssistant(items, index);
    const answers = answersOf(current.message, items.slice(index, end), wasStarted);
    // not spread: a list may be longer than a call may have arguments
    for (const answer of answers) repaired.push(answer);
    index = end;
  }
  return repaired;
}

function nextAssistant(items: readonly Item[], from: number): number {
  let end = from;
  while (end < items.length && items[end]?.message.role !== 'assistant') end += 1;
  return end;
}

/** What stands behind an assistant message up to the next one: results in the order of the calls, then the rest. */
function answersOf(
  assistant: AssistantMessage,
  behind: readonly Item[],
  wasStarted: (callId: string) => boolean,
): readonly Item[] {
  const results = new Map<string, Item[]>();
  for (const item of behind) {
    if (item.message.role !== 'tool_result') continue;
    const same = results.get(item.message.call_id);
    if (same) same.push(item);
    else results.set(item.message.call_id, [item]);
  }
  const answers = toolCallsOf(assistant).map(
    (call) =>
      results.get(call.call_id)?.shift() ?? {
        entryId: null,
        message: missingResult(call, wasStarted(call.call_id)),
      },
  );
  return [...answers, ...behind.filter(({ message }) => message.role !== 'tool_result')];
}

/** The result that stands for one that was never recorded. */
function missingResult(call: ToolCallBlock, started: boolean): ToolResultMessage {
  const text = started
    ? 'This call was interrupted. It may have taken effect in part or in full: check before repeating it.'
    : 'This call was not started.';
  return {
    role: 'tool_result',
    call_id: call.call_id,
    name: call.name,
    content: [{ type: 'text', text }],
    outcome: started ? 'aborted' : 'skipped',
  };
}
