import { shortKind, type TreeRow, type TreeView } from '../../../kernel/app/api/trees.ts';
import { timeOf } from '../../../kernel/core/original.ts';
import type { Sink } from '../io.ts';
import { type Colors, truncate } from '../terminal-text.ts';
import { oneLine, partOf, type Shown, shown, trimmed } from '../visible.ts';

const ID_CHARS = 8;

/** Terminals with fewer columns have no room for times. */
const TIMED_COLUMNS = 80;

/** Draws a session tree as lines, cut to the width of a terminal. Dims other branches. */
export function drawSessionTree({ rows }: TreeView, sink: Sink, colors: Colors): readonly Shown[] {
  const width = idWidth(rows);
  const isTimed = !sink.isTty || sink.columns >= TIMED_COLUMNS;
  let day = '';
  return rows.map((row) => {
    const { id } = row.entry;
    const [date = '', time = ''] = timeOf(row.entry).split('T');
    const clock = `${date === day ? '' : date.slice(5)} ${time.slice(0, 5)}`.padStart(11);
    if (!row.divider) day = date;
    const columns = isTimed ? [clock] : [];
    const place = row.divider
      ? ' '.repeat(width + 1 + (isTimed ? 12 : 0))
      : [id.slice(0, width).padEnd(Math.min(width, ID_CHARS)), ...columns, ''].join(' ');
    const head = oneLine(`${place}${row.lines}`);
    const line = trimmed(shown`${head}${contentOf(row)}`);
    const fitting = sink.isTty ? truncate(line, sink.columns) : line;
    return painted(fitting, row, head.length, colors);
  });
}

/** Dims other branches and what is before the mark; highlights messages of people, the head and labels. */
function painted(line: Shown, row: TreeRow, start: number, colors: Colors): Shown {
  if (row.divider) return colors.cyan(line);
  if (!row.active) return colors.dim(line);
  const label = row.label === undefined ? shown`` : inBrackets(row.label);
  const found = label === '' ? -1 : line.indexOf(label, start);
  const at = found === -1 ? line.length : found;
  const after = partOf(line, at + label.length);
  const strong = (text: Shown): Shown =>
    row.leaf || row.kind === 'user' ? colors.bold(text) : text;
  const rest = found === -1 ? '' : shown`${colors.yellow(label)}${strong(after)}`;
  return shown`${colors.dim(partOf(line, 0, start))}${strong(partOf(line, start, at))}${rest}`;
}

function contentOf(row: TreeRow): Shown {
  const { active, leaf, aboveLeaf, kind, label, text: content, divider } = row;
  if (divider) return shown`── ${oneLine(content)} ──`;
  const mark = leaf ? '◆' : aboveLeaf ? '◇' : active ? '●' : '○';
  const name = label === undefined ? '' : shown`${inBrackets(label)} `;
  return shown`${mark} ${oneLine(shortKind(kind))}: ${name}${oneLine(content)}`;
}

function inBrackets(label: string): Shown {
  return shown`[${oneLine(label)}]`;
}

/** Returns how many characters tell the shown ids apart, so that a shown id can be typed. */
function idWidth(rows: readonly TreeRow[]): number {
  const sorted = rows.flatMap(({ entry, divider }) => (divider ? [] : [entry.id])).toSorted();
  let width = ID_CHARS;
  for (let index = 1; index < sorted.length; index += 1) {
    const left = sorted[index - 1] ?? '';
    const right = sorted[index] ?? '';
    while (width < right.length && left.slice(0, width) === right.slice(0, width)) width += 1;
  }
  return width;
}
