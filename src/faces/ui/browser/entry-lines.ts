import { getImageDimensions } from '@mariozechner/pi-tui';
import {
  accountOf,
  childThreadOf,
  type OpenedTree,
  shortKind,
  type TreeRow,
  type TurnFacts,
  taskOf,
} from '../../../kernel/app/api/trees.ts';
import {
  diffOf,
  type Replacement,
  replacementsIn,
  withoutReplacements,
} from '../../../kernel/core/line-diff.ts';
import {
  type AssistantBlock,
  type ContentBlock,
  type ImageBlock,
  isErrorOutcome,
  type Message,
  type ToolCallBlock,
} from '../../../kernel/core/message.ts';
import { timeOf } from '../../../kernel/core/original.ts';
import { formatSeconds, formatUsd } from '../../../kernel/core/usage.ts';
import { displayWidth, wrapText } from '../terminal-text.ts';
import { oneLine, visible } from '../visible.ts';
import type { Span, Style } from './layout.ts';

/** A line of the entry's pane. */
type Line = readonly Span[];

const TAB = '    ';

function clean(text: string): string {
  return visible(text).trimEnd().replaceAll('\t', TAB);
}

/** Wraps a text in one style. */
function plainLines(text: string, style: Style, columns: number): readonly Line[] {
  return wrapText(clean(text), columns).map((line) => [{ text: line, style }]);
}

/**
 * Wraps spans as one text; the lines after the first begin with `hanging`, unless a word needs its columns: a word that
 * fits the pane is whole.
 */
function wrapSpans(spans: readonly Span[], columns: number, hanging = ''): readonly Line[] {
  const whole = spans.map(({ text }) => text).join('');
  const widths = hanging === '' ? [] : whole.split(' ').map(displayWidth);
  const isNeeded = widths.some((width) => width <= columns && width > columns - hanging.length);
  const indent = isNeeded ? '' : hanging;
  let at = 0;
  return wrapText(whole, columns - indent.length).map((text, index) => {
    const start = Math.max(at, whole.indexOf(text, at));
    at = start + text.length;
    const line = cut(spans, start, at);
    return index === 0 || indent === '' ? line : [{ text: indent, style: 'plain' }, ...line];
  });
}

function cut(spans: readonly Span[], start: number, end: number): Line {
  const line: Span[] = [];
  let from = 0;
  for (const { text, style } of spans) {
    const piece = text.slice(Math.max(0, start - from), Math.max(0, end - from));
    if (piece !== '') line.push({ text: piece, style });
    from += text.length;
  }
  return line;
}

const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\[([^\]\n]+)\]\(([^)\s]+)\)/g;

function inlineSpans(text: string, style: Style): readonly Span[] {
  const spans: Span[] = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, bold, name, url] = match;
    spans.push({ text: text.slice(at, match.index), style });
    if (code !== undefined) spans.push({ text: code, style: 'code' });
    else if (bold !== undefined) spans.push({ text: bold, style: 'heading' });
    else spans.push({ text: name ?? '', style }, { text: ` (${url})`, style: 'dim' });
    at = match.index + whole.length;
  }
  spans.push({ text: text.slice(at), style });
  return spans.filter((span) => span.text !== '');
}

const FENCE = /^\s*(?:```|~~~)(\w*)/;
const HEADING = /^#{1,6}\s+(.*)$/;
const ITEM = /^(\s*)(?:[-*+]|(\d+[.)]))\s+(.*)$/;
const QUOTE = /^>\s?(.*)$/;
const RULE = /^(?:-{3,}|\*{3,})$/;
const TABLE_RULE = /^\|?(?:\s*:?-{2,}:?\s*\|)+\s*:?-*:?\s*$/;

/** Renders Markdown: headings, bold text, code, lists, quotations, links. Anything else is shown as it is. */
export function markdownLines(text: string, columns: number): readonly Line[] {
  let fence: string | undefined;
  return clean(text)
    .split('\n')
    .flatMap((line): readonly Line[] => {
      const mark = FENCE.exec(line);
      if (mark) {
        fence = fence === undefined ? (mark[1] ?? '') : undefined;
        return [];
      }
      if (fence === 'diff') return plainLines(line, diffStyle(line), columns);
      return fence === undefined ? proseLines(line, columns) : plainLines(line, 'code', columns);
    });
}

function proseLines(line: string, columns: number): readonly Line[] {
  const heading = HEADING.exec(line)?.[1];
  if (heading !== undefined) {
    return plainLines(heading.replaceAll(/\*\*|`/g, ''), 'heading', columns);
  }
  const [item, indent = '', number, text = ''] = ITEM.exec(line) ?? [];
  if (item !== undefined) {
    const bullet = `${indent}${number ?? '•'} `;
    const spans: readonly Span[] = [{ text: bullet, style: 'key' }, ...inlineSpans(text, 'plain')];
    return wrapSpans(spans, columns, ' '.repeat(bullet.length));
  }
  const quote = QUOTE.exec(line)?.[1];
  if (quote !== undefined) {
    return wrapSpans([{ text: '▏ ', style: 'dim' }, ...inlineSpans(quote, 'thinking')], columns);
  }
  if (TABLE_RULE.test(line)) return [];
  if (RULE.test(line)) return [[{ text: '─'.repeat(Math.min(columns, 20)), style: 'dim' }]];
  return wrapSpans(inlineSpans(line, 'plain'), columns);
}

function diffStyle(line: string): Style {
  if (line.startsWith('+')) return 'added';
  if (line.startsWith('-')) return 'removed';
  return line.startsWith('@@') ? 'key' : 'dim';
}

const DIFF = /^(?:diff --git |--- \S+.*\n\+\+\+ |@@ -)/m;

/** Renders the output of a tool: JSON is formatted, a diff is colored. */
function outputLines(text: string, columns: number): readonly Line[] {
  if (/^\s*[[{]/.test(text)) {
    try {
      return jsonLines(JSON.parse(text), columns);
    } catch {
      // not JSON
    }
  }
  if (!DIFF.test(text)) return plainLines(text, 'plain', columns);
  return text.split('\n').flatMap((line) => plainLines(line, diffStyle(line), columns));
}

const MEMBER = /^(\s*)("(?:[^"\\]|\\.)*"):(.*)$/;

function jsonLines(value: unknown, columns: number): readonly Line[] {
  return clean(JSON.stringify(value, null, 2))
    .split('\n')
    .flatMap((line) => {
      const [whole, indent = '', name = '', rest = ''] = MEMBER.exec(line) ?? [];
      const spans: readonly Span[] =
        whole === undefined
          ? [{ text: line, style: 'plain' }]
          : [
              { text: `${indent}${name}`, style: 'key' },
              { text: `:${rest}`, style: 'plain' },
            ];
      return wrapSpans(spans, columns);
    });
}

const SIGNS = { add: '+', remove: '-', same: ' ', gap: '…' } as const;
const DIFF_STYLES = { add: 'added', remove: 'removed', same: 'dim', gap: 'dim' } as const;

function changeLines({ before, after }: Replacement, columns: number): readonly Line[] {
  return diffOf(clean(before), clean(after)).flatMap(({ kind, text }) =>
    plainLines(`${SIGNS[kind]} ${text}`, DIFF_STYLES[kind], columns),
  );
}

/** Maximum characters shown of one text. */
const MAX_TEXT = 200_000;
const GAP: Line = [];

/** The parts of a tree with more about an entry. */
type EntrySource = Pick<OpenedTree, 'isSent' | 'turnOf'>;

let cached: { key: readonly unknown[]; lines: readonly Line[] } | undefined;

/** Wraps the content of an entry to a width. Caches the last result, which a pane reads repeatedly. */
export function entryLines(row: TreeRow, columns: number, source: EntrySource): readonly Line[] {
  const key = [row.entry, row.label, row.leaf, columns, source];
  if (!cached || cached.key.some((part, at) => part !== key[at])) {
    const pane = new Pane(columns);
    pane.head(row, source.isSent);
    pane.body(row, source.turnOf(row.entry.id));
    cached = { key, lines: pane.lines };
  }
  return cached.lines;
}

/** Formats `$0.0005 · 1.2s`. */
export function turnText({ spend, seconds }: TurnFacts = {}): string {
  return [
    ...(spend === undefined ? [] : [formatUsd(spend)]),
    ...(seconds === undefined ? [] : [formatSeconds(seconds)]),
  ].join(' · ');
}

/** Collects the lines of one entry. */
class Pane {
  readonly lines: Line[] = [];
  readonly #columns: number;

  constructor(columns: number) {
    this.#columns = columns;
  }

  head(row: TreeRow, isSent: (entry: string) => boolean): void {
    const { entry, label, kind, divider } = row;
    const when = timeOf(entry)
      .replace('T', ' ')
      .replace(/\.\d+Z$/, ' UTC');
    const title =
      divider?.text ?? (label === undefined ? shortKind(kind) : `${shortKind(kind)}  [${label}]`);
    this.#plain(title, 'heading');
    this.#plain(divider ? when : `${when} · entry ${entry.id}`, 'dim');
    if (!divider) {
      const isDropped = entry.event_type === 'message' && !isSent(entry.id);
      this.#plain(`${placeOf(row)}${isDropped ? ' · no longer sent to the model' : ''}`, 'dim');
    }
    const thread = childThreadOf(entry);
    if (thread !== undefined) this.#plain(`Enter opens thread ${thread}`, 'key');
    this.lines.push(GAP);
  }

  body({ entry, call }: TreeRow, turn: TurnFacts | undefined): void {
    const payload: Record<string, unknown> = { ...entry.payload };
    if (entry.event_type === 'message') {
      this.#message(payload['message'] as Message, call);
      if (turn) this.#plain(turnText(turn), 'dim');
      return;
    }
    for (const { member = '', text } of accountOf(entry)?.parts ?? []) {
      if (!Object.hasOwn(payload, member)) continue;
      delete payload[member];
      this.#text(text, markdownLines);
      this.lines.push(GAP);
    }
    if (entry.event_type === 'custom_message' && Array.isArray(payload['images'])) {
      const { images, ...rest } = payload;
      for (const block of images as readonly ContentBlock[]) this.#block(block);
      this.#members(rest);
    } else this.#members(payload);
  }

  #message(message: Message, call: ToolCallBlock | undefined): void {
    switch (message.role) {
      case 'user': {
        const task = taskOf(message);
        if (task) {
          this.#plain(`directive ${task.name}`, 'key');
          this.#text(task.task, markdownLines);
          this.lines.push(GAP);
          const count = task.instructions.split('\n').length;
          this.#plain(
            `${count} lines of standard instructions are folded; \`rye threads entries --entry\` prints them`,
            'dim',
          );
        }
        for (const block of task ? message.content.slice(1) : message.content) this.#block(block);
        break;
      }
      case 'tool_result': {
        const { name, outcome, content } = message;
        if (call) this.#call(call);
        else this.#plain(name, 'tool');
        this.#plain(`→ ${outcome}`, isErrorOutcome(outcome) ? 'warn' : 'tool');
        for (const block of content) {
          if (block.type === 'image') this.#image(block, call);
          else this.#text(block.text, outputLines);
        }
        break;
      }
      case 'assistant':
        for (const block of message.content) this.#block(block);
        this.#plain(answerFacts(message), 'dim');
    }
  }

  #block(block: ContentBlock | AssistantBlock): void {
    switch (block.type) {
      case 'text':
        if (block.text === '') return;
        this.#text(block.text, markdownLines);
        break;
      case 'thinking':
        this.#plain('thinking', 'key');
        this.#plain(block.text === '' ? '(kept by the provider)' : block.text, 'thinking');
        break;
      case 'image':
        this.#image(block);
        break;
      case 'tool_call':
        this.#call(block);
    }
    this.lines.push(GAP);
  }

  #call({ name, input, malformed }: ToolCallBlock): void {
    this.#plain(name, 'tool');
    if (malformed !== undefined) this.#plain(malformed, 'warn');
    const changes = replacementsIn(input);
    this.#members(changes.length > 0 ? withoutReplacements(input) : input);
    for (const change of changes) {
      this.#add(changeLines(change, this.#columns));
      this.lines.push(GAP);
    }
  }

  #image({ data, media_type: type }: ImageBlock, call?: ToolCallBlock): void {
    const path = call?.input['path'];
    const size = getImageDimensions(data, type);
    const facts = [
      ...(typeof path === 'string' ? [path] : []),
      type,
      ...(size ? [`${size.widthPx} × ${size.heightPx}`] : []),
      `${Math.floor((data.length * 3) / 4).toLocaleString('en')} bytes`,
    ];
    this.#plain(`[image: ${facts.join(', ')}]`, 'tool');
  }

  #members(values: Readonly<Record<string, unknown>>): void {
    for (const [name, value] of Object.entries(values)) {
      const shown = oneLine(name);
      if (typeof value === 'string' && value.includes('\n')) {
        this.#plain(`${shown}:`, 'key');
        this.#text(value, outputLines);
      } else if (typeof value === 'object' && value !== null && Object.keys(value).length > 0) {
        this.#plain(`${shown}:`, 'key');
        this.#add(jsonLines(value, this.#columns));
      } else {
        this.#plain(
          `${shown}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
          'plain',
        );
      }
    }
  }

  #plain(text: string, style: Style): void {
    this.#text(text, (shown, columns) => plainLines(shown, style, columns));
  }

  #text(text: string, render: (text: string, columns: number) => readonly Line[]): void {
    this.#add(render(text.slice(0, MAX_TEXT), this.#columns));
    const rest = text.length - MAX_TEXT;
    if (rest <= 0) return;
    this.#plain(`… ${rest} more characters; \`rye threads entries --json\` has them all`, 'dim');
  }

  #add(lines: readonly Line[]): void {
    // a spread of many lines would overflow the stack
    for (const line of lines) this.lines.push(line);
  }
}

function placeOf({ leaf, aboveLeaf, active }: TreeRow): string {
  if (leaf) return 'the head: the conversation continues here';
  if (aboveLeaf) return 'the head is below this entry, hidden by the filter';
  return active ? 'on the path to the head' : 'on another branch';
}

function answerFacts(message: Extract<Message, { role: 'assistant' }>): string {
  const { provider, model, stop_reason: stop } = message;
  const usage: Partial<typeof message.usage> = message.usage ?? {};
  const tokens =
    usage.input_tokens === undefined
      ? ''
      : ` · ${usage.input_tokens} tokens in, ${usage.output_tokens} out`;
  return `${provider}/${model} · ${stop}${tokens}`;
}
