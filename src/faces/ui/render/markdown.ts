import MarkdownIt from 'markdown-it';
import { type Colors, displayWidth, withoutStyles, wrapText } from '../terminal-text.ts';
import { joined, linesOf, oneLine, partOf, type Shown, shown, visible } from '../visible.ts';

/** Adds the color of a text. */
type Paint = (text: Shown) => Shown;

/** A piece of text in one style. */
interface Span {
  readonly text: string;
  readonly paint: Paint;
}

interface Drawn extends Span {
  readonly text: Shown;
}

const PLAIN: Paint = (text) => text;

/** Wraps spans as one text and paints each line. Removes what a terminal would obey first. */
function wrapSpans(spans: readonly Span[], columns: number): readonly Shown[] {
  const clean = spans.map(({ text, paint }) => ({ text: visible(text), paint }));
  const whole = joined(
    clean.map(({ text }) => text),
    '',
  );
  let at = 0;
  return wrapText(whole, columns).map((line) => {
    // only spaces are lost between two lines
    const start = Math.max(at, whole.indexOf(line, at));
    at = start + line.length;
    return cut(clean, start, at);
  });
}

function cut(spans: readonly Drawn[], start: number, end: number): Shown {
  let from = 0;
  let line = shown``;
  for (const { text, paint } of spans) {
    const piece = partOf(text, Math.max(0, start - from), Math.max(0, end - from));
    if (piece !== '') line = shown`${line}${paint(piece)}`;
    from += text.length;
  }
  return line;
}

/** Returns the widest line of spans that are not wrapped. */
function spansWidth(spans: readonly Span[]): number {
  const whole = joined(
    spans.map(({ text }) => visible(text)),
    '',
  );
  return Math.max(...linesOf(whole).map(displayWidth));
}

const TOKEN =
  /(\/\/.*|(?<=^|\s)#.*|--\s.*|\/\*.*?(?:\*\/|$))|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)|\b(\d[\d_.]*)\b|\b(async|await|break|case|catch|class|const|def|do|done|echo|elif|else|end|enum|except|export|extends|false|fi|finally|fn|for|from|func|function|if|impl|import|in|interface|let|match|mut|new|nil|None|null|package|pub|return|self|static|struct|switch|then|this|throw|true|True|False|try|type|use|var|while|with|yield)\b/g;
/** Languages whose words are not keywords. */
const PROSE: ReadonlySet<string> = new Set(['', 'text', 'txt', 'md', 'markdown', 'console', 'csv']);

/** Colors a line of code lightly: comments, strings, numbers and the words that most languages share. */
function codeSpans(line: string, language: string, colors: Colors): readonly Span[] {
  if (language === 'diff' || language === 'patch') {
    return [{ text: line, paint: diffPaint(line, colors) }];
  }
  if (PROSE.has(language)) return [{ text: line, paint: PLAIN }];
  const spans: Span[] = [];
  let at = 0;
  for (const match of line.matchAll(TOKEN)) {
    const [whole, comment, quoted, digits] = match;
    const paint =
      comment !== undefined
        ? colors.dim
        : quoted !== undefined
          ? colors.green
          : digits !== undefined
            ? colors.yellow
            : colors.magenta;
    spans.push({ text: line.slice(at, match.index), paint: PLAIN }, { text: whole, paint });
    at = match.index + whole.length;
  }
  spans.push({ text: line.slice(at), paint: PLAIN });
  return spans;
}

function diffPaint(line: string, colors: Colors): Paint {
  if (line.startsWith('+')) return colors.green;
  if (line.startsWith('-')) return colors.red;
  return line.startsWith('@@') ? colors.cyan : PLAIN;
}

export interface MarkdownStyle {
  readonly colors: Colors;
  readonly columns: number;
}

type Token = ReturnType<MarkdownIt['parse']>[number];

// HTML is shown as it is written
const parser = new MarkdownIt({ html: false, linkify: false, typographer: false });
/** Minimum columns of the text of a nested block. */
const MIN_COLUMNS = 8;
const CODE_INDENT = '  ';

/** A block of a text at the top level and the number of its first line. */
export interface MarkdownBlock {
  readonly type: string;
  readonly start: number;
  readonly tokens: readonly Token[];
}

/** Splits a text into its blocks. A token of a nested block starts in its own line. */
export function markdownBlocks(text: string): readonly MarkdownBlock[] {
  return groups(parser.parse(text, {})).map((tokens) => ({
    type: tokens[0]?.type ?? '',
    start: tokens[0]?.map?.[0] ?? 0,
    tokens,
  }));
}

/** Renders the blocks of a text, with an empty line between two of them. */
export function renderMarkdown(text: string, style: MarkdownStyle): readonly Shown[] {
  return spaced(
    markdownBlocks(text.replaceAll('\t', '    ')).map(({ tokens }) => block(tokens, style)),
  );
}

/** Renders one block. */
export function renderBlock({ tokens }: MarkdownBlock, style: MarkdownStyle): readonly Shown[] {
  return block(tokens, style);
}

function spaced(blocks: readonly (readonly Shown[])[], gap = [shown``]): readonly Shown[] {
  return blocks.flatMap((lines, at) => (at === 0 ? lines : [...gap, ...lines]));
}

/** Splits tokens of one level into groups, one for each block. */
function groups(tokens: readonly Token[]): readonly (readonly Token[])[] {
  const found: Token[][] = [];
  let depth = 0;
  for (const token of tokens) {
    if (depth === 0) found.push([]);
    found.at(-1)?.push(token);
    depth += token.nesting;
  }
  return found;
}

function block(tokens: readonly Token[], style: MarkdownStyle): readonly Shown[] {
  const [first] = tokens;
  if (first === undefined) return [];
  const inner = tokens.slice(1, -1);
  const { colors } = style;
  switch (first.type) {
    case 'heading_open': {
      const paint: Paint =
        first.tag === 'h1' ? (text) => colors.bold(colors.underline(text)) : colors.bold;
      return wrapSpans(inlineSpans(inner[0], colors, paint), style.columns);
    }
    case 'paragraph_open':
      return wrapSpans(inlineSpans(inner[0], colors), style.columns);
    case 'fence':
      return code(first.content, first.info.trim().split(/\s/)[0] ?? '', style);
    case 'code_block':
      return code(first.content, '', style);
    case 'bullet_list_open':
    case 'ordered_list_open':
      return list(first, groups(inner), style);
    case 'blockquote_open': {
      const lines = spaced(groups(inner).map((group) => block(group, narrower(style, 2))));
      return lines.map((line) => shown`${colors.dim('▏')} ${line}`);
    }
    case 'table_open':
      return table(inner, style);
    case 'hr':
      return [colors.dim(oneLine('─'.repeat(Math.min(style.columns, 24))))];
    default:
      return tokens.flatMap((token) =>
        wrapSpans([{ text: token.content, paint: PLAIN }], style.columns),
      );
  }
}

function narrower(style: MarkdownStyle, by: number): MarkdownStyle {
  return { ...style, columns: Math.max(MIN_COLUMNS, style.columns - by) };
}

/** Renders the lines of a code block. */
function code(content: string, language: string, style: MarkdownStyle): readonly Shown[] {
  return content
    .replace(/\n$/, '')
    .split('\n')
    .flatMap((line) => codeLine(line, language, style));
}

/** Renders one line of a code block. */
export function codeLine(line: string, language: string, style: MarkdownStyle): readonly Shown[] {
  const columns = Math.max(MIN_COLUMNS, style.columns - CODE_INDENT.length);
  const { colors } = style;
  const spans = codeSpans(line.replaceAll('\t', '    '), language.toLowerCase(), colors);
  return wrapSpans(spans, columns).map((part) => shown`${CODE_INDENT}${part}`);
}

function list(
  open: Token,
  items: readonly (readonly Token[])[],
  style: MarkdownStyle,
): readonly Shown[] {
  const { colors } = style;
  const first = Number(open.attrGet('start') ?? 1);
  const isOrdered = open.type === 'ordered_list_open';
  const rendered = items.map((item, at) => {
    const mark = isOrdered ? shown`${first + at}. ` : shown`• `;
    const parts = groups(item.slice(1, -1));
    // a tight list has no empty lines, neither before its nested lists
    const gap = parts.some(([token]) => token?.hidden === false && token.type === 'paragraph_open')
      ? [shown``]
      : [];
    const lines = spaced(
      parts.map((part) => block(part, narrower(style, mark.length))),
      gap,
    );
    const before = oneLine(' '.repeat(mark.length));
    return (lines.length === 0 ? [shown``] : lines).map(
      (line, row) => shown`${row === 0 ? colors.cyan(mark) : before}${line}`,
    );
  });
  return rendered.flat();
}

const GAP = '  ';
const MIN_CELL = 3;

function table(tokens: readonly Token[], style: MarkdownStyle): readonly Shown[] {
  const { colors } = style;
  const rows: (readonly Span[])[][] = [];
  for (const [at, { type }] of tokens.entries()) {
    if (type === 'tr_open') rows.push([]);
    if (type !== 'th_open' && type !== 'td_open') continue;
    const paint = type === 'th_open' ? colors.bold : PLAIN;
    rows.at(-1)?.push(inlineSpans(tokens[at + 1], colors, paint));
  }
  const natural = (rows[0] ?? []).map((_, column) =>
    Math.max(MIN_CELL, ...rows.map((row) => spansWidth(row[column] ?? []))),
  );
  const widths = fitted(natural, style.columns - GAP.length * (natural.length - 1));
  return rows.flatMap((row) => tableRow(row, widths));
}

/** Takes columns from the widest cells until all fit. */
function fitted(natural: readonly number[], room: number): readonly number[] {
  const widths = [...natural];
  for (let over = widths.reduce((sum, width) => sum + width, 0) - room; over > 0; over -= 1) {
    const widest = Math.max(...widths);
    if (widest <= MIN_CELL) break;
    widths[widths.indexOf(widest)] = widest - 1;
  }
  return widths;
}

function tableRow(row: readonly (readonly Span[])[], widths: readonly number[]): readonly Shown[] {
  const cells = widths.map((width, column) => wrapSpans(row[column] ?? [], width));
  const height = Math.max(1, ...cells.map((lines) => lines.length));
  return Array.from({ length: height }, (_, at) => {
    const parts = cells.map((lines, column) => {
      const line = lines[at] ?? shown``;
      const missing = (widths[column] ?? 0) - displayWidth(withoutStyles(line));
      if (column === cells.length - 1) return line;
      return shown`${line}${oneLine(' '.repeat(Math.max(0, missing)))}`;
    });
    return joined(parts, GAP);
  });
}

const STYLES: Readonly<Record<string, (colors: Colors) => Paint>> = {
  strong: (colors) => colors.bold,
  em: (colors) => colors.italic,
  s: (colors) => colors.strikethrough,
  link: (colors) => colors.underline,
};

/** Returns the text of a paragraph, heading or cell in its styles. */
function inlineSpans(
  token: Token | undefined,
  colors: Colors,
  base: Paint = PLAIN,
): readonly Span[] {
  const spans: Span[] = [];
  const paints: Paint[] = [];
  const links: { readonly href: string; readonly at: number }[] = [];
  const add = (text: string, paint: Paint): void => {
    spans.push({ text, paint: [base, ...paints, paint].reduce(compose) });
  };
  for (const child of token?.children ?? []) {
    const style = STYLES[child.type.replace(/_(?:open|close)$/, '')];
    if (style && child.nesting === 1) {
      paints.push(style(colors));
      if (child.type === 'link_open') {
        links.push({ href: child.attrGet('href') ?? '', at: spans.length });
      }
    } else if (style) {
      paints.pop();
      const link = child.type === 'link_close' ? links.pop() : undefined;
      const name = link && spans.slice(link.at).map(({ text }) => text);
      if (link && name?.join('') !== link.href) add(` (${link.href})`, colors.dim);
    } else add(...inlineText(child, colors));
  }
  return spans;
}

function inlineText({ type, content }: Token, colors: Colors): readonly [string, Paint] {
  switch (type) {
    case 'code_inline':
      return [content, colors.cyan];
    case 'softbreak':
      return [' ', PLAIN];
    case 'hardbreak':
      return ['\n', PLAIN];
    case 'image':
      return [`[image: ${content}]`, colors.dim];
    default:
      return [content, PLAIN];
  }
}

function compose(outer: Paint, inner: Paint): Paint {
  return (text) => outer(inner(text));
}
