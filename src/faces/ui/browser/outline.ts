import { holds, type TreeRow, wordsOf } from '../../../kernel/app/api/trees.ts';

/**
 * The rows of a drawn tree, what hangs below which of them, and which are seen with some folded. Positions are indexes
 * of `rows`. Flat arrays: a tree of half a million rows is folded in milliseconds.
 */
export interface Outline {
  readonly rows: readonly TreeRow[];
  /** For each row, the position after its last descendant. */
  readonly ends: Int32Array;
  /** For each row, the first row of its branch. */
  readonly starts: Int32Array;
  /** Position of the head, or of its nearest ancestor if the filter hides it; -1 if there is neither. */
  readonly head: number;
  /** Ids of folded entries. */
  readonly folded: ReadonlySet<string>;
  /** Positions of the rows that are seen. */
  readonly visible: Int32Array;
}

/** Lays rows out, nothing folded. They come depth first, as a drawn tree has them. */
export function outlineOf(rows: readonly TreeRow[]): Outline {
  const ends = new Int32Array(rows.length);
  const starts = new Int32Array(rows.length);
  const parents = parentsOf(rows);
  for (const [at, row] of rows.entries()) {
    const parent = parents[at] ?? -1;
    const isSameBranch = parent !== -1 && rows[parent]?.depth === row.depth;
    starts[at] = isSameBranch ? (starts[parent] ?? at) : at;
    ends[at] = at + 1;
  }
  for (let at = rows.length - 1; at >= 0; at -= 1) {
    const parent = parents[at] ?? -1;
    if (parent !== -1) ends[parent] = Math.max(ends[parent] ?? 0, ends[at] ?? 0);
  }
  const head = rows.findIndex(({ leaf, aboveLeaf }) => leaf || aboveLeaf);
  return withFolds({ rows, ends, starts, head }, new Set());
}

function parentsOf(rows: readonly TreeRow[]): Int32Array {
  const parents = new Int32Array(rows.length);
  const open: number[] = [];
  for (const [at, { parentId }] of rows.entries()) {
    while (open.length > 0 && rows[open.at(-1) ?? 0]?.entry.id !== parentId) open.pop();
    parents[at] = open.at(-1) ?? -1;
    open.push(at);
  }
  return parents;
}

/** The same rows with other folds. */
export function withFolds(
  { rows, ends, starts, head }: Omit<Outline, 'folded' | 'visible'>,
  folded: ReadonlySet<string>,
): Outline {
  const visible = new Int32Array(rows.length);
  let count = 0;
  for (let at = 0; at < rows.length; ) {
    visible[count] = at;
    count += 1;
    const isFolded = folded.size > 0 && folded.has(rows[at]?.entry.id ?? '');
    at = isFolded ? (ends[at] ?? at + 1) : at + 1;
  }
  return { rows, ends, starts, head, folded, visible: visible.subarray(0, count) };
}

/** True for the first row of a branch with something below it. */
export function isFoldable({ ends, starts }: Outline, at: number): boolean {
  return starts[at] === at && (ends[at] ?? 0) > at + 1;
}

/** Rows that hang below a row. */
export function countBelow({ ends }: Outline, at: number): number {
  return (ends[at] ?? at + 1) - at - 1;
}

/** Index in `visible` of the row, or of the folded one that it hangs below. */
export function indexOfRow({ visible }: Outline, at: number): number {
  let low = 0;
  let high = visible.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((visible[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Opens every fold that hides a row. */
export function reveal(outline: Outline, at: number): Outline {
  const { rows, ends, folded } = outline;
  if (folded.size === 0) return outline;
  const kept = [...folded];
  const hides = new Set<string>();
  for (const [position, { entry }] of rows.entries()) {
    if (position >= at) break;
    if (folded.has(entry.id) && (ends[position] ?? 0) > at) hides.add(entry.id);
  }
  return hides.size === 0
    ? outline
    : withFolds(outline, new Set(kept.filter((id) => !hides.has(id))));
}

/** Returns the position of the next row with all words, wrapping around; the row at `from` is checked last. */
export function findRow(
  rows: readonly TreeRow[],
  query: string,
  { from, step }: { readonly from: number; readonly step: 1 | -1 },
): number | undefined {
  const words = wordsOf(query);
  const { length } = rows;
  for (let count = 1; count <= length; count += 1) {
    const at = (from + step * count + length * 2) % length;
    const row = rows[at];
    if (row && !row.divider && holds(row, words)) return at;
  }
  return undefined;
}
