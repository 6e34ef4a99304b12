import { type Colors, displayWidth, graphemesOf } from '../terminal-text.ts';
import { visible } from '../visible.ts';
import { type Editor, labelled } from './editor.ts';

/** The input field as lines for a terminal, and the cursor's place in them. */
export interface DrawnField {
  readonly lines: readonly string[];
  readonly cursor: { readonly row: number; readonly column: number };
}

export interface FieldOptions {
  readonly columns: number;
  /** Maximum rows. The rows around the cursor are shown. */
  readonly rows: number;
  readonly colors: Colors;
  /** Dim text of an empty field. */
  readonly hint: string;
}

const PROMPT = '› ';
const INDENT = '  ';

/** Draws the input field: a prompt, the wrapped text, or a hint in an empty field. */
export function drawField(editor: Editor, options: FieldOptions): DrawnField {
  const { columns, colors, hint } = options;
  const width = Math.max(1, columns - PROMPT.length - 1);
  const { rows, cursor } = wrapped(editor, width);
  const height = Math.max(1, options.rows);
  const first = Math.max(0, Math.min(cursor.row - height + 1, rows.length - height));
  const shown = rows.slice(first, first + height);
  const query = editor.search && `search: ${visible(editor.search.query)}_`;
  const lines = shown.map((row, at) => {
    const mark = first + at === 0 ? colors.cyan(PROMPT) : INDENT;
    const isHint = editor.text === '' && at === 0;
    const isCut = at === 0 && first > 0 && height > 1;
    if (isCut) return colors.dim(`${INDENT}↑ ${first + 1} more lines`.slice(0, columns - 1));
    return `${mark}${isHint ? colors.dim(hint.slice(0, width)) : row}`;
  });
  return {
    lines: query === undefined ? lines : [...lines, colors.dim(query)],
    cursor: { row: cursor.row - first, column: PROMPT.length + cursor.column },
  };
}

/** Wraps the text at the width, and finds the cursor. */
function wrapped(
  editor: Editor,
  width: number,
): { readonly rows: readonly string[]; readonly cursor: DrawnField['cursor'] } {
  const { text, cursor } = editor;
  const rows: string[] = [''];
  let column = 0;
  let at = 0;
  let place = { row: 0, column: 0 };
  const mark = (): void => {
    if (at === cursor) place = { row: rows.length - 1, column };
  };
  const open = (): void => {
    rows.push('');
    column = 0;
  };
  for (const line of text.split('\n').entries()) {
    if (line[0] > 0) {
      at += 1;
      open();
    }
    mark();
    for (const character of graphemesOf(line[1])) {
      const shown = character === '\t' ? '  ' : visible(labelled(editor, character));
      const own = displayWidth(shown);
      if (column + own > width) open();
      rows[rows.length - 1] += shown;
      column += own;
      at += character.length;
      mark();
    }
  }
  return { rows, cursor: place };
}
