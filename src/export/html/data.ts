import type { JsonObject } from '../../core/json.ts';
import type { ContentBlock, Message } from '../../core/message.ts';
import { isKnown, type SessionTree, type TreeEntry } from '../../log/tree.ts';
import { TREE_FILTERS } from '../../log/tree-filter.ts';
import { viewTree } from '../../log/tree-view.ts';
import { marksOf, type PageContext, rowText, type ViewMark } from './context.ts';
import { printable } from './safe.ts';

/**
 * The data of the page's script: texts that it must only show as text, and numbers. Entries are named by their index in
 * `entries`, which is also that of their articles.
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
  /** By filter: the places that it shows. */
  readonly views: Readonly<Record<string, readonly number[]>>;
  /** Place of the head, the last entry of the open path; -1 for none. */
  readonly leaf: number;
  /** By the place where a branch ends: place and mark of each entry that the model sees differently, in turn. */
  readonly marks: Readonly<Record<string, readonly (number | ViewMark)[]>>;
}

export function pageData(page: PageContext): PageData {
  const { tree, leafId } = page.source;
  const rows = new Map(viewTree(tree, { filter: 'all' }).map((row) => [row.entry.id, row]));
  const placeOf = (id: string | null): number => (id === null ? -1 : tree.byId.positionOf(id));
  return {
    entries: tree.entries.map(({ id, parent_id: parent }) => {
      const row = rows.get(id);
      return {
        id: printable(id),
        parent: placeOf(parent),
        kind: printable(row?.kind ?? ''),
        text: row ? printable(rowText(row, page)) : '',
        ...(row?.label === undefined ? {} : { label: printable(row.label) }),
      };
    }),
    views: Object.fromEntries(
      TREE_FILTERS.map((filter) => [
        filter,
        viewTree(tree, { filter }).map(({ entry }) => placeOf(entry.id)),
      ]),
    ),
    leaf: placeOf(leafId),
    marks: branchMarks(tree, leafId),
  };
}

/** Entries that are looked at for the marks of left branches: each branch is folded by itself. */
const MAX_FOLDED = 1_000_000;

/** The newest branches first: a page of a tree with very many branches has no marks on the oldest. */
function branchMarks(tree: SessionTree, leafId: string | null): PageData['marks'] {
  const ends = tree.entries.filter(({ id }) => !tree.children.has(id)).toReversed();
  const marks: Record<string, readonly (number | ViewMark)[]> = {};
  let folded = 0;
  for (const id of [leafId, ...ends.map((entry) => entry.id)]) {
    if (id === null) continue;
    const place = tree.byId.positionOf(id);
    folded += place;
    if (folded > MAX_FOLDED && id !== leafId) break;
    const seen = [...marksOf(tree, id)].flatMap(([entryId, mark]) =>
      tree.byId.has(entryId) ? [tree.byId.positionOf(entryId), mark] : [],
    );
    if (seen.length > 0) marks[String(place)] = seen;
  }
  return marks;
}

/** The header and the entries of the page, one JSON object a line: an unsigned log. */
export function* entryLines({ source, images }: PageContext): Iterable<object> {
  yield source.header;
  let seq = 0;
  for (const { payload, ...entry } of source.tree.entries) {
    seq += 1;
    yield { ...entry, seq, payload: shownPayload({ ...entry, payload } as TreeEntry, images) };
  }
}

/** The payload without the parts that the page omits: hidden text, signatures of thinking, data of results, some images. */
function shownPayload(entry: TreeEntry, images: PageContext['images']): object {
  const { pi_line: _line, details: _details, ...payload } = entry.payload as JsonObject;
  if (isKnown(entry, 'custom_message') && !entry.payload.display)
    return { ...payload, content: '' };
  if (!isKnown(entry, 'message')) return payload;
  const message = entry.payload.message as Partial<Message> | undefined;
  if (!message || !Array.isArray(message.content)) return payload;
  const { data: _data, ...rest } = message as Partial<Message> & { readonly data?: unknown };
  const content = (message.content as readonly ContentBlock[]).flatMap((block) => {
    if (block.type === 'image') return images.omits(block) ? [] : [block];
    const {
      signature: _signature,
      redacted: _redacted,
      ...shown
    } = block as ContentBlock & {
      readonly signature?: string;
      readonly redacted?: string;
    };
    return [shown];
  });
  return { ...payload, message: { ...rest, content } };
}
