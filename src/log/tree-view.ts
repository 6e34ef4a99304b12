import { type Message, textOf, toolCallsOf } from '../core/message.ts';
import { isKnown, type SessionTree, type TreeEntry } from './tree.ts';

/** The entries of a tree that a view shows. */
export const TREE_FILTERS = ['default', 'no-tools', 'user-only', 'labeled-only', 'all'] as const;
export type TreeFilter = (typeof TREE_FILTERS)[number];

/** One entry of a drawn tree. */
export interface TreeRow {
  readonly entry: TreeEntry;
  /** Id of the nearest shown ancestor; null for a root. */
  readonly parentId: string | null;
  /** Grows only where branches part, so that a long conversation stays at the left. */
  readonly depth: number;
  readonly label?: string;
  /** On the path from the root to the leaf. */
  readonly active: boolean;
  readonly leaf: boolean;
  /** Kind of the entry, and of a message its role. */
  readonly kind: string;
  readonly text: string;
}

export interface ViewOptions {
  readonly filter?: TreeFilter;
  /** Only entries whose label, kind and text contain all of these words; letter case does not matter. */
  readonly search?: string;
}

const MAX_TEXT = 200;

const SETTINGS: ReadonlySet<string> = new Set([
  'label',
  'leaf',
  'custom',
  'model_change',
  'thinking_change',
  'title',
  'context_edit',
  'rule_injection',
  'context_injected',
  'system_prompt',
]);

/**
 * The entries that a filter shows, depth first, the active branch first at each fork. Children of a hidden one hang
 * on the nearest one that is shown. Iterative: a path may have any length.
 */
export function viewTree(
  tree: SessionTree,
  { filter = 'default', search = '' }: ViewOptions = {},
): readonly TreeRow[] {
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const links = linksOf(tree, (entry) => isShown(tree, entry, { filter, words }));
  const { entries, labels } = tree;
  const rows: TreeRow[] = [];
  const stack: Pending[] = [];
  pushChildren(stack, links, { parent: NOWHERE, depth: 0 });
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { at, parent, depth } = next;
    const entry = entries[at];
    if (!entry) continue;
    rows.push(
      new Row(entry, {
        parentId: entries[parent]?.id ?? null,
        depth,
        label: labels.get(entry.id),
        active: links.active[at] === 1,
        leaf: at === links.leaf,
      }),
    );
    pushChildren(stack, links, { parent: at, depth });
  }
  return rows;
}

/** Describes its entry only when asked: few rows of a large tree are ever displayed. */
class Row implements TreeRow {
  readonly entry: TreeEntry;
  readonly parentId: string | null;
  readonly depth: number;
  readonly label?: string;
  readonly active: boolean;
  readonly leaf: boolean;
  #text: string | undefined;

  constructor(entry: TreeEntry, { parentId, depth, label, active, leaf }: Place) {
    this.entry = entry;
    this.parentId = parentId;
    this.depth = depth;
    if (label !== undefined) this.label = label;
    this.active = active;
    this.leaf = leaf;
  }

  get kind(): string {
    return kindOf(this.entry);
  }

  get text(): string {
    this.#text ??= describeEntry(this.entry);
    return this.#text;
  }
}

interface Place extends Pick<TreeRow, 'parentId' | 'depth' | 'active' | 'leaf'> {
  readonly label: string | undefined;
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
  /** The leaf; where it is not shown, the entry that it hangs on. */
  readonly leaf: number;
}

function linksOf(tree: SessionTree, shows: (entry: TreeEntry) => boolean): Links {
  const { entries, byId, leafId } = tree;
  const parents = parentsOf(tree);
  // for each entry the nearest shown one: itself or an ancestor
  const anchors = new Int32Array(entries.length);
  for (const [at, entry] of entries.entries()) {
    anchors[at] = shows(entry) ? at : (anchors[parents[at] ?? NOWHERE] ?? NOWHERE);
  }
  const firstChild = new Int32Array(entries.length + 1).fill(NOWHERE);
  const nextSibling = new Int32Array(entries.length).fill(NOWHERE);
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    if (anchors[at] !== at) continue;
    const slot = (anchors[parents[at] ?? NOWHERE] ?? NOWHERE) + 1;
    nextSibling[at] = firstChild[slot] ?? NOWHERE;
    firstChild[slot] = at;
  }
  const active = new Uint8Array(entries.length);
  const leaf = leafId === null ? NOWHERE : byId.positionOf(leafId);
  for (let at = leaf; at !== NOWHERE; at = parents[at] ?? NOWHERE) active[at] = 1;
  return { firstChild, nextSibling, active, leaf: anchors[leaf] ?? NOWHERE };
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

interface Pending {
  readonly at: number;
  readonly parent: number;
  readonly depth: number;
}

/** In the order of a stack: the active branch comes off it first, then the others in log order. */
function pushChildren(
  stack: Pending[],
  { firstChild, nextSibling, active }: Links,
  { parent, depth }: Omit<Pending, 'at'>,
): void {
  const siblings: number[] = [];
  let at = firstChild[parent + 1] ?? NOWHERE;
  for (; at !== NOWHERE; at = nextSibling[at] ?? NOWHERE) siblings.push(at);
  const own = siblings.length > 1 && parent !== NOWHERE ? depth + 1 : depth;
  const first = siblings.find((sibling) => active[sibling] === 1);
  for (const sibling of siblings.toReversed()) {
    if (sibling !== first) stack.push({ at: sibling, parent, depth: own });
  }
  if (first !== undefined) stack.push({ at: first, parent, depth: own });
}

function isShown(
  tree: SessionTree,
  entry: TreeEntry,
  { filter, words }: { readonly filter: TreeFilter; readonly words: readonly string[] },
): boolean {
  if (!passes(tree, entry, filter)) return false;
  if (words.length === 0) return true;
  const label = tree.labels.get(entry.id) ?? '';
  const text = `${label} ${kindOf(entry)} ${describeEntry(entry)}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** True if a filter shows an entry; an answer with only calls is shown at the head and with the calls. */
function passes(tree: SessionTree, entry: TreeEntry, filter: TreeFilter): boolean {
  switch (filter) {
    case 'all':
      return true;
    case 'labeled-only':
      return tree.labels.has(entry.id);
    case 'user-only':
      return roleOf(entry) === 'user';
    case 'no-tools':
      return roleOf(entry) !== 'tool_result' && !isWordless(tree, entry) && isUsual(tree, entry);
    case 'default':
      return isUsual(tree, entry);
  }
}

function roleOf(entry: TreeEntry): Message['role'] | undefined {
  return isKnown(entry, 'message') ? entry.payload.message.role : undefined;
}

function isHidden(entry: TreeEntry): boolean {
  return isKnown(entry, 'custom_message') && !entry.payload.display;
}

function isUsual(tree: SessionTree, entry: TreeEntry): boolean {
  if (SETTINGS.has(entry.event_type) || isHidden(entry)) return false;
  return !isWordless(tree, entry) || callsOf(entry).length > 0;
}

/** An answer that was not cut and has no text. */
function isWordless(tree: SessionTree, entry: TreeEntry): boolean {
  if (!isKnown(entry, 'message') || entry.id === tree.leafId) return false;
  const { message } = entry.payload;
  return (
    message.role === 'assistant' &&
    message.stop_reason !== 'aborted' &&
    textOf(message.content).trim() === ''
  );
}

function callsOf(entry: TreeEntry): readonly unknown[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'assistant') return [];
  return toolCallsOf(entry.payload.message);
}

function kindOf(entry: TreeEntry): string {
  return roleOf(entry) ?? entry.event_type;
}

/** Describes an entry in one line of at most 200 characters. */
function describeEntry(entry: TreeEntry): string {
  const text = entryText(entry).replaceAll(/\s+/g, ' ').trim();
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT - 1)}…`;
}

function entryText(entry: TreeEntry): string {
  if (isKnown(entry, 'message')) return messageText(entry.payload.message);
  if (isKnown(entry, 'custom_message')) {
    return `${entry.payload.custom_type}: ${entry.payload.content.slice(0, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'compaction')) {
    return `${entry.payload.tokens_before} tokens: ${entry.payload.summary.slice(0, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'branch_summary')) return entry.payload.summary.slice(0, MAX_TEXT);
  if (isKnown(entry, 'label')) {
    return `${entry.payload.target_id}: ${entry.payload.label ?? '(cleared)'}`;
  }
  if (isKnown(entry, 'title')) return entry.payload.title;
  if (isKnown(entry, 'leaf')) return `to ${entry.payload.target_id ?? 'the root'}`;
  return otherText(entry);
}

function otherText(entry: TreeEntry): string {
  if (isKnown(entry, 'model_change')) return `${entry.payload.provider}/${entry.payload.model}`;
  if (isKnown(entry, 'thinking_change')) return entry.payload.level;
  if (isKnown(entry, 'custom')) return entry.payload.custom_type;
  if (isKnown(entry, 'context_edit')) return `${entry.payload.action} ${entry.payload.target_id}`;
  if (isKnown(entry, 'system_prompt')) {
    const { text, tools } = entry.payload;
    return `${tools.length} tools ${text.slice(0, MAX_TEXT)}`;
  }
  if (isKnown(entry, 'rule_injection')) {
    return entry.payload.rules.map(({ name }) => name).join(', ');
  }
  return '';
}

function messageText(message: Message): string {
  const text = message.content
    .map((block) => (block.type === 'text' ? block.text.slice(0, MAX_TEXT * 2) : ''))
    .join(' ');
  if (message.role === 'tool_result') return `${message.name} ${message.outcome}: ${text}`;
  if (message.role === 'user') return text;
  const calls = toolCallsOf(message).map(({ name }) => `→ ${name}`);
  const cut = message.stop_reason === 'aborted' ? ['(cut)'] : [];
  return [text.trim(), ...calls, ...cut].filter((part) => part !== '').join(' ');
}
