import type { TreeRow } from '../app/api/trees.ts';
import { neutralize, wrapText } from '../cli/terminal-text.ts';
import type { AssistantBlock, ContentBlock, Message } from '../core/message.ts';
import { timeOf } from '../core/original.ts';
import type { Style } from './layout.ts';

/** A line of the entry's pane. */
export interface EntryLine {
  readonly text: string;
  readonly style: Style;
}

/** A piece of an entry that is wrapped as one text. */
interface Paragraph {
  readonly text: string;
  readonly style: Style;
}

/** Maximum characters shown of one text. */
const MAX_TEXT = 200_000;
const TAB = '    ';

let cached:
  | { entry: unknown; label: unknown; columns: number; lines: readonly EntryLine[] }
  | undefined;

/** Wraps the content of an entry to a width. Caches the last result, which a pane reads repeatedly. */
export function entryLines(row: TreeRow, columns: number): readonly EntryLine[] {
  const { entry, label } = row;
  if (cached?.entry !== entry || cached.label !== label || cached.columns !== columns) {
    const lines = [...headOf(row), ...bodyOf(row)].flatMap((paragraph) =>
      wrapped(paragraph, columns),
    );
    cached = { entry, label, columns, lines };
  }
  return cached.lines;
}

function wrapped({ text, style }: Paragraph, columns: number): readonly EntryLine[] {
  const shown = text.length <= MAX_TEXT ? text : text.slice(0, MAX_TEXT);
  const rest = text.length - shown.length;
  const lines = wrapText(neutralize(shown).trimEnd().replaceAll('\t', TAB), columns).map(
    (line) => ({
      text: line,
      style,
    }),
  );
  if (rest === 0) return lines;
  const more = `… ${rest} more characters; \`rye threads entries --json\` has them all`;
  return [
    ...lines,
    ...wrapText(more, columns).map((line): EntryLine => ({ text: line, style: 'dim' })),
  ];
}

function headOf({ entry, label, kind, leaf, active }: TreeRow): readonly Paragraph[] {
  const place = leaf ? 'the leaf' : active ? 'on the active branch' : 'on another branch';
  return [
    { text: label === undefined ? kind : `${kind}  [${label}]`, style: 'heading' },
    { text: `${entry.id} · seq ${entry.seq} · ${timeOf(entry)}`, style: 'dim' },
    { text: place, style: 'dim' },
    { text: '', style: 'plain' },
  ];
}

function bodyOf({ entry }: TreeRow): readonly Paragraph[] {
  const payload: Readonly<Record<string, unknown>> = { ...entry.payload };
  switch (entry.event_type) {
    case 'message':
      return messageParagraphs(payload['message'] as Message);
    case 'compaction':
    case 'branch_summary':
      return textWithRest(payload, 'summary');
    case 'custom_message':
      return textWithRest(payload, 'content');
    case 'system_prompt':
      return textWithRest(payload, 'text');
    default:
      return Object.entries(payload).flatMap(member);
  }
}

/** Returns the main text of a payload, then its other members. */
function textWithRest(
  payload: Readonly<Record<string, unknown>>,
  name: string,
): readonly Paragraph[] {
  const rest = Object.entries(payload).filter(([key]) => key !== name);
  return [
    { text: String(payload[name]), style: 'plain' },
    { text: '', style: 'plain' },
    ...rest.flatMap(member),
  ];
}

function member([name, value]: readonly [string, unknown]): readonly Paragraph[] {
  if (typeof value === 'string') {
    return value.includes('\n')
      ? [
          { text: `${name}:`, style: 'key' },
          { text: value, style: 'plain' },
        ]
      : [{ text: `${name}: ${value}`, style: 'plain' }];
  }
  return [{ text: `${name}: ${JSON.stringify(value, null, 2)}`, style: 'plain' }];
}

function messageParagraphs(message: Message): readonly Paragraph[] {
  const blocks = message.content.flatMap((block) => blockParagraphs(block));
  switch (message.role) {
    case 'user':
      return blocks;
    case 'tool_result':
      return [
        { text: `← ${message.name}  ${message.outcome}`, style: outcomeStyle(message.outcome) },
        { text: message.call_id, style: 'dim' },
        { text: '', style: 'plain' },
        ...blocks,
      ];
    case 'assistant':
      return [...blocks, { text: answerFacts(message), style: 'dim' }];
  }
}

function outcomeStyle(outcome: string): Style {
  return outcome === 'ok' ? 'tool' : 'warn';
}

function answerFacts(message: Extract<Message, { role: 'assistant' }>): string {
  const { provider, model, stop_reason: stop } = message;
  const usage: Partial<typeof message.usage> = message.usage ?? {};
  const tokens =
    usage.input_tokens === undefined
      ? ''
      : ` · ${usage.input_tokens}+${usage.output_tokens} tokens`;
  return `${provider}/${model} · ${stop}${tokens}`;
}

function blockParagraphs(block: ContentBlock | AssistantBlock): readonly Paragraph[] {
  const end: Paragraph = { text: '', style: 'plain' };
  switch (block.type) {
    case 'text':
      return block.text === '' ? [] : [{ text: block.text, style: 'plain' }, end];
    case 'thinking':
      return [
        { text: 'thinking', style: 'key' },
        { text: block.text === '' ? '(kept by the provider)' : block.text, style: 'thinking' },
        end,
      ];
    case 'image':
      return [
        {
          text: `[image ${block.media_type}, ${block.data.length} base64 characters]`,
          style: 'dim',
        },
      ];
    case 'tool_call':
      return [
        { text: `→ ${block.name}`, style: 'tool' },
        { text: block.call_id, style: 'dim' },
        ...(block.malformed === undefined
          ? Object.entries(block.input).flatMap(member)
          : [{ text: block.malformed, style: 'warn' } as const]),
        end,
      ];
  }
}
