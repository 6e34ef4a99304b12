import type {
  AssistantMessage,
  Message,
  ToolCallBlock,
  ToolResultMessage,
} from '../core/message.ts';
import { toolCallsOf } from '../core/message.ts';

/** A message of the context and the entry that it comes from; null for one that the fold made up. */
export interface ContextMessage {
  readonly entryId: string | null;
  readonly message: Message;
}

/**
 * Makes every tool call have exactly one result, right behind its message and in the order of the calls. Results
 * without a call and second results are dropped; a missing one is made up, and says whether the call was started.
 */
export function repairPairing(
  messages: readonly ContextMessage[],
  wasStarted: (callId: string) => boolean,
): readonly ContextMessage[] {
  const repaired: ContextMessage[] = [];
  let index = 0;
  while (index < messages.length) {
    const current = messages[index];
    index += 1;
    if (!current || current.message.role === 'tool_result') continue;
    repaired.push(current);
    if (current.message.role !== 'assistant') continue;
    const end = nextAssistant(messages, index);
    const behind = messages.slice(index, end);
    const isSound = isPaired(current.message, behind);
    const answers = isSound ? behind : answersOf(current.message, behind, wasStarted);
    // not spread: a list may be longer than a call may have arguments
    for (const answer of answers) repaired.push(answer);
    index = end;
  }
  return repaired;
}

/** True where each call has its result in its place and nothing else looks like one. */
function isPaired(assistant: AssistantMessage, behind: readonly ContextMessage[]): boolean {
  let results = 0;
  for (const block of assistant.content) {
    if (block.type !== 'tool_call') continue;
    const answer = behind[results]?.message;
    if (answer?.role !== 'tool_result' || answer.call_id !== block.call_id) return false;
    results += 1;
  }
  for (let at = results; at < behind.length; at += 1) {
    if (behind[at]?.message.role === 'tool_result') return false;
  }
  return true;
}

function nextAssistant(messages: readonly ContextMessage[], from: number): number {
  let end = from;
  while (end < messages.length && messages[end]?.message.role !== 'assistant') end += 1;
  return end;
}

/** What stands behind an assistant message up to the next one: results in the order of the calls, then the rest. */
function answersOf(
  assistant: AssistantMessage,
  behind: readonly ContextMessage[],
  wasStarted: (callId: string) => boolean,
): readonly ContextMessage[] {
  const results = new Map<string, ContextMessage[]>();
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
