import { RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { LOG_START, leafAfter } from './cursor.ts';
import type { LogProblem } from './problem.ts';

/** An event that has a place in the session tree. `parent_id` is the one after repair. */
export type TreeEntry = (LogEvent | UnknownEvent) & {
  readonly id: string;
  readonly parent_id: string | null;
};

/** A log indexed as a tree. Several roots are legal. */
export interface SessionTree {
  /** In log order. */
  readonly entries: readonly TreeEntry[];
  readonly byId: ReadonlyMap<string, TreeEntry>;
  /** Children by parent id, in log order; roots under `null`. */
  readonly children: ReadonlyMap<string | null, readonly TreeEntry[]>;
  /** Resolved labels by target id: the newest in log order counts, an empty or null one clears. */
  readonly labels: ReadonlyMap<string, string>;
  readonly leafId: string | null;
  readonly problems: readonly LogProblem[];
}

/** Where an event stands, for problem reports. */
export type OffsetOf = (index: number) => number;

/**
 * Indexes a log in one pass. An entry whose parent is unknown is hung on the entry before it; one whose parent is
 * itself or stands later would make a loop and is hung there too, reported as an error; of two entries
 * with one id the first counts.
 */
export function buildTree(
  events: readonly (LogEvent | UnknownEvent)[],
  offsetOf: OffsetOf = () => 0,
): SessionTree {
  const entries: TreeEntry[] = [];
  const byId = new Map<string, TreeEntry>();
  const labels = new Map<string, string>();
  const problems: LogProblem[] = [];
  // only a damaged log needs it
  let allIds: Set<string | undefined> | undefined;
  let leafId = LOG_START.leafId;
  events.forEach((event, index) => {
    const { id } = event;
    if (id === undefined) return;
    if (byId.has(id)) {
      problems.push({
        kind: 'duplicate_id',
        offset: offsetOf(index),
        message: `entry ${id} stands twice in the log; the first one counts`,
      });
      return;
    }
    const parent = event.parent_id ?? null;
    // most entries hang on the one before them
    const fits = parent === null || parent === entries.at(-1)?.id || byId.has(parent);
    if (!fits) {
      allIds ??= new Set(events.map((other) => other.id));
      const late = allIds.has(parent);
      problems.push(parentProblem(id, parent, { late, offset: offsetOf(index) }));
    }
    const parent_id = fits ? parent : (entries.at(-1)?.id ?? null);
    const entry: TreeEntry =
      fits && event.parent_id !== undefined
        ? (event as TreeEntry)
        : ({ ...event, parent_id } as TreeEntry);
    entries.push(entry);
    byId.set(id, entry);
    applyLabel(labels, entry);
    leafId =
      entry.event_type === 'leaf'
        ? knownLeaf(leafAfter(leafId, entry), { byId, fallback: id })
        : id;
  });
  let children: SessionTree['children'] | undefined;
  return {
    entries,
    byId,
    labels,
    leafId,
    problems,
    // a context needs none of it
    get children() {
      children ??= childrenById(entries);
      return children;
    },
  };
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
        message: `the parent ${parent} of entry ${id} does not stand before it`,
      }
    : { kind: 'orphan', offset, message: `the parent ${parent} of entry ${id} is not in the log` };
}

/** A `leaf` event that names an entry which is not there moves nothing. */
function knownLeaf(
  leafId: string | null,
  { byId, fallback }: { readonly byId: ReadonlyMap<string, TreeEntry>; readonly fallback: string },
): string | null {
  return leafId === null || byId.has(leafId) ? leafId : fallback;
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

/** The entries from a root to `id`, both included; empty for `null`. */
export function pathTo(tree: SessionTree, id: string | null): readonly TreeEntry[] {
  const path: TreeEntry[] = [];
  const { entries, byId } = tree;
  let at = id === null ? undefined : entryById(tree, id);
  // mostly a parent is the entry before; that needs no look-up
  let index = at === entries.at(-1) ? entries.length - 1 : -1;
  while (at) {
    path.push(at);
    const parent: string | null = at.parent_id;
    if (parent === null) break;
    const before: TreeEntry | undefined = entries[index - 1];
    if (before?.id === parent) {
      at = before;
      index -= 1;
    } else {
      at = byId.get(parent);
      index = at === undefined ? -1 : indexOf(entries, at);
    }
  }
  return path.toReversed();
}

/** Position of an entry by its seq, which rises; -1 where a damaged log has it elsewhere. */
function indexOf(entries: readonly TreeEntry[], entry: TreeEntry): number {
  let low = 0;
  let high = entries.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((entries[middle]?.seq ?? 0) < entry.seq) low = middle + 1;
    else high = middle;
  }
  return entries[low] === entry ? low : -1;
}

/** Direct children of an entry, or the roots for `null`; in log order. */
export function childrenOf(tree: SessionTree, id: string | null): readonly TreeEntry[] {
  return tree.children.get(id) ?? [];
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
