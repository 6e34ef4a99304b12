import type { TreeRow } from '../../app/api/trees.ts';

/** The words of a query, in lower case. */
export function wordsOf(query: string): readonly string[] {
  return query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
}

/** Position of the next row that holds all words, round the list; the row at `from` comes last. */
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
    if (row && holds(row, words)) return at;
  }
  return undefined;
}

/** As the search of `rye threads entries`: label, kind, text and id. */
export function holds(
  { label = '', kind, text, entry }: TreeRow,
  words: readonly string[],
): boolean {
  const searched = `${label} ${kind} ${text} ${entry.id}`.toLowerCase();
  return words.every((word) => searched.includes(word));
}
