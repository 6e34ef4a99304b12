import type { TreeRow, TreeView } from '../../app/api/trees.ts';
import type { Sink } from '../io.ts';
import type { Colors } from '../output.ts';
import { oneLine, truncate } from '../terminal-text.ts';

const ID_CHARS = 8;

/** A session tree as lines: indented where branches part, cut to the width of a terminal. */
export function drawSessionTree({ rows }: TreeView, sink: Sink, colors: Colors): readonly string[] {
  const width = idWidth(rows);
  return rows.map((row) => {
    const line = lineOf(row, width);
    return painted(sink.isTty ? truncate(line, sink.columns) : line, { row, width, colors });
  });
}

/** Other branches stand back; what people said, the leaf and labels stand out. */
function painted(
  line: string,
  {
    row,
    width,
    colors,
  }: { readonly row: TreeRow; readonly width: number; readonly colors: Colors },
): string {
  if (!row.active) return colors.dim(line);
  const id = Math.min(width, line.length);
  const said = line.slice(id);
  const name = row.label === undefined ? '' : nameOf(row.label);
  const [before = '', ...behind] = name === '' ? [said] : said.split(name);
  const strong = row.leaf || row.kind === 'user' ? colors.bold : String;
  const rest = behind.length === 0 ? '' : `${colors.yellow(name)}${strong(behind.join(name))}`;
  return `${colors.dim(line.slice(0, id))}${strong(before)}${rest}`;
}

function nameOf(label: string): string {
  return `[${oneLine(label)}]`;
}

/** Enough of the ids to tell the shown ones apart, so that what is shown can be typed. */
function idWidth(rows: readonly TreeRow[]): number {
  const sorted = rows.map(({ entry }) => entry.id).toSorted();
  let width = ID_CHARS;
  for (let index = 1; index < sorted.length; index += 1) {
    const left = sorted[index - 1] ?? '';
    const right = sorted[index] ?? '';
    while (width < right.length && left.slice(0, width) === right.slice(0, width)) width += 1;
  }
  return width;
}

function lineOf({ entry, depth, active, leaf, kind, label, text }: TreeRow, width: number): string {
  const mark = leaf ? '◆' : active ? '●' : '○';
  const name = label === undefined ? '' : `${nameOf(label)} `;
  const id = entry.id.slice(0, width).padEnd(Math.min(width, ID_CHARS));
  return `${id} ${'  '.repeat(depth)}${mark} ${kind}: ${name}${oneLine(text)}`.trimEnd();
}
