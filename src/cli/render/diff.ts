import type { JsonObject, JsonValue } from '../../core/json.ts';
import { type Colors } from '../terminal-text.ts';
import { visible } from '../visible.ts';

/** A line of a unified diff. */
export interface DiffLine {
  readonly sign: ' ' | '+' | '-';
  readonly text: string;
}

/** Above this number of cells, changed lines are shown as removed and added as a whole. */
const MAX_CELLS = 250_000;
const CONTEXT = 2;

/** Compares two texts by lines. Keeps a few unchanged lines around each change. */
function diffLines(before: string, after: string): readonly DiffLine[] {
  const [old, now] = [linesOf(before), linesOf(after)];
  const most = Math.min(old.length, now.length);
  let start = 0;
  while (start < most && old[start] === now[start]) start += 1;
  let end = 0;
  if (start === old.length && start === now.length) return [];
  while (end < most - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  return [
    ...context(old.slice(Math.max(0, start - CONTEXT), start)),
    ...changes(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...context(old.slice(old.length - end, old.length - end + CONTEXT)),
  ];
}

function context(lines: readonly string[]): readonly DiffLine[] {
  return lines.map((text) => ({ sign: ' ', text }));
}

function linesOf(text: string): readonly string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}

/** Finds a longest common subsequence. */
function changes(old: readonly string[], now: readonly string[]): readonly DiffLine[] {
  const removed = old.map((text): DiffLine => ({ sign: '-', text }));
  const added = now.map((text): DiffLine => ({ sign: '+', text }));
  if (old.length * now.length > MAX_CELLS) return [...removed, ...added];
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  const at = (row: number, column: number): number => lengths[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = now.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] =
        old[row] === now[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < old.length && column < now.length) {
    if (old[row] === now[column]) {
      lines.push({ sign: ' ', text: old[row] ?? '' });
      row += 1;
      column += 1;
    } else if (at(row + 1, column) >= at(row, column + 1)) {
      lines.push(...removed.slice(row, row + 1));
      row += 1;
    } else {
      lines.push(...added.slice(column, column + 1));
      column += 1;
    }
  }
  return [...lines, ...removed.slice(row), ...added.slice(column)];
}

/** Returns the changes of a call that edits or writes a file, as far as its input tells them. */
export function callDiff(tool: string, input: JsonObject, before?: string): readonly DiffLine[] {
  const { edits, content } = input;
  if (tool === 'write') {
    return typeof content === 'string' ? diffLines(before ?? '', content) : [];
  }
  if (tool !== 'edit' && tool !== 'multi_edit') return [];
  return [input, ...(Array.isArray(edits) ? edits : [])].flatMap(replacement);
}

function replacement(edit: JsonValue): readonly DiffLine[] {
  if (typeof edit !== 'object' || edit === null || Array.isArray(edit)) return [];
  const { old_string: before, new_string: after } = edit as JsonObject;
  return typeof before === 'string' && typeof after === 'string' ? diffLines(before, after) : [];
}

/** Paints at most `max` lines of a diff, then the number of the others. */
export function paintDiff(
  lines: readonly DiffLine[],
  max: number,
  colors: Colors,
): readonly string[] {
  const shown = lines.length > max + 1 ? lines.slice(0, max) : lines;
  const rest = lines.length - shown.length;
  return [
    ...shown.map(({ sign, text }) => {
      const line = `${sign} ${visible(text).replaceAll('\t', '    ')}`;
      if (sign === '+') return colors.green(line);
      return sign === '-' ? colors.red(line) : colors.dim(line);
    }),
    ...(rest === 0 ? [] : [colors.dim(`… ${rest} more lines`)]),
  ];
}
