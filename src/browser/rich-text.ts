import { displayWidth, wrapText } from '../cli/terminal-text.ts';
import { visible } from '../cli/visible.ts';
import type { Span, Style } from './layout.ts';

/** A line of the entry's pane. */
export type Line = readonly Span[];

const TAB = '    ';

function clean(text: string): string {
  return visible(text).trimEnd().replaceAll('\t', TAB);
}

/** Wraps a text in one style. */
export function plainLines(text: string, style: Style, columns: number): readonly Line[] {
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
export function outputLines(text: string, columns: number): readonly Line[] {
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

export function jsonLines(value: unknown, columns: number): readonly Line[] {
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

/** Shows a replacement as a diff; the lines that both texts start or end with are context. */
export function changeLines(before: string, after: string, columns: number): readonly Line[] {
  const [old, now] = [clean(before).split('\n'), clean(after).split('\n')];
  const most = Math.min(old.length, now.length);
  let start = 0;
  while (start < most && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < most - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const show = (lines: readonly string[], sign: string, style: Style): readonly Line[] =>
    lines.flatMap((line) => plainLines(`${sign} ${line}`, style, columns));
  return [
    ...show(old.slice(0, start), ' ', 'dim'),
    ...show(old.slice(start, old.length - end), '-', 'removed'),
    ...show(now.slice(start, now.length - end), '+', 'added'),
    ...show(old.slice(old.length - end), ' ', 'dim'),
  ];
}
