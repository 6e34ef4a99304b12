import type { JsonObject } from '../core/json.ts';
import type { ToolCallBlock } from '../core/message.ts';
import { describeEntry } from './entry-text.ts';
import type { SessionTree, TreeEntry } from './tree.ts';
import {
  callOf,
  isAnswered,
  isShown,
  kindOf,
  roleOf,
  SETTINGS,
  type Shown,
  type TreeFilter,
  wordsOf,
} from './tree-filter.ts';

/** One entry of a drawn tree, or a divider between entries. */
export interface TreeRow {
  readonly entry: TreeEntry;
  /** Id of the nearest shown ancestor; null for a root. */
  readonly parentId: string | null;
  /** Grows only where branches part, so that a long conversation stays at the left. */
  readonly depth: number;
  /** Lines of the tree before the row, two columns for each level: `├─`, `└─`, `│ ` or blanks. */
  readonly lines: string;
  readonly label?: string;
  /** On the path from the root to the leaf. */
  readonly active: boolean;
  /** The leaf. Filters that hide settings mark the last entry of the conversation before it. */
  readonly leaf: boolean;
  /** True for the nearest shown ancestor of a leaf that the filter hides. */
  readonly aboveLeaf: boolean;
  /** Kind of the entry, and of a message its role. */
  readonly kind: string;
  readonly text: string;
  /** The call that a result answers. */
  readonly call?: ToolCallBlock | undefined;
  /** Present for a row that is no entry of the tree. */
  readonly divider?: TreeDivider;
}

/** A line between the entries: the start of a run, or of the next thread of a session that was handed off. */
export interface TreeDivider {
  readonly text: string;
  /** Drawn before the first shown entry with a higher seq; after the leaf if there is none. */
  readonly seq: number;
  readonly timestamp: string;
  readonly payload: JsonObject;
}

export interface ViewOptions {
  readonly filter?: TreeFilter;
  /** Only entries whose label, kind, id and content have all of these words; letter case does not matter. */
  readonly search?: string;
  /** In order of seq. A search hides them. */
  readonly dividers?: readonly TreeDivider[];
  /** Only entries with a higher seq: the ones before are copies. */
  readonly after?: number;
  /** False if the conversation continues in another thread: no row is the head. */
  readonly hasHead?: boolean;
}

/**
 * The entries that a filter shows, depth first, the active branch first at each fork. Children of a hidden one hang
 * on the nearest one that is shown. Iterative: a path may have any length.
 */
export function viewTree(
  tree: SessionTree,
  { filter = 'default', search = '', dividers = [], after = 0, hasHead = true }: ViewOptions = {},
): readonly TreeRow[] {
  const words = wordsOf(search);
  const links = linksOf(tree, { filter, words, after, hasHead });
  const rows: TreeRow[] = [];
  const stack: Pending[] = [];
  pushChildren(stack, links, ROOT);
  for (let next = stack.pop(); next; next = stack.pop()) {
    rows.push(new Row(tree, links, next));
    pushChildren(stack, links, next);
  }
  if (showsDividers({ filter, search })) {
    for (const divider of dividers) insertDivider(rows, divider);
  }
  return rows;
}

/** True if a view has dividers: it is not a list of matches. */
export function showsDividers({ filter, search = '' }: ViewOptions): boolean {
  return wordsOf(search).length === 0 && filter !== 'labeled-only';
}

/** Describes its entry only when asked: few rows of a large tree are ever displayed. */
class Row implements TreeRow {
  readonly entry: TreeEntry;
  readonly parentId: string | null;
  readonly depth: number;
  readonly lines: string;
  readonly label?: string;
  readonly active: boolean;
  readonly leaf: boolean;
  readonly aboveLeaf: boolean;
  readonly #tree: SessionTree;
  readonly #isAnswered: boolean;
  #text: string | undefined;

  constructor(tree: SessionTree, links: Links, { at, parent, depth, lines }: Pending) {
    const { entries, labels } = tree;
    this.entry = entryAt(tree, at);
    this.parentId = entries[parent]?.id ?? null;
    this.depth = depth;
    this.lines = lines;
    const label = labels.get(this.entry.id);
    if (label !== undefined) this.label = label;
    this.active = links.active[at] === 1;
    this.leaf = at === links.head;
    this.aboveLeaf = at === links.nearHead && !this.leaf;
    this.#tree = tree;
    this.#isAnswered = isAnswered(this.entry, links.answers[at]);
  }

  get kind(): string {
    return kindOf(this.entry);
  }

  get call(): ToolCallBlock | undefined {
    return callOf(this.#tree, this.entry);
  }

  get text(): string {
    const { call } = this;
    this.#text ??= describeEntry(this.entry, {
      isAnswered: this.#isAnswered,
      ...(call && { call }),
    });
    return this.#text;
  }
}

function entryAt({ entries }: SessionTree, at: number): TreeEntry {
  const entry = entries[at];
  if (!entry) throw new RangeError(`the tree has no entry ${at}`);
  return entry;
}

/** The position of no entry: the parent of roots, the end of a list of siblings. */
const NOWHERE = -1;

/**
 * The links between the shown entries of a tree, by their positions. Flat arrays: half a million entries are
 * linked in the time that a map of their ids would take to grow.
 */
interface Links {
  /** The first shown child; at 0 that of nothing, at n + 1 that of entry n. */
  readonly firstChild: Int32Array;
  readonly nextSibling: Int32Array;
  /** 1 for entries on the path to the leaf. */
  readonly active: Uint8Array;
  /** For each answer, how many of its calls have a result. */
  readonly answers: Uint16Array;
  /** The head of the conversation. */
  readonly head: number;
  /** The nearest shown entry to the head: itself or an ancestor. */
  readonly nearHead: number;
}

interface ShownPart extends Shown {
  readonly after: number;
  readonly hasHead: boolean;
}

function linksOf(tree: SessionTree, shown: ShownPart): Links {
  const { entries, byId, leafId } = tree;
  const parents = parentsOf(tree);
  const answers = countAnswers(tree, parents);
  const anchors = anchorsOf(tree, { parents, answers }, shown);
  const firstChild = new Int32Array(entries.length + 1).fill(NOWHERE);
  const nextSibling = new Int32Array(entries.length).fill(NOWHERE);
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    if (anchors[at] !== at) continue;
    const slot = (anchors[parents[at] ?? NOWHERE] ?? NOWHERE) + 1;
    nextSibling[at] = firstChild[slot] ?? NOWHERE;
    firstChild[slot] = at;
  }
  const leaf = leafId === null ? NOWHERE : byId.positionOf(leafId);
  const active = pathOf(parents, leaf);
  const end = shown.filter === 'all' ? leaf : conversationEnd(tree, parents, leaf);
  const head = shown.hasHead ? end : NOWHERE;
  return { firstChild, nextSibling, active, answers, head, nearHead: anchors[head] ?? NOWHERE };
}

/** Returns for each entry the nearest shown one: itself or an ancestor. */
function anchorsOf(
  tree: SessionTree,
  { parents, answers }: Pick<Links, 'answers'> & { readonly parents: Int32Array },
  { after, filter, words }: ShownPart,
): Int32Array {
  const anchors = new Int32Array(tree.entries.length);
  for (const [at, entry] of tree.entries.entries()) {
    const isPart = entry.seq > after;
    anchors[at] =
      isPart && isShown(tree, entry, { filter, words, answers: answers[at] ?? 0 })
        ? at
        : (anchors[parents[at] ?? NOWHERE] ?? NOWHERE);
  }
  return anchors;
}

/** Returns an array with 1 for each entry on the path to the leaf. */
function pathOf(parents: Int32Array, leaf: number): Uint8Array {
  const active = new Uint8Array(parents.length);
  for (let at = leaf; at !== NOWHERE; at = parents[at] ?? NOWHERE) active[at] = 1;
  return active;
}

/** Returns the last entry of the conversation up to the leaf, which may be a label or a state that was saved after it. */
function conversationEnd({ entries }: SessionTree, parents: Int32Array, leaf: number): number {
  let at = leaf;
  while (at !== NOWHERE && SETTINGS.has(entries[at]?.event_type ?? '')) at = parents[at] ?? NOWHERE;
  return at === NOWHERE ? leaf : at;
}

/** Positions of parents, which come before their children. */
function parentsOf({ entries, byId }: SessionTree): Int32Array {
  const parents = new Int32Array(entries.length);
  for (const [at, { parent_id: parent }] of entries.entries()) {
    if (parent === null) parents[at] = NOWHERE;
    // mostly a parent is the entry before
    else parents[at] = entries[at - 1]?.id === parent ? at - 1 : byId.positionOf(parent);
  }
  return parents;
}

/** Counts the results of each answer, which come after it with only other results and settings between. */
function countAnswers({ entries }: SessionTree, parents: Int32Array): Uint16Array {
  const answers = new Uint16Array(entries.length);
  const askers = new Int32Array(entries.length).fill(NOWHERE);
  for (const [at, entry] of entries.entries()) {
    const role = roleOf(entry);
    if (role === 'assistant') askers[at] = at;
    else if (role !== 'user') {
      const asker = askers[parents[at] ?? NOWHERE] ?? NOWHERE;
      askers[at] = asker;
      if (role === 'tool_result' && asker !== NOWHERE) answers[asker] = (answers[asker] ?? 0) + 1;
    }
  }
  return answers;
}

interface Pending {
  readonly at: number;
  readonly parent: number;
  readonly depth: number;
  readonly lines: string;
  /** Lines before the rows that continue the branch. */
  readonly stem: string;
}

const ROOT: Pending = { at: NOWHERE, parent: NOWHERE, depth: 0, lines: '', stem: '' };

/** In the order of a stack: the active branch comes off it first, then the others in log order. */
function pushChildren(
  stack: Pending[],
  { firstChild, nextSibling, active }: Links,
  { at: parent, depth, stem }: Pending,
): void {
  const siblings: number[] = [];
  let at = firstChild[parent + 1] ?? NOWHERE;
  for (; at !== NOWHERE; at = nextSibling[at] ?? NOWHERE) siblings.push(at);
  const [only] = siblings;
  if (only === undefined) return;
  if (siblings.length === 1) {
    stack.push({ at: only, parent, depth, lines: stem, stem });
    return;
  }
  const first = siblings.findIndex((sibling) => active[sibling] === 1);
  if (first > 0) siblings.unshift(...siblings.splice(first, 1));
  for (const [index, sibling] of siblings.toReversed().entries()) {
    const [lines, next] = index === 0 ? ['└─', '  '] : ['├─', '│ '];
    stack.push({ at: sibling, parent, depth: depth + 1, lines: stem + lines, stem: stem + next });
  }
}

function insertDivider(rows: TreeRow[], divider: TreeDivider): void {
  let next: TreeRow | undefined;
  for (const row of rows) {
    const isLater = !row.divider && row.entry.seq > divider.seq;
    if (isLater && row.entry.seq < (next?.entry.seq ?? Number.POSITIVE_INFINITY)) next = row;
  }
  if (next) {
    const lines = next.lines.replace(/[├└]─$/, '│ ');
    const { thread_id: thread } = next.entry;
    rows.splice(rows.indexOf(next), 0, dividerRow({ ...placeOf(next), lines }, divider, thread));
    return;
  }
  const at = rows.findIndex(({ leaf, aboveLeaf }) => leaf || aboveLeaf);
  const last = rows[at];
  if (!last) return;
  const lines = last.lines.replace(/├─$/, '│ ').replace(/└─$/, '  ');
  const place = { ...placeOf(last), parentId: last.entry.id, lines };
  rows.splice(at + 1, 0, dividerRow(place, divider, last.entry.thread_id));
}

/** Returns the row between a thread of a session and the next one. */
export function handoffRow(divider: TreeDivider, threadId: string): TreeRow {
  return dividerRow({ parentId: null, depth: 0, active: true, lines: '' }, divider, threadId);
}

function placeOf({
  parentId,
  depth,
  active,
}: TreeRow): Pick<TreeRow, 'parentId' | 'depth' | 'active'> {
  return { parentId, depth, active };
}

/** Returns the row of a divider in a thread. */
function dividerRow(
  place: Pick<TreeRow, 'parentId' | 'depth' | 'active' | 'lines'>,
  divider: TreeDivider,
  thread_id: string,
): TreeRow {
  const { seq, timestamp, payload, text } = divider;
  const event_type = 'divider';
  const id = `${event_type}-${thread_id}-${seq}`;
  const event = { event_type, seq, timestamp, payload, thread_id, id };
  const entry: TreeEntry = { ...event, parent_id: place.parentId };
  return { ...place, entry, leaf: false, aboveLeaf: false, kind: event_type, text, divider };
}
