import type { Sink } from '../io.ts';
import { clipStyled, displayWidth, ESCAPE, withoutStyles } from '../terminal-text.ts';
import { visible } from '../visible.ts';

/** Place of the cursor in the lines of an area, from 0. */
export interface CursorPlace {
  readonly row: number;
  readonly column: number;
}

/**
 * The last lines of a terminal, redrawn in place. Printed lines stay above it and scroll away as usual. Each line is cut
 * to the width at the time of the drawing, and an area never grows taller than the screen.
 */
export interface LiveArea {
  /** Appends permanent lines above the area. */
  readonly print: (lines: readonly string[]) => void;
  /** Prints permanent lines and replaces the area's lines. Shows the cursor at `cursor`, or hides it. */
  readonly update: (
    printed: readonly string[],
    lines: readonly string[],
    cursor?: CursorPlace,
  ) => void;
  /**
   * Takes the area away and draws nothing until the returned function is called, which prints what came meanwhile. For
   * another program on the terminal.
   */
  readonly hold: () => () => void;
  /** Takes the area away and shows the cursor again. */
  readonly close: () => void;
}

interface Drawn {
  readonly lines: readonly string[];
  readonly cursor: CursorPlace | undefined;
  /** The row of the cursor after the drawing. */
  readonly row: number;
  readonly columns: number;
}

/** The drawing that follows once the terminal is free again. */
interface Held {
  readonly printed: readonly string[];
  readonly lines: readonly string[];
  readonly cursor: CursorPlace | undefined;
}

const NOTHING_HELD: Held = { printed: [], lines: [], cursor: undefined };
const HIDE_CURSOR = `${ESCAPE}[?25l`;
const SHOW_CURSOR = `${ESCAPE}[?25h`;
// the terminal shows all of a drawing at once if it can
const BEGIN = `${ESCAPE}[?2026h`;
const END = `${ESCAPE}[?2026l`;
const NOTHING: Drawn = { lines: [], cursor: undefined, row: 0, columns: 0 };

export function createLiveArea(sink: Sink): LiveArea {
  let drawn = NOTHING;
  let isHidden = false;

  const draw = (printed: readonly string[], lines: readonly string[], cursor?: CursorPlace) => {
    const { columns } = sink;
    const shown = fitting(lines, columns, Math.max(1, sink.rows - 1));
    const dropped = lines.length - shown.length;
    const place = cursor && { row: Math.max(0, cursor.row - dropped), column: cursor.column };
    if (printed.length === 0 && isSame(drawn, shown, place, columns)) return;
    const row = place?.row ?? Math.max(0, shown.length - 1);
    const wantsHidden = place === undefined && shown.length > 0;
    const visibility = wantsHidden === isHidden ? '' : wantsHidden ? HIDE_CURSOR : SHOW_CURSOR;
    isHidden = wantsHidden;
    const above = withoutOrders(printed.map((line) => `${line}\n`).join(''));
    sink.writeRaw(
      `${BEGIN}${erase(drawn, columns)}${above}${withoutOrders(shown.join('\n'))}${moveTo(shown, place)}${visibility}${END}`,
    );
    drawn = { lines: shown, cursor: place, row, columns };
  };
  let held: Held | undefined;
  const update: LiveArea['update'] = (printed, lines, cursor) => {
    if (!held) draw(printed, lines, cursor);
    else held = { printed: [...held.printed, ...printed], lines, cursor };
  };
  return {
    print: (lines) => {
      const below = held ?? drawn;
      if (lines.length > 0) update(lines, below.lines, below.cursor);
    },
    update,
    hold: () => {
      held ??= { printed: [], lines: drawn.lines, cursor: drawn.cursor };
      draw([], []);
      return () => {
        const { printed, lines, cursor } = held ?? NOTHING_HELD;
        held = undefined;
        draw(printed, lines, cursor);
      };
    },
    close: () => {
      if (drawn !== NOTHING) draw([], []);
      drawn = NOTHING;
    },
  };
}

/** Returns the last lines that fit, each cut so that it never wraps. */
function fitting(lines: readonly string[], columns: number, rows: number): readonly string[] {
  return lines.slice(-rows).map((line) => clipStyled(line, columns - 1));
}

function isSame(
  drawn: Drawn,
  lines: readonly string[],
  cursor: CursorPlace | undefined,
  columns: number,
): boolean {
  return (
    drawn.columns === columns &&
    drawn.lines.length === lines.length &&
    drawn.cursor?.row === cursor?.row &&
    drawn.cursor?.column === cursor?.column &&
    drawn.lines.every((line, at) => line === lines[at])
  );
}

/** Moves to the first line of the last drawing and clears from there. A narrower terminal has wrapped its lines. */
function erase({ lines, row, columns: before }: Drawn, columns: number): string {
  if (lines.length === 0) return '';
  const height = (line: string): number =>
    before <= columns ? 1 : Math.max(1, Math.ceil(displayWidth(withoutStyles(line)) / columns));
  const up = lines.slice(0, row).reduce((sum, line) => sum + height(line), 0);
  const own = height(lines[row] ?? '') - 1;
  const rows = up + own;
  if (rows === 0) return `\r${ESCAPE}[0J`;
  // tmux takes the clearing of a whole screen as the end of a program, and keeps what was on it
  return `\r${ESCAPE}[${rows}A${ESCAPE}[2K${ESCAPE}[1B${ESCAPE}[0J${ESCAPE}[1A`;
}

/** Moves from the end of the last line to the cursor's place. */
function moveTo(lines: readonly string[], cursor: CursorPlace | undefined): string {
  if (cursor === undefined) return '';
  const up = Math.max(0, lines.length - 1 - cursor.row);
  const right = cursor.column;
  return `\r${up > 0 ? `${ESCAPE}[${up}A` : ''}${right > 0 ? `${ESCAPE}[${right}C` : ''}`;
}

/** The codes of rye's own colors. None hides a text. */
const OWN_STYLE = new RegExp(`${ESCAPE}\\[(?:0|[1-4]|7|2[1-47]|3[1-69]|9[0-6])m`, 'g');
const OBEYED = /[^\P{C}\t\n\u200c\u200d\p{Co}]|[\u2028\u2029]/gu;

/**
 * Draws what a terminal would obey, except rye's own colors. The lines come from places that draw what they did not write,
 * and from the input field, whose text the person types; the compiler does not see it, so nothing passes that one forgot.
 */
function withoutOrders(text: string): string {
  let at = 0;
  let result = '';
  for (const { 0: style, index } of text.matchAll(OWN_STYLE)) {
    result += text.slice(at, index).replaceAll(OBEYED, (order) => visible(order)) + style;
    at = index + style.length;
  }
  return result + text.slice(at).replaceAll(OBEYED, (order) => visible(order));
}
