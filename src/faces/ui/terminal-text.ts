import { stripVTControlCharacters } from 'node:util';
import { eastAsianWidth } from 'get-east-asian-width';
import type picocolors from 'picocolors';
import type { Kept } from './visible.ts';

/** Colors a text, and keeps its characters. */
export type Paint = <const T extends string | number>(text: T) => Kept<T>;
type Names = Exclude<keyof ReturnType<typeof picocolors.createColors>, 'isColorSupported'>;

export type Colors = { readonly [N in Names]: Paint } & { readonly isColorSupported: boolean };

export const ESCAPE = '\u001b';

/** Clears the line of the cursor. */
export const ERASE_LINE = `\r${ESCAPE}[2K`;

/** Clears the last `count` lines. The cursor is at the start of a line before and after. */
export function eraseLines(count: number): string {
  return count === 0 ? '' : `${ESCAPE}[${count}A${ESCAPE}[0J`;
}

/** Titles and links without an end: the library keeps their text. */
const UNFINISHED = new RegExp(`${ESCAPE}\\][^\u0007${ESCAPE}]*(?:\u0007|${ESCAPE}\\\\)?`, 'g');
// a terminal obeys control characters except tab and newline; bidirectional overrides reorder text
const CONTROL = (): RegExp => /[^\P{Cc}\t\n]|[\u202a-\u202e\u2066-\u2069]/gu;
const ZERO_WIDTH = (): RegExp => /\p{Mark}|\p{Cf}/u;
// most text is ASCII, and compiling the Unicode tables takes milliseconds
const ASCII = /^[ -~]*$/;

/**
 * Removes from the streamed output of a program everything that a terminal would obey. Tabs and newlines stay. What a person
 * judges or reads is drawn by {@link visible} instead.
 */
export function neutralize(text: string): string {
  return stripVTControlCharacters(text.replaceAll(UNFINISHED, ''))
    .replaceAll('\r\n', '\n')
    .replaceAll(CONTROL(), '');
}

/** Returns the columns of `text` in a terminal. Terminals disagree on some scripts. */
export function displayWidth(text: string): number {
  if (ASCII.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

function characterWidth(character: string): number {
  if (character >= ' ' && character <= '~') return 1;
  if (ZERO_WIDTH().test(character)) return 0;
  return eastAsianWidth(character.codePointAt(0) ?? 0);
}

/** Splits text into what people perceive as characters. */
export function graphemesOf(text: string): readonly string[] {
  return Array.from(new Intl.Segmenter().segment(text), ({ segment }) => segment);
}

/** A part of a text of type T, with nothing in it that a terminal would obey. */
function keptOf<T extends string>(part: string): Kept<T> {
  return part as Kept<T>;
}

/** Truncates `text` to at most `columns`, with an ellipsis at the cut. */
export function truncate<T extends string>(text: T, columns: number): Kept<T> {
  if (displayWidth(text) <= columns) return keptOf<T>(text);
  let width = 0;
  let kept = '';
  for (const character of text) {
    width += characterWidth(character);
    if (width > columns - 1) break;
    kept += character;
  }
  return keptOf<T>(`${kept}…`);
}

/** Columns below which a text is cut at its end, because a head and a tail would tell nothing. */
const LEAST_SQUEEZED = 40;

/** Shortens `text` to at most `columns`: its head, the number of characters between, and its tail. */
export function squeeze<T extends string>(text: T, columns: number): Kept<T> {
  if (displayWidth(text) <= columns || columns < LEAST_SQUEEZED) return truncate(text, columns);
  const room = columns - between(text.length).length;
  const tail = endOf(text, Math.floor(room / 3));
  const head = truncate(text.slice(0, -tail.length), room - displayWidth(tail)).slice(0, -1);
  return keptOf<T>(`${head}${between(text.length - head.length - tail.length)}${tail}`);
}

function between(characters: number): string {
  return ` …${characters} more… `;
}

function endOf(text: string, columns: number): string {
  let width = 0;
  let kept = '';
  for (const character of Array.from(text).toReversed()) {
    width += characterWidth(character);
    if (width > columns) break;
    kept = character + kept;
  }
  return kept;
}

const STYLE = new RegExp(`${ESCAPE}\\[[\\d;]*m`, 'g');

/** Removes the colors that rye added to neutralized text. */
export function withoutStyles(line: string): string {
  return line.replaceAll(STYLE, '');
}

/** Truncates a colored line to at most `columns`, with an ellipsis at the cut and all colors closed. */
export function clipStyled<T extends string>(line: T, columns: number): Kept<T> {
  if (!line.includes(ESCAPE)) return truncate(line, columns);
  if (displayWidth(withoutStyles(line)) <= columns) return keptOf<T>(line);
  let width = 0;
  let kept = '';
  let at = 0;
  for (const match of line.matchAll(STYLE)) {
    const text = line.slice(at, match.index);
    const whole = width + displayWidth(text);
    if (whole > columns - 1) break;
    kept += text + match[0];
    width = whole;
    at = match.index + match[0].length;
  }
  const rest = line.slice(at).replaceAll(STYLE, '');
  return keptOf<T>(`${kept}${truncate(`${rest} `, Math.max(1, columns - width))}${ESCAPE}[0m`);
}

/** Wraps text to lines of at most `columns`, after a space if there is one, else inside a word. Keeps indentation. */
export function wrapText<T extends string>(text: T, columns: number): readonly Kept<T>[] {
  const lines = text.split('\n').flatMap((line) => wrapLine(line, Math.max(1, columns)));
  return lines.map(keptOf<T>);
}

function wrapLine(line: string, columns: number): readonly string[] {
  // a character has at most two columns per UTF-16 unit, so a short line needs no count
  if (line.length * 2 <= columns) return [line];
  const lines: string[] = [];
  let start = 0;
  let width = 0;
  // position after the last space, and the width up to it
  let gap = -1;
  let gapWidth = 0;
  let at = 0;
  for (const character of line) {
    const own = characterWidth(character);
    // a space at the edge is lost, so it needs no column
    if (character !== ' ' && width + own > columns) {
      const end = gap > start ? gap : at;
      const part = line.slice(start, end).trimEnd();
      // nothing but indentation before a word that needs the whole width
      if (part !== '') lines.push(part);
      width -= gap > start ? gapWidth : width;
      start = end;
      gap = -1;
    }
    width += own;
    at += character.length;
    if (character === ' ') {
      gap = at;
      gapWidth = width;
    }
  }
  const rest = line.slice(start);
  return [...lines, width > columns ? rest.trimEnd() : rest];
}
