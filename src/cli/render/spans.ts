import { type Colors, displayWidth, wrapText } from '../terminal-text.ts';
import { joined, linesOf, partOf, type Shown, shown, visible } from '../visible.ts';

/** Adds the color of a text. */
export type Paint = (text: Shown) => Shown;

/** A piece of text in one style. */
export interface Span {
  readonly text: string;
  readonly paint: Paint;
}

interface Drawn extends Span {
  readonly text: Shown;
}

export const PLAIN: Paint = (text) => text;

/** Wraps spans as one text and paints each line. Removes what a terminal would obey first. */
export function wrapSpans(spans: readonly Span[], columns: number): readonly Shown[] {
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
export function spansWidth(spans: readonly Span[]): number {
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
export function codeSpans(line: string, language: string, colors: Colors): readonly Span[] {
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
