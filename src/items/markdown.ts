import MarkdownIt from 'markdown-it';
import { isSignatureLine } from './source-text.ts';

// Only the block structure matters here: inline parsing is the larger part of the cost.
const markdown = new MarkdownIt('commonmark');
markdown.core.ruler.disable(['inline', 'text_join']);

/** A fenced code block at the top level of a Markdown text. Lines count from 1 in that text. */
export interface Fence {
  /** First word of the info string, lower case. */
  readonly language: string;
  /** What stands between the fence lines, indentation included, so that columns are those of the file. */
  readonly content: string;
  /** Line of the opening fence. */
  readonly line: number;
  /** Line after the closing fence. */
  readonly endLine: number;
  readonly closed: boolean;
}

/** The first top-level fence whose info string starts with one of `languages`, as CommonMark defines fences. */
export function findFence(text: string, languages: readonly string[]): Fence | undefined {
  const lines = text.split('\n');
  for (const token of markdown.parse(text, {})) {
    if (token.type !== 'fence' || token.level !== 0 || token.map === null) continue;
    const language = token.info.trim().split(/\s/)[0]?.toLowerCase() ?? '';
    if (!languages.includes(language)) continue;
    const [start, end] = token.map;
    const closed = end - 1 > start && isClosingFence(lines[end - 1] ?? '', token.markup);
    return {
      language,
      content: lines.slice(start + 1, closed ? end - 1 : end).join('\n'),
      line: start + 1,
      endLine: end + 1,
      closed,
    };
  }
  return undefined;
}

function isClosingFence(line: string, markup: string): boolean {
  const [, run = ''] = /^ {0,3}(`+|~+)\s*$/.exec(line) ?? [];
  return run.startsWith(markup);
}

/** A heading with its text; `line` counts from 1. */
export interface Heading {
  readonly text: string;
  readonly line: number;
}

/** The headings of a text in order; `#` lines inside code are none. */
export function findHeadings(text: string): readonly Heading[] {
  const tokens = markdown.parse(text, {});
  return tokens.flatMap((token, index) =>
    token.type === 'heading_open' && token.map !== null
      ? [{ text: tokens[index + 1]?.content ?? '', line: token.map[0] + 1 }]
      : [],
  );
}

/** Text between two lines (from 1, `to` not included), with a signature comment on line 1 left out, trimmed. */
export function linesBetween(lines: readonly string[], from: number, to: number): string {
  const first = from === 1 && isSignatureLine(lines[0] ?? '') ? 2 : from;
  return lines
    .slice(first - 1, Math.max(first - 1, to - 1))
    .join('\n')
    .trim();
}
