/** One line of a diff; a gap replaces unchanged lines that are not shown. */
export interface DiffLine {
  readonly kind: 'add' | 'remove' | 'same' | 'gap';
  readonly text: string;
}

/** Cells of the table that aligns two texts; larger changes are shown as all old, then all new lines. */
const MAX_CELLS = 250_000;
const CONTEXT_LINES = 3;

/** Compares two texts line by line; shows at most three unchanged lines beside a change. */
export function diffOf(before: string, after: string): readonly DiffLine[] {
  const old = linesOf(before);
  const now = linesOf(after);
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  const shorter = Math.min(old.length, now.length) - start;
  while (end < shorter && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  return withoutDistantContext([
    ...old.slice(0, start).map(unchanged),
    ...aligned(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...old.slice(old.length - end).map(unchanged),
  ]);
}

/** Without the line end that closes the last line. */
function linesOf(text: string): readonly string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n');
}

const removed = (text: string): DiffLine => ({ kind: 'remove', text });
const added = (text: string): DiffLine => ({ kind: 'add', text });
const unchanged = (text: string): DiffLine => ({ kind: 'same', text });

/** Aligns by the longest common subsequence. */
function aligned(old: readonly string[], now: readonly string[]): readonly DiffLine[] {
  const width = now.length + 1;
  if ((old.length + 1) * width > MAX_CELLS) return [...old.map(removed), ...now.map(added)];
  const common = new Uint32Array((old.length + 1) * width);
  const at = (row: number, column: number): number => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = now.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        old[row] === now[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: DiffLine[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < now.length) {
    if (row < old.length && column < now.length && old[row] === now[column]) {
      lines.push({ kind: 'same', text: old[row] ?? '' });
      row += 1;
      column += 1;
    } else if (row < old.length && at(row + 1, column) >= at(row, column + 1)) {
      lines.push(removed(old[row] ?? ''));
      row += 1;
    } else {
      lines.push(added(now[column] ?? ''));
      column += 1;
    }
  }
  return lines;
}

function unchangedLines(total: number): string {
  return `${total.toLocaleString('en')} unchanged line${total === 1 ? '' : 's'}`;
}

function withoutDistantContext(lines: readonly DiffLine[]): readonly DiffLine[] {
  const near = new Uint8Array(lines.length);
  for (const [at, { kind }] of lines.entries()) {
    if (kind !== 'same') near.fill(1, Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1);
  }
  const shown: DiffLine[] = [];
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    if (near[at] === 1 && line) shown.push(line);
    else {
      const from = at;
      while (at + 1 < lines.length && near[at + 1] === 0) at += 1;
      shown.push({ kind: 'gap', text: unchangedLines(at - from + 1) });
    }
  }
  return shown;
}
