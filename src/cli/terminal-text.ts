const ESCAPE = '\u001b';

/** Empties the line that the cursor is in. */
export const ERASE_LINE = `\r${ESCAPE}[2K`;

/** Takes the last `count` lines off the screen; the cursor stands at the start of a line before and after. */
export function eraseLines(count: number): string {
  return count === 0 ? '' : `${ESCAPE}[${count}A${ESCAPE}[0J`;
}

/** Colour, cursor and title sequences: removed whole, so that no debris of them is left. */
const ESCAPE_SEQUENCE = new RegExp(
  `${ESCAPE}(?:\\[[0-?]*[ -/]*[@-~]|\\][^\u0007${ESCAPE}]*(?:\u0007|${ESCAPE}\\\\)?)`,
  'g',
);
// All other controls but tab and newline: a terminal obeys them. Bidirectional overrides make text lie about itself.
const CONTROL = /[^\P{Cc}\t\n]|[\u202a-\u202e\u2066-\u2069]/gu;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;
const ZERO_WIDTH = /\p{Mark}|\p{Cf}/u;
// most text is of this kind, and compiling the tables of Unicode takes milliseconds
const PLAIN = /^[ -~]*$/;

/** Text of a model, a tool or a file made harmless for a terminal; tabs and newlines stay. */
export function neutralise(text: string): string {
  return text.replaceAll(ESCAPE_SEQUENCE, '').replaceAll('\r\n', '\n').replaceAll(CONTROL, '');
}

/** Harmless text on one line, whitespace runs as one space. */
export function oneLine(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ');
  return (PLAIN.test(line) ? line : neutralise(line)).trim();
}

/** Columns that `text` takes in a terminal; an estimate for scripts that terminals disagree on. */
export function displayWidth(text: string): number {
  if (PLAIN.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

function characterWidth(character: string): number {
  if (ZERO_WIDTH.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** What a person takes for one character each. */
export function graphemesOf(text: string): readonly string[] {
  return Array.from(new Intl.Segmenter().segment(text), ({ segment }) => segment);
}

/** Cuts `text` to at most `columns`, with an ellipsis where something was left out. */
export function truncate(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let width = 0;
  let kept = '';
  for (const character of text) {
    width += characterWidth(character);
    if (width > columns - 1) break;
    kept += character;
  }
  return `${kept}…`;
}

/**
 * Lines of at most `columns`: broken behind spaces where there are some, inside words where not. Spaces at the
 * start of a line are kept, as code needs them.
 */
export function wrapText(text: string, columns: number): readonly string[] {
  return text.split('\n').flatMap((line) => wrapLine(line, Math.max(1, columns)));
}

function wrapLine(line: string, columns: number): readonly string[] {
  // no character takes less than a unit per column, so a short line needs no count
  if (line.length * 2 <= columns) return [line];
  const lines: string[] = [];
  let start = 0;
  let width = 0;
  // where the line may be broken, and its width up to there
  let gap = -1;
  let gapWidth = 0;
  let at = 0;
  for (const character of line) {
    const own = characterWidth(character);
    if (width + own > columns) {
      const end = gap > start ? gap : at;
      lines.push(line.slice(start, end).trimEnd());
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
  return [...lines, line.slice(start)];
}
