import { type Colors, displayWidth, wrapText } from '../terminal-text.ts';
import { visible } from '../visible.ts';

/** The colors and the width of the terminal. */
export interface LineStyle {
  readonly colors: Colors;
  readonly columns: number;
}

const INDENT = '  ';

/** Formats a message of the person, as it stays on the screen, wrapped between words. `note` is its state. */
export function echoLines(
  text: string,
  { colors, columns }: LineStyle,
  note?: string,
): readonly string[] {
  const room = columns - INDENT.length;
  const lines = wrapText(visible(text).trimEnd(), room);
  const shown = lines.map(
    (line, at) => `${at === 0 ? colors.cyan('› ') : INDENT}${colors.bold(line)}`,
  );
  if (note === undefined) return shown;
  const state = colors.dim(`(${note})`);
  const fits = displayWidth(`${lines.at(-1) ?? ''}${INDENT}(${note})`) <= room;
  return fits
    ? [...shown.slice(0, -1), `${shown.at(-1) ?? ''}${INDENT}${state}`]
    : [...shown, `${INDENT}${state}`];
}
