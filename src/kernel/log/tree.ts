import { RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { LogProblem } from './codec.ts';
import { LOG_START, leafAfter } from './cursor.ts';

/** The members of an entry that the index reads. */
interface Identified {
  readonly id: string;
}

const NONE = -1;

/**
 * Entries by id. An open-addressing table over positions: a large log fills it several times faster than a `Map`
 * and with a tenth of the memory, and a context looks up next to nothing in it.
 */
export class EntryIndex<T extends Identified> {
  readonly #entries: readonly T[];
  readonly #positions: Int32Array;

  /** `entries` is the list that {@link add} is told positions of; at most `count` will come. */
  constructor(entries: readonly T[], count: number) {
    this.#entries = entries;
    // half empty at least, so that a search ends soon
    this.#positions = new Int32Array(2 ** Math.ceil(Math.log2(2 * count + 2))).fill(NONE);
  }

  get(id: string): T | undefined {
    const position = this.positionOf(id);
    return position === NONE ? undefined : this.#entries[position];
  }

  has(id: string): boolean {
    return this.positionOf(id) !== NONE;
  }

  /** Position in the list; -1 where no entry has the id. */
  positionOf(id: string): number {
    return this.#positions[this.#slot(id)] ?? NONE;
  }

  /** Adds the entry at `position`; returns false and changes nothing if its id is known. */
  add(id: string, position: number): boolean {
    const slot = this.#slot(id);
    if (this.#positions[slot] !== NONE) return false;
    this.#positions[slot] = position;
    return true;
  }

  /** The slot that holds the id, or the free one where it would go. */
  #slot(id: string): number {
    const mask = this.#positions.length - 1;
    for (let slot = hashOf(id) & mask; ; slot = (slot + 1) & mask) {
      const position = this.#positions[slot] ?? NONE;
      if (position === NONE || this.#entries[position]?.id === id) return slot;
    }
  }
}

/** FNV-1a over UTF-16 units, its high bits folded into the low ones that choose the slot. */
function hashOf(id: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < id.length; at += 1) hash = Math.imul(hash ^ id.charCodeAt(at), 0x01000193);
  return hash ^ (hash >>> 15);
}

/** An event that has a place in the session tree. `parent_id` is the one after repair. */
export type TreeEntry = (LogEvent | UnknownEvent) & {
  readonly id: string;
  readonly parent_id: string | null;
};

/** A log indexed as a tree. Several roots are legal. */
export interface SessionTree {
  /** In log order. */
  readonly entries: readonly TreeEntry[];
  readonly byId: Pick<EntryIndex<TreeEntry>, 'get' | 'has' | 'positionOf'>;
  /** Children by parent id, in log order; roots under `null`. */
  readonly children: ReadonlyMap<string | null, readonly TreeEntry[]>;
  /** Resolved labels by target id: the newest in log order counts, an empty or null one clears. */
  readonly labels: ReadonlyMap<string, string>;
  readonly leafId: string | null;
  readonly problems: readonly LogProblem[];
}

/** The offset of an event, for problem reports. */
export type OffsetOf = (index: number) => number;

/**
 * Indexes a log in one pass. An entry whose parent is unknown is hung on the entry before it; one whose parent is
 * itself or comes later would make a loop and is hung there too, reported as an error; of two entries
 * with one id the first counts.
 */
export function buildTree(
  events: readonly (LogEvent | UnknownEvent)[],
  offsetOf: OffsetOf = () => 0,
): SessionTree {
  const builder = new TreeBuilder(events, offsetOf);
  for (let index = 0; index < events.length; index += 1) builder.take(index);
  return builder.tree();
}

class TreeBuilder {
  readonly #events: readonly (LogEvent | UnknownEvent)[];
  readonly #offsetOf: OffsetOf;
  readonly #entries: TreeEntry[];
  readonly #byId: EntryIndex<TreeEntry>;
  readonly #labels = new Map<string, string>();
  readonly #problems: LogProblem[] = [];
  /** Only a damaged log needs it. */
  #allIds: ReadonlySet<string | undefined> | undefined;
  #count = 0;
  #lastId: string | null = null;
  #leafId = LOG_START.leafId;

  constructor(events: readonly (LogEvent | UnknownEvent)[], offsetOf: OffsetOf) {
    this.#events = events;
    this.#offsetOf = offsetOf;
    // room for all is cheaper than counting those with an id
    this.#entries = listOf(events.length);
    this.#byId = new EntryIndex(this.#entries, events.length);
  }

  take(index: number): void {
    const event = this.#events[index];
    const id = event?.id;
    if (event === undefined || id === undefined) return;
    if (!this.#byId.add(id, this.#count)) {
      this.#problems.push({
        kind: 'duplicate_id',
        offset: this.#offsetOf(index),
        message: `entry ${id} is twice in the log; the first one is used`,
      });
      return;
    }
    const entry = this.#placed(event, index);
    this.#entries[this.#count] = entry;
    this.#count += 1;
    this.#lastId = id;
    applyLabel(this.#labels, entry);
    this.#leafId = entry.event_type === 'leaf' ? this.#leafTarget(entry) : id;
  }

  tree(): SessionTree {
    const entries = this.#entries;
    entries.length = this.#count;
    let children: SessionTree['children'] | undefined;
    return {
      entries,
      byId: this.#byId,
      labels: this.#labels,
      leafId: this.#leafId,
      problems: this.#problems,
      // a context needs none of it
      get children() {
        children ??= childrenById(entries);
        return children;
      },
    };
  }

  /** The event with a parent that comes before it. */
  #placed(event: LogEvent | UnknownEvent, index: number): TreeEntry {
    const id = event.id ?? '';
    const parent = event.parent_id ?? null;
    // most entries hang on the one before them
    if (parent === null || parent === this.#lastId || this.#byId.has(parent)) {
      return (event.parent_id === undefined ? { ...event, parent_id: null } : event) as TreeEntry;
    }
    this.#allIds ??= new Set(this.#events.map((other) => other.id));
    const late = this.#allIds.has(parent);
    this.#problems.push(parentProblem(id, parent, { late, offset: this.#offsetOf(index) }));
    return { ...event, parent_id: this.#lastId } as TreeEntry;
  }

  /** Returns the leaf after an entry. Ignores a `leaf` event whose entry does not exist. */
  #leafTarget(entry: TreeEntry): string | null {
    const target = leafAfter(this.#leafId, entry);
    return target === null || this.#byId.has(target) ? target : entry.id;
  }
}

function childrenById(entries: readonly TreeEntry[]): SessionTree['children'] {
  const children = new Map<string | null, TreeEntry[]>();
  for (const entry of entries) {
    const siblings = children.get(entry.parent_id);
    if (siblings) siblings.push(entry);
    else children.set(entry.parent_id, [entry]);
  }
  return children;
}

function parentProblem(
  id: string,
  parent: string,
  { late, offset }: { readonly late: boolean; readonly offset: number },
): LogProblem {
  return late
    ? {
        kind: 'cycle',
        offset,
        message: `the parent ${parent} of entry ${id} does not come before it`,
      }
    : { kind: 'orphan', offset, message: `the parent ${parent} of entry ${id} is not in the log` };
}

function applyLabel(labels: Map<string, string>, entry: TreeEntry): void {
  if (!isKnown(entry, 'label')) return;
  const { target_id, label } = entry.payload;
  if (label === null || label === '') labels.delete(target_id);
  else labels.set(target_id, label);
}

/** Narrows an event to a known type. */
export function isKnown<T extends LogEvent['event_type']>(
  event: LogEvent | UnknownEvent,
  type: T,
): event is Extract<LogEvent, { event_type: T }> {
  return event.event_type === type;
}

/** The entry with this id; refused with `entry_not_found`. */
export function entryById(tree: SessionTree, id: string): TreeEntry {
  const entry = tree.byId.get(id);
  if (entry) return entry;
  throw new RyeError('entry_not_found', `the thread has no entry ${id}`, {
    hint: 'List its entries with `rye threads entries`.',
  });
}

/** The entry whose id is `prefix` or alone starts with it; refused with `entry_not_found` or `ambiguous`. */
export function entryByPrefix(tree: SessionTree, prefix: string): TreeEntry {
  const exact = tree.byId.get(prefix);
  if (exact || prefix === '') return exact ?? entryById(tree, prefix);
  const matches = tree.entries.filter(({ id }) => id.startsWith(prefix));
  const [first] = matches;
  if (!first || matches.length === 1) return first ?? entryById(tree, prefix);
  throw new RyeError('ambiguous', `${matches.length} entries start with ${prefix}`, {
    hint: 'Give more characters of the id.',
    details: { matches: matches.slice(0, 10).map(({ id }) => id) },
  });
}

/** A list with room for `count` items, since growing a list copies it. */
export function listOf<T>(count: number): T[] {
  const list: T[] = [];
  list.length = count;
  return list;
}

/** The entries from a root to `id`, both included; empty for `null`. */
export function pathTo(tree: SessionTree, id: string | null): readonly TreeEntry[] {
  const { entries, byId } = tree;
  if (id === null) return [];
  let at: TreeEntry | undefined = entryById(tree, id);
  let index = byId.positionOf(id);
  // parents come before their children, so the path can't be longer
  const path = listOf<TreeEntry>(index + 1);
  let start = path.length;
  while (at) {
    start -= 1;
    path[start] = at;
    const parent: string | null = at.parent_id;
    if (parent === null) break;
    // mostly a parent is the entry before; that needs no look-up
    index = index > 0 && entries[index - 1]?.id === parent ? index - 1 : byId.positionOf(parent);
    at = entries[index];
  }
  return start === 0 ? path : path.slice(start);
}

/** Direct children of an entry, or the roots for `null`; in log order. */
export function childrenOf(tree: SessionTree, id: string | null): readonly TreeEntry[] {
  return tree.children.get(id) ?? [];
}

/** Returns the leaf of the branch that an entry is on: the head if it is below the entry, else its newest descendant. */
export function leafThrough(tree: SessionTree, id: string): string | null {
  const start = tree.byId.positionOf(id);
  const through = new Set([id]);
  let leaf = id;
  for (const entry of tree.entries.slice(start + 1)) {
    if (entry.parent_id === null || !through.has(entry.parent_id)) continue;
    through.add(entry.id);
    leaf = entry.id;
  }
  return tree.leafId !== null && through.has(tree.leafId) ? tree.leafId : leaf;
}

/** One line of a drawn tree. */
export interface TreeLine {
  readonly entry: TreeEntry;
  readonly depth: number;
  readonly label?: string;
  /** True for entries on the path from the root to the leaf. */
  readonly active: boolean;
}

/** All entries depth first, siblings in log order, with labels. */
export function treeLines(tree: SessionTree): readonly TreeLine[] {
  const active = new Set(pathTo(tree, tree.leafId).map(({ id }) => id));
  const lines: TreeLine[] = [];
  const stack = childrenOf(tree, null)
    .map((entry) => ({ entry, depth: 0 }))
    .toReversed();
  for (let top = stack.pop(); top; top = stack.pop()) {
    const { entry, depth } = top;
    const label = tree.labels.get(entry.id);
    lines.push({
      entry,
      depth,
      active: active.has(entry.id),
      ...(label === undefined ? {} : { label }),
    });
    for (const child of childrenOf(tree, entry.id).toReversed()) {
      stack.push({ entry: child, depth: depth + 1 });
    }
  }
  return lines;
}
