import { isKnown } from '../../log/tree.ts';
import { TREE_FILTERS, type TreeRow, viewTree } from '../../log/tree-view.ts';
import type { PageContext } from './context.ts';
import { printable } from './safe.ts';

/**
 * What the page's script gets: texts that it may only ever show as texts, and numbers. Entries are named by their place
 * in `entries`, which is that of their articles.
 */
export interface PageData {
  readonly entries: readonly {
    readonly id: string;
    /** Place of the parent; -1 for a root. */
    readonly parent: number;
    readonly kind: string;
    readonly text: string;
    readonly label?: string;
  }[];
  /** By filter: place and depth of each row, in turn, and the row that the leaf is or hangs on. */
  readonly views: Readonly<
    Record<string, { readonly rows: readonly number[]; readonly leaf: number }>
  >;
  /** Place of the last entry of the open path; -1 for none. */
  readonly leaf: number;
}

/** The tree as the five filters show it, which are the same as those of `rye threads entries`. */
export function pageData({ source }: PageContext): PageData {
  const { tree, leafId } = source;
  const places = new Map(tree.entries.map(({ id }, index) => [id, index]));
  const placeOf = (id: string | null): number => (id === null ? -1 : (places.get(id) ?? -1));
  const rows = new Map(viewTree(tree, { filter: 'all' }).map((row) => [row.entry.id, row]));
  return {
    entries: tree.entries.map(({ id, parent_id: parent }) => {
      const row = rows.get(id);
      return {
        id: printable(id),
        parent: placeOf(parent),
        kind: printable(row?.kind ?? ''),
        text: row ? printable(textOf(row)) : '',
        ...(row?.label === undefined ? {} : { label: printable(row.label) }),
      };
    }),
    views: Object.fromEntries(
      TREE_FILTERS.map((filter) => {
        const view = viewTree(tree, { filter });
        const leafRow = view.find(({ leaf }) => leaf);
        return [
          filter,
          {
            rows: view.flatMap(({ entry, depth }) => [placeOf(entry.id), depth]),
            leaf: placeOf(leafRow?.entry.id ?? null),
          },
        ];
      }),
    ),
    leaf: placeOf(leafId),
  };
}

/** What is kept from people is not in the page at all. */
function textOf({ entry, text }: TreeRow): string {
  const isHidden = isKnown(entry, 'custom_message') && !entry.payload.display;
  return isHidden ? `${entry.payload.custom_type}: for the model only` : text;
}
