import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { type ContentBlock, type Message, textOf } from '../core/message.ts';
import { originalTimeOf } from '../core/original.ts';
import { withoutControls } from '../core/text.ts';
import { accountOf, factsOf } from '../log/account.ts';
import { isKnown } from '../log/tree.ts';

/** Maximum characters of a tool result; search finds text in the head and the tail that remain of a longer one. */
const MAX_RESULT_CHARS = 16_384;

/** One entry of a conversation as Markdown blocks; none for an entry that people need not read. */
export function renderEvent(event: LogEvent | UnknownEvent): readonly string[] {
  const [heading, ...blocks] = blocksOf(event);
  if (heading === undefined) return [];
  const time = originalTimeOf(event);
  return [heading, ...(time === undefined ? [] : [`*Time:* ${inlineCode(time)}`]), ...blocks];
}

function blocksOf(event: LogEvent | UnknownEvent): readonly string[] {
  if (isKnown(event, 'message')) return renderMessage(event.payload);
  const account = accountOf(event);
  if (!account?.readers.includes('markdown')) return [];
  const { title = event.event_type, parts } = account;
  return [
    `## ${title}: ${inlineCode(factsOf(account))}`,
    ...parts.map(({ text }) => quote(bounded(text))),
  ];
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
  if (message.stop_reason === 'aborted') parts.push('*This answer was interrupted.*');
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

/** Returns the head and the tail of a long text, and the number of characters omitted between them. */
export function bounded(text: string): string {
  if (text.length <= MAX_RESULT_CHARS) return text;
  const half = MAX_RESULT_CHARS / 2;
  return `${text.slice(0, half)}\n… ${text.length - MAX_RESULT_CHARS} characters omitted …\n${text.slice(-half)}`;
}

/** Carriage returns end a line in Markdown too; control characters would reach a terminal when the file is printed. */
function plain(value: unknown): string {
  // a log may come from elsewhere: what should be a text need not be one
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return withoutControls(text);
}

/** A code fence that the text cannot close (CommonMark 4.5: a closing fence is at least as long as the opening one). */
export function fence(text: string, info: string): string {
  const inner = plain(text);
  const ticks = '`'.repeat(Math.max(3, longestRun(inner) + 1));
  return `${ticks}${info}\n${inner}\n${ticks}`;
}

/**
 * Renders untrusted Markdown as a block quote: a fence, heading or HTML comment that it opens ends with the quote, so it
 * cannot pass for part of the surrounding document.
 */
export function quote(text: string): string {
  return plain(text)
    .trim()
    .split('\n')
    .map((line) => (line === '' ? '>' : `> ${line}`))
    .join('\n');
}

/** Inline code of one line, which a backtick in the text cannot end. */
export function inlineCode(text: string): string {
  const line = plain(text).replaceAll(/\s+/g, ' ').trim();
  const ticks = '`'.repeat(longestRun(line) + 1);
  return line.includes('`') || line === '' ? `${ticks} ${line} ${ticks}` : `\`${line}\``;
}

function longestRun(text: string): number {
  return Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
}
