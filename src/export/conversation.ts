import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { type ContentBlock, type Message, textOf } from '../core/message.ts';
import { isKnown } from '../log/tree.ts';
import { fence, inlineCode, quote } from './markdown.ts';

/** Of a longer tool result the head and the tail are kept, so that search still finds what stands in them. */
const MAX_RESULT_CHARS = 16_384;

/** One entry of a conversation as Markdown blocks; none for an entry that people need not read. */
export function renderEvent(event: LogEvent | UnknownEvent): readonly string[] {
  if (isKnown(event, 'message')) return renderMessage(event.payload);
  if (isKnown(event, 'custom_message')) {
    const { custom_type: type, content, display } = event.payload;
    return display ? [`## Injected by ${inlineCode(type)}`, fence(bounded(content), 'text')] : [];
  }
  if (isKnown(event, 'compaction')) {
    const { summary, tokens_before: tokens } = event.payload;
    return [`## Compacted at ${tokens} tokens`, quote(bounded(summary))];
  }
  if (isKnown(event, 'branch_summary')) {
    return ['## Summary of a branch that was left', quote(bounded(event.payload.summary))];
  }
  if (isKnown(event, 'context_edit')) {
    const { target_id: target, action, content, reason } = event.payload;
    const why = reason === undefined ? '' : `: ${inlineCode(reason)}`;
    const line = `*From here on the model sees entry ${inlineCode(target)} ${action === 'omit' ? 'no more' : 'changed'}*${why}`;
    return content === undefined ? [line] : [line, fence(bounded(content), 'text')];
  }
  return [];
}

function renderMessage({
  message,
  turn,
}: {
  readonly message: Message;
  readonly turn?: number;
}): readonly string[] {
  switch (message.role) {
    case 'user':
      return ['## Input', fence(blocksText(message.content), 'text')];
    case 'assistant':
      return [`## Turn ${turn ?? 0}`, ...renderAnswer(message)];
    case 'tool_result':
      return [
        `### Result of ${inlineCode(message.name)}: ${message.outcome}`,
        fence(bounded(blocksText(message.content)), 'text'),
      ];
  }
}

function renderAnswer(message: Extract<Message, { role: 'assistant' }>): string[] {
  const parts: string[] = [];
  if (message.stop_reason === 'aborted')
    parts.push('*This answer was cut off and is not part of the conversation.*');
  for (const block of message.content) {
    if (block.type === 'tool_call') {
      const input = block.malformed ?? JSON.stringify(block.input, null, 2);
      parts.push(`### Call of ${inlineCode(block.name)}`, fence(bounded(input), 'json'));
    } else if (block.text.trim() !== '') {
      parts.push(block.type === 'thinking' ? fence(block.text, 'thinking') : quote(block.text));
    }
  }
  return parts;
}

function blocksText(content: readonly ContentBlock[]): string {
  const images = content.filter((block) => block.type === 'image').length;
  return images === 0 ? textOf(content) : `${textOf(content)}\n[${images} image(s)]`;
}

/** The head and the tail of a long text, and how much is left out between them. */
export function bounded(text: string): string {
  if (text.length <= MAX_RESULT_CHARS) return text;
  const half = MAX_RESULT_CHARS / 2;
  return `${text.slice(0, half)}\n… ${text.length - MAX_RESULT_CHARS} characters left out …\n${text.slice(-half)}`;
}
